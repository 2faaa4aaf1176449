/** The time that servers on one database agree on while their wall clocks are behind. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { agreeOnTime, newestTime } from '../../../src/backends/postgres/receipt-time.ts';
import { HOUR_MS } from '../../../src/model.ts';
import { whyNoPostgres } from '../../servers/postgres.ts';
import { databaseFor } from './database.ts';

const START = Date.UTC(2026, 10, 18);

suite('The time of receipt on PostgreSQL', { skip: whyNoPostgres() }, () => {
  test('is the newest of all servers, and goes on at half speed', async (context) => {
    const { pool } = await databaseFor(context);
    assert.equal(await newestTime(pool), 0);
    const before = performance.now();
    assert.equal(await agreeOnTime(pool, START), START);
    await sleep(400);
    const other = (await agreeOnTime(pool, START - HOUR_MS)) - START;
    assert.ok(other >= 200 && other <= (performance.now() - before) / 2 + 2, `${other} ms`);
    assert.equal(await agreeOnTime(pool, START + HOUR_MS), START + HOUR_MS);
    assert.equal(await newestTime(pool), START + HOUR_MS);
  });

  test('hardly follows a clock of the database that is set', async (context) => {
    const { pool } = await databaseFor(context);
    await agreeOnTime(pool, START);
    for (const [step, most] of [
      ["'5 hours'", 5_000],
      ["'-5 hours'", 0],
    ] as const) {
      await pool.query(`UPDATE receipt_time SET newest = ${START}, agreed_at = clock_timestamp() - interval ${step}`);
      assert.equal(await agreeOnTime(pool, START - HOUR_MS), START + most);
    }
  });
});
