/** PostgreSQL as the target of a migration: a chunk and its position are there together, each once, and numbers continue after. */

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { suite, test, type TestContext } from 'node:test';
import { openPostgresMigrationTarget } from '../../../src/backends/postgres/migration-target.ts';
import { openPool, type PostgresPool } from '../../../src/backends/postgres/pool.ts';
import { NUMBERS_PER_BLOCK } from '../../../src/backends/postgres/store-schema.ts';
import { OperatorError } from '../../../src/errors.ts';
import type { Chunk, MigratedValue, MigrationTarget } from '../../../src/migration/parts.ts';
import { DAY_MS } from '../../../src/model.ts';
import { StoreConflictError } from '../../../src/store-writer.ts';
import { testPostgres, whyNoPostgres } from '../../servers/postgres.ts';
import { testPoolOptions } from './database.ts';

const LOG = 'local:00000000-0000-4000-8000-000000000001';
const TRACE = '01930000-0000-7000-8000-000000000001';
const NOON = Date.UTC(2026, 10, 15, 12);

async function begun(context: TestContext): Promise<{ url: string; target: MigrationTarget; pool: PostgresPool }> {
  const url = await (await testPostgres()).newDatabase();
  const target = await openPostgresMigrationTarget(url);
  const pool = await openPool(testPoolOptions(url));
  context.after(async () => {
    await target.close();
    await pool.close();
  });
  await target.begin({ id: randomUUID(), logName: LOG, storeId: 'of a test', at: NOON });
  return { url, target, pool };
}

/** Rows as a chunk that ends at this position. */
function chunkOf(position: string, rows: readonly (readonly MigratedValue[])[]): Chunk {
  const columns = (rows[0] ?? []).map((_, column) => rows.map((row) => row[column] ?? null));
  return { rows: rows.length, columns, bytes: 1, position };
}

function audit(no: number): MigratedValue[] {
  return [no, 1, 'erase', TRACE, NOON, '{}'];
}

suite('PostgreSQL as the target of a migration', { skip: whyNoPostgres() }, () => {
  test('a chunk is taken once: from another position it is a conflict, and nothing of it is there', async (context) => {
    const { target } = await begun(context);
    await target.take('audit', null, chunkOf('a', [audit(1), audit(2)]));
    await assert.rejects(target.take('audit', null, chunkOf('a', [audit(1), audit(2)])), StoreConflictError);
    await target.take('audit', 'a', chunkOf('b', [audit(3)]));
    assert.equal(await target.count('audit'), 3);
    assert.deepEqual((await target.progress()).get('audit'), { position: 'b', rows: 3, isDone: false });
    await target.take('audit', 'b', null);
    await assert.rejects(target.take('audit', null, chunkOf('c', [audit(4)])), StoreConflictError);
    // Positions may name people: nothing is left of them.
    assert.deepEqual((await target.progress()).get('audit'), { position: null, rows: 3, isDone: true });
  });

  test('a chunk that cannot be written leaves the position where it was', async (context) => {
    const { target } = await begun(context);
    await assert.rejects(target.take('audit', null, chunkOf('a', [audit(1), audit(1)])));
    assert.deepEqual((await target.progress()).get('audit'), { position: null, rows: 0, isDone: false });
    assert.equal(await target.count('audit'), 0);
  });

  test('two runs that take the same chunk at the same moment take it once', async (context) => {
    const { url, target } = await begun(context);
    const other = await openPostgresMigrationTarget(url);
    context.after(() => other.close());
    const chunk = chunkOf('a', [audit(1), audit(2)]);
    const taken = await Promise.allSettled([target, other].map((each) => each.take('audit', null, chunk)));
    assert.deepEqual(taken.map(({ status }) => status).toSorted(), ['fulfilled', 'rejected']);
    assert.equal(await target.count('audit'), 2);
  });

  test('only an empty database is begun with, and by one move', async (context) => {
    const { url, target } = await begun(context);
    const again = target.begin({ id: randomUUID(), logName: LOG, storeId: 'of a test', at: NOON });
    await assert.rejects(again, OperatorError);
    const other = await openPostgresMigrationTarget(url);
    context.after(() => other.close());
    assert.equal((await other.state()).kind, 'migrated');
  });

  test('records and events of any day find their partition', async (context) => {
    const { target, pool } = await begun(context);
    const records = [0, 3, 400].map((days, n) => {
      return [n + 1, 1, NOON, 0, 1, 0, n + 1, 1, 'key_a', null, NOON - days * DAY_MS, TRACE, null];
    });
    await target.take('records', null, chunkOf('a', records));
    const { rows } = await pool.query<{ no: number; day: string }>(
      'SELECT no, right(tableoid::regclass::text, 10) AS day FROM records ORDER BY no',
    );
    assert.deepEqual(
      rows.map(({ day }) => day),
      ['2026_11_15', '2026_11_12', '2025_10_11'],
    );
  });

  test('numbers that are given out later are none that were migrated', async (context) => {
    const { target, pool } = await begun(context);
    await target.take('audit', null, chunkOf('a', [audit(7)]));
    for (const nextNumber of [1, 2, NUMBERS_PER_BLOCK, NUMBERS_PER_BLOCK + 1, NUMBERS_PER_BLOCK + 2, 5e12]) {
      await target.prepareForWrites(nextNumber);
      const { rows } = await pool.query<{ first: number }>("SELECT nextval('numbers') AS first");
      assert.ok((rows[0]?.first ?? 0) >= nextNumber, `${rows[0]?.first} was given out before`);
    }
    const { rows } = await pool.query<{ no: number }>(
      `INSERT INTO audit (tenant, kind, trace_id, at, detail) VALUES (1, 'erase', $1, 1, '{}') RETURNING no`,
      [TRACE],
    );
    assert.equal(rows[0]?.no, 8);
  });

  test('U+0000, which PostgreSQL cannot hold, becomes U+FFFD; all other text, and bytes, stay what they are', async (context) => {
    const { target, pool } = await begun(context);
    const hash = Buffer.from([0, 34, 92, 123, 125, 44, 255]);
    const message = 'a\0b "\\ {} NULL \u{1F600} ü,';
    const row = [1, 1, NOON, TRACE, 0, message, '', hash, 'null', 1, 'key', 'secret', null, '[]', null, null];
    await target.take('rejections', null, chunkOf('a', [row]));
    const { rows } = await pool.query('SELECT message, reason, reason_hash, payload, payload_is_cut FROM rejections');
    assert.deepEqual(rows, [
      { message: message.replace('\0', '\u{FFFD}'), reason: '', reason_hash: hash, payload: 'null', payload_is_cut: 1 },
    ]);
  });

  test('positions and dead letters are those of the log that was migrated', async (context) => {
    const { target, pool } = await begun(context);
    await target.take('positions', null, chunkOf('a', [[0, 17, 17]]));
    await target.take(
      'dead_letters',
      null,
      chunkOf('a', [[1, 1, 0, 3, NOON, TRACE, NOON, 'cause', 0, 1, 1, 'key', '{}', null, null]]),
    );
    for (const table of ['positions', 'dead_letters']) {
      const { rows } = await pool.query<{ log: string }>(`SELECT log FROM ${table}`);
      assert.deepEqual(rows, [{ log: LOG }]);
    }
  });
});
