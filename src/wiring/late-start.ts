/**
 * A server that starts while its database, or Kafka if it uses one, is unavailable. `DatabaseStart` prepares both: server
 * version, schema and identity of the database (`prepareServerDatabase`), then the topic (`prepareKafka`). Each is retried
 * until the other side responds; if it responds and is unsuitable, `prepared` rejects.
 *
 * No thread starts before that: until then `waiting-server.ts` responds. If the database or Kafka is gone again by the
 * time a thread opens it, the thread retries (`untilReachable`).
 */

import { setTimeout as sleep } from 'node:timers/promises';
import type { Config } from '../config/config.ts';
import { OperatorError } from '../errors.ts';
import { isUnavailable } from '../runtime/unavailable.ts';
import { type Logger, OutageLog } from '../telemetry/logger.ts';
import { DatabaseUnreachableError } from './opening.ts';
import { prepareKafka, prepareServerDatabase } from './start-checks.ts';

const REACH_RETRY_MS = 500;
/** The connection timeout detects an unavailable database sooner; this is for one that is slow to make its tables. */
const FIRST_TRY_MS = 15_000;

/** Retries for as long as the database or Kafka does not respond. */
export async function untilReachable<T>(
  work: () => Promise<T>,
  outage: OutageLog,
  onFailure: (reason: string) => void = () => undefined,
): Promise<T> {
  for (;;) {
    try {
      const result = await work();
      outage.worked();
      return result;
    } catch (error) {
      if (!(error instanceof DatabaseUnreachableError || isUnavailable(error))) throw error;
      // The text for commands asks what is wrong with the settings; its cause is shorter.
      const reason = error instanceof OperatorError && error.cause instanceof Error ? error.cause : error;
      outage.failed(reason);
      onFailure(reason.message);
    }
    await sleep(REACH_RETRY_MS);
  }
}

export class DatabaseStart {
  readonly #logger: Logger;
  readonly #firstFailure = Promise.withResolvers<void>();
  /** Why the server cannot start yet (Kafka may be the reason); null once it can, and then it stays null. */
  problem: string | null =
    'the database cannot be used yet: it has not responded yet, or its tables are being brought up to date';
  /** Resolves with the installation of the database; rejects if a step fails permanently. */
  readonly prepared: Promise<string>;

  constructor(config: Config, logger: Logger) {
    this.#logger = logger;
    this.prepared = this.#prepareAll(config);
    // `serve` handles a rejection later; until then it must not count as unhandled.
    this.prepared.catch(() => undefined);
  }

  /** Resolves when everything is prepared, after the first failure, or after FIRST_TRY_MS. */
  async firstTry(): Promise<void> {
    const late = sleep(FIRST_TRY_MS, undefined, { ref: false });
    await Promise.race([this.prepared, this.#firstFailure.promise, late]);
  }

  async #prepareAll(config: Config): Promise<string> {
    const installation = await this.#prepare('the database', () => prepareServerDatabase(config));
    if (config.logUrl !== '') await this.#prepare('Kafka', () => prepareKafka(config));
    this.problem = null;
    return installation;
  }

  #prepare<T>(name: string, prepare: () => Promise<T>): Promise<T> {
    const outage = new OutageLog(this.#logger, {
      failing: `${name} cannot be used yet: the server is running but not ready, and keeps retrying; sluice doctor says what to do`,
      working: `${name} has been reached, and can be used`,
    });
    return untilReachable(prepare, outage, (reason) => {
      this.problem = `${name} cannot be used yet: ${reason}`;
      this.#firstFailure.resolve();
    });
  }
}
