/** How a database gets its tables: once, by one of many nodes, completely or not at all, and never over those of another version. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { hasTables, makeTables, problemOfIndexes } from '../../../src/backends/postgres/make-tables.ts';
import { openPool, type PostgresPool } from '../../../src/backends/postgres/pool.ts';
import { OperatorError } from '../../../src/errors.ts';
import { whyNoPostgres } from '../../servers/postgres.ts';
import { emptyDatabase, testPoolOptions } from './database.ts';

const NODES = 10;
const OWN = 'CREATE TABLE own (id int); INSERT INTO own VALUES (1);';
const OTHER = 'CREATE TABLE own (id int, name text);';

async function namesOf(pool: PostgresPool): Promise<string[]> {
  const { rows } = await pool.query<{ name: string }>(
    `SELECT relname::text AS name FROM pg_class
     WHERE relnamespace = to_regnamespace('sluice') AND relkind IN ('r', 'p') ORDER BY relname COLLATE "C"`,
  );
  return rows.map(({ name }) => name);
}

function refusesTables(error: unknown): boolean {
  return error instanceof OperatorError && /has the tables of another version of Sluice/.test(error.message);
}

suite('Tables of PostgreSQL', { skip: whyNoPostgres() }, () => {
  test('ten nodes that start at once on an empty database make its tables once', async (context) => {
    const { connect } = await emptyDatabase();
    const pools = await Promise.all(Array.from({ length: NODES }, () => connect({ max: 1 })));
    context.after(() => Promise.all(pools.map((pool) => pool.close())));
    const [pool] = pools as [PostgresPool];
    assert.equal(await hasTables(pool), false);
    await Promise.all(pools.map((each) => makeTables(each)));
    assert.equal(await hasTables(pool), true);
    const tables = await namesOf(pool);
    for (const table of ['accounts', 'keys', 'members', 'events', 'nodes', 'data_migrations', 'tables_made']) {
      assert.ok(tables.includes(table), table);
    }
    assert.equal((await pool.query('SELECT FROM tables_made')).rowCount, 1);
    assert.equal((await pool.query('SELECT FROM identity')).rowCount, 1);
  });

  test('tables that are there stay as they are, however their statements are written', async (context) => {
    const { connect } = await emptyDatabase();
    const pool = await connect({ max: 2 });
    context.after(() => pool.close());
    await makeTables(pool, OWN);
    await makeTables(pool, OWN);
    await makeTables(pool, `\n -- A comment.\n ${OWN.replaceAll(' ', '\n')} `);
    assert.equal((await pool.query('SELECT FROM own')).rowCount, 1);
  });

  test('a database with the tables of another version is refused, and nothing in it is changed', async (context) => {
    const { connect } = await emptyDatabase();
    const pool = await connect({ max: 2 });
    context.after(() => pool.close());
    await makeTables(pool, OTHER);
    await assert.rejects(makeTables(pool, OWN), refusesTables);
    await assert.rejects(hasTables(pool, OWN), refusesTables);
    // As of a version that left no note of what it made.
    await pool.query('DROP TABLE tables_made');
    await assert.rejects(makeTables(pool, `CREATE TABLE first (id int); ${OWN}`), refusesTables);
    assert.deepEqual(await namesOf(pool), ['own']);
    assert.equal((await pool.query('SELECT id, name FROM own')).rowCount, 0);
  });

  test('a statement that fails leaves nothing, and the tables can be made later', async (context) => {
    const { connect } = await emptyDatabase();
    const pool = await connect({ max: 2 });
    context.after(() => pool.close());
    await assert.rejects(makeTables(pool, `${OWN} SELECT 1 / 0;`), /: 22012$/);
    assert.deepEqual(await namesOf(pool), []);
    await makeTables(pool, OWN);
    assert.deepEqual(await namesOf(pool), ['own', 'tables_made']);
  });

  test('a unique index that is missing, or lacks a day, is named', async (context) => {
    const { connect } = await emptyDatabase();
    const pool = await connect({ max: 1 });
    context.after(() => pool.close());
    await makeTables(pool);
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

  test('a user who may not create tables gets an error, and may use a database that has its tables', async (context) => {
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
    await assert.rejects(makeTables(pool, OWN), /cannot create or use tables.*Grant it CREATE/);
    await makeTables(owner, OWN);
    await assert.rejects(makeTables(pool, OWN), /cannot create or use tables.*Grant it .*USAGE on the schema sluice/);
    await owner.query(`GRANT USAGE ON SCHEMA sluice TO ${user}`);
    await owner.query(`GRANT SELECT ON ALL TABLES IN SCHEMA sluice TO ${user}`);
    await makeTables(pool, OWN);
    await pool.close();
    await owner.query(`DROP OWNED BY ${user}`);
    await owner.query(`DROP ROLE ${user}`);
  });
});
