/**
 * A random history sent in Segment's form, and the same one sent in ours with one user for each message, give the same people,
 * properties and events: end to end, on one server, each form into an account of its own.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { ask, makeKey, useServer } from '../edge/fixture.ts';
import { eventually, post, type TestServer } from '../server.ts';

type Members = Readonly<Record<string, unknown>>;

/** One call of an SDK, in no form yet. */
interface Call {
  readonly type: 'track' | 'identify' | 'page' | 'screen' | 'group' | 'alias';
  readonly userId: string | null;
  readonly anonymousId: string | null;
  readonly email: string | null;
  readonly phone: string | null;
  readonly firstName: string | null;
  readonly city: string | null;
  readonly traits: Members;
  readonly properties: Members;
  readonly revenue: number | null;
  readonly value: number | null;
  /** In `context.externalIds`, of a type that is no identifier here. */
  readonly externalId: string | null;
  readonly second: number;
}

interface RequestOfCalls {
  readonly isPublishable: boolean;
  /** Sent once more, as after a response that was lost. */
  readonly isRepeated: boolean;
  readonly calls: readonly Call[];
}

const maybe = <T>(...values: T[]): fc.Arbitrary<T | null> => fc.constantFrom(...values, null);
const value = fc.oneof(fc.nat({ max: 99 }), fc.constantFrom('x', null, [2]));
const members = fc.dictionary(fc.constantFrom('plan', 'é'), value, { maxKeys: 2 });

const call: fc.Arbitrary<Call> = fc
  .record({
    type: fc.constantFrom('track', 'track', 'identify', 'identify', 'identify', 'page', 'screen', 'group', 'alias'),
    userId: maybe('u1', 'u1', 'u2', 'null'),
    anonymousId: maybe('a1', 'a1', 'a2', 'undefined'),
    email: maybe('e1@example.com', 'E1@example.com', 'e2@example.com', null, null),
    phone: maybe('+351210000000', null, null),
    firstName: maybe('Ada', 'Bob'),
    city: maybe('Lisbon'),
    traits: members,
    properties: members,
    revenue: maybe(1, 2.5),
    value: maybe(3),
    externalId: maybe('x1', null, null),
    second: fc.nat({ max: 59 }),
  } satisfies Record<keyof Call, fc.Arbitrary<unknown>>)
  .map((one) => one as Call)
  .filter(({ userId, anonymousId }) => userId !== null || anonymousId !== null);

const history: fc.Arbitrary<readonly RequestOfCalls[]> = fc.array(
  fc.record({
    isPublishable: fc.boolean(),
    isRepeated: fc.boolean(),
    calls: fc.array(call, { minLength: 1, maxLength: 30, size: 'max' }),
  }),
  { minLength: 1, maxLength: 4 },
);

function timeOf({ second }: Call): string {
  return new Date(Date.UTC(2026, 0, 1, 0, 0, second)).toISOString();
}

function inSegmentsForm(one: Call, messageId: string): Members {
  const { type, userId, anonymousId, email, phone, firstName, city, traits, properties, revenue, value } = one;
  const about = {
    ...traits,
    ...(email && { email }),
    ...(phone && { phone }),
    ...(firstName && { firstName }),
    ...(city && { address: { city } }),
  };
  return {
    type,
    messageId,
    timestamp: timeOf(one),
    ...(userId !== null && { userId }),
    ...(type === 'alias' ? { previousId: anonymousId ?? 'a9' } : anonymousId !== null && { anonymousId }),
    ...(type === 'identify' && { traits: about }),
    ...(type === 'track' && { event: 'ordered' }),
    ...(isView(one) && { name: 'Home' }),
    ...(type === 'group' && { groupId: 'g1' }),
    ...contextOf(one),
    properties: { ...properties, ...(revenue !== null && { revenue }), ...(value !== null && { value }) },
  };
}

function isView({ type }: Call): boolean {
  return type === 'page' || type === 'screen';
}

/** Calls other than identify name the person by the traits of their context. */
function contextOf({ type, email, externalId }: Call): { readonly context?: Members } {
  const context = {
    ...(type !== 'identify' && email !== null && { traits: { email } }),
    ...(externalId !== null && { externalIds: [{ type: 'crm_id', id: externalId, collection: 'users' }] }),
  };
  return Object.keys(context).length === 0 ? {} : { context };
}

const NAMES = {
  track: 'ordered',
  identify: '$identify',
  page: 'page_viewed',
  screen: 'screen_viewed',
  group: '$group',
  alias: '$alias',
};

function inOurForm(one: Call, eventId: string): Members {
  const { type, userId, anonymousId, email, phone, firstName, city, traits, properties, revenue, value } = one;
  const externalIds = one.externalId === null ? {} : { external_ids: { crm_id: one.externalId } };
  const previousId = anonymousId ?? 'a9';
  const isIdentify = type === 'identify';
  return {
    identifiers: {
      user_id: userId,
      anon_id: type === 'alias' ? previousId : anonymousId,
      email,
      phone_number: isIdentify ? phone : null,
      first_name: isIdentify ? firstName : null,
      city: isIdentify ? city : null,
    },
    user_properties: isIdentify ? { ...traits, ...externalIds } : externalIds,
    events: [
      {
        event_name: NAMES[type],
        $event_id: eventId,
        timestamp: timeOf(one),
        revenue,
        event_value: value,
        ...(isView(one) && { name: 'Home' }),
        ...(type === 'group' && { group_id: 'g1' }),
        ...(type === 'alias' && { previous_id: previousId }),
        ...contextOf(one),
        ...properties,
      },
    ],
  };
}

interface Keys {
  readonly secret: string;
  readonly publishable: string;
}

async function keysOf(server: TestServer, account: string): Promise<Keys> {
  const { key: secret } = await makeKey(server.dataFolder, { account });
  const { key: publishable } = await makeKey(server.dataFolder, { account, kind: 'publishable' });
  return { secret, publishable };
}

async function read<T>(server: TestServer, { secret }: Keys, path: string): Promise<T> {
  const { status, body } = await ask(server, path, { headers: { authorization: `Bearer ${secret}` } });
  assert.equal(status, 200, path);
  return body as T;
}

interface Found {
  readonly profiles: { readonly profile: Members & { readonly id: string; readonly identifiers: object } }[];
  readonly next_cursor: string | null;
}

interface Events {
  readonly events: (Members & { readonly profile_id: string | null })[];
}

/** A page of a search ends early on a busy machine. */
async function everyone(server: TestServer, keys: Keys): Promise<Found['profiles']> {
  const found: Found['profiles'] = [];
  for (let cursor: string | null = ''; cursor !== null; ) {
    const page: Found = await read(server, keys, `/profiles/search?limit=500&cursor=${cursor}`);
    found.push(...page.profiles);
    cursor = page.next_cursor;
  }
  return found;
}

/** All that can be read back of an account, without ids and times that differ from request to request. */
async function resultOf(server: TestServer, keys: Keys): Promise<unknown> {
  await eventually('everything is processed', async () => {
    const { totals } = await read<{ totals: { events: { pending: number } } }>(server, keys, '/ledger');
    return totals.events.pending === 0;
  });
  const profiles = await everyone(server, keys);
  const { events } = await read<Events>(server, keys, '/events?limit=500');
  const names = new Map(profiles.map(({ profile }) => [profile.id, JSON.stringify(sorted(profile.identifiers))]));
  return {
    people: profiles
      .map(({ profile }) => [
        names.get(profile.id),
        profile['profile_fields'],
        profile['user_properties'],
        profile['event_count'],
      ])
      .sort(byText),
    events: events
      .map(({ event_name, timestamp, revenue, event_value, properties, profile_id }) => {
        const person = profile_id === null ? null : names.get(profile_id);
        return [person, event_name, timestamp, revenue, event_value, sorted(properties as object)];
      })
      .sort(byText),
  };
}

function sorted(object: object): unknown {
  const entries = Object.entries(object).map(([name, value]) => [
    name,
    Array.isArray(value) ? value.toSorted(byText) : value,
  ]);
  return entries.sort(byText);
}

function byText(one: unknown, other: unknown): number {
  return JSON.stringify(one) < JSON.stringify(other) ? -1 : 1;
}

async function sendSegment(server: TestServer, key: string, batch: readonly unknown[]): Promise<void> {
  const { status, text } = await ask(server, '/ingest/v1/batch', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ batch, writeKey: key }),
  });
  assert.equal(status, 200, text);
}

suite('A history in Segment’s form and in ours', () => {
  const server = useServer();
  let run = 0;

  test('gives the same people, properties and events', async () => {
    await fc.assert(
      fc.asyncProperty(history, async (requests) => {
        run += 1;
        const theirs = await keysOf(server(), `segment-${run}`);
        const ours = await keysOf(server(), `own-${run}`);
        for (const [at, { isPublishable, isRepeated, calls }] of requests.entries()) {
          const kind = isPublishable ? 'publishable' : 'secret';
          const batch = calls.map((one, index) => inSegmentsForm(one, `m-${at}-${index}`));
          const users = calls.map((one, index) => inOurForm(one, `m-${at}-${index}`));
          for (let times = isRepeated ? 2 : 1; times > 0; times--) {
            await sendSegment(server(), theirs[kind], batch);
            assert.equal((await post(server(), ours[kind], { users })).status, 202);
          }
        }
        assert.deepEqual(await resultOf(server(), theirs), await resultOf(server(), ours));
      }),
      { numRuns: 12 },
    );
  });
});
