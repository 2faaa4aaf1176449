/** What becomes of users on their way into the store: repeats, late data of the erased, and too much at once. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import type { LogRecord } from '../../src/log.ts';
import { LIMITS, type MatchKey } from '../../src/model.ts';
import { decide } from '../../src/processor/decide.ts';
import { prepareRecord } from '../../src/processor/prepare.ts';
import type { LookupResult, TenantBatch } from '../../src/store-writer.ts';
import { entryOf, traceIdOf } from './history.ts';

const OPTIONS = { defaultCountry: null, junkValues: new Set<string>() };
const TENANT = 'acct_a/production';
const ERASED_AT = 1_000_000;

/** An empty store, except for what the test adds. */
function lookupResultOf(known: { readonly erased?: readonly string[] }): LookupResult {
  const { erased = [] } = known;
  return {
    snapshot: {
      nextNode: 1,
      nodeOf: () => undefined,
      rootOf: (node) => node,
      profileOf: () => assert.fail('no one is known'),
    },
    lastErasedAt: erased.length > 0 ? ERASED_AT : 0,
    newestUseOfKey: () => undefined,
    olderUseOfKey: () => undefined,
    openRejections: () => new Set<number>(),
    lastUseOfEventId: () => undefined,
    erasedAt: ({ type, value }: MatchKey) => (erased.includes(`${type}:${value}`) ? ERASED_AT : undefined),
  };
}

let made = 0;

function recordOf(users: readonly unknown[], about: Partial<LogRecord> = {}): LogRecord {
  const number = made++;
  const receivedAt = ERASED_AT - 10;
  const base = {
    tenantId: TENANT,
    keyKind: 'secret',
    idempotencyKey: null,
    traceId: traceIdOf(receivedAt, number),
  } as const;
  return { ...entryOf(users, { ...base, receivedAt }), partition: 0, position: number, firstUserIndex: 0, ...about };
}

function decided(result: LookupResult, ...records: LogRecord[]): TenantBatch {
  const prepared = records.map((record) => prepareRecord(record, OPTIONS));
  return decide(TENANT, result, prepared);
}

const someone = (identifiers: Record<string, string>, more: object = {}): object => ({
  identifiers,
  events: [{ event_name: 'bought' }],
  ...more,
});

suite('An Idempotency-Key', () => {
  test('of a request in which no user was valid is free for the fixed request', () => {
    const good = recordOf([someone({ user_id: 'ada' })], { idempotencyKey: 'K1' });
    const bad = {
      ...recordOf([someone({ user_id: 'adda' })], { idempotencyKey: 'K1' }),
      eventCount: 0,
      rejections: [{ userIndex: 0, message: 'no' }],
    };
    const { records, newestKeyUses } = decided(lookupResultOf({}), bad, good);
    assert.deepEqual(
      records.map(({ duplicateOf, users }) => [duplicateOf, users.length]),
      [
        [null, 0],
        [null, 1],
      ],
    );
    assert.deepEqual(
      newestKeyUses.map(({ traceId }) => traceId),
      [bad.traceId, good.traceId],
    );
    assert.deepEqual(records[1]?.notes, [], 'without a warning that the key was used before');
  });
});

suite('Data from before an erase (rule 17)', () => {
  test('of the erased person is dropped, and so is what is known by its other identifiers', () => {
    const batch = decided(
      lookupResultOf({ erased: ['user_id:ada'] }),
      recordOf([someone({ user_id: 'ada', email: 'new@example.com' })]),
      recordOf([someone({ email: 'new@example.com' })]),
    );
    assert.deepEqual(
      batch.records.map(({ userTally, eventTally }) => [userTally.erased, eventTally.erased]),
      [
        [1, 1],
        [1, 1],
      ],
    );
    assert.deepEqual(
      batch.tombstones.map(({ key, erasedAt }) => [key.type, key.value, erasedAt]),
      [['email', 'new@example.com', ERASED_AT]],
    );
  });

  test('of another person who shared an identifier is stored, without that identifier and with a warning', () => {
    const batch = decided(
      lookupResultOf({ erased: ['user_id:ada', 'anon_id:tablet'] }),
      recordOf([someone({ user_id: 'bob', anon_id: 'tablet' })]),
    );
    const [record] = batch.records;
    assert.deepEqual([record?.userTally.stored, record?.userTally.erased], [1, 0]);
    assert.deepEqual(
      batch.changes.identifiers.map(({ key }) => key.value),
      ['bob'],
    );
    assert.match(record?.notes[0]?.warnings?.[0] ?? '', /identifiers\.anon_id was left out/);
  });

  test('that was rejected keeps its reason, but not what was sent', () => {
    const record = {
      ...recordOf([someone({ user_id: 'ada', ssn: 'secret' })]),
      eventCount: 0,
      rejections: [{ userIndex: 0, message: 'no' }],
    };
    const [late] = decided(lookupResultOf({ erased: ['user_id:ada'] }), record).records;
    assert.equal(late?.rejections[0]?.message, 'no');
    assert.equal(late?.rejections[0]?.payload, null);
    const [other] = decided(lookupResultOf({}), record).records;
    assert.match(other?.rejections[0]?.payload ?? '', /secret/);
  });

  test('is no longer a matter once it came in after the erase', () => {
    const record = recordOf([someone({ user_id: 'ada' })], { receivedAt: ERASED_AT + 1 });
    assert.equal(decided(lookupResultOf({ erased: ['user_id:ada'] }), record).records[0]?.userTally.stored, 1);
  });
});

suite('Too much of something', () => {
  test('more names than are kept of a person are cut, and the trace says so', () => {
    const many = Object.fromEntries(Array.from({ length: LIMITS.namesPerNodeMax + 1 }, (_, n) => [`name${n}`, n]));
    const [record] = decided(
      lookupResultOf({}),
      recordOf([someone({ user_id: 'ada' }, { user_properties: many })]),
    ).records;
    const kept = JSON.parse(record?.users[0]?.propertyUpdate?.properties ?? '{}') as object;
    assert.equal(Object.keys(kept).length, LIMITS.namesPerNodeMax);
    assert.match(record?.notes[0]?.warnings?.[0] ?? '', /only the first 1000 names/);
  });

  test('a user all of whose events are repeats changes nothing, and the trace says so', () => {
    const event = { event_name: 'bought', $event_id: 'E1' };
    const { records } = decided(
      lookupResultOf({}),
      recordOf([{ identifiers: { user_id: 'ada' }, events: [event] }]),
      recordOf([{ identifiers: { user_id: 'ada' }, user_properties: { plan: 'old' }, events: [event] }]),
    );
    assert.deepEqual([records[1]?.users, records[1]?.userTally.duplicates], [[], 1]);
    assert.match(records[1]?.notes[0]?.warnings?.[0] ?? '', /nothing of this user was applied/);
  });
});
