/**
 * How PostgreSQL goes about the questions that people ask all the time: by an index, for a page and not for all there
 * is. Looked at in the plans that it really ran, over some weeks of events, before and after it has statistics.
 */

import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { dayOf, eventWindows, pairOf, StoreDays } from '../../../src/backends/postgres/store-days.ts';
import type { PostgresPool } from '../../../src/backends/postgres/pool.ts';
import { ARRIVALS_SQL, LAST_SQL, RANGE_AT_SQL, RANGES_SQL } from '../../../src/backends/postgres/store-arrivals.ts';
import { BY_INDEX, DELETE_SQL, USERS_SQL } from '../../../src/backends/postgres/profile-changes.ts';
import { nodesSql, tenantSql } from '../../../src/backends/postgres/store-timeline.ts';
import { TRACE_SQL } from '../../../src/backends/postgres/store-traces.ts';
import { DAY_MS } from '../../../src/model.ts';
import { START } from '../../contract/store-feeding.ts';
import { whyNoPostgres } from '../../servers/postgres.ts';
import { migratedDatabase } from './database.ts';

const DAYS = 20;
const EVENTS_PER_DAY = 2_000;
const EVENTS = DAYS * EVENTS_PER_DAY;
const NODES = 400;
/** Nodes up to this one are one profile. */
const MEMBERS = 8;
const FIRST = START - (START % DAY_MS);
/** Milliseconds from one event to the next. */
const EVERY = DAY_MS / EVENTS_PER_DAY;
const PAGE = 51;
/** So many arrivals are of one transaction, as after a migration; each of the others is of one of its own. */
const MIGRATED = EVENTS / 2;
const LATEST = [Number.MAX_SAFE_INTEGER, 0];

/** Event n is one of a record of its own, of node n % NODES, an equal time after the one before. */
async function fill(pool: PostgresPool): Promise<void> {
  const days = Array.from({ length: DAYS }, (_, n) => dayOf(FIRST) + n);
  const pairs = days.flatMap((day) => [pairOf(day * DAY_MS, day * DAY_MS), pairOf(day * DAY_MS, day * DAY_MS - 5)]);
  await new StoreDays(pool).ensure(days, new Set(pairs));
  await pool.query("INSERT INTO tenants (no, id) VALUES (1, 'acct_1/production'), (2, 'acct_2/production')");
  await pool.query(
    `INSERT INTO nodes (no, tenant, id, received_at, trace_id, user_index, root, events, first_seen, last_seen)
     SELECT n, 1 + n % 2, md5('node ' || n)::uuid, ${FIRST}, md5('trace ' || n)::uuid, 0,
       CASE WHEN n > 1 AND n <= ${MEMBERS} THEN 1 END, 0, 0, 0 FROM generate_series(1, ${NODES}) AS n`,
  );
  await pool.query(
    `INSERT INTO records (no, tenant, trace_id, received_at, processed_at, first_user_index, users_accepted,
       users_rejected, first_event, events, key_id)
     SELECT n, 1 + (1 + n % ${NODES}) % 2, md5('trace ' || n)::uuid, ${FIRST} + n * ${EVERY}, 0, 0, 1, 0, n, 1, 'key'
     FROM generate_series(0, ${EVENTS - 1}) AS n`,
  );
  await pool.query(
    `INSERT INTO events (no, tenant, node, received_at, timestamp, trace_id, key_id, user_index, event_index,
       event_name, currency, properties)
     SELECT n, 1 + (1 + n % ${NODES}) % 2, 1 + n % ${NODES}, ${FIRST} + n * ${EVERY}, ${FIRST} + n * ${EVERY} - 5,
       md5('trace ' || n)::uuid, 'key', 0, 0, CASE WHEN n % 4000 = 1 THEN 'rare' ELSE 'common' END, '', '{"a":1}'
     FROM generate_series(0, ${EVENTS - 1}) AS n`,
  );
  await pool.query(
    `INSERT INTO arrivals (tx, tenant, first_event, events, received_at_min, received_at_max)
     SELECT greatest(n - ${MIGRATED}, 0), 1 + (1 + n % ${NODES}) % 2, n, 1, ${FIRST} + n * ${EVERY}, ${FIRST} + n * ${EVERY}
     FROM generate_series(0, ${EVENTS - 1}) AS n`,
  );
}

interface Plan {
  readonly 'Node Type': string;
  readonly 'Relation Name'?: string;
  readonly 'Actual Rows': number;
  readonly 'Actual Loops': number;
  readonly 'Rows Removed by Filter'?: number;
  readonly Plans?: readonly Plan[];
}

function stepsOf(plan: Plan): Plan[] {
  return [plan, ...(plan.Plans ?? []).flatMap(stepsOf)];
}

interface Ran {
  /** Tables that were read from end to end. */
  readonly wholeTables: readonly string[];
  /** How many tables were looked at. */
  readonly partitions: number;
  /** How many rows were looked at, in all tables. */
  readonly rows: number;
}

/** In a transaction that is rolled back. */
async function run(pool: PostgresPool, sql: string, values: readonly unknown[], settings?: string): Promise<Ran> {
  const transaction = await pool.begin(settings);
  try {
    const { rows } = await transaction.query<{ 'QUERY PLAN': readonly { readonly Plan: Plan }[] }>(
      `EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) ${sql}`,
      values,
    );
    const explained = rows[0]?.['QUERY PLAN'][0];
    assert.ok(explained);
    const steps = stepsOf(explained.Plan).filter((step) => step['Actual Loops'] > 0);
    const scans = steps.filter((step) => step['Relation Name'] !== undefined && step['Node Type'] !== 'ModifyTable');
    const looked = scans.map(
      (step) => (step['Actual Rows'] + (step['Rows Removed by Filter'] ?? 0)) * step['Actual Loops'],
    );
    return {
      partitions: new Set(scans.map((step) => step['Relation Name'])).size,
      wholeTables: scans.flatMap((step) => (step['Node Type'] === 'Seq Scan' ? [step['Relation Name'] ?? ''] : [])),
      rows: looked.reduce((sum, count) => sum + count, 0),
    };
  } finally {
    await transaction.rollback();
  }
}

const idOf = async (pool: PostgresPool, name: string): Promise<string> => {
  const { rows } = await pool.query<{ id: string }>('SELECT md5($1)::uuid AS id', [name]);
  return rows[0]?.id ?? '';
};

suite('Plans of PostgreSQL', { skip: whyNoPostgres() }, () => {
  let pool: PostgresPool;
  before(async () => {
    pool = await (await migratedDatabase()).connect();
    await fill(pool);
  });
  after(() => pool.close());

  async function assertQuick(
    rowsMax: number,
    sql: string,
    values: readonly unknown[],
    settings?: string,
  ): Promise<void> {
    const { wholeTables, rows } = await run(pool, sql, values, settings);
    assert.deepEqual(wholeTables, []);
    assert.ok(rows <= rowsMax, `looked at ${rows} rows`);
    assert.ok(rows > 0);
  }

  for (const knows of ['nothing of its tables', 'its tables']) {
    suite(`when the server knows ${knows}`, () => {
      before(async () => {
        if (knows === 'its tables') await pool.query('ANALYZE');
      });

      test('a page of events is read from the indexes of the days, with one more of each day at most', async () => {
        // Each event of the page has its node and its profile looked up.
        const rowsMax = DAYS + 3 * PAGE;
        await assertQuick(rowsMax, tenantSql('true', false), [0, ...LATEST, PAGE, 1]);
        await assertQuick(rowsMax, tenantSql('true', false), [0, FIRST + 10 * DAY_MS, 7, PAGE, 1]);
        await assertQuick(rowsMax, tenantSql('true', false), [FIRST + DAY_MS, FIRST + 2 * DAY_MS, 0, PAGE, 2]);
      });

      test('a rare name is found by itself', async () => {
        await assertQuick(DAYS + 3 * PAGE, tenantSql('true', true), [0, ...LATEST, PAGE, 1, 'rare']);
      });

      test('a page of a timeline is read node by node, and no more of each than the page holds', async () => {
        const nodes = Array.from({ length: MEMBERS }, (_, n) => n + 1);
        const rowsMax = MEMBERS * (DAYS + PAGE) + 3 * PAGE;
        await assertQuick(rowsMax, nodesSql('true', false), [0, ...LATEST, PAGE, nodes]);
        await assertQuick(DAYS + 3 * PAGE, nodesSql('true', false), [0, ...LATEST, PAGE, [100]]);
      });

      test('what arrived after a place is found behind it, in its days', async () => {
        await assertQuick(2, RANGE_AT_SQL, [2, 0, 5_000], BY_INDEX);
        await assertQuick(2, RANGE_AT_SQL, [2, 5_000, MIGRATED + 5_000], BY_INDEX);
        await assertQuick(3, LAST_SQL, [1, EVENTS], BY_INDEX);
        await assertQuick(4 * PAGE, RANGES_SQL, [1, 0, 5_001, PAGE, EVENTS]);
        await assertQuick(4 * PAGE, RANGES_SQL, [1, 5_001, MIGRATED + 5_001, PAGE, EVENTS]);
        const starts = Array.from({ length: PAGE }, (_, n) => 5_001 + 2 * n);
        const stops = starts.map((start) => start + 1);
        const receipt = FIRST + 5_000 * EVERY;
        const values = [1, PAGE, starts, stops, receipt, receipt + 2 * PAGE * EVERY];
        await assertQuick(4 * PAGE, ARRIVALS_SQL, values);
      });

      test('a trace is found by its id, with its events alone', async () => {
        const traceId = await idOf(pool, 'trace 12345');
        await assertQuick(10, TRACE_SQL, [traceId, null, Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER]);
      });

      test('an erase looks at the events of the person', async () => {
        const ofNode = EVENTS / NODES;
        const days = [FIRST, FIRST + DAYS * DAY_MS];
        await assertQuick(6 * ofNode, USERS_SQL, [[100], 20_000, ...days], BY_INDEX);
        const received = FIRST + 99 * EVERY;
        await assertQuick(5, DELETE_SQL, [[100], [received], [99], [99], [0], [received], ...days], BY_INDEX);
      });

      test('a window of time leaves few partitions to look at', async () => {
        const windows = eventWindows(pool, { from: 0, to: Number.MAX_SAFE_INTEGER, days: null });
        const tables: number[] = [];
        let end = Number.POSITIVE_INFINITY;
        for await (const { from, to, received } of windows) {
          assert.ok(to <= end && from < to);
          end = from;
          const { partitions } = await run(pool, `SELECT count(*) FROM events WHERE ${received}`, []);
          tables.push(partitions);
        }
        assert.deepEqual([tables[0], tables.reduce((sum, count) => sum + count, 0)], [8, DAYS + tables.length - 1]);
        assert.ok(end <= FIRST);
      });
    });
  }
});
