/**
 * The log of a server that started while its database or Kafka was unavailable. A local log continues from the position
 * that the database has processed, and Kafka must respond before it can be opened; so the log is opened once that is
 * possible, and every call fails as unavailable until then. If opening fails permanently, the server stops.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { type LogAppender, LogUnreachableError, type LogEntry, type LogReader, LogUnavailableError } from '../log.ts';
import { StoreUnavailableError } from '../store-writer.ts';
import { messageOf } from '../errors.ts';

const RETRY_MS = 250;

/** Whether the error is temporary: the store or the log does not respond at the moment. */
function isAway(error: unknown): error is Error {
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
export async function openAppenderNowOrLater(
  open: () => Promise<LogAppender>,
  onRefused: (message: string) => void,
): Promise<LogAppender> {
  try {
    return await open();
  } catch (error) {
    if (!isAway(error)) throw error;
    return new LateAppender(new LateOpening(open, error.message, onRefused));
  }
}

/** The same for a reader. `name` cannot be read before it is open. */
export async function openReaderNowOrLater(
  open: () => Promise<LogReader>,
  onRefused: (message: string) => void,
): Promise<LogReader> {
  try {
    return await open();
  } catch (error) {
    if (!isAway(error)) throw error;
    return new LateReader(new LateOpening(open, error.message, onRefused));
  }
}

class LateAppender implements LogAppender {
  readonly #late: LateOpening<LogAppender>;

  constructor(late: LateOpening<LogAppender>) {
    this.#late = late;
  }

  async append(entry: LogEntry): Promise<void> {
    return this.#late.opened.append(entry);
  }

  problem(): string | null {
    return this.#late.problem ?? this.#late.opened.problem();
  }

  close(): Promise<void> {
    return this.#late.close();
  }
}

/** Only the shared log (Kafka) is opened late for reading, and that one splits requests. */
class LateReader implements LogReader {
  readonly splitsRequests = true;
  readonly #late: LateOpening<LogReader>;

  constructor(late: LateOpening<LogReader>) {
    this.#late = late;
  }

  get name(): string {
    return this.#late.opened.name;
  }

  readonly partitions: LogReader['partitions'] = async () => this.#late.opened.partitions();
  readonly read: LogReader['read'] = async (...args) => this.#late.opened.read(...args);
  readonly headers: LogReader['headers'] = async (...args) => this.#late.opened.headers(...args);
  readonly find: LogReader['find'] = async (...args) => this.#late.opened.find(...args);
  readonly backlogBytes: LogReader['backlogBytes'] = async (...args) => this.#late.opened.backlogBytes(...args);
  readonly traceIdAt: LogReader['traceIdAt'] = async (...args) => this.#late.opened.traceIdAt(...args);
  readonly missing: LogReader['missing'] = async (...args) => this.#late.opened.missing(...args);
  readonly lost: LogReader['lost'] = async (...args) => this.#late.opened.lost(...args);
  readonly readAgainStatement = async (partition: number): Promise<string> => {
    const { opened } = this.#late;
    if (opened.readAgainStatement === undefined) throw new Error('the log has no such statement');
    return opened.readAgainStatement(partition);
  };
  readonly commit: LogReader['commit'] = async (...args) => this.#late.opened.commit(...args);
  readonly newestReceivedAt: LogReader['newestReceivedAt'] = async () => this.#late.opened.newestReceivedAt();

  close(): Promise<void> {
    return this.#late.close();
  }
}
