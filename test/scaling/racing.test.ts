/**
 * Processors that race end in a state that some serial order explains. Each test says its seed: RACING_SEED=… takes the
 * same traffic again (when whose turn it is, is up to the machine).
 */

import assert from 'node:assert/strict';
import { suite, test, type TestContext } from 'node:test';
import { storeFileOf } from '../../src/data-folder/files.ts';
import { folderIn } from '../faults/scope.ts';
import { randomOf, traceIdOf } from '../processor/history.ts';
import { appendAll, PROCESSED_AT, processAll, storeCopyOf, withStore } from '../processor/processing.ts';
import { dumpOf } from '../processor/store-dump.ts';
import { PROFILE_LIMITS } from '../../src/identity/graph.ts';
import type { IdentifierLink, Store } from '../../src/store.ts';
import { StoreConflictError } from '../../src/store-writer.ts';
import { eventually } from '../server.ts';
import { whyNoPostgres } from '../servers/postgres.ts';
import { type Race, race, replay } from './racing.ts';
import {
  assertExplained,
  assertSound,
  eventIdsIn,
  type Kind,
  peopleOf,
  profilesOf,
  RACING_TENANTS,
  trafficOf,
} from './racing-traffic.ts';
import { openForTwo } from './two-transactions.ts';

const RECORDS = 90;
const KILLS = 8;
const ACTS = 12;
const seed = Number(process.env['RACING_SEED'] ?? Math.floor(Math.random() * 2 ** 31));

interface Raced extends Race {
  readonly dataFolder: string;
  readonly entries: ReturnType<typeof trafficOf>[number];
}

interface Course {
  readonly kind: Kind;
  readonly processors: number;
  readonly kills?: number;
  readonly meanwhile?: (store: Store, isOver: () => boolean) => Promise<void>;
}

async function run(t: TestContext, scope: AsyncDisposableStack, course: Course): Promise<Raced> {
  t.diagnostic(`RACING_SEED=${seed}`);
  const { kind, processors, kills = 0, meanwhile } = course;
  const random = randomOf(seed + processors + kills);
  const dataFolder = folderIn(scope);
  const traffic = trafficOf(kind, random, processors, RECORDS);
  for (const [partition, entries] of traffic.entries()) await appendAll(dataFolder, entries, partition);
  const raced = await race(scope, { dataFolder, processors, kills, random, ...(meanwhile && { meanwhile }) });
  t.diagnostic(`${raced.order.length} transactions, ${raced.conflicts} conflicts, ${raced.kills} kills`);
  // Two may get along by luck.
  assert.ok(raced.conflicts > 0 || processors === 2, 'they never met, so they did not race');
  assert.ok(raced.kills >= Math.min(kills, 2), 'the race was over too soon');
  return { ...raced, dataFolder, entries: traffic.flat() };
}

/** What must hold however it came about. */
async function assertWhole({ store, writer, pool, entries }: Raced): Promise<void> {
  await assertSound(pool);
  await assertExplained(store);
  assert.deepEqual(await writer.difference(), { users: 0, events: 0 });
  assert.deepEqual(await store.deadLetters(1), []);
  const { hours } = await store.ledger(null, { from: null, to: null });
  const received = hours.reduce((sum, { events }) => sum + events.received, 0);
  assert.equal(
    received,
    entries.reduce((sum, { eventCount }) => sum + eventCount, 0),
  );
  const { rows } = await pool.query<{ trace_id: string }>('SELECT trace_id FROM records');
  assert.deepEqual(rows.map((row) => row.trace_id).sort(), entries.map(({ traceId }) => traceId).sort());
}

/** All lines that a store tells, in an order of their own: numbers of nodes and events are not those of another store. */
async function assertExplainedByOrder({ store, dataFolder, order, entries }: Raced): Promise<void> {
  const file = storeCopyOf(dataFolder, 'replayed');
  await replay(dataFolder, file, order);
  const traceIds = entries.map(({ traceId }) => traceId);
  const raced = (await dumpOf(store, traceIds)).sort();
  const replayed = (await withStore(file, (one) => dumpOf(one, traceIds))).sort();
  const unexplained = raced.filter((line) => !replayed.includes(line));
  const missing = replayed.filter((line) => !raced.includes(line));
  const reported = [...unexplained.slice(0, 4), 'instead of', ...missing.slice(0, 4)];
  assert.equal(
    unexplained.length + missing.length,
    0,
    `no serial order explains ${reported.join('\n').slice(0, 6_000)}`,
  );
  assert.equal(raced.length, replayed.length);
}

suite('Processors that race on one PostgreSQL store', { skip: whyNoPostgres(), timeout: 300_000 }, () => {
  for (const processors of [2, 4]) {
    test(`give the people that one alone gives, where nothing is refused: ${processors} of them`, async (t) => {
      await using scope = new AsyncDisposableStack();
      const raced = await run(t, scope, { kind: 'peaceful', processors });
      await assertWhole(raced);
      await processAll(raced.dataFolder);
      const alone = await withStore(storeFileOf(raced.dataFolder), peopleOf);
      assert.deepEqual(await peopleOf(raced.store), alone);
      const { rows } = await raced.pool.query<{ id: string }>(
        `SELECT trace_id || '.' || user_index || '.' || event_index AS id FROM events`,
      );
      assert.deepEqual(rows.map(({ id }) => id).sort(), eventIdsIn(raced.entries).sort());
      await assertExplainedByOrder(raced);
    });

    test(`end in what some serial order gives, whatever is refused: ${processors} of them`, async (t) => {
      await using scope = new AsyncDisposableStack();
      const raced = await run(t, scope, { kind: 'messy', processors });
      await assertWhole(raced);
      await assertExplainedByOrder(raced);
    });
  }

  test('refuse nothing that another one has linked while they waited for the profile', async () => {
    await using scope = new AsyncDisposableStack();
    const { take, waiting, store } = await openForTwo(scope);
    const known = Array.from({ length: PROFILE_LIMITS.emails - 1 }, (_, n) => ({ user_id: 'u', email: `${n}@a.org` }));
    await (await take(0, known)).commit();
    const first = await take(0, [{ user_id: 'u', email: 'last@a.org' }]);
    const second = take(1, [{ user_id: 'u', email: 'last@a.org' }]);
    const conflict = assert.rejects(second, StoreConflictError);
    await eventually('the second waits for the first', waiting);
    await first.commit();
    await conflict;
    await (await take(1, [{ user_id: 'u', email: 'last@a.org' }])).commit();
    const [profile] = await profilesOf(store, RACING_TENANTS[0]);
    const identity = await store.identity(RACING_TENANTS[0], profile?.id ?? '');
    assert.equal(identity?.identifiers.length, 1 + PROFILE_LIMITS.emails);
    assert.deepEqual(identity?.refusals, []);
  });

  test('do not bring back a person who came, and was erased, after the lookup found no one', async () => {
    await using scope = new AsyncDisposableStack();
    const { take, store } = await openForTwo(scope);
    const [tenantId] = RACING_TENANTS;
    const comeAndGo = async (): Promise<void> => {
      await (await take(0, [{ user_id: 'ada' }])).commit();
      const ada = await store.findProfile(tenantId, 'user_id', 'ada');
      assert.ok(ada);
      const at = PROCESSED_AT + 3_600_000;
      assert.ok(await store.erase(tenantId, ada.id, { traceId: traceIdOf(at, 1), at }));
    };
    // The tenant is known; otherwise the one would wait for the other.
    await (await take(0, [{ user_id: 'eve' }])).commit();
    await assert.rejects(take(1, [{ user_id: 'ada', email: 'ada@a.org' }], comeAndGo), StoreConflictError);
    await (await take(1, [{ user_id: 'ada', email: 'ada@a.org' }])).commit();
    assert.equal(await store.findProfile(tenantId, 'user_id', 'ada'), undefined);
    assert.equal(await store.findProfile(tenantId, 'email', 'ada@a.org'), undefined);
  });

  test('keep to what is unmerged and erased in between: the erased do not come back', async (t) => {
    await using scope = new AsyncDisposableStack();
    const erased: IdentifierLink[] = [];
    const [tenantId] = RACING_TENANTS;
    const random = randomOf(seed);
    let acts = 0;
    const meanwhile = async (store: Store, isOver: () => boolean): Promise<void> => {
      while (acts < ACTS && !isOver()) {
        const profiles = await profilesOf(store, tenantId);
        const { id } = profiles[Math.floor(random() * profiles.length)] ?? {};
        const identity = id === undefined ? undefined : await store.identity(tenantId, id);
        if (identity === undefined) continue;
        acts += 1;
        // Everything was received before it, and so is late if it comes in after it.
        const act = { traceId: traceIdOf(PROCESSED_AT, acts), at: PROCESSED_AT };
        const [merge] = identity.merges;
        if (merge !== undefined && acts % 2 === 0) await store.unmerge(tenantId, identity.id, merge.traceId, act);
        else if (await store.erase(tenantId, identity.id, act)) erased.push(...identity.identifiers);
      }
    };
    const raced = await run(t, scope, { kind: 'messy', processors: 4, meanwhile });
    t.diagnostic(`${acts} acts, ${erased.length} identifiers were erased`);
    assert.ok(erased.length > 0);
    await assertWhole(raced);
    for (const { type, normalised } of erased) {
      assert.equal(await raced.store.findProfile(tenantId, type, normalised), undefined, `${type} ${normalised}`);
    }
  });

  for (const kind of ['peaceful', 'messy'] as const) {
    test(`lose and repeat nothing when their connections are cut, with ${kind} traffic`, async (t) => {
      await using scope = new AsyncDisposableStack();
      const raced = await run(t, scope, { kind, processors: 4, kills: KILLS });
      await assertWhole(raced);
      await assertExplainedByOrder(raced);
    });
  }
});
