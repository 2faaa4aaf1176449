/**
 * The start of a server on a database, and perhaps a Kafka, that may be unavailable. Each step is everything that has
 * to be true of one of them before it is used: of a database the version of the server, the tables, that it is the
 * right one (`prepareDatabase` in `opening.ts`), of Kafka its topic (`prepareLog`). A step is retried until the other
 * side first responds; one that responds and is refused rejects `prepared`. Until then the server runs, is not ready,
 * and nothing may query the database (`problem`).
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { OperatorError } from '../errors.ts';
import { LogAwayError } from '../log.ts';
import type { Logger } from '../telemetry/logger.ts';
import { OutageLog } from '../telemetry/outage-log.ts';

const RETRY_MS = 500;
/** An unavailable database is noticed sooner, by the connection timeout. This is for one that has much to migrate. */
const FIRST_LOOK_MS = 15_000;

/** It does not respond now, and may soon. */
export class DatabaseAwayError extends OperatorError {}

export interface StartStep {
  /** What it is about, as the subject of a sentence. */
  readonly name: string;
  /** Throws `DatabaseAwayError` or `LogAwayError` while it is away. */
  readonly prepare: () => Promise<void>;
}

export class DatabaseStart {
  readonly #logger: Logger;
  readonly #firstFailure = Promise.withResolvers<void>();
  #problem: string | null =
    'the database cannot be used yet: it has not responded yet, or its tables are being brought up to date';
  /** Called when `problem` changes. */
  onProblem: () => void = () => undefined;
  /** Rejects when a step is refused: the server must not continue. */
  readonly prepared: Promise<void>;

  constructor(steps: readonly StartStep[], logger: Logger) {
    this.#logger = logger;
    this.prepared = this.#prepareAll(steps);
    // Reported by its caller.
    this.prepared.catch(() => undefined);
  }

  /** Why the database may not be used yet, which may be Kafka's fault; null once it may. */
  get problem(): string | null {
    return this.#problem;
  }

  /** Resolves when it is prepared, found to be away, or takes long. */
  async firstLook(): Promise<void> {
    const timeout = new AbortController();
    const late = sleep(FIRST_LOOK_MS, undefined, { signal: timeout.signal }).catch(() => undefined);
    await Promise.race([this.prepared, this.#firstFailure.promise, late]).finally(() => timeout.abort());
  }

  async #prepareAll(steps: readonly StartStep[]): Promise<void> {
    for (const step of steps) await this.#tryUntilPrepared(step);
    this.#setProblem(null);
  }

  async #tryUntilPrepared({ name, prepare }: StartStep): Promise<void> {
    const outage = new OutageLog(this.#logger, {
      failing: `${name} cannot be reached: the server runs without it, is not ready, and goes on trying`,
      working: `${name} has been reached, and can be used`,
    });
    for (;;) {
      try {
        await prepare();
        break;
      } catch (error) {
        if (!(error instanceof DatabaseAwayError || error instanceof LogAwayError)) throw error;
        outage.failed(error.cause ?? error);
        const reason = error.cause instanceof Error ? error.cause.message : error.message;
        this.#setProblem(`${name} cannot be used yet: ${reason}`);
        this.#firstFailure.resolve();
      }
      await sleep(RETRY_MS);
    }
    outage.worked();
  }

  #setProblem(problem: string | null): void {
    if (problem === this.#problem) return;
    this.#problem = problem;
    this.onProblem();
  }
}
