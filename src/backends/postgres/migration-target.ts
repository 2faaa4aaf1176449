/**
 * PostgreSQL as the target of a migration (`migration/parts.ts`): tables have the names and columns of the parts, so a
 * chunk of any part is one INSERT. A chunk and its progress are written in one transaction, which first advances the
 * progress row by compare-and-set: a killed run whose last statement is still executing and the run after it never both
 * write the same chunk. Sums go to shard 0.
 */

import { OperatorError } from '../../errors.ts';
import {
  type Chunk,
  type ColumnKind,
  type Migration,
  type MigratedValue,
  type MigrationTarget,
  type PartProgress,
  type TargetState,
  type TenantLedger,
} from '../../migration/parts.ts';
import { HOUR_MS } from '../../model.ts';
import { StoreConflictError } from '../../store-writer.ts';
import { withoutNul } from '../../views/storable-text.ts';
import { readAllHours } from '../sql/ledger.ts';
import { columnsOf, hasColumn, PART_NAMES } from '../sql/migrated-parts.ts';
import { ADVISORY_LOCKS, makeTables, TABLES_LOCK } from './make-tables.ts';
import { readMigration, readProgress } from './migration-state.ts';
import { openPool, type PostgresPool, type Queryable } from './pool.ts';
import { deriveMigratedArrivals } from './store-arrivals.ts';
import { dayOf, pairOf, StoreDays } from './store-days.ts';
import { runSteps } from './sql-database.ts';
import { NUMBERS_PER_BLOCK } from './store-schema.ts';
import { readPostgresUrl } from './url.ts';

/** Counting the rows of a large table takes long. */
const STATEMENT_TIMEOUT_MS = 6 * HOUR_MS;
/** One for chunks, one to create partitions meanwhile. */
const CONNECTIONS = 2;

/** Of an array's elements, by the kind of the column. */
const TYPES: Readonly<Record<ColumnKind, string>> = {
  integer: 'int8',
  decimal: 'numeric',
  text: 'text',
  uuid: 'uuid',
  bytes: 'bytea',
};

/** Partitioned tables. */
const BY_DAY = new Set(['records', 'events']);
/** Tables whose `no` is an identity column. */
const COUNTING = `
  SELECT table_name AS name FROM information_schema.columns
  WHERE table_schema = current_schema() AND column_name = 'no' AND is_identity = 'YES'`;

/** Creates the tables where they are missing. */
export async function openPostgresMigrationTarget(url: string): Promise<MigrationTarget> {
  const { address } = readPostgresUrl(url);
  const pool = await openPool({
    url,
    max: CONNECTIONS,
    applicationName: 'sluice migrate',
    statementTimeoutMs: STATEMENT_TIMEOUT_MS,
  });
  try {
    await makeTables(pool);
    return new PostgresMigrationTarget(pool, address);
  } catch (error) {
    await pool.close();
    throw error;
  }
}

class PostgresMigrationTarget implements MigrationTarget {
  readonly location: string;
  readonly #pool: PostgresPool;
  readonly #days: StoreDays;

  constructor(pool: PostgresPool, address: string) {
    this.location = address;
    this.#pool = pool;
    this.#days = new StoreDays(pool);
  }

  async state(): Promise<TargetState> {
    return stateOf(this.#pool);
  }

  async begin({ id, logName, storeId, at }: Migration): Promise<void> {
    await this.#pool.inTransaction(async (client) => {
      await client.query('SELECT pg_advisory_xact_lock($1, $2)', [ADVISORY_LOCKS, TABLES_LOCK]);
      const state = await stateOf(client);
      if (state.kind !== 'empty') throw new OperatorError(`Another process has just written to ${this.location}.`);
      await client.query('INSERT INTO data_migrations (id, log, store_id, started_at) VALUES ($1, $2, $3, $4)', [
        id,
        logName,
        storeId,
        at,
      ]);
      await client.query('INSERT INTO data_migration_parts (part) SELECT unnest($1::text[])', [PART_NAMES]);
    });
  }

  async progress(): Promise<ReadonlyMap<string, PartProgress>> {
    return readProgress(this.#pool);
  }

  async take(part: string, from: string | null, chunk: Chunk | null): Promise<void> {
    if (chunk !== null) await this.#makeDays(part, chunk);
    await this.#pool.inTransaction(async (client) => {
      const { rowCount } = await client.query(
        `UPDATE data_migration_parts SET position = $3, rows = rows + $4, is_done = $5
         WHERE part = $1 AND position IS NOT DISTINCT FROM $2 AND NOT is_done`,
        [part, from, chunk?.position ?? null, chunk?.rows ?? 0, chunk === null],
      );
      if (rowCount !== 1) throw new StoreConflictError(`${part} was advanced by another process`);
      if (chunk === null) return;
      const { text, values } = insertOf(part, chunk);
      const inserted = await client.query({ text, name: `move_${part}` }, values);
      if (inserted.rowCount !== chunk.rows) throw new Error(`${inserted.rowCount} of ${chunk.rows} rows went in`);
    });
  }

  async prepareForWrites(nextNumber: number): Promise<void> {
    // The first block that begins after all numbers issued so far.
    const first = Math.ceil((nextNumber - 1) / NUMBERS_PER_BLOCK) * NUMBERS_PER_BLOCK + 1;
    await this.#pool.query(`SELECT setval('numbers', $1, false)`, [first]);
    for (const { name } of (await this.#pool.query<{ name: string }>(COUNTING)).rows) {
      await this.#pool.query(
        `SELECT setval(pg_get_serial_sequence('${name}', 'no'), coalesce(max(no), 0) + 1, false) FROM ${name}`,
      );
    }
    await this.#pool.inTransaction((client) => deriveMigratedArrivals(client, nextNumber));
    // The planner has no statistics for tables that were filled a moment ago.
    await this.#pool.query(`ANALYZE arrivals, ${PART_NAMES.join(', ')}`);
  }

  async count(part: string): Promise<number> {
    const { rows } = await this.#pool.query<{ count: number }>(`SELECT count(*) AS count FROM ${part}`);
    return rows[0]?.count ?? 0;
  }

  async ledger(): Promise<TenantLedger> {
    return runSteps(this.#pool, readAllHours);
  }

  async finish(at: number): Promise<void> {
    await this.#pool.query('UPDATE data_migrations SET finished_at = coalesce(finished_at, $1)', [at]);
  }

  async close(): Promise<void> {
    await this.#pool.close();
  }

  async #makeDays(part: string, { columns }: Chunk): Promise<void> {
    if (!BY_DAY.has(part)) return;
    const column = (wanted: string): readonly unknown[] =>
      columns[columnsOf(part).findIndex(([name]) => name === wanted)] ?? [];
    const times = column('received_at') as readonly number[];
    const timestamps = column('timestamp') as readonly number[];
    const pairs = new Set(timestamps.map((timestamp, index) => pairOf(times[index] ?? 0, timestamp)));
    await this.#days.ensure(new Set(times.map((time) => dayOf(time))), pairs);
  }
}

async function stateOf(connection: Queryable): Promise<TargetState> {
  const migration = await readMigration(connection);
  if (migration !== undefined) return { kind: 'migrated', ...migration };
  const checks = PART_NAMES.map((part) => `SELECT '${part}' AS part WHERE EXISTS (SELECT FROM ${part})`);
  const { rows } = await connection.query<{ part: string }>(checks.join(' UNION ALL '));
  const [found] = rows;
  return found === undefined ? { kind: 'empty' } : { kind: 'foreign', part: found.part };
}

function insertOf(part: string, { columns }: Chunk): { text: string; values: unknown[] } {
  const named = columnsOf(part);
  const arrays = named.map(([, kind], index) => `$${index + 1}::${TYPES[kind]}[]`);
  const names = named.map(([name]) => `"${name}"`);
  const selected = ['moved.*'];
  if (hasColumn(part, 'shard')) {
    names.push('shard');
    selected.push('0');
  }
  if (hasColumn(part, 'log')) {
    names.push('log');
    selected.push('(SELECT log FROM data_migrations)');
  }
  return {
    text: `INSERT INTO ${part} (${names.join(', ')}) SELECT ${selected.join(', ')} FROM unnest(${arrays.join(', ')}) AS moved`,
    values: named.map((_, index) => (columns[index] ?? []).map(storable)),
  };
}

function storable(value: MigratedValue): MigratedValue {
  return typeof value === 'string' ? withoutNul(value) : value;
}
