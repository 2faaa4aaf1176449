/**
 * What `sluice doctor` reads from a database: a read-only snapshot of facts. The doctor decides what they mean.
 */

import type { DatabaseFacts } from '../../cli/doctor-checks.ts';
import { hasTables, problemOfIndexes } from './make-tables.ts';
import { type PostgresPool, rowOf, SCHEMA } from './pool.ts';

type OwnFacts = Omit<DatabaseFacts, 'problemOfMigration' | 'problemOfLog'>;
type Row = Omit<OwnFacts, 'hasTables' | 'problemOfIndexes' | 'clockAheadMs'>;

export async function databaseFacts(pool: PostgresPool, now: () => number = Date.now): Promise<OwnFacts> {
  const found = await pool.query<Row>(
    `SELECT current_setting('server_version') AS version,
            pg_is_in_recovery() AS "isStandby",
            current_setting('transaction_read_only') = 'on' AS "isReadOnly",
            current_setting('max_connections')::int AS "connectionsMax",
            (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
            (SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start) * 1000), 0)
               FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
            ) AS "oldestTransactionMs",
            (SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_class
              WHERE relnamespace = to_regnamespace('${SCHEMA}') AND relkind IN ('r', 'm')) AS bytes,
            (SELECT count(*) FROM pg_inherits WHERE inhparent = to_regclass('${SCHEMA}.events')) AS days`,
  );
  const isMade = await hasTables(pool);
  return {
    ...rowOf(found),
    hasTables: isMade,
    problemOfIndexes: isMade ? await problemOfIndexes(pool) : null,
    clockAheadMs: await clockAheadOf(pool, now),
  };
}

/** To within half of the time that the query takes. */
async function clockAheadOf(pool: PostgresPool, now: () => number): Promise<number> {
  const before = now();
  const found = await pool.query<{ time: number }>(
    'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS time',
  );
  return (before + now()) / 2 - rowOf(found).time;
}
