/**
 * A connection to the store's file: prepared statements by their text, transactions, and what nearly every query starts
 * with (tenants, groups of events). Belongs to one thread. A read transaction is opened and ended
 * within one call, never across an `await`, so that nothing prevents a checkpoint from emptying the write-ahead log.
 */

import type { DatabaseSync, SQLInputValue, StatementSync } from 'node:sqlite';
import { setImmediate, setTimeout as sleep } from 'node:timers/promises';
import type { TenantId } from '../../../model.ts';
import { StoreUnavailableError } from '../../../store-writer.ts';
import type { HashOfKey } from '../../../views/keyed-hash.ts';
import type { WriteLockRequest } from '../../../runtime/write-lock-request.ts';
import { uuidOf } from '../../../views/uuid.ts';
import { queriesFor } from '../../sql/database.ts';
import { runStepsAsync, runStepsSync, type StepsOf, type Tables } from '../../sql/steps.ts';
import { BUSY_TIMEOUT_MS, isBusy, transaction } from '../database.ts';
import type { RunsShape } from '../sorted-runs/entries.ts';
import { StoredRuns } from '../sorted-runs/stored-runs.ts';
import { NO_LOCKS, runStatement } from '../sql-database.ts';
import { hashesOf } from './match-keys.ts';
import { uuidBytes } from '../uuids.ts';

/** A statement with a list has a text for each length of it; so the cache is cleared when it gets large. */
const STATEMENTS_MAX = 2_000;
/** Longer ones insert many rows, a different number each time. */
const STATEMENT_LENGTH_MAX = 4_096;
const TABLES: Tables = queriesFor('sqlite');
const LOCK_WAIT_MS_MAX = 30_000;
const LOCK_RETRY_MS = 1;

export interface Tenant {
  readonly no: number;
  readonly id: TenantId;
}

export interface EventGroup {
  readonly no: number;
  readonly first_record: number;
  /** 1 if index entries may belong to events that are no longer stored. */
  readonly expired: number;
  /** No event of the group below it is left. */
  readonly first_kept: number;
  readonly timestamp_min: number | null;
  readonly timestamp_max: number | null;
}

/** That of the oldest record that is left. */
const FIRST_EVENT_KEPT = `coalesce((SELECT first_event FROM records WHERE records.no >= first_record ORDER BY records.no LIMIT 1),
  ${Number.MAX_SAFE_INTEGER})`;

/** Names `Row`, which the caller gives: the linter rejects a type parameter that only the result of `get` uses. */
type Sql<Row> = string | (string & { readonly row: Row });

interface ConnectionOptions {
  /** By the secret in the file unless given. */
  readonly hashOf?: HashOfKey;
  readonly writeLockRequest?: WriteLockRequest | undefined;
}

export class StoreConnection {
  readonly database: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();
  readonly #tenants = new Map<TenantId, number>();
  #hashOf: HashOfKey | undefined;
  readonly #runs = new Map<string, StoredRuns>();

  /** By which an erase or unmerge asks the processor for the lock; undefined where none runs in this process. */
  readonly writeLockRequest: WriteLockRequest | undefined;

  constructor(database: DatabaseSync, { hashOf, writeLockRequest }: ConnectionOptions = {}) {
    this.database = database;
    this.#hashOf = hashOf;
    this.writeLockRequest = writeLockRequest;
  }

  /** Only for the store's file: others have no secret. */
  get hashOf(): HashOfKey {
    return (this.#hashOf ??= hashesOf(this.database));
  }

  runs(shape: RunsShape): StoredRuns {
    return this.#runs.getOrInsertComputed(shape.name, () => new StoredRuns(this.database, shape));
  }

  all<Row>(sql: string, ...values: SQLInputValue[]): Row[] {
    return this.#prepare(sql).all(...values) as unknown as Row[];
  }

  get<Row>(sql: Sql<Row>, ...values: SQLInputValue[]): Row | undefined {
    return this.#prepare(sql).get(...values) as unknown as Row | undefined;
  }

  /** One row at a time. Do not use the statement again before the last row. */
  iterate<Row>(sql: string, ...values: SQLInputValue[]): IterableIterator<Row> {
    return this.#prepare(sql).iterate(...values) as unknown as IterableIterator<Row>;
  }

  /** Number of changed rows. */
  run(sql: string, ...values: SQLInputValue[]): number {
    return Number(this.#prepare(sql).run(...values).changes);
  }

  /** Runs statements of `backends/sql/` at once, in the open transaction; without one, each by itself. */
  steps<T>(stepsOf: StepsOf<T>): T {
    return runStepsSync(stepsOf(TABLES, NO_LOCKS), ({ sql, parameters }) =>
      runStatement(this.#prepare(sql), parameters as SQLInputValue[]),
    );
  }

  /** Runs many statements outside of a transaction; other calls of this thread run between them. */
  stepsInTurns<T>(stepsOf: StepsOf<T>): Promise<T> {
    return runStepsAsync(stepsOf(TABLES, NO_LOCKS), async ({ sql, parameters }) => {
      await setImmediate();
      return runStatement(this.#prepare(sql), parameters as SQLInputValue[]);
    });
  }

  /** `work` sees one snapshot. */
  read<T>(work: () => T): T {
    this.database.exec('BEGIN');
    try {
      return work();
    } finally {
      if (this.database.isTransaction) this.database.exec('COMMIT');
    }
  }

  /** Undefined for a tenant that never sent anything. */
  tenant(id: TenantId): number | undefined {
    const known = this.#tenants.get(id);
    if (known !== undefined) return known;
    const no = this.get<{ no: number }>('SELECT no FROM tenants WHERE id = ?', id)?.no;
    if (no !== undefined) this.#tenants.set(id, no);
    return no;
  }

  /** Oldest first. Call it in the transaction that uses the result: the writer creates and removes groups. */
  eventGroups(): EventGroup[] {
    return this.all(
      `SELECT no, first_record, expired, iif(expired, ${FIRST_EVENT_KEPT}, 0) AS first_kept, timestamp_min, timestamp_max
       FROM event_groups ORDER BY no`,
    );
  }

  #prepare(sql: string): StatementSync {
    const known = this.#statements.get(sql);
    if (known !== undefined) return known;
    if (sql.length > STATEMENT_LENGTH_MAX) return this.database.prepare(sql);
    if (this.#statements.size >= STATEMENTS_MAX) this.#statements.clear();
    const statement = this.database.prepare(sql);
    this.#statements.set(sql, statement);
    return statement;
  }
}

/** Undefined for a text that is not a UUID, which no id can be. */
export function idBytes(id: string): Uint8Array | undefined {
  const uuid = uuidOf(id);
  return uuid === undefined ? undefined : uuidBytes(uuid);
}

/** The id that the store was created with. */
export function storeIdOf(store: StoreConnection): string {
  return (store.get<{ id: string }>('SELECT id FROM identity') as { id: string }).id;
}

/**
 * Runs `work` in one write transaction, which is durable when this resolves. The processor holds the lock most of the
 * time: an urgent one requests it (`WriteLockRequest`), others wait for one of the processor's own pauses. Both try every
 * millisecond, without blocking: reads continue. Rejects if the lock is not available in time.
 */
export async function inWriteTransaction<T>(
  { database, writeLockRequest }: StoreConnection,
  work: () => T,
  { isUrgent = true, giveUpAt = performance.now() + LOCK_WAIT_MS_MAX } = {},
): Promise<T> {
  try {
    for (;;) {
      try {
        database.exec('PRAGMA busy_timeout = 0; PRAGMA synchronous = FULL');
        return transaction(database, work, 0);
      } catch (error) {
        if (!isBusy(error)) throw error;
      } finally {
        database.exec(`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}; PRAGMA synchronous = NORMAL`);
      }
      if (performance.now() > giveUpAt) throw new StoreUnavailableError('the store was busy for too long');
      if (isUrgent) writeLockRequest?.renew();
      await sleep(LOCK_RETRY_MS);
    }
  } finally {
    if (isUrgent) writeLockRequest?.withdraw();
  }
}
