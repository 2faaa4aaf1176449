/** Sweeping and checking the ledger of a store on PostgreSQL that several processors, with clocks of their own, write. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { DAY_MS, eventsOf, HOUR_MS, person, START, send, sweepAll, TENANT } from '../../contract/store-feeding.ts';
import { whyNoPostgres } from '../../servers/postgres.ts';
import { openFor, openOn } from './store-under-test.ts';

suite('Sweeping a store on PostgreSQL', { skip: whyNoPostgres() }, () => {
  test('one that is caught up leaves the first uses to another that is days behind', async (context) => {
    const under = await openFor(context);
    const late = openOn(under.pool, 'test:late');
    context.after(() => late.close());
    const keyed = { receivedAt: START, idempotencyKey: 'k' };
    await send(under, [person({ user_id: 'u' })], keyed);
    await send(under, [person({ user_id: 'u' }, [{ $event_id: 'e' }])], { receivedAt: START });
    const firstUses = async (): Promise<number> =>
      (await under.pool.query('SELECT 1 FROM idempotency_keys UNION ALL SELECT 1 FROM event_ids')).rowCount;

    // Retries that reached another node, which processes them only now.
    await sweepAll(under, {}, START + 7 * DAY_MS + HOUR_MS);
    await send(late, [person({ user_id: 'u' })], { ...keyed, receivedAt: START + HOUR_MS });
    await sweepAll(under, {}, START + 13 * DAY_MS);
    await send(late, [person({ user_id: 'u' }, [{ $event_id: 'e' }])], { receivedAt: START + 6 * DAY_MS });
    assert.equal((await eventsOf(under)).length, 2);

    await sweepAll(under, {}, START + 14 * DAY_MS + 1);
    assert.equal(await firstUses(), 0);
  });

  test('by a node whose clock is ahead removes nothing that is not old by the clock of the server', async (context) => {
    const under = await openFor(context);
    const receivedAt = Date.now();
    const users = [person({ user_id: 'u' }, [{ $event_id: 'e' }]), 7];
    await send(under, users, { receivedAt, idempotencyKey: 'k' });
    const retention = { eventsMs: 5 * DAY_MS, tracesMs: 5 * DAY_MS, rejectionsMs: 5 * DAY_MS };
    await sweepAll(under, retention, receivedAt + 1_000 * DAY_MS);
    assert.equal((await eventsOf(under)).length, 1);
    const all = { reason: null, from: null, to: null, limit: 10, cursor: null };
    assert.equal((await under.store.rejections(TENANT, all)).rows.length, 1);
    await send(under, users, { receivedAt, idempotencyKey: 'k' });
    assert.equal((await eventsOf(under)).length, 1);
  });

  test('old rejections go although thousands of young ones were processed before them', async (context) => {
    const under = await openFor(context);
    const now = START + 9 * DAY_MS;
    await send(under, [person({ user_id: 'u' }), 7], { receivedAt: now });
    await under.pool.query(
      `INSERT INTO rejections (tenant, received_at, trace_id, user_index, message, reason, reason_hash, payload, payload_is_cut, key_id, key_kind, event_names)
       SELECT tenant, received_at, trace_id, n, message, reason, reason_hash, payload, payload_is_cut, key_id, key_kind, event_names
       FROM rejections, generate_series(1, 2500) AS n`,
    );
    await send(under, [person({ user_id: 'u' }), 7], { receivedAt: START });
    await sweepAll(under, { rejectionsMs: 5 * DAY_MS }, now);
    const { rows } = await under.pool.query<{ received_at: number; count: number }>(
      'SELECT received_at, count(*) AS count FROM rejections GROUP BY 1',
    );
    assert.deepEqual(
      rows.map((row) => [row.received_at, row.count]),
      [[now, 2_501]],
    );
  });
});

suite('The ledger difference on PostgreSQL', { skip: whyNoPostgres() }, () => {
  test('is looked for in recent hours each time, in all of them every hour, and does not vanish', async (context) => {
    const under = await openFor(context);
    const { writer, pool } = under;
    let aheadMs = 0;
    const now = performance.now.bind(performance);
    context.mock.method(performance, 'now', () => now() + aheadMs);
    const recently = Date.now() - HOUR_MS;
    for (const receivedAt of [START, recently]) await send(under, [person({ user_id: 'u' })], { receivedAt });
    const miscount = (hours: string): Promise<unknown> =>
      pool.query(`UPDATE ledger SET users_stored = users_stored + 1 WHERE hour ${hours}`, [START + DAY_MS]);
    const users = async (): Promise<number> => (await writer.difference()).users;
    assert.equal(await users(), 0);
    await miscount('> $1');
    assert.equal(await users(), 1);
    await miscount('< $1');
    assert.equal(await users(), 1);

    aheadMs = 2 * HOUR_MS;
    assert.equal(await users(), 2);
    assert.equal(await users(), 2);
  });
});
