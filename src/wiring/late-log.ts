/**
 * The log of a server that started while its database or Kafka was unavailable. A local log continues from the position
 * that the database has processed, and Kafka must respond before it can be opened; so the log is opened once that is
 * possible, and every call fails as unavailable until then. If opening fails permanently, the server stops.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { type LogAppender, type LogReader, LogUnavailableError, LogUnreachableError } from '../log.ts';
import { StoreUnavailableError } from '../store-writer.ts';
import { messageOf } from '../errors.ts';

const RETRY_MS = 250;

/** Whether the error is temporary: the store or the log does not respond at the moment. */
export function isAway(error: unknown): error is Error {
  return (
    error instanceof StoreUnavailableError ||
    error instanceof LogUnavailableError ||
    error instanceof LogUnreachableError
  );
}

/** Retries until the log is open; only unavailability is retried. */
class LateOpening<Log extends { close(): Promise<void> }> {
  #log: Log | null = null;
  #isClosed = false;
  #why: string;
  readonly #opening: Promise<void>;

  constructor(open: () => Promise<Log>, why: string, onRefused: (message: string) => void) {
    this.#why = why;
    this.#opening = this.#openWhenPossible(open).catch((error: unknown) => {
      onRefused(messageOf(error));
    });
  }

  /** Throws `LogUnavailableError` until it is open. */
  get opened(): Log {
    if (this.#log === null) throw new LogUnavailableError(this.#why);
    return this.#log;
  }

  /** Why it is not open yet; null once it is. */
  get problem(): string | null {
    return this.#log === null ? this.#why : null;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#opening;
    await this.#log?.close();
  }

  async #openWhenPossible(open: () => Promise<Log>): Promise<void> {
    await sleep(RETRY_MS);
    while (!this.#isClosed && this.#log === null) {
      try {
        this.#log = await open();
      } catch (error) {
        if (!isAway(error)) throw error;
        this.#why = error.message;
        await sleep(RETRY_MS);
      }
    }
  }
}

/** Opens the log immediately, or in the background if the store or the log is unavailable. */
async function nowOrLater<Log extends { close(): Promise<void> }>(
  open: () => Promise<Log>,
  onRefused: (message: string) => void,
  make: (late: LateOpening<Log>) => Log,
): Promise<Log> {
  try {
    return await open();
  } catch (error) {
    if (!isAway(error)) throw error;
    return make(new LateOpening(open, error.message, onRefused));
  }
}

export function openAppenderNowOrLater(
  open: () => Promise<LogAppender>,
  onRefused: (message: string) => void,
): Promise<LogAppender> {
  return nowOrLater(open, onRefused, (late) => ({
    append: async (entry) => late.opened.append(entry),
    problem: () => late.problem ?? late.opened.problem(),
    close: () => late.close(),
  }));
}

/** `name` of the reader throws before it is open. */
export function openReaderNowOrLater(
  open: () => Promise<LogReader>,
  onRefused: (message: string) => void,
): Promise<LogReader> {
  return nowOrLater(open, onRefused, (late) => ({
    get name() {
      return late.opened.name;
    },
    // Only the shared log (Kafka) is opened late for reading.
    splitsRequests: true,
    partitions: async () => late.opened.partitions(),
    read: async (...args) => late.opened.read(...args),
    headers: async (...args) => late.opened.headers(...args),
    find: async (...args) => late.opened.find(...args),
    backlogBytes: async (...args) => late.opened.backlogBytes(...args),
    traceIdAt: async (...args) => late.opened.traceIdAt(...args),
    missing: async (...args) => late.opened.missing(...args),
    lost: async (...args) => late.opened.lost(...args),
    readAgainStatement: async (partition) => {
      const statement = await late.opened.readAgainStatement?.(partition);
      if (statement === undefined) throw new Error('the log has no such statement');
      return statement;
    },
    commit: async (...args) => late.opened.commit(...args),
    newestReceivedAt: async () => late.opened.newestReceivedAt(),
    close: () => late.close(),
  }));
}
