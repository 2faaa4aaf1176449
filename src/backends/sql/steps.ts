/**
 * Reads and transactions written once for both engines. SQLite's connection is synchronous, and an `await` inside a
 * transaction would let other reads of the thread into it; PostgreSQL's is asynchronous. So such a function is a
 * generator: it yields each statement and receives its result, and each engine drives it in its own way.
 * Engine-specific work is a step of its own (`engineStep`).
 */

import type { Compilable, CompiledQuery, Kysely, SelectQueryBuilder } from 'kysely';
import type { StoreTables } from './store-tables.ts';

export type Tables = Kysely<StoreTables>;

/** A statement, or work that the engine does itself: SQLite's at once, PostgreSQL's may be a promise. */
type Step = CompiledQuery | (() => unknown);

/** `yield*` one of the functions below: each gives back what its own step resulted in. */
export type Steps<T> = Generator<Step, T, unknown>;

/** PostgreSQL locks rows. On SQLite a transaction has the whole file to itself, so the query stays as it is. */
export interface RowLocks {
  /** Locks the rows that are selected until the transaction ends; take them in one order everywhere. */
  lock<Tables, Table extends keyof Tables, Row>(
    query: SelectQueryBuilder<Tables, Table, Row>,
  ): SelectQueryBuilder<Tables, Table, Row>;
  /** The same against changes only: several transactions may hold it. */
  lockShared<Tables, Table extends keyof Tables, Row>(
    query: SelectQueryBuilder<Tables, Table, Row>,
  ): SelectQueryBuilder<Tables, Table, Row>;
  /** Selects and locks only rows that no other transaction has locked. */
  skipLocked<Tables, Table extends keyof Tables, Row>(
    query: SelectQueryBuilder<Tables, Table, Row>,
  ): SelectQueryBuilder<Tables, Table, Row>;
}

/** Makes the steps, in what an engine provides. */
export type StepsOf<T> = (tables: Tables, locks: RowLocks) => Steps<T>;

export interface StatementResult {
  readonly rows: unknown[];
  /** How many rows it returned or changed. */
  readonly rowCount: number;
}

export function* rowsOf<Row>(query: Compilable<Row>): Steps<Row[]> {
  return ((yield query.compile()) as StatementResult).rows as Row[];
}

/** How many rows a statement changed. */
export function* changedBy(query: Compilable): Steps<number> {
  return ((yield query.compile()) as StatementResult).rowCount;
}

export function* engineStep<T>(work: () => T | Promise<T>): Steps<T> {
  return (yield work) as T;
}

/** Both engines limit the parameters of a statement: this many rows fit, of any table. */
const ROWS_PER_STATEMENT = 500;

export function* chunksOf<T>(values: readonly T[], sizeMax = ROWS_PER_STATEMENT): Generator<T[], void, undefined> {
  for (let at = 0; at < values.length; at += sizeMax) yield values.slice(at, at + sizeMax);
}

/** For an engine that does not wait. */
export function runStepsSync<T>(steps: Steps<T>, run: (query: CompiledQuery) => StatementResult): T {
  let next = steps.next();
  while (next.done !== true) {
    const step = next.value;
    next = steps.next(typeof step === 'function' ? step() : run(step));
  }
  return next.value;
}

export async function runStepsAsync<T>(
  steps: Steps<T>,
  run: (query: CompiledQuery) => Promise<StatementResult>,
): Promise<T> {
  let next = steps.next();
  while (next.done !== true) {
    const step = next.value;
    next = steps.next(await (typeof step === 'function' ? step() : run(step)));
  }
  return next.value;
}
