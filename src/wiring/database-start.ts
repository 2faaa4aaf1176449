/**
 * Starts a server whose database, and Kafka if it uses one, may be unavailable. Each step prepares one of them: for the
 * database, server version, schema and identity (`prepareDatabase` in `opening.ts`); for Kafka, the topic
 * (`prepareLog`). A step is retried until the other side responds; if it responds and is unsuitable, `prepared`
 * rejects. Until then the server runs, is not ready, and must not query the database (`problem`).
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { OperatorError } from '../errors.ts';
import { LogUnreachableError } from '../log.ts';
import type { Logger } from '../telemetry/logger.ts';
import { OutageLog } from '../telemetry/outage-log.ts';

const RETRY_MS = 500;
/** The connection timeout detects an unavailable database sooner; this is for one that takes long to migrate. */
const FIRST_LOOK_MS = 15_000;

/** It does not respond now, and may soon. */
export class DatabaseUnreachableError extends OperatorError {}

export interface StartStep {
  /** What the step prepares, as the subject of log messages: "the database". */
  readonly name: string;
  /** Throws `DatabaseUnreachableError` or `LogUnreachableError` while it is away. */
  readonly prepare: () => Promise<void>;
}

export class DatabaseStart {
  readonly #logger: Logger;
  readonly #firstFailure = Promise.withResolvers<void>();
  #problem: string | null =
    'the database cannot be used yet: it has not responded yet, or its tables are being brought up to date';
  /** Called when `problem` changes. */
  onProblem: () => void = () => undefined;
  /** Rejects if a step fails permanently: the server must stop. */
  readonly prepared: Promise<void>;

  constructor(steps: readonly StartStep[], logger: Logger) {
    this.#logger = logger;
    this.prepared = this.#prepareAll(steps);
    // Reported by its caller.
    this.prepared.catch(() => undefined);
  }

  /** Why the database must not be used yet (Kafka may be the reason); null once it may. */
  get problem(): string | null {
    return this.#problem;
  }

  /** Resolves when everything is prepared, after the first failure, or after FIRST_LOOK_MS. */
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
      failing: `${name} cannot be reached: the server is running but not ready, and keeps retrying`,
      working: `${name} has been reached, and can be used`,
    });
    for (;;) {
      try {
        await prepare();
        break;
      } catch (error) {
        if (!(error instanceof DatabaseUnreachableError || error instanceof LogUnreachableError)) throw error;
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
