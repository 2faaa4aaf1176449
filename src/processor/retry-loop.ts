/**
 * Retries the processor's work while the store or the log is unavailable. Each reason is logged once and repeated every
 * minute until everything works again, which is logged too. Any other error is rethrown: it ends the thread and with it
 * the process, and the log replays.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { LogCorruptError } from '../log.ts';
import { type Logger, REMINDER_MS } from '../telemetry/logger.ts';
import { isRetryable } from '../runtime/unavailable.ts';

const RETRY_MS = 500;

export class RetryLoop {
  readonly #logger: Logger;
  readonly #onRetry: () => void;
  /** Tasks whose last attempt failed, with the reason, and the reasons logged since everything last worked. */
  readonly #waiting = new Map<string, string>();
  readonly #loggedReasons = new Set<string>();
  readonly #now: () => number;
  #loggedAt = Number.NEGATIVE_INFINITY;

  /** `now` reads a monotonic clock. */
  constructor(logger: Logger, onRetry: () => void, now = () => performance.now()) {
    this.#logger = logger;
    this.#onRetry = onRetry;
    this.#now = now;
  }

  /** Why a task is being retried; null while all of them work. */
  get problem(): string | null {
    const [reason] = this.#waiting.values();
    return reason ?? null;
  }

  /** What `work` resolves with; false when it resolves with nothing or has to be retried. `task` names the work. */
  async guard(task: string, work: () => Promise<boolean | void>): Promise<boolean> {
    try {
      const result = await work();
      this.#waiting.delete(task);
      if (this.#waiting.size === 0 && this.#loggedReasons.size > 0) {
        this.#logger.info('the processor continues');
        this.#loggedReasons.clear();
      }
      return result === true;
    } catch (error) {
      if (!isRetryable(error)) throw error;
      this.#onRetry();
      const reason = error.message;
      if (!this.#loggedReasons.has(reason) || this.#now() - this.#loggedAt >= REMINDER_MS) {
        this.#loggedAt = this.#now();
        this.#logger.error({ reason }, messageFor(error));
      }
      this.#waiting.set(task, reason);
      this.#loggedReasons.add(reason);
      await sleep(RETRY_MS);
      return false;
    }
  }
}

/** A damaged log may have lost records, so the line does not promise that they are safe. */
function messageFor(error: Error): string {
  return error instanceof LogCorruptError
    ? 'the processor waits: part of the log is damaged, lost or cannot be read; new requests are accepted and kept'
    : 'the processor waits; what was accepted is safe in the log';
}
