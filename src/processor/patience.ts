/**
 * Waiting where waiting helps: a store or a log that cannot be used now. Each reason is logged once, and again a minute
 * after the last such line, until everything works again, which is logged too. Any other error is thrown on: it ends the thread, and with it the process, and the
 * log replays.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { LogCorruptError } from '../log.ts';
import type { Logger } from '../telemetry/logger.ts';
import { REMINDER_MS } from '../telemetry/outage-log.ts';
import { isWorthWaiting } from './failures.ts';

const RETRY_MS = 500;

export class Patience {
  readonly #logger: Logger;
  readonly #onRetry: () => void;
  /** What could not be done at the last try, and the reasons that were told since all was well. */
  readonly #waiting = new Set<string>();
  readonly #toldReasons = new Set<string>();
  readonly #now: () => number;
  #toldAt = Number.NEGATIVE_INFINITY;

  /** `now` is of a clock that nobody sets. */
  constructor(logger: Logger, onRetry: () => void, now = () => performance.now()) {
    this.#logger = logger;
    this.#onRetry = onRetry;
    this.#now = now;
  }

  /** What `work` says, false if it says nothing or had to wait. `task` tells apart what is waited for. */
  async guard(task: string, work: () => Promise<boolean | void>): Promise<boolean> {
    try {
      const result = await work();
      this.#waiting.delete(task);
      if (this.#waiting.size === 0 && this.#toldReasons.size > 0) {
        this.#logger.info('the processor goes on');
        this.#toldReasons.clear();
      }
      return result === true;
    } catch (error) {
      if (!isWorthWaiting(error)) throw error;
      this.#onRetry();
      const reason = error.message;
      if (!this.#toldReasons.has(reason) || this.#now() - this.#toldAt >= REMINDER_MS) {
        this.#toldAt = this.#now();
        this.#logger.error({ reason }, wordsFor(error));
      }
      this.#waiting.add(task);
      this.#toldReasons.add(reason);
      await sleep(RETRY_MS);
      return false;
    }
  }
}

/** Of a damaged log nobody can promise that all of it is there. */
function wordsFor(error: Error): string {
  return error instanceof LogCorruptError
    ? 'the processor waits: the log is damaged or has lost records; new requests are accepted and kept'
    : 'the processor waits; what was accepted is safe in the log';
}
