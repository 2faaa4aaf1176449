/** Connections to a real PostgreSQL: what they are set to, what their failures are reported as, and what they survive. */

import assert from 'node:assert/strict';
import { suite, type TestContext, test } from 'node:test';
import { inspect } from 'node:util';
import { databaseFacts } from '../../../src/backends/postgres/checkup.ts';
import { openPool, type PostgresPool, serverMistake } from '../../../src/backends/postgres/pool.ts';
import { HOUR_MS } from '../../../src/model.ts';
import {
  StoreConflictError,
  StoreUnavailableError,
  StoreValueError,
  TABLES_CHANGED,
} from '../../../src/store-writer.ts';
import { eventually } from '../../server.ts';
import { ownPostgres, whyNoPostgres } from '../../servers/postgres.ts';
import { emptyDatabase, testPoolOptions } from './database.ts';
import { openWireTo } from '../../scaling/wire.ts';

async function poolFor(context: TestContext): Promise<{ url: string; pool: PostgresPool }> {
  const { url, connect } = await emptyDatabase();
  const pool = await connect();
  context.after(() => pool.close());
  await pool.query('CREATE SCHEMA sluice');
  return { url, pool };
}

async function oneValue(pool: Pick<PostgresPool, 'query'>, expression: string): Promise<unknown> {
  const { rows } = await pool.query<{ value: unknown }>(`SELECT ${expression} AS value`);
  return rows[0]?.value;
}

async function waiting(pool: PostgresPool): Promise<boolean> {
  const waiters = `(SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`;
  return (await oneValue(pool, waiters)) === 1;
}

suite('Connections to PostgreSQL', { skip: whyNoPostgres() }, () => {
  settingsTests();
  refusalTests();
  errorTests();
  transactionTests();
  lossTests();
});

function settingsTests(): void {
  test('a connection works in the schema of Sluice, in UTC, and with limits', async (context) => {
    const { pool } = await poolFor(context);
    const settings = ['search_path', 'TimeZone', 'statement_timeout', 'lock_timeout', 'application_name'];
    const values = await Promise.all(settings.map((name) => oneValue(pool, `current_setting('${name}')`)));
    assert.deepEqual(values, ['sluice', 'UTC', '30s', '10s', 'sluice test']);
    assert.equal(await oneValue(pool, `current_setting('idle_in_transaction_session_timeout')`), '1min');
  });

  test('whole numbers of eight bytes, their sums and arrays of them are numbers, and texts keep their digits', async (context) => {
    const { pool } = await poolFor(context);
    assert.equal(await oneValue(pool, '9007199254740991::bigint'), Number.MAX_SAFE_INTEGER);
    assert.equal(await oneValue(pool, '(SELECT sum(n::bigint) FROM generate_series(1, 4) AS n)'), 10);
    assert.deepEqual(await oneValue(pool, 'ARRAY[1, NULL, 3]::bigint[]'), [1, null, 3]);
    assert.equal(await oneValue(pool, `'1.10'::text`), '1.10');
    assert.equal(await oneValue(pool, 'NULL::bigint'), null);
  });

  test('the facts for the doctor say how far the clock of this machine is ahead of that of the database', async (context) => {
    const { pool } = await poolFor(context);
    const aheadBy = async (ms: number): Promise<number> =>
      (await databaseFacts(pool, () => Date.now() + ms)).clockAheadMs - ms;
    for (const ms of [0, 3_600_000, -3_600_000]) assert.ok(Math.abs(await aheadBy(ms)) < 60_000);
  });

  test('the facts for the doctor say whether the database is read-only', async (context) => {
    const { url, pool } = await poolFor(context);
    assert.equal((await databaseFacts(pool)).isReadOnly, false);
    await pool.query(`ALTER DATABASE "${new URL(url).pathname.slice(1)}" SET default_transaction_read_only = on`);
    // The setting is that of new connections.
    const later = await openPool(testPoolOptions(url));
    context.after(() => later.close());
    const { isReadOnly, isStandby } = await databaseFacts(later);
    assert.deepEqual({ isReadOnly, isStandby }, { isReadOnly: true, isStandby: false });
  });

  test('handles share connections, and the last one to be closed ends them', async () => {
    const { connect } = await emptyDatabase();
    const pool = await connect({ max: 1 });
    const other = pool.share();
    await pool.close();
    await pool.close();
    await assert.rejects(pool.query('SELECT 1'), StoreUnavailableError);
    assert.equal(await oneValue(other, '1'), 1);
    assert.equal(other.sizes.total, 1);
    await other.close();
    await assert.rejects(other.query('SELECT 1'), StoreUnavailableError);
    assert.equal(other.sizes.total, 0);
  });
}

function refusalTests(): void {
  test('a wrong password and a missing database are reported to the operator, without the password', async () => {
    const { url } = await emptyDatabase();
    const wrong = new URL(url);
    wrong.password = 'geheim%2F17';
    const missing = new URL(url);
    missing.pathname = '/nowhere';
    for (const [bad, words] of [
      [wrong.href, /refuses the user or password/],
      [missing.href, /no such database/],
    ] as const) {
      await assert.rejects(openPool(testPoolOptions(bad)), (error: Error) => {
        assert.equal(error.name, 'OperatorError');
        assert.match(error.message, words);
        const all = inspect(error, { depth: 20, showHidden: true });
        for (const secret of ['geheim', new URL(url).password]) assert.ok(!all.includes(secret), all);
        return true;
      });
    }
  });

  test('a database that cannot hold all text is refused', async (context) => {
    const { pool, url } = await poolFor(context);
    const narrow = new URL(url);
    narrow.pathname = `${narrow.pathname}_latin`;
    await pool.query(
      `CREATE DATABASE ${narrow.pathname.slice(1)} ENCODING 'LATIN1' LOCALE 'C' LOCALE_PROVIDER libc TEMPLATE template0`,
    );
    await assert.rejects(openPool(testPoolOptions(narrow.href)), /encoding LATIN1.*createdb --encoding=UTF8/);
  });

  test('a server that is too old is refused by its version', () => {
    assert.match(serverMistake(14, 'UTF8', 'db:5432/sluice') ?? '', /PostgreSQL 14; Sluice needs 15 or later/);
    assert.equal(serverMistake(15, 'UTF8', 'db:5432/sluice'), undefined);
  });

  test('a server that is not there is unavailable, which may pass', async () => {
    const refused = 'postgres://sluice:geheim@127.0.0.1:1/sluice';
    await assert.rejects(openPool(testPoolOptions(refused)), (error: Error) => {
      assert.ok(error instanceof StoreUnavailableError);
      assert.ok(!inspect(error, { depth: 20, showHidden: true }).includes('geheim'));
      return true;
    });
  });

  test('a host without an address is unavailable, which may pass: containers have a name once they run', async () => {
    const unknown = testPoolOptions('postgres://sluice:geheim@database.invalid/sluice');
    await assert.rejects(openPool(unknown), (error: Error) => {
      assert.ok(error instanceof StoreUnavailableError, error.name);
      assert.ok(!inspect(error, { depth: 20, showHidden: true }).includes('geheim'));
      return true;
    });
  });
}

function errorTests(): void {
  test('a row that is there already is a conflict, and its values are in no error', async (context) => {
    const { pool } = await poolFor(context);
    await pool.query('CREATE TABLE people (email text PRIMARY KEY CHECK (length(email) < 20))');
    await pool.query('INSERT INTO people VALUES ($1)', ['ada@example.com']);
    const errors = await Promise.all(
      ['ada@example.com', 'ada.lovelace@example.com'].map((email) =>
        pool.query('INSERT INTO people VALUES ($1)', [email]).then(
          () => undefined,
          (error: unknown) => error,
        ),
      ),
    );
    assert.ok(errors[0] instanceof StoreConflictError);
    assert.ok(errors[1] instanceof StoreValueError);
    assert.equal(errors[1].message, `${TABLES_CHANGED} (people, people_email_check): 23514`);
    for (const error of errors) assert.ok(!inspect(error, { depth: 20, showHidden: true }).includes('example.com'));
  });

  test('a statement that takes too long is given up by the server, and that is unavailable', async (context) => {
    const { url } = await poolFor(context);
    const pool = await openPool(testPoolOptions(url, { statementTimeoutMs: 100 }));
    context.after(() => pool.close());
    await assert.rejects(pool.query('SELECT pg_sleep(20)'), StoreUnavailableError);
    assert.equal(await oneValue(pool, '1'), 1);
  });

  test('a statement that the server refuses is unavailable until an operator has changed something', async (context) => {
    const { pool } = await poolFor(context);
    await assert.rejects(pool.query('SELECT * FROM nothing'), {
      name: 'StoreUnavailableError',
      message: /^PostgreSQL reports: relation "nothing" does not exist \(42P01\)$/,
    });
  });

  test('a lock that others hold too long is a conflict within a transaction, and else unavailable', async (context) => {
    const { pool } = await poolFor(context);
    await pool.query('CREATE TABLE rows (id int PRIMARY KEY)');
    const reading = 'SET LOCAL lock_timeout = 50; SELECT id FROM rows';
    const holding = await pool.begin();
    try {
      await holding.query('LOCK TABLE rows');
      await assert.rejects(
        pool.inTransaction((client) => client.query(reading)),
        StoreConflictError,
      );
      await assert.rejects(pool.query(reading), StoreUnavailableError);
    } finally {
      await holding.rollback();
    }
    await pool.query('SELECT id FROM rows');
  });

  test('of two transactions that wait for each other one has a conflict', async (context) => {
    const { pool } = await poolFor(context);
    await pool.query('CREATE TABLE rows (id int PRIMARY KEY)');
    await pool.query('INSERT INTO rows VALUES (1), (2)');
    const lock = 'SELECT 1 FROM rows WHERE id = $1 FOR UPDATE';
    const [one, two] = [await pool.begin(), await pool.begin()];
    await one.query(lock, [1]);
    await two.query(lock, [2]);
    const outcomes = await Promise.allSettled(
      [one.query(lock, [2]), two.query(lock, [1])].map(async (work, n) => {
        try {
          await work;
        } finally {
          await (n === 0 ? one : two).rollback();
        }
      }),
    );
    const failed = outcomes.filter((outcome) => outcome.status === 'rejected');
    assert.deepEqual(
      failed.map(({ reason }) => reason instanceof StoreConflictError),
      [true],
    );
    assert.equal(pool.sizes.idle, pool.sizes.total);
  });
}

function transactionTests(): void {
  test('a transaction is there as a whole or not at all', async (context) => {
    const { pool } = await poolFor(context);
    await pool.query('CREATE TABLE rows (id int PRIMARY KEY)');
    await pool.inTransaction((client) => client.query('INSERT INTO rows VALUES (1)'));
    const failing = pool.inTransaction(async (client) => {
      await client.query('INSERT INTO rows VALUES (2)');
      throw new Error('changed my mind');
    });
    await assert.rejects(failing, /changed my mind/);
    const transaction = await pool.begin();
    await transaction.query('INSERT INTO rows VALUES (3)');
    await transaction.rollback();
    await transaction.rollback();
    assert.equal(await oneValue(pool, '(SELECT sum(id) FROM rows)'), 1);
    assert.equal(pool.sizes.idle, pool.sizes.total);
  });

  test('after a conflict the work is retried, up to the given number of times', async (context) => {
    const { pool } = await poolFor(context);
    let calls = 0;
    const work = async (): Promise<number> => {
      calls++;
      if (calls < 3) throw new StoreConflictError('not yet');
      return calls;
    };
    await assert.rejects(pool.inTransaction(work), StoreConflictError);
    assert.equal(await pool.inTransaction(work, 2), 3);
  });

  test('a COMMIT that the server takes for a ROLLBACK is an error', async (context) => {
    const { pool } = await poolFor(context);
    await pool.query('CREATE TABLE rows (id int PRIMARY KEY)');
    await pool.query('INSERT INTO rows VALUES (1)');
    const careless = pool.inTransaction(async (client) => {
      await client.query('INSERT INTO rows VALUES (1)').catch(() => undefined);
    });
    await assert.rejects(careless, /in which a statement had failed/);
  });
}

function lossTests(): void {
  const KILL_OTHERS = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                       WHERE datname = current_database() AND pid <> pg_backend_pid()`;

  test('connections that are ended while no one uses them are replaced', async (context) => {
    const { url, pool: killer } = await poolFor(context);
    const pool = await openPool(testPoolOptions(url));
    context.after(() => pool.close());
    await pool.query('SELECT 1');
    await killer.query(KILL_OTHERS);
    await eventually('the loss is noticed', () => pool.interruptions > 0);
    assert.equal(await oneValue(pool, '1'), 1);
  });

  test('a connection that is ended in a transaction makes it unavailable, and the process lives', async (context) => {
    const { url, pool: killer } = await poolFor(context);
    const pool = await openPool(testPoolOptions(url));
    context.after(() => pool.close());
    const transaction = await pool.begin();
    await killer.query(KILL_OTHERS);
    await eventually('the loss is noticed', () => !transaction.isUsable);
    await assert.rejects(transaction.query('SELECT 1'), StoreUnavailableError);
    await transaction.rollback();
    const running = pool.query('SELECT pg_sleep(20)');
    const outcome = assert.rejects(running, StoreUnavailableError);
    await eventually('it runs', () =>
      oneValue(
        killer,
        `(SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(20)' AND state = 'active' AND pid <> pg_backend_pid())`,
      ),
    );
    await killer.query(KILL_OTHERS);
    await outcome;
    assert.equal(await oneValue(pool, '1'), 1);
  });

  test('a lock that another holds is waited for', async (context) => {
    const { pool } = await poolFor(context);
    await pool.query('CREATE TABLE rows (id int PRIMARY KEY)');
    await pool.query('INSERT INTO rows VALUES (1)');
    const holder = await pool.begin();
    await holder.query('UPDATE rows SET id = 2');
    const second = pool.query('UPDATE rows SET id = id + 10');
    await eventually('the second waits', () => waiting(pool));
    await holder.commit();
    await second;
    assert.equal(await oneValue(pool, '(SELECT id FROM rows)'), 12);
  });

  test('a connection that falls silent is given up, also by closing', async (context) => {
    const { url } = await poolFor(context);
    const wire = await openWireTo(url);
    context.after(() => wire.close());
    const pool = await openPool(testPoolOptions(wire.url, { max: 2 }));
    const transaction = await pool.begin();
    wire.cut();
    await assert.rejects(pool.query({ text: 'SELECT 1', timeoutMs: 200 }), StoreUnavailableError);
    await assert.rejects(transaction.query({ text: 'SELECT 1', timeoutMs: 200 }), StoreUnavailableError);
    await transaction.rollback();
    wire.repair();
    assert.equal(await oneValue(pool, '1'), 1);
    wire.cut();
    await pool.close();
  });

  test('a COPY that fails is a conflict or an error, also while its rows are still being sent', async (context) => {
    const { pool } = await poolFor(context);
    await pool.query('CREATE TABLE rows (id int PRIMARY KEY, text text)');
    const copy = (lines: string): Promise<void> =>
      pool.withClient(async (client) => client.copyIn('COPY rows FROM STDIN', Buffer.from(lines)));
    const many = `${'x'.repeat(1_000)}\n`.repeat(20_000);
    await copy('1\tone\n2\ttwo\n');
    await assert.rejects(copy('2\ttwo\n'), StoreConflictError);
    await assert.rejects(copy(many), StoreValueError);
    await assert.rejects(
      pool.withClient((client) => client.copyIn('COPY nothing FROM STDIN', Buffer.from(many))),
      /relation "nothing" does not exist/,
    );
    await copy('3\tthree\n');
    assert.equal(await oneValue(pool, '(SELECT count(*) FROM rows)'), 3);
  });

  test('a COPY without a response is given up, and the process survives a late one', async (context) => {
    const { url, pool: direct } = await poolFor(context);
    await direct.query('CREATE TABLE rows (id int)');
    const wire = await openWireTo(url);
    context.after(() => wire.close());
    const pool = await openPool(testPoolOptions(wire.url));
    const transaction = await pool.begin();
    wire.cut();
    context.mock.timers.enable({ apis: ['setTimeout'] });
    const copying = transaction.copyIn('COPY rows FROM STDIN', Buffer.from('1\n'));
    context.mock.timers.tick(HOUR_MS);
    context.mock.timers.reset();
    await assert.rejects(copying, StoreUnavailableError);
    wire.repair();
    const transactions =
      "(SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%')";
    await eventually('the connection is closed', async () => (await oneValue(direct, transactions)) === 0);
    await transaction.rollback();
    await pool.close();
  });

  test('a restart of the server is survived', { skip: whyNoPostgres('own') }, async (context) => {
    const server = await ownPostgres();
    context.after(() => server.close());
    const pool = await openPool(testPoolOptions(server.url));
    context.after(() => pool.close());
    for (const mode of ['immediate', 'fast'] as const) {
      const transaction = await pool.begin();
      await server.stop(mode);
      await assert.rejects(transaction.query('SELECT 1'), StoreUnavailableError);
      await transaction.rollback();
      await assert.rejects(pool.query('SELECT 1'), StoreUnavailableError);
      await server.start();
      assert.equal(await oneValue(pool, '1'), 1);
    }
  });
}
