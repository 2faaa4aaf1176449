/**
 * Logs for operators: JSON lines on stderr, few, without personal data and without keys. What people read (the text at
 * the first start, the output of commands) goes to stdout instead. Written synchronously, so that the last line before
 * a crash is not lost.
 */

import { destination, type Logger, pino, stdTimeFunctions } from 'pino';
import { messageWithCause } from '../errors.ts';
import { SECOND_MS } from '../model.ts';

export type { Logger } from 'pino';

export function createLogger(level: string, thread: string): Logger {
  return pino(
    {
      level,
      base: { thread },
      timestamp: stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
    },
    destination({ dest: 2, sync: true }),
  );
}

export const REMINDER_MS = 60_000;

interface OutageMessages {
  readonly failing: string;
  readonly working: string;
}

/**
 * About a repeated failure, such as an unavailable database: one line when it begins, a reminder every minute, one when it
 * works again. With a reason, never a stack: an outage is not a bug.
 */
export class OutageLog {
  readonly #logger: Pick<Logger, 'warn' | 'info'>;
  readonly #messages: OutageMessages;
  readonly #quietMs: number;
  #failedAt = Number.NEGATIVE_INFINITY;
  #loggedAt = Number.NEGATIVE_INFINITY;
  #failuresNotLogged = 0;
  #isFailing = false;

  /** `quietMs`: how long nothing may have failed before a success ends it, where one part may fail while another works. */
  constructor(logger: Pick<Logger, 'warn' | 'info'>, messages: OutageMessages, quietMs = 0) {
    this.#logger = logger;
    this.#messages = messages;
    this.#quietMs = quietMs;
  }

  failed(error: unknown): void {
    this.#isFailing = true;
    this.#failuresNotLogged += 1;
    this.#failedAt = performance.now();
    if (this.#failedAt - this.#loggedAt < REMINDER_MS) return;
    this.#loggedAt = this.#failedAt;
    this.#logger.warn({ reason: messageWithCause(error), failures: this.#failuresNotLogged }, this.#messages.failing);
    this.#failuresNotLogged = 0;
  }

  worked(): void {
    if (!this.#isFailing || performance.now() - this.#failedAt < this.#quietMs) return;
    this.#isFailing = false;
    this.#loggedAt = Number.NEGATIVE_INFINITY;
    this.#failuresNotLogged = 0;
    this.#logger.info(this.#messages.working);
  }
}

const LINES_PER_SECOND_MAX = 10;

interface RequestLine {
  /** Absent for what is not about one request. */
  readonly traceId?: string;
  readonly reason?: string;
  readonly err?: unknown;
}

/**
 * About single requests, at most a few per second: a client that sends garbage in a loop must not fill the operator's
 * disk. The next line that is written has the number of omitted ones; the metrics count everything.
 */
export class RateLimitedLogger {
  readonly #logger: Logger;
  readonly #now: () => number;
  /** One each, so that nonsense from clients never hides an error of ours. */
  readonly #budgets = {
    info: { second: 0, lines: 0, leftOut: 0 },
    error: { second: 0, lines: 0, leftOut: 0 },
  };

  constructor(logger: Logger, now: () => number) {
    this.#logger = logger;
    this.#now = now;
  }

  info(line: RequestLine, message: string): void {
    this.#write('info', line, message);
  }

  error(line: RequestLine, message: string): void {
    this.#write('error', line, message);
  }

  #write(level: 'info' | 'error', { traceId, ...rest }: RequestLine, message: string): void {
    const budget = this.#budgets[level];
    const second = Math.floor(this.#now() / SECOND_MS);
    if (second !== budget.second) Object.assign(budget, { second, lines: 0 });
    budget.lines += 1;
    if (budget.lines > LINES_PER_SECOND_MAX) {
      budget.leftOut += 1;
      return;
    }
    const leftOut = budget.leftOut > 0 && { lines_left_out: budget.leftOut };
    this.#logger[level]({ trace_id: traceId, ...rest, ...leftOut }, message);
    budget.leftOut = 0;
  }
}
