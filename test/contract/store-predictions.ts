/** The contract of the store: a prediction says what the request then does, and changes nothing. */

import assert from 'node:assert/strict';
import { afterEach, beforeEach, suite, test } from 'node:test';
import { nodeIdOf } from '../../src/identity/node-id.ts';
import type { LogEntry } from '../../src/log.ts';
import type { PredictedUser, Prediction, Provenance, Store } from '../../src/store.ts';
import { entriesOf, randomOf, TENANTS, traceIdOf } from '../processor/history.ts';
import { dumpOf } from '../processor/store-dump.ts';
import {
  ACT,
  feed,
  HOUR_MS,
  type OpenStore,
  OTHER_TENANT,
  person,
  profileOf,
  type Request,
  request,
  type StoreUnderTest,
  START,
  send,
  TENANT,
} from './store-feeding.ts';

const LATER = START + 10 * HOUR_MS;

export function storePredictionsContract(open: OpenStore): void {
  suite('predictions', () => {
    let under: StoreUnderTest;
    beforeEach(async () => {
      under = await open();
    });
    afterEach(() => under.close());

    async function predict(users: readonly unknown[], about: Request = {}): Promise<readonly PredictedUser[]> {
      const { users: predicted } = await predictionOf(under.store, request(users, { receivedAt: LATER, ...about }));
      return predicted;
    }

    test('a known person keeps the profile, and only properties that differ are changes', async () => {
      const properties = { plan: 'free', city: 'Oslo', gone: 1 };
      await send(under, [person({ user_id: 'u', email: 'a@b.c', first_name: 'Ada' }, [{}], properties)]);
      const { id } = await profileOf(under, 'user_id', 'u');
      const changed = { plan: 'pro', city: 'Oslo', gone: null, unknown: null, score: { big: 2 } };
      const [user, ...others] = await predict([person({ user_id: 'u', first_name: 'Grace' }, [{}, {}], changed)]);
      assert.deepEqual(others, []);
      assert.deepEqual(user, {
        userIndex: 0,
        status: 'accepted',
        profileId: id,
        isNew: false,
        events: 2,
        duplicateEvents: 0,
        duplicateOf: null,
        newIdentifiers: [],
        merges: [],
        refusals: [],
        propertyChanges: [
          { kind: 'profile_fields', name: 'first_name', before: '"Ada"', after: '"Grace"' },
          { kind: 'user_properties', name: 'gone', before: '1', after: null },
          { kind: 'user_properties', name: 'plan', before: '"free"', after: '"pro"' },
          { kind: 'user_properties', name: 'score', before: null, after: '{"big":2}' },
        ],
        propertyChangesOmitted: 0,
        warnings: [],
        message: null,
      } satisfies PredictedUser);
    });

    test('users of one request see each other: a new profile is named after the user that creates it', async () => {
      await send(under, [person({ anon_id: 'device' }, [{}], { plan: 'free', seen: 1 })]);
      const { id } = await profileOf(under, 'anon_id', 'device');
      const [first, rejected, second, third] = await predict([
        person({ user_id: 'new' }, [{}], { plan: 'pro' }),
        { identifiers: { user_id: 'x' } },
        person({ user_id: 'new', email: 'New@Example.com' }, [{}], { plan: 'max' }),
        person({ user_id: 'new', anon_id: 'device' }),
      ]);
      // The device is older, so all of them end up there.
      for (const user of [first, second, third]) assert.deepEqual([user?.profileId, user?.isNew], [id, false]);
      assert.deepEqual(first?.newIdentifiers, [{ type: 'user_id', value: 'new' }]);
      assert.deepEqual(first.propertyChanges, [
        { kind: 'user_properties', name: 'plan', before: null, after: '"pro"' },
      ]);
      assert.equal(rejected?.status, 'rejected');
      assert.match(rejected.message ?? '', /events array is required/);
      assert.deepEqual(second?.newIdentifiers, [{ type: 'email', value: 'New@Example.com' }]);
      assert.deepEqual(second.propertyChanges, [
        { kind: 'user_properties', name: 'plan', before: '"pro"', after: '"max"' },
      ]);
      assert.deepEqual(third?.merges, [{ from: 'new:0', into: id, via: { type: 'anon_id', value: 'device' } }]);
      assert.deepEqual(third.propertyChanges, [
        { kind: 'user_properties', name: 'plan', before: '"free"', after: '"max"' },
      ]);
    });

    test('refusals name the identifier and the reason', async () => {
      await send(under, [person({ user_id: 'u1', anon_id: 'shared' })]);
      const [user] = await predict([person({ user_id: 'u2', anon_id: 'shared' })]);
      assert.deepEqual([user?.profileId, user?.isNew], ['new:0', true]);
      assert.deepEqual(user?.refusals, [{ type: 'anon_id', value: 'shared', reason: 'other_user_id' }]);
      assert.deepEqual(user.warnings, [
        'identifiers.anon_id was not linked: it belongs to a profile with another user_id',
      ]);
    });

    test('what an unmerge separated is not merged again', async () => {
      await send(under, [person({ anon_id: 'a' })]);
      await send(under, [person({ user_id: 'u' })]);
      const mergedBy = await send(under, [person({ user_id: 'u', anon_id: 'a' })]);
      await under.store.unmerge(TENANT, (await profileOf(under, 'user_id', 'u')).id, mergedBy, ACT);
      const [user] = await predict([person({ user_id: 'u', anon_id: 'a' })]);
      assert.deepEqual(user?.merges, []);
      assert.deepEqual(user.refusals, [{ type: 'anon_id', value: 'a', reason: 'cannot_link' }]);
    });

    test('what was sent before is recognised by $event_id and by Idempotency-Key', async () => {
      const users = [person({ user_id: 'u' }, [{ $event_id: 'e1' }])];
      const traceId = await send(under, users, { receivedAt: LATER - HOUR_MS, idempotencyKey: 'once' });
      const [repeat] = await predict(users, { idempotencyKey: 'once' });
      assert.deepEqual([repeat?.duplicateOf, repeat?.events, repeat?.profileId], [traceId, 0, null]);
      const [byId] = await predict([person({ user_id: 'u' }, [{ $event_id: 'e1' }, {}])]);
      assert.deepEqual([byId?.duplicateOf, byId?.events, byId?.duplicateEvents], [null, 1, 1]);
      const [otherBody] = await predict([person({ user_id: 'u' })], { idempotencyKey: 'once' });
      assert.match(otherBody?.warnings[0] ?? '', /Idempotency-Key was used with another body/);
    });

    test('an erased person is not brought back by data from before', async () => {
      await send(under, [person({ user_id: 'u' })]);
      await under.store.erase(TENANT, (await profileOf(under, 'user_id', 'u')).id, { ...ACT, at: LATER });
      const [late] = await predict([person({ user_id: 'u' })], { receivedAt: LATER - 1 });
      assert.match(late?.warnings[0] ?? '', /was erased/);
      assert.deepEqual([late?.profileId, late?.events], [null, 0]);
      const [new_] = await predict([person({ user_id: 'u' })], { receivedAt: LATER + 1 });
      assert.deepEqual([new_?.profileId, new_?.events], ['new:0', 1]);
    });

    test('large property changes are counted, not listed', async () => {
      await send(under, [person({ user_id: 'u' }, [{}], { a: 'x', b: 'y'.repeat(900_000) })]);
      const [user] = await predict([person({ user_id: 'u' }, [{}], { a: 'z', b: 'z'.repeat(900_000) })]);
      assert.deepEqual(user?.propertyChanges, [{ kind: 'user_properties', name: 'a', before: '"x"', after: '"z"' }]);
      assert.equal(user.propertyChangesOmitted, 1);
    });

    test('of people with very many properties only the first few are compared', async () => {
      const large = (id: string, value: string) =>
        person({ user_id: id }, [{}], { large: value.repeat(9_000_000), a: 1 });
      for (const id of ['u', 'v', 'w']) await send(under, [large(id, 'x')]);
      const users = ['u', 'v', 'w', 'new'].map((id) => person({ user_id: id }, [{}], { a: 2, b: 3 }));
      const predicted = await predict(users);
      assert.deepEqual(
        predicted.map(({ propertyChanges, propertyChangesOmitted }) => [
          propertyChanges.length,
          propertyChangesOmitted,
        ]),
        [
          [2, 0],
          [2, 0],
          [0, 2],
          [2, 0],
        ],
      );
      assert.deepEqual(
        predicted.map(({ isNew }) => isNew),
        [false, false, false, true],
      );
    });

    test('it changes nothing, and nothing of another tenant is seen', async () => {
      const traceId = await send(under, [person({ user_id: 'u', anon_id: 'a' }, [{}], { plan: 'pro' })]);
      const before = await dumpOf(under.store, [traceId]);
      const users = [person({ user_id: 'u', email: 'n@e.w' }, [{ $event_id: 'e' }], { plan: 'max' }), 17];
      const about = { idempotencyKey: 'k' };
      assert.equal((await predict(users, about))[0]?.isNew, false);
      for (const tenantId of [OTHER_TENANT, 'acct_unknown/production']) {
        const [user] = await predict(users, { ...about, tenantId });
        assert.deepEqual([user?.profileId, user?.isNew], ['new:0', true]);
        assert.deepEqual(
          user?.propertyChanges.map((change) => change.before),
          [null],
        );
      }
      assert.deepEqual(await dumpOf(under.store, [traceId]), before);
      // Neither were its ids and keys used up.
      const { traceId: real, ...entry } = request(users, { ...about, receivedAt: LATER });
      await feed(under, [{ ...entry, traceId: real }]);
      const trace = await under.store.trace(TENANT, real);
      assert.deepEqual([trace?.duplicateOf, trace?.users[0]?.events], [null, 1]);
    });

    test('on a random history, every prediction equals the outcome', async () => {
      await predictHistory(under, 1);
    });
  });
}

function predictionOf(store: Store, entry: LogEntry): Promise<Prediction> {
  return store.predict(entry.tenantId, [{ firstUserIndex: 0, ...entry, partition: 0, position: 0 }]);
}

const HISTORY_REQUESTS = 120;

/** Few people, so that they meet; with erases and unmerges in between. */
export async function predictHistory(under: StoreUnderTest, seed: number): Promise<void> {
  const random = randomOf(seed);
  const pick = <T>(items: readonly T[]): T | undefined => items[Math.floor(random() * items.length)];
  const seen = { merges: 0, refusals: 0, changes: 0, duplicates: 0, deleted: 0, created: 0 };
  // The generator spreads people over its tenants; one tenant makes them meet more often.
  for (const [index, made] of entriesOf(seed, HISTORY_REQUESTS, 12).entries()) {
    const entry = index % 10 === 0 ? made : { ...made, tenantId: TENANTS[0] };
    const prediction = await predictionOf(under.store, entry);
    const before = new Map<string, Properties | undefined>();
    for (const { profileId } of prediction.users) {
      if (profileId !== null) before.set(profileId, await propertiesOf(under.store, entry, profileId));
    }
    await feed(under, [entry]);
    await compare(under.store, entry, prediction, before);
    for (const user of prediction.users) {
      seen.merges += user.merges.length;
      seen.refusals += user.refusals.length;
      seen.changes += user.propertyChanges.length;
      seen.deleted += user.propertyChanges.filter(({ after }) => after === null).length;
      seen.duplicates += user.duplicateEvents + (user.duplicateOf === null ? 0 : 1);
      seen.created += user.isNew ? 1 : 0;
    }
    if (index % 15 !== 14) continue;
    const { rows } = await under.store.profiles(entry.tenantId, { limit: 100, cursor: null });
    const [merged, any] = [pick(rows.filter(({ mergedIds }) => mergedIds.length > 0)), pick(rows)];
    const act = { traceId: traceIdOf(entry.receivedAt, index), at: entry.receivedAt };
    if (merged !== undefined && random() < 0.5) {
      const [merge] = (await under.store.identity(entry.tenantId, merged.id))?.merges ?? [];
      assert.ok(merge);
      await under.store.unmerge(entry.tenantId, merged.id, merge.traceId, act);
    } else if (any !== undefined) await under.store.erase(entry.tenantId, any.id, act);
  }
  for (const [what, count] of Object.entries(seen)) assert.ok(count > 0, `the history has no ${what}`);
}

type Properties = ReadonlyMap<string, string>;

/** Undefined for a profile that is not there; otherwise values by kind and name. */
async function propertiesOf(store: Store, { tenantId }: LogEntry, id: string): Promise<Properties | undefined> {
  const profile = await store.profile(tenantId, id);
  if (profile === undefined) return undefined;
  const of = (kind: string, values: ReadonlyMap<string, Provenance>): [string, string][] =>
    Array.from(values, ([name, { value }]) => [`${kind}.${name}`, value]);
  return new Map([...of('profile_fields', profile.profileFields), ...of('user_properties', profile.userProperties)]);
}

async function compare(
  store: Store,
  entry: LogEntry,
  { users }: Prediction,
  before: ReadonlyMap<string, Properties | undefined>,
): Promise<void> {
  const { tenantId, traceId, receivedAt } = entry;
  const realId = (id: string): string => {
    const [, userIndex] = /^new:(\d+)$/.exec(id) ?? [];
    return userIndex === undefined ? id : nodeIdOf(tenantId, { receivedAt, traceId, userIndex: Number(userIndex) });
  };
  const trace = await store.trace(tenantId, traceId);
  assert.ok(trace);
  assert.deepEqual(
    users.map((user) => ({
      userIndex: user.userIndex,
      status: user.status,
      profileId: user.profileId && realId(user.profileId),
      events: user.events,
      duplicateEvents: user.duplicateEvents,
      merged: user.merges.map(({ from, into }) => ({ from: realId(from), into: realId(into) })),
      warnings: user.warnings,
      message: user.message,
    })),
    trace.users,
  );
  const expected = new Map(before);
  for (const user of users) {
    if (user.status === 'accepted') assert.equal(user.duplicateOf, trace.duplicateOf);
    if (user.profileId === null) {
      assert.deepEqual([user.isNew, user.merges, user.propertyChanges], [false, [], []]);
      continue;
    }
    assert.equal(user.isNew, before.get(user.profileId) === undefined);
    const identity = await store.identity(tenantId, realId(user.profileId));
    assert.ok(identity);
    const isOfUser = (cause: { traceId: string; userIndex: number }): boolean =>
      cause.traceId === traceId && cause.userIndex === user.userIndex;
    assert.deepEqual(
      user.newIdentifiers.map(({ type, value }) => `${type} ${value}`).sort(),
      identity.identifiers
        .filter(isOfUser)
        .map(({ type, value }) => `${type} ${value}`)
        .sort(),
    );
    assert.deepEqual(
      user.merges.map(({ via }) => `${via.type} ${via.value}`).sort(),
      identity.merges
        .filter(isOfUser)
        .map(({ via }) => `${via.type} ${via.value}`)
        .sort(),
    );
    for (const { type, value, reason } of user.refusals) {
      const isIt = (row: { type: string; reason: string }): boolean => row.type === type && row.reason === reason;
      assert.ok(identity.refusals.some(isIt), `no refusal of ${type} ${value} for ${reason}`);
    }
    assert.equal(user.propertyChangesOmitted, 0);
    const properties = new Map(expected.get(user.profileId));
    for (const { kind, name, after } of user.propertyChanges) {
      if (after === null) properties.delete(`${kind}.${name}`);
      else properties.set(`${kind}.${name}`, after);
    }
    expected.set(user.profileId, properties);
  }
  for (const [id, properties] of expected) {
    const real = await propertiesOf(store, entry, realId(id));
    assert.deepEqual(real ?? new Map(), properties ?? new Map(), `the properties of ${id}`);
  }
}
