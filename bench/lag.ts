/**
 * How far reading back is behind, as any client with a secret key can see it: `GET /ledger` says how many events were
 * received and how many of them are still pending, and the lag is how long ago the oldest pending one was received. The
 * server's own gauge is not used: it is set by the thread that may be the one that is stuck.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { Reader } from './reading.ts';
import type { Server } from './servers.ts';

const POLL_MILLISECONDS = 200;

export interface LagSample {
  /** Milliseconds, as `performance.now()`. */
  readonly at: number;
  readonly received: number;
  /** Received and no longer pending. */
  readonly done: number;
  readonly lagSeconds: number;
}

/** The lag when `done` of the events that were counted by `history` are done. Between two counts events came evenly. */
export function lagSecondsOf(
  history: readonly Pick<LagSample, 'at' | 'received'>[],
  { at, done }: Pick<LagSample, 'at' | 'done'>,
): number {
  const next = history.findIndex(({ received }) => received > done);
  const after = history[next];
  if (after === undefined) return 0;
  const before = history[next - 1] ?? after;
  const share = after.received === before.received ? 0 : (done - before.received) / (after.received - before.received);
  const receivedAt = before.at + Math.max(0, share) * (after.at - before.at);
  return Math.max(0, at - receivedAt) / 1000;
}

export class LagMeter {
  readonly samples: LagSample[] = [];
  /** Why the server could not be asked. */
  problem: Error | null = null;
  private readonly reader: Reader;
  private readonly ended: Promise<void>;
  private isEnding = false;
  /** The first sample that may still have pending events. */
  private pendingFrom = 0;

  constructor(server: Server) {
    this.reader = new Reader(server);
    this.ended = this.poll().catch((error: unknown) => {
      this.problem = error instanceof Error ? error : new Error(String(error));
    });
  }

  /** The newest sample; undefined before the first. */
  get latest(): LagSample | undefined {
    return this.samples.at(-1);
  }

  /** The first sample from now on. */
  async next(): Promise<LagSample> {
    const from = performance.now();
    for (;;) {
      this.assertWell();
      if (this.latest !== undefined && this.latest.at > from) return this.latest;
      await sleep(POLL_MILLISECONDS / 10);
    }
  }

  /** Waits until nothing is pending; returns how many seconds that took. */
  async drained(secondsMax: number): Promise<number> {
    const from = performance.now();
    for (;;) {
      const { received, done } = await this.next();
      const seconds = (performance.now() - from) / 1000;
      if (received === done) return seconds;
      if (seconds > secondsMax) throw new Error(`events are still pending ${secondsMax} s after the last request`);
    }
  }

  since(at: number): LagSample[] {
    return this.samples.filter((sample) => sample.at >= at);
  }

  async stop(): Promise<void> {
    this.isEnding = true;
    await this.ended;
    this.reader.close();
    this.assertWell();
  }

  assertWell(): void {
    if (this.problem !== null) throw this.problem;
  }

  private async poll(): Promise<void> {
    while (!this.isEnding) {
      await this.sample();
      await sleep(POLL_MILLISECONDS);
    }
  }

  private async sample(): Promise<void> {
    const { received, pending } = await this.reader.ledger();
    const at = performance.now();
    const done = received - pending;
    while ((this.samples[this.pendingFrom + 1]?.received ?? Number.POSITIVE_INFINITY) <= done) this.pendingFrom += 1;
    const history = [...this.samples.slice(this.pendingFrom), { at, received }];
    this.samples.push({ at, received, done, lagSeconds: lagSecondsOf(history, { at, done }) });
  }
}
