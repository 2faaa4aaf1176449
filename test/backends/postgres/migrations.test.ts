/** How a database is brought up to date: by many at once, step by step, and never by a program that is older than it. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { migrate, problemOfIndexes } from '../../../src/backends/postgres/migrations.ts';
import { openPool, type PostgresPool } from '../../../src/backends/postgres/pool.ts';
import { whyNoPostgres } from '../../servers/postgres.ts';
import { emptyDatabase, testPoolOptions } from './database.ts';

const NODES = 10;
const FIRST = 'CREATE TABLE first (id int); INSERT INTO first VALUES (1);';
const SECOND = 'ALTER TABLE first ADD COLUMN name text; INSERT INTO first VALUES (2);';

async function namesOf(pool: PostgresPool): Promise<string[]> {
  const { rows } = await pool.query<{ name: string }>(
    `SELECT relname::text AS name FROM pg_class
     WHERE relnamespace = to_regnamespace('sluice') AND relkind IN ('r', 'p') ORDER BY relname COLLATE "C"`,
  );
  return rows.map(({ name }) => name);
}

async function stepsIn(pool: PostgresPool): Promise<number[]> {
  const { rows } = await pool.query<{ step: number }>('SELECT step FROM migrations ORDER BY step');
  return rows.map(({ step }) => step);
}

suite('Migrations of PostgreSQL', { skip: whyNoPostgres() }, () => {
  test('ten nodes that start at once on an empty database bring it up to date once', async (context) => {
    const { connect } = await emptyDatabase();
    const pools = await Promise.all(Array.from({ length: NODES }, () => connect({ max: 1 })));
    context.after(() => Promise.all(pools.map((pool) => pool.close())));
    await Promise.all(pools.map((pool) => migrate(pool)));
    const [pool] = pools;
    assert.ok(pool);
    const tables = await namesOf(pool);
    for (const table of ['accounts', 'keys', 'members', 'migrations', 'events', 'nodes'])
      assert.ok(tables.includes(table));
    assert.deepEqual(await stepsIn(pool), [1, 2, 3]);
  });

  test('steps are taken in order, each once, also by nodes of two versions', async (context) => {
    const { connect } = await emptyDatabase();
    const pool = await connect({ max: 2 });
    context.after(() => pool.close());
    await migrate(pool, [FIRST]);
    await migrate(pool, [`\n  ${FIRST.replaceAll(' ', '\n')} `]);
    await migrate(pool, [FIRST, SECOND]);
    await migrate(pool, [FIRST, SECOND]);
    const { rows } = await pool.query<{ id: number }>('SELECT id FROM first ORDER BY id');
    assert.deepEqual(
      rows.map(({ id }) => id),
      [1, 2],
    );
    assert.deepEqual(await stepsIn(pool), [1, 2]);
  });

  test('a database that a newer Sluice made is refused, and nothing in it is changed', async (context) => {
    const { connect } = await emptyDatabase();
    const pool = await connect({ max: 2 });
    context.after(() => pool.close());
    await migrate(pool, [FIRST, SECOND]);
    await assert.rejects(migrate(pool, [FIRST]), (error: Error) => {
      assert.equal(error.name, 'OperatorError');
      assert.match(error.message, /created by a newer version of Sluice/);
      return true;
    });
    assert.deepEqual(await stepsIn(pool), [1, 2]);
  });

  test('a database whose steps were others is refused', async (context) => {
    const { connect } = await emptyDatabase();
    const pool = await connect({ max: 2 });
    context.after(() => pool.close());
    await migrate(pool, [FIRST]);
    await assert.rejects(migrate(pool, [SECOND, FIRST]), /Step 1 in .*unreleased version/);
  });

  test('a step that fails leaves nothing of itself, and the steps before it', async (context) => {
    const { connect } = await emptyDatabase();
    const pool = await connect({ max: 2 });
    context.after(() => pool.close());
    await assert.rejects(migrate(pool, [FIRST, 'CREATE TABLE half (id int); SELECT 1 / 0;']), /: 22012$/);
    assert.deepEqual(await namesOf(pool), ['first', 'migrations']);
    assert.deepEqual(await stepsIn(pool), [1]);
    await migrate(pool, [FIRST, SECOND]);
  });

  test('a unique index that is missing, or lacks a day, is named', async (context) => {
    const { connect } = await emptyDatabase();
    const pool = await connect({ max: 1 });
    context.after(() => pool.close());
    await migrate(pool);
    assert.equal(await problemOfIndexes(pool), null);
    await pool.query('ALTER TABLE positions DROP CONSTRAINT positions_pkey; DROP INDEX records_by_trace');
    assert.match((await problemOfIndexes(pool)) ?? '', /unique index positions_pkey, records_by_trace in/);
    await pool.query('CREATE INDEX records_by_trace ON records (trace_id)');
    assert.match((await problemOfIndexes(pool)) ?? '', /unique index positions_pkey, records_by_trace in/);
    await pool.query('DROP INDEX records_by_trace; ALTER TABLE positions ADD PRIMARY KEY (log, partition)');
    await pool.query('CREATE TABLE a_day PARTITION OF records FOR VALUES FROM (0) TO (86400000)');
    const key = 'trace_id, received_at, first_user_index, users_rejected';
    await pool.query(`CREATE UNIQUE INDEX records_by_trace ON ONLY records (${key})`);
    assert.match((await problemOfIndexes(pool)) ?? '', /unique index records_by_trace in/);
    await pool.query(`CREATE UNIQUE INDEX of_a_day ON a_day (${key})`);
    await pool.query('ALTER INDEX records_by_trace ATTACH PARTITION of_a_day');
    assert.equal(await problemOfIndexes(pool), null);
  });

  test('a user who may not create tables gets an error, and may use a database that is up to date', async (context) => {
    const { url, connect } = await emptyDatabase();
    const owner = await connect({ max: 2 });
    context.after(() => owner.close());
    const user = `reader_${new URL(url).pathname.slice(1)}`;
    await owner.query(`CREATE ROLE ${user} LOGIN PASSWORD 'geheim'`);
    const own = new URL(url);
    own.username = user;
    own.password = 'geheim';
    const pool = await openPool(testPoolOptions(own.href, { max: 2 }));
    context.after(() => pool.close());
    await assert.rejects(migrate(pool, [FIRST]), /cannot create or use tables.*Grant it CREATE/);
    await migrate(owner, [FIRST]);
    await assert.rejects(migrate(pool, [FIRST]), /cannot create or use tables.*Grant it .*USAGE on the schema sluice/);
    await owner.query(`GRANT USAGE ON SCHEMA sluice TO ${user}`);
    await owner.query(`GRANT SELECT ON ALL TABLES IN SCHEMA sluice TO ${user}`);
    await migrate(pool, [FIRST]);
    await pool.close();
    await owner.query(`DROP OWNED BY ${user}`);
    await owner.query(`DROP ROLE ${user}`);
  });
});
