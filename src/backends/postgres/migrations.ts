/**
 * Brings the schema of a database up to date: `migrate(pool)`, once at start, before any store is opened, by numbered
 * steps; step n is element n - 1. Names in them are unqualified: the search path is `sluice`. A released step is never
 * edited (its checksum is stored, ignoring white space): add the next one.
 * Each step is a transaction under an advisory lock, so any number of servers may start at once and one of them applies
 * it. A database of a newer Sluice is refused, as is one whose steps were different.
 */

import { hash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { OperatorError } from '../../errors.ts';
import { HOUR_MS } from '../../model.ts';
import { DATA_MIGRATION_TABLES } from './migration-state.ts';
import { type PostgresClient, type PostgresPool, type Queryable, SCHEMA } from './pool.ts';
import { codeOf } from './pool-errors.ts';
import { ACCOUNT_SCHEMA, STORE_SCHEMA } from './store-schema.ts';

/** Advisory locks are numbers shared by everything in the database; ours are pairs that begin with this one. */
export const ADVISORY_LOCKS = 1_936_487_779;
/** The second number of each lock, listed here so that no two are the same. Take them as (ADVISORY_LOCKS, n). */
export const MIGRATION_LOCK = 1;
export const SWEEP_LOCK = 2;
export const PARTITION_LOCK = 3;

const LOCK_RETRY_MS = 50;
/** A step may rewrite large tables. */
const STEP_TIMEOUT_MS = 6 * HOUR_MS;

const STEPS: readonly string[] = [ACCOUNT_SCHEMA, STORE_SCHEMA, DATA_MIGRATION_TABLES];

/** Only tests pass `steps`. */
export async function migrate(pool: PostgresPool, steps: readonly string[] = STEPS): Promise<void> {
  try {
    // Read first: a database that is up to date needs no lock, and no permission to change its tables.
    while ((await countApplied(pool, steps)) < steps.length) {
      const isDone = await pool.inTransaction((client) => takeStep(client, steps));
      if (!isDone) await sleep(LOCK_RETRY_MS);
    }
  } catch (error) {
    if (codeOf(error) !== '42501') throw error;
    throw new OperatorError(
      `The user in STORE_URL cannot create or use tables in the database. Grant it CREATE on the database, and CREATE and USAGE on the schema ${SCHEMA} if that is there.`,
      { cause: error },
    );
  }
}

/** False while another server applies it. The lock ends with the transaction. */
async function takeStep(client: PostgresClient, steps: readonly string[]): Promise<boolean> {
  const lock = await client.query<{ taken: boolean }>('SELECT pg_try_advisory_xact_lock($1, $2) AS taken', [
    ADVISORY_LOCKS,
    MIGRATION_LOCK,
  ]);
  if (lock.rows[0]?.taken !== true) return false;
  const applied = await countApplied(client, steps);
  const next = steps[applied];
  if (next === undefined) return true;
  await client.query('SET LOCAL statement_timeout = 0');
  await client.query('SET LOCAL lock_timeout = 0');
  await makeTable(client);
  await client.query({ text: next, timeoutMs: STEP_TIMEOUT_MS });
  const values = [applied + 1, checksumOf(next), Date.now()];
  await client.query('INSERT INTO migrations (step, checksum, applied_at) VALUES ($1, $2, $3)', values);
  return true;
}

/** Not to_regclass: the connection may have cached its result from before the lock was taken. */
const HAS_TABLE = `EXISTS (
  SELECT FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
  WHERE nspname = '${SCHEMA}' AND relname = 'migrations'
)`;

/** Not IF NOT EXISTS: that requires the permission to create tables although they exist. */
async function makeTable(client: PostgresClient): Promise<void> {
  const { rows } = await client.query<{ hasSchema: boolean; hasTable: boolean }>(
    `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = '${SCHEMA}') AS "hasSchema", ${HAS_TABLE} AS "hasTable"`,
  );
  if (rows[0]?.hasSchema !== true) await client.query(`CREATE SCHEMA ${SCHEMA}`);
  if (rows[0]?.hasTable === true) return;
  await client.query(
    'CREATE TABLE migrations (step integer PRIMARY KEY, checksum text NOT NULL, applied_at bigint NOT NULL)',
  );
}

/** Refuses a database with steps that are not these. */
async function countApplied(connection: Queryable, steps: readonly string[]): Promise<number> {
  const table = await connection.query<{ isThere: boolean }>(`SELECT ${HAS_TABLE} AS "isThere"`);
  if (table.rows[0]?.isThere !== true) return 0;
  const { rows } = await connection.query<{ step: number; checksum: string }>(
    `SELECT step, checksum FROM ${SCHEMA}.migrations ORDER BY step`,
  );
  for (const { step, checksum } of rows) {
    const sql = steps[step - 1];
    if (sql === undefined) {
      throw new OperatorError(
        `The database was created by a newer version of Sluice (it has step ${step}). Run that version, or point STORE_URL at another database.`,
      );
    }
    if (checksumOf(sql) !== checksum) {
      throw new OperatorError(
        `Migration step ${step} in the database differs from that of this Sluice: an unreleased version applied it. Run that version, or point STORE_URL at another database.`,
      );
    }
  }
  return rows.length;
}

/** By these, nothing is stored twice. A dump whose restore failed in part, or an administrator, may have left one out. */
const UNIQUE_INDEXES = [
  'event_days_pkey',
  'event_ids_pkey',
  'idempotency_keys_pkey',
  'identifiers_pkey',
  'nodes_id_key',
  'nodes_pkey',
  'positions_pkey',
  'records_by_trace',
  'tenants_id_key',
];

/** Of a database that is up to date: which unique indexes are missing, or not valid for every day; null if none. */
export async function problemOfIndexes(connection: Queryable): Promise<string | null> {
  const { rows } = await connection.query<{ name: string }>(
    `SELECT name FROM unnest($1::text[]) AS name
     WHERE NOT EXISTS (
       SELECT FROM pg_index WHERE indexrelid = to_regclass('${SCHEMA}.' || name) AND indisunique AND indisvalid
     )`,
    [UNIQUE_INDEXES],
  );
  if (rows.length === 0) return null;
  const names = rows.map(({ name }) => name).join(', ');
  return `The database has no valid unique index ${names} in the schema ${SCHEMA}: without it, data may be stored twice. Stop the processors and create it as a new database of this version has it, or restore the dump again.`;
}

/** Of the statements: a comment or a line break may change in a later version. */
function checksumOf(sql: string): string {
  return hash('sha256', sql.replaceAll(/--.*$/gm, '').replaceAll(/\s+/g, ' ').trim());
}

/** For `sluice doctor`: steps applied (null: none at all), and steps that a start would apply. */
export async function countMissingSteps(
  connection: Queryable,
): Promise<{ migrations: number | null; migrationsMissing: number }> {
  const applied = await countApplied(connection, STEPS);
  return { migrations: applied === 0 ? null : applied, migrationsMissing: STEPS.length - applied };
}
