/**
 * Log lines about something that fails again and again, such as a database that is away: one when it begins, a reminder
 * a minute while it goes on, one when it works again. Reasons in words, never a stack: an outage is not a bug. Not for
 * single requests; those have `edge/quiet-log.ts`.
 */

import type { Logger } from './logger.ts';

export const REMINDER_MS = 60_000;

export interface OutageWords {
  readonly failing: string;
  /** Left out where nothing tells when it works again. */
  readonly working?: string;
}

export class OutageLog {
  readonly #logger: Pick<Logger, 'warn' | 'info'>;
  readonly #words: OutageWords;
  readonly #now: () => number;
  #toldAt = Number.NEGATIVE_INFINITY;
  #failuresNotTold = 0;
  #isFailing = false;

  /** `now` is of a clock that nobody sets. */
  constructor(logger: Pick<Logger, 'warn' | 'info'>, words: OutageWords, now = () => performance.now()) {
    this.#logger = logger;
    this.#words = words;
    this.#now = now;
  }

  failed(error: unknown): void {
    this.#isFailing = true;
    this.#failuresNotTold += 1;
    if (this.#now() - this.#toldAt < REMINDER_MS) return;
    this.#toldAt = this.#now();
    this.#logger.warn({ reason: reasonOf(error), failures: this.#failuresNotTold }, this.#words.failing);
    this.#failuresNotTold = 0;
  }

  worked(): void {
    if (!this.#isFailing) return;
    this.#isFailing = false;
    this.#toldAt = Number.NEGATIVE_INFINITY;
    this.#failuresNotTold = 0;
    if (this.#words.working !== undefined) this.#logger.info(this.#words.working);
  }
}

/** With what is behind it, so that the line says whether a file is locked or a network is down. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { message, cause } = error;
  return cause instanceof Error && !message.includes(cause.message) ? `${message}: ${cause.message}` : message;
}
