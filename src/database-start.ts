/**
 * The start of a server on a database that may be away. `prepare` is everything that has to be true of a database before
 * it is used: the version of the server, the tables, that it is the right one (`prepareDatabase` in `opening.ts`). It is
 * tried until the database first responds. A database that responds and is refused rejects `prepared`: only being away
 * is waited for. Until then the server runs, is not ready, and nothing may ask the database (`trouble`).
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { OperatorError } from './errors.ts';
import type { Logger } from './logger.ts';
import { OutageLog } from './outage-log.ts';

const RETRY_MS = 500;
/** One that is away is found out sooner, by the timeout of a connection. This is for one that has much to migrate. */
const FIRST_LOOK_MS = 15_000;

/** It does not respond now, and may soon. */
export class DatabaseAwayError extends OperatorError {}

export class DatabaseStart {
  readonly #prepare: () => Promise<void>;
  readonly #outage: OutageLog;
  readonly #firstFailure = Promise.withResolvers<void>();
  #trouble: string | null = 'it has not responded yet, or its tables are being brought up to date';
  /** Called when `trouble` changes. */
  onTrouble: () => void = () => undefined;
  /** Rejects when the database refuses: the server must not go on. */
  readonly prepared: Promise<void>;

  constructor(prepare: () => Promise<void>, logger: Logger) {
    this.#prepare = prepare;
    this.#outage = new OutageLog(logger, {
      failing: 'the database cannot be reached: the server runs without it, is not ready, and goes on trying',
      working: 'the database has been reached, and is up to date',
    });
    this.prepared = this.#tryUntilPrepared();
    // Told by whoever waits for it.
    this.prepared.catch(() => undefined);
  }

  /** Why the database may not be used yet; null once it may. */
  get trouble(): string | null {
    return this.#trouble;
  }

  /** Resolves when it is prepared, found to be away, or takes long. */
  async firstLook(): Promise<void> {
    const timeout = new AbortController();
    const late = sleep(FIRST_LOOK_MS, undefined, { signal: timeout.signal }).catch(() => undefined);
    await Promise.race([this.prepared, this.#firstFailure.promise, late]).finally(() => timeout.abort());
  }

  async #tryUntilPrepared(): Promise<void> {
    for (;;) {
      try {
        await this.#prepare();
        break;
      } catch (error) {
        if (!(error instanceof DatabaseAwayError)) throw error;
        this.#outage.failed(error.cause ?? error);
        this.#setTrouble(error.cause instanceof Error ? error.cause.message : error.message);
        this.#firstFailure.resolve();
      }
      await sleep(RETRY_MS);
    }
    this.#outage.worked();
    this.#setTrouble(null);
  }

  #setTrouble(trouble: string | null): void {
    if (trouble === this.#trouble) return;
    this.#trouble = trouble;
    this.onTrouble();
  }
}
