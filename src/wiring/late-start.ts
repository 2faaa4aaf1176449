/**
 * A server that starts while its database, or Kafka if it uses one, is unavailable. `DatabaseStart` prepares both: server
 * version, schema and identity of the database (`prepareServerDatabase`), then the topic (`prepareKafka`). Each is retried
 * until the other side responds; if it responds and is unsuitable, `prepared` rejects. Until then the server runs, is not
 * ready, and must not query the database (`problem`).
 *
 * A local log continues from the position that the database has processed, and Kafka must respond before it can be
 * opened; so the log is opened once that is possible, and every call fails as unavailable until then. If opening fails
 * permanently, the server stops.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import type { Config } from '../config/config.ts';
import { messageOf } from '../errors.ts';
import { type LogAppender, type LogReader, LogUnavailableError, LogUnreachableError } from '../log.ts';
import { isUnavailable } from '../runtime/unavailable.ts';
import { type Logger, OutageLog } from '../telemetry/logger.ts';
import { DatabaseUnreachableError } from './opening.ts';
import { prepareKafka, prepareServerDatabase } from './start-checks.ts';

const REACH_RETRY_MS = 500;
/** The connection timeout detects an unavailable database sooner; this is for one that takes long to migrate. */
const FIRST_TRY_MS = 15_000;

export async function untilReachable<T>(work: () => Promise<T>, onFailure: (error: Error) => void): Promise<T> {
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof DatabaseUnreachableError || error instanceof LogUnreachableError)) throw error;
      onFailure(error);
    }
    await sleep(REACH_RETRY_MS);
  }
}

export class DatabaseStart {
  readonly #logger: Logger;
  readonly #firstFailure = Promise.withResolvers<void>();
  /** Why the database must not be used yet (Kafka may be the reason); null once it may. */
  problem: string | null =
    'the database cannot be used yet: it has not responded yet, or its tables are being brought up to date';
  /** Of the database, which the server uses from then on; null while it is unknown. */
  installation: string | null = null;
  onProblem: () => void = () => undefined;
  /** Rejects if a step fails permanently: the server must stop. */
  readonly prepared: Promise<void>;

  constructor(config: Config, logger: Logger) {
    this.#logger = logger;
    this.prepared = this.#prepareAll(config);
    // `serve` and the supervisor handle a rejection later; until then it must not count as unhandled.
    this.prepared.catch(() => undefined);
  }

  /** Resolves when everything is prepared, after the first failure, or after FIRST_TRY_MS. */
  async firstTry(): Promise<void> {
    const late = sleep(FIRST_TRY_MS, undefined, { ref: false });
    await Promise.race([this.prepared, this.#firstFailure.promise, late]);
  }

  async #prepareAll(config: Config): Promise<void> {
    this.installation = await this.#prepare('the database', () => prepareServerDatabase(config));
    if (config.logUrl !== '') await this.#prepare('Kafka', () => prepareKafka(config));
    this.#setProblem(null);
  }

  async #prepare<T>(name: string, prepare: () => Promise<T>): Promise<T> {
    const outage = new OutageLog(this.#logger, {
      failing: `${name} cannot be used yet: the server is running but not ready, and keeps retrying; sluice doctor says what to do`,
      working: `${name} has been reached, and can be used`,
    });
    const result = await untilReachable(prepare, (error) => {
      outage.failed(error.cause ?? error);
      const reason = error.cause instanceof Error ? error.cause.message : error.message;
      this.#setProblem(`${name} cannot be used yet: ${reason}`);
      this.#firstFailure.resolve();
    });
    outage.worked();
    return result;
  }

  #setProblem(problem: string | null): void {
    if (problem === this.problem) return;
    this.problem = problem;
    this.onProblem();
  }
}

const OPEN_RETRY_MS = 250;

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
    await sleep(OPEN_RETRY_MS);
    while (!this.#isClosed && this.#log === null) {
      try {
        this.#log = await open();
      } catch (error) {
        if (!isUnavailable(error)) throw error;
        this.#why = error.message;
        await sleep(OPEN_RETRY_MS);
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
    if (!isUnavailable(error)) throw error;
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
