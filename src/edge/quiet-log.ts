/**
 * Log lines about single requests, at most a few a second: a client that sends nonsense in a loop must not fill the
 * operator's disk. What was left out is counted on the next line that is written; the metrics count everything.
 */

import type { Logger } from 'pino';

const LINES_PER_SECOND_MAX = 10;
const SECOND_MS = 1_000;

export interface RequestLine {
  readonly traceId: string;
  readonly reason?: string;
  readonly err?: unknown;
}

export class QuietLog {
  readonly #logger: Logger;
  readonly #now: () => number;
  #second = 0;
  #lines = 0;
  #leftOut = 0;

  constructor(logger: Logger, now: () => number) {
    this.#logger = logger;
    this.#now = now;
  }

  info(line: RequestLine, message: string): void {
    if (this.#mayWrite()) this.#logger.info(this.#counted(line), message);
  }

  error(line: RequestLine, message: string): void {
    if (this.#mayWrite()) this.#logger.error(this.#counted(line), message);
  }

  #mayWrite(): boolean {
    const second = Math.floor(this.#now() / SECOND_MS);
    if (second !== this.#second) {
      this.#second = second;
      this.#lines = 0;
    }
    this.#lines += 1;
    if (this.#lines <= LINES_PER_SECOND_MAX) return true;
    this.#leftOut += 1;
    return false;
  }

  #counted({ traceId, ...rest }: RequestLine): object {
    const leftOut = this.#leftOut;
    this.#leftOut = 0;
    return { trace_id: traceId, ...rest, ...(leftOut > 0 && { lines_left_out: leftOut }) };
  }
}
