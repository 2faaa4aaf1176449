/**
 * Log lines about single requests, at most a few per second: a client that sends garbage in a loop must not fill the
 * operator's disk. The next line that is written has the number of omitted ones; the metrics count everything.
 */

import type { Logger } from 'pino';
import { SECOND_MS } from '../model.ts';

const LINES_PER_SECOND_MAX = 10;

interface RequestLine {
  /** Absent for what is not about one request. */
  readonly traceId?: string;
  readonly reason?: string;
  readonly err?: unknown;
}

export class RateLimitedLogger {
  readonly #logger: Logger;
  /** One each, so that nonsense from clients never hides an error of ours. */
  readonly #infos: LineBudget;
  readonly #errors: LineBudget;

  constructor(logger: Logger, now: () => number) {
    this.#logger = logger;
    this.#infos = new LineBudget(now);
    this.#errors = new LineBudget(now);
  }

  info(line: RequestLine, message: string): void {
    const leftOut = this.#infos.take();
    if (leftOut !== undefined) this.#logger.info(fieldsOf(line, leftOut), message);
  }

  error(line: RequestLine, message: string): void {
    const leftOut = this.#errors.take();
    if (leftOut !== undefined) this.#logger.error(fieldsOf(line, leftOut), message);
  }
}

class LineBudget {
  readonly #now: () => number;
  #second = 0;
  #lines = 0;
  #leftOut = 0;

  constructor(now: () => number) {
    this.#now = now;
  }

  /** How many lines were left out before this one, or undefined when this one is left out as well. */
  take(): number | undefined {
    const second = Math.floor(this.#now() / SECOND_MS);
    if (second !== this.#second) {
      this.#second = second;
      this.#lines = 0;
    }
    this.#lines += 1;
    if (this.#lines > LINES_PER_SECOND_MAX) {
      this.#leftOut += 1;
      return undefined;
    }
    const leftOut = this.#leftOut;
    this.#leftOut = 0;
    return leftOut;
  }
}

function fieldsOf({ traceId, ...rest }: RequestLine, leftOut: number): object {
  return { trace_id: traceId, ...rest, ...(leftOut > 0 && { lines_left_out: leftOut }) };
}
