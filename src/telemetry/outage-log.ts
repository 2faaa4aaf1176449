/**
 * Log lines about a repeated failure, such as an unavailable database: one when it begins, a reminder every minute, one
 * when it works again. With a reason, never a stack: an outage is not a bug. Not for single requests; those have
 * `telemetry/rate-limited-logger.ts`.
 */

import { messageWithCause } from '../errors.ts';
import type { Logger } from './logger.ts';

export const REMINDER_MS = 60_000;

interface OutageMessages {
  readonly failing: string;
  readonly working: string;
}

/** Beyond what each outage log has: for something of which one part may fail while another works. */
interface OutageOptions {
  /** How long nothing may have failed before a success ends the outage. */
  readonly quietMs?: number;
  /** A monotonic clock, in milliseconds. */
  readonly now?: () => number;
}

export class OutageLog {
  readonly #logger: Pick<Logger, 'warn' | 'info'>;
  readonly #messages: OutageMessages;
  readonly #now: () => number;
  readonly #quietMs: number;
  #failedAt = Number.NEGATIVE_INFINITY;
  #loggedAt = Number.NEGATIVE_INFINITY;
  #failuresNotLogged = 0;
  #isFailing = false;

  constructor(logger: Pick<Logger, 'warn' | 'info'>, messages: OutageMessages, options: OutageOptions = {}) {
    const { quietMs = 0, now = () => performance.now() } = options;
    this.#logger = logger;
    this.#messages = messages;
    this.#quietMs = quietMs;
    this.#now = now;
  }

  failed(error: unknown): void {
    this.#isFailing = true;
    this.#failuresNotLogged += 1;
    this.#failedAt = this.#now();
    if (this.#failedAt - this.#loggedAt < REMINDER_MS) return;
    this.#loggedAt = this.#failedAt;
    this.#logger.warn({ reason: messageWithCause(error), failures: this.#failuresNotLogged }, this.#messages.failing);
    this.#failuresNotLogged = 0;
  }

  worked(): void {
    if (!this.#isFailing || this.#now() - this.#failedAt < this.#quietMs) return;
    this.#isFailing = false;
    this.#loggedAt = Number.NEGATIVE_INFINITY;
    this.#failuresNotLogged = 0;
    this.#logger.info(this.#messages.working);
  }
}
