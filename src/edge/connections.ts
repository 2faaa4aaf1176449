/**
 * The open connections of one edge, and the limit on them: an equal share of what the process may have. When a connection
 * arrives over the limit, one without a request in progress is closed instead: it costs its client a reconnect, where
 * refusing the newest would let idle connections block all other clients. Only if all are busy is the newest closed.
 *
 * Invariant: the count never exceeds the limit. A limit over all edges would not do: an edge without idle connections
 * could only close its newest. At most LOOKS_MAX connections are looked at per arrival.
 */

import type { Socket } from 'node:net';
import type { Logger } from '../telemetry/logger.ts';
import { METRIC, type MetricsWriter } from '../telemetry/metrics.ts';

/** Busy sockets found on the way go to the back of the queue, so that the next arrival does not find them again. */
const LOOKS_MAX = 64;
const LOG_INTERVAL_MS = 10_000;

export interface ConnectionsParts {
  readonly max: number;
  readonly metrics: MetricsWriter;
  readonly logger: Logger;
  /** Whether a request is under way: one that is being received, or has no response yet. */
  readonly isBusy: (socket: Socket) => boolean;
}

export class Connections {
  readonly #parts: ConnectionsParts;
  /** In the order in which they arrived, or were last found busy. */
  readonly #open = new Set<Socket>();
  #closedSinceLog = 0;
  #loggedAt = Number.NEGATIVE_INFINITY;

  constructor(parts: ConnectionsParts) {
    this.#parts = parts;
  }

  [Symbol.iterator](): Iterator<Socket> {
    return this.#open.values();
  }

  get size(): number {
    return this.#open.size;
  }

  add(socket: Socket): void {
    const { max, metrics } = this.#parts;
    this.#open.add(socket);
    socket.once('close', () => this.#open.delete(socket));
    if (this.#open.size <= max) return;
    const idle = this.#oldestIdle(socket);
    metrics.inc(idle === undefined ? METRIC.connections_over_limit_newest : METRIC.connections_over_limit_idle);
    this.#close(idle ?? socket);
    this.#log();
  }

  #oldestIdle(newest: Socket): Socket | undefined {
    let looks = 0;
    for (const socket of this.#open) {
      if (socket === newest || looks === LOOKS_MAX) return undefined;
      if (!this.#parts.isBusy(socket)) return socket;
      looks += 1;
      this.#open.delete(socket);
      this.#open.add(socket);
    }
    return undefined;
  }

  /** Counted at once: the descriptor is free before 'close' fires. */
  #close(socket: Socket): void {
    this.#open.delete(socket);
    socket.destroy();
  }

  #log(): void {
    this.#closedSinceLog += 1;
    const now = performance.now();
    if (now - this.#loggedAt < LOG_INTERVAL_MS) return;
    this.#parts.logger.warn(
      { connections_max: this.#parts.max, closed: this.#closedSinceLog },
      'SLUICE_CONNECTIONS_MAX is reached: idle connections are closed for new ones',
    );
    this.#loggedAt = now;
    this.#closedSinceLog = 0;
  }
}
