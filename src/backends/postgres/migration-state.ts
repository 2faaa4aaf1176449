/**
 * The tables that record a migration into this database (`migration/parts.ts`): which one it is, and the progress of
 * each part. A database is filled by one migration at most, since it has to be empty before. The id is also in the
 * marker of the data folder (`migration/marker.ts`) and in every dump. Until the migration is finished no server may
 * use the database: `refuseUnfinishedMigration`, at every start.
 */

import { OperatorError } from '../../errors.ts';
import type { PartProgress } from '../../migration/parts.ts';
import { type Queryable, SCHEMA } from './pool.ts';

export const DATA_MIGRATION_TABLES = `
  CREATE TABLE data_migrations (
    id          uuid   PRIMARY KEY,
    log         text COLLATE "C" NOT NULL,
    started_at    bigint NOT NULL,
    finished_at bigint,
    -- Of the migrated store, and the number after its last event: its cursors stay valid here (store-arrivals.ts).
    store_id    text COLLATE "C" NOT NULL,
    next_number bigint
  );
  CREATE UNIQUE INDEX data_migrations_only_one ON data_migrations ((true));

  -- 'position' is where the source continues, in its own format; null before the first chunk, and at the end.
  CREATE TABLE data_migration_parts (
    part     text COLLATE "C" PRIMARY KEY,
    position text,
    rows     bigint  NOT NULL DEFAULT 0,
    is_done  boolean NOT NULL DEFAULT false
  );`;

interface MigrationRow {
  readonly id: string;
  readonly log: string;
  readonly startedAt: number;
  readonly finishedAt: number | null;
}

export async function readMigration(connection: Queryable): Promise<MigrationRow | undefined> {
  const { rows } = await connection.query<MigrationRow>(
    'SELECT id::text, log, started_at AS "startedAt", finished_at AS "finishedAt" FROM data_migrations',
  );
  return rows[0];
}

/** Also works before the tables exist. */
export async function findMigration(connection: Queryable): Promise<MigrationRow | undefined> {
  const { rows } = await connection.query<{ isThere: boolean }>(
    `SELECT to_regclass('${SCHEMA}.data_migrations') IS NOT NULL AS "isThere"`,
  );
  return rows[0]?.isThere === true ? readMigration(connection) : undefined;
}

export async function readProgress(connection: Queryable): Promise<Map<string, PartProgress>> {
  const { rows } = await connection.query<PartProgress & { readonly part: string }>(
    'SELECT part, position, rows, is_done AS "isDone" FROM data_migration_parts',
  );
  return new Map(rows.map(({ part, ...progress }) => [part, progress]));
}

/** Every server calls this before it opens a store: it must not run on a partial copy. */
export async function refuseUnfinishedMigration(connection: Queryable): Promise<void> {
  const problem = problemOfUnfinishedMigration(await readMigration(connection));
  if (problem !== null) throw new OperatorError(problem);
}

/** Null if there is none. */
export function problemOfUnfinishedMigration(migration: MigrationRow | undefined): string | null {
  if (migration === undefined || migration.finishedAt !== null) return null;
  return (
    'A "sluice migrate" into the database in STORE_URL is not finished. Run the same command again: it continues where ' +
    'it stopped. To abandon it, drop the schema "sluice" of the database.'
  );
}
