/**
 * Creates the tables of a database: `makeTables(pool)`, once at start, before any store is opened. Names in them are
 * unqualified: the search path is `sluice`. It is one transaction under an advisory lock, so any number of nodes may
 * start at once and one of them creates the tables. Until 1.0 a database with the tables of another version is refused,
 * not migrated; a checksum of the statements says which version made them.
 */

import { hash } from 'node:crypto';
import { OperatorError } from '../../errors.ts';
import { MINUTE_MS } from '../../model.ts';
import { DATA_MIGRATION_TABLES } from './migration-state.ts';
import { type PostgresClient, type PostgresPool, type Queryable, SCHEMA } from './pool.ts';
import { codeOf } from './pool-errors.ts';
import { ACCOUNT_SCHEMA, STORE_SCHEMA } from './store-schema.ts';

/** Advisory locks are numbers shared by everything in the database; ours are pairs that begin with this one. */
export const ADVISORY_LOCKS = 1_936_487_779;
/** The second number of each lock, listed here so that no two are the same. Take them as (ADVISORY_LOCKS, n). */
export const TABLES_LOCK = 1;
export const SWEEP_LOCK = 2;
export const PARTITION_LOCK = 3;

/** Also how long it waits for a node that does the same. */
const TIMEOUT_MS = 10 * MINUTE_MS;

const TABLES = `${ACCOUNT_SCHEMA}${STORE_SCHEMA}${DATA_MIGRATION_TABLES}`;

const OTHER_TABLES = `The schema ${SCHEMA} of the database has the tables of another version of Sluice, before 1.0, which this one does not read. Nothing in it was changed. Run that version, or point STORE_URL at another database.`;

/** SQLSTATE insufficient_privilege and duplicate_table. */
const NO_PERMISSION = '42501';
const TABLE_EXISTS = '42P07';

/** Only tests pass `tables`. */
export async function makeTables(pool: PostgresPool, tables = TABLES): Promise<void> {
  try {
    // Read first: a database that has its tables needs no lock, and no permission to create any.
    if (!(await hasTables(pool, tables))) await pool.inTransaction((client) => makeOnce(client, tables));
  } catch (error) {
    const code = codeOf(error);
    if (code === TABLE_EXISTS) throw new OperatorError(OTHER_TABLES, { cause: error });
    if (code !== NO_PERMISSION) throw error;
    throw new OperatorError(
      `The user in STORE_URL cannot create or use tables in the database. Grant it CREATE on the database, and CREATE and USAGE on the schema ${SCHEMA} if that is there.`,
      { cause: error },
    );
  }
}

async function makeOnce(client: PostgresClient, tables: string): Promise<void> {
  await client.query(`SET LOCAL statement_timeout = ${TIMEOUT_MS}; SET LOCAL lock_timeout = ${TIMEOUT_MS}`);
  const lock = { text: 'SELECT pg_advisory_xact_lock($1, $2)', timeoutMs: TIMEOUT_MS };
  await client.query(lock, [ADVISORY_LOCKS, TABLES_LOCK]);
  if (await hasTables(client, tables)) return;
  // Not IF NOT EXISTS: that requires the permission to create a schema although it exists.
  const { rowCount } = await client.query('SELECT FROM pg_namespace WHERE nspname = $1', [SCHEMA]);
  if (rowCount === 0) await client.query(`CREATE SCHEMA ${SCHEMA}`);
  await client.query({ text: tables, timeoutMs: TIMEOUT_MS });
  await client.query('CREATE TABLE tables_made (checksum text NOT NULL, at bigint NOT NULL)');
  await client.query('INSERT INTO tables_made VALUES ($1, $2)', [checksumOf(tables), Date.now()]);
}

/** Refuses a database with other tables than these. */
export async function hasTables(connection: Queryable, tables = TABLES): Promise<boolean> {
  // Not to_regclass: the connection may have cached its result from before the lock was taken.
  const { rowCount } = await connection.query(
    `SELECT FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
     WHERE nspname = '${SCHEMA}' AND relname = 'tables_made'`,
  );
  if (rowCount === 0) return false;
  const { rows } = await connection.query<{ checksum: string }>(`SELECT checksum FROM ${SCHEMA}.tables_made`);
  if (rows[0]?.checksum !== checksumOf(tables)) throw new OperatorError(OTHER_TABLES);
  return true;
}

/** A comment or a line break may change. */
function checksumOf(sql: string): string {
  return hash('sha256', sql.replaceAll(/--.*$/gm, '').replaceAll(/\s+/g, ' ').trim());
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
