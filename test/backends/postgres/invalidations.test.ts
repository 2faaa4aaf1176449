/** What a writer on PostgreSQL forgets when a person is erased or unmerged: those people, and no one else. */

import assert from 'node:assert/strict';
import { suite, test, type TestContext } from 'node:test';
import { PostgresClient } from '../../../src/backends/postgres/pool.ts';
import { INVALIDATIONS_KEPT } from '../../../src/backends/postgres/profile-changes.ts';
import { PersonCache } from '../../../src/backends/postgres/person-cache.ts';
import { person, profileOf, send, START, TENANT } from '../../contract/store-feeding.ts';
import { whyNoPostgres } from '../../servers/postgres.ts';
import { openFor } from './store-under-test.ts';

const ACT = { traceId: '01957000-0000-7000-8000-00000000ac70', at: START };
const LATER = START + 1_000_000;
const PEOPLE = Array.from({ length: 20 }, (_, n) => person({ user_id: `u${n}`, anon_id: `a${n}` }));

/** How often a writer has looked keys up since the last call. */
function countLookUps(context: TestContext): () => number {
  const { mock } = context.mock.method(PostgresClient.prototype, 'query');
  return () => {
    const count = mock.calls.filter((call) => JSON.stringify(call.arguments[0]).includes('store_find_keys')).length;
    mock.resetCalls();
    return count;
  };
}

suite('After an erase or unmerge, a writer on PostgreSQL', { skip: whyNoPostgres() }, () => {
  test('knows all others without looking them up, and the erased person is new', async (context) => {
    const under = await openFor(context);
    const lookUps = countLookUps(context);
    for (let n = 0; n < 3; n++) await send(under, PEOPLE);
    lookUps();
    await send(under, PEOPLE);
    assert.equal(lookUps(), 0);
    const gone = await profileOf(under, 'user_id', 'u7');
    await under.store.erase(TENANT, gone.id, ACT);
    await send(under, PEOPLE.toSpliced(7, 1), { receivedAt: LATER });
    assert.equal(lookUps(), 0, 'people were looked up who were not erased');
    await send(under, PEOPLE, { receivedAt: LATER + 1 });
    assert.ok(lookUps() > 0);
    const recreated = await profileOf(under, 'user_id', 'u7');
    assert.notEqual(recreated.id, gone.id);
    assert.equal(recreated.eventCount, 1);
    // A person whom it remembers is in the very next batch: the missing node is noticed before the erase is.
    await under.store.erase(TENANT, recreated.id, { ...ACT, at: LATER + 2 });
    await send(under, [PEOPLE[7], PEOPLE[8]], { receivedAt: LATER + 3 });
    assert.notEqual((await profileOf(under, 'user_id', 'u7')).id, recreated.id);
    assert.equal((await profileOf(under, 'anon_id', 'a8')).eventCount, 7);
    lookUps();
    await send(under, PEOPLE.slice(8), { receivedAt: LATER + 4 });
    assert.equal(lookUps(), 0);
  });

  test('puts an unmerged person on the right side, and knows all others', async (context) => {
    const under = await openFor(context);
    const lookUps = countLookUps(context);
    await send(under, [person({ user_id: 'ada' }), person({ anon_id: 'tv' }), ...PEOPLE]);
    const traceId = await send(under, [person({ user_id: 'ada', anon_id: 'tv' })]);
    const ways = [person({ user_id: 'ada' }), person({ anon_id: 'tv' }), person({ user_id: 'ada', anon_id: 'tv' })];
    await send(under, [...ways, ...PEOPLE]);
    await send(under, [...ways, ...PEOPLE]);
    const { id } = await profileOf(under, 'anon_id', 'tv');
    await under.store.unmerge(TENANT, id, traceId, ACT);
    lookUps();
    await send(under, PEOPLE);
    assert.equal(lookUps(), 0, 'people were looked up who were not unmerged');
    await send(under, ways);
    const [ada, tv] = [await profileOf(under, 'user_id', 'ada'), await profileOf(under, 'anon_id', 'tv')];
    assert.deepEqual([ada.eventCount, tv.eventCount], [8, 4]);
    // A person who is still taken for one is not refused.
    const { refusals = [] } = (await under.store.identity(TENANT, ada.id)) ?? {};
    assert.deepEqual(
      refusals.map(({ reason, count }) => [reason, count]),
      [['cannot_link', 1]],
    );
  });

  test('forgets all people of the tenant when it has missed what was touched', async (context) => {
    const under = await openFor(context);
    const lookUps = countLookUps(context);
    for (let n = 0; n < 3; n++) await send(under, PEOPLE);
    const gone = await profileOf(under, 'user_id', 'u7');
    await under.store.erase(TENANT, gone.id, ACT);
    await under.pool.query('DELETE FROM invalidations');
    lookUps();
    await send(under, PEOPLE.toSpliced(7, 1), { receivedAt: LATER });
    assert.ok(lookUps() > 0);
  });

  test('does not learn what was found before an invalidation that it has seen since', async (context) => {
    const { pool } = await openFor(context);
    await pool.query('INSERT INTO invalidations (tenant, no, nodes) VALUES (1, 1, $1)', [[10]]);
    const people = new PersonCache(() => ({ hash: 1, rest: 2 }));
    const user = { keys: [] };
    const now = { count: 0, lastErasedAt: 0 };
    assert.equal(await people.isCurrent(pool, 1, now), false, 'at first');
    assert.equal(await people.isCurrent(pool, 1, now), true);
    people.add(1, 0, [[user, 10]]);
    assert.equal(people.nodeOf(1, user, START), 10);
    assert.equal(await people.isCurrent(pool, 1, { ...now, count: 1 }), false);
    // Of a transaction that was committed before the invalidation, and is reported after it.
    people.add(1, 0, [[user, 10]]);
    assert.equal(people.nodeOf(1, user, START), undefined);
  });

  test('finds a bounded number of invalidations', async (context) => {
    const under = await openFor(context);
    await send(under, PEOPLE);
    await under.pool.query('UPDATE tenants SET invalidation_count = $1', [INVALIDATIONS_KEPT + 5]);
    await under.pool.query(
      'INSERT INTO invalidations SELECT tenants.no, of.no, $1 FROM tenants, generate_series(1, invalidation_count) AS of (no)',
      [[1]],
    );
    await under.store.erase(TENANT, (await profileOf(under, 'user_id', 'u7')).id, ACT);
    const { rows } = await under.pool.query('SELECT min(no) AS oldest, max(no) AS newest FROM invalidations');
    assert.deepEqual(rows, [{ oldest: 7, newest: INVALIDATIONS_KEPT + 6 }]);
  });
});
