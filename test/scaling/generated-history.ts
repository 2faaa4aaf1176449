/**
 * Histories for property tests of whole stores: batches of requests with acts in between. Everything is drawn from few
 * people, ids and names, so that they meet; values are the ones that stores get wrong: spellings, scripts, digits, junk,
 * limits, repeats, clocks. Users are JSON texts, so that a counterexample can be read and sent as it is.
 */

import * as fc from 'fast-check';
import { bodyHashOf } from '../../src/log/body-hash.ts';
import { validateBody } from '../../src/edge/validate-body.ts';
import type { LogRecord } from '../../src/log.ts';
import { DAY_MS, HOUR_MS, type KeyKind, MINUTE_MS } from '../../src/model.ts';
import { HISTORY_START, TENANTS, traceIdOf } from '../processor/history.ts';

export const MIDNIGHT = Math.floor(HISTORY_START / DAY_MS) * DAY_MS;

export type Unplaced = Omit<LogRecord, 'partition' | 'position'>;

export interface RequestDraft {
  readonly tenant: number;
  /** Against the clock, which goes a minute on with each step. */
  readonly offsetMs: number;
  readonly keyKind: KeyKind;
  readonly keyId: string;
  readonly idempotencyKey: string | null;
  readonly users: readonly string[];
  /** Whole; from a later user on; or a record for each user, the second half of them a step later. */
  readonly cut: 'whole' | 'rest' | 'users' | 'users, some late';
}

export type Act =
  | { readonly kind: 'unmerge' | 'erase'; readonly tenant: number; readonly pick: number; readonly atMs: number }
  | {
      readonly kind: 'sweep';
      readonly day: number;
      readonly eventsDays: number;
      readonly tracesMs: number;
      readonly rejectionsMs: number;
      readonly rejectionBytesMax: number;
    };

export interface Step {
  /** First, the requests of the step before come in once more, under other trace ids. */
  readonly again: boolean;
  readonly requests: readonly RequestDraft[];
  readonly act: Act | null;
}

const text = (value: string): string => JSON.stringify(value);

function object(pairs: readonly (readonly [name: string, json: string])[]): string {
  return `{${pairs.map(([name, json]) => `${text(name)}:${json}`).join(',')}}`;
}

const LONG = `${'x'.repeat(510)}é😀`;
const USER_IDS = ['ada', 'Ada', ' ada ', 'bob', 'bob', 'b\u00f6b', 'bo\u0308b', 'ж', '__proto__', "o'b; --", '%_\\'];
const EMAILS = ['a@example.com', ' A@Example.COM', 'b@example.com', 'ß@EXAMPLE.com', 'İ@example.com', 'م@example.com'];
const PHONES = [
  '+49 151 10000000',
  '0049-151-10000000',
  '+4915110000000',
  '0151 10000000',
  '+1 (212) 555-0100',
  '٠١٢٣',
];
const ANON_IDS = ['device-0', 'device-1', 'device-2', 'Device-1', '👩‍👩‍👧', '\u202ertl', 'm\u0301', LONG];
const JUNK = ['null', '0000-0000', 'Guest', '"none"', '[object Object]', 'anonymous'];
const NAMES = ['plan', '__proto__', 'constructor', 'größe', 'toString', '', '\u{10ffff}', 'a.b', 'Plan'];
const EVENT_NAMES = ['order', 'Order', 'order ', 'z', 'Z', 'ä', '__proto__', '😀', '\uffee', 'page_view'];
const VALUES = [
  'null',
  'null',
  '12345678901234567890',
  '0.1234567890123456789',
  '1e400',
  '-0',
  '1.10',
  'true',
  '"v"',
  '"\\u00e9"',
  '"e\\u0301"',
  '"😀 \\u202eعربى"',
  '[1,{"deep":null,"__proto__":"data"}]',
  '{}',
];
const AMOUNTS = ['9.99', '0.1', '0.2', '0.3', '1e308', '-5', '0.10000000000000000001', '7', '1E2'];
const TIMESTAMPS = [
  '2026-03-01T11:59:59.999Z',
  '2026-03-01T12:00:00+05:45',
  '2026-03-02',
  '20260228',
  '2099-12-31T23:59:59.999Z',
  '1970-01-01',
  '0001-01-01T00:00:00+14:00',
  '2026-02-30',
];
export const BAD_USERS = [
  '17',
  'null',
  '{"identifiers":{},"events":[{"event_name":"a"}]}',
  '{"identifiers":{"user_id":"ada"},"events":[{"event_name":"order"},{"event_name":""}]}',
  '{"identifiers":{"email":"A@example.com"},"events":[]}',
  '{"identifiers":{"anon_id":"device-1"},"events":[{"event_name":"a","b":"\\u0000"}]}',
  '{"identifiers":{"user_id":5},"events":[{"event_name":"😀","__proto__":1}]}',
];

/** As JSON. */
const CURRENCIES = ['"EUR"', '"eur"', '" USD "', '"Euro"', '"€"', 'null', '978', '{"currency":"EUR"}'];

/** Half of them. */
const maybe = <T>(one: fc.Arbitrary<T>): fc.Arbitrary<T | null> => fc.option(one, { freq: 2 });

const pairs = fc.array(fc.tuple(fc.constantFrom(...NAMES), fc.constantFrom(...VALUES)), { maxLength: 3 });

const event = fc
  .record({
    name: fc.constantFrom(...EVENT_NAMES, 'order', 'order'),
    timestamp: maybe(fc.constantFrom(...TIMESTAMPS)),
    revenue: maybe(fc.constantFrom(...AMOUNTS)),
    currency: maybe(fc.constantFrom(...CURRENCIES)),
    value: maybe(fc.constantFrom(...AMOUNTS)),
    id: maybe(fc.constantFrom('e1', 'e2', 'E2', 'é3', ...Array.from({ length: 8 }, (_, n) => `event-${n}`))),
    pairs,
  })
  .map(({ name, timestamp, revenue, currency, value, id, pairs: own }) =>
    object([
      ['event_name', text(name)],
      ...(timestamp === null ? [] : [['timestamp', text(timestamp)] as const]),
      ...(revenue === null ? [] : [['revenue', revenue] as const]),
      ...(currency === null ? [] : [['currency', currency] as const]),
      ...(value === null ? [] : [['event_value', value] as const]),
      ...(id === null ? [] : [['$event_id', text(id)] as const]),
      ...own,
    ]),
  );

const identifiers = fc
  .record({
    user_id: maybe(fc.constantFrom(...USER_IDS, ...JUNK.slice(0, 2))),
    email: maybe(fc.constantFrom(...EMAILS, ...JUNK.slice(2, 4))),
    phone_number: maybe(fc.constantFrom(...PHONES, ...JUNK.slice(0, 2))),
    anon_id: fc.option(fc.constantFrom(...ANON_IDS, ...JUNK.slice(4)), { freq: 3 }),
    first_name: maybe(fc.constantFrom('Ada', 'Zoë', '')),
  })
  .map((own) => Object.entries(own).flatMap(([name, value]) => (value === null ? [] : [[name, text(value)] as const])));

const user = fc
  .record({ identifiers, properties: maybe(pairs), events: fc.array(event, { minLength: 1, maxLength: 3 }) })
  .map(({ identifiers: own, properties, events }) =>
    object([
      ['identifiers', object(own.length === 0 ? [['anon_id', text('device-2')]] : own)],
      ...(properties === null ? [] : [['user_properties', object(properties)] as const]),
      ['events', `[${events.join(',')}]`],
    ]),
  );

const numbers = (count: number): number[] => Array.from({ length: count }, (_, n) => n);
const EVENT = '[{"event_name":"crowd","revenue":0.1}]';
/** More e-mail addresses than a profile may have. */
const ONE_WITH_MANY_EMAILS = numbers(12).map(
  (n) => `{"identifiers":{"user_id":"bob","email":"c${n}@example.com"},"events":${EVENT}}`,
);
/** More names than are kept of a person. */
const TALKATIVE = `{"identifiers":{"user_id":"ada"},"user_properties":${object(
  numbers(1_001).map((n) => [`n${n}`, String(n)]),
)},"events":${EVENT}}`;

const users = fc.oneof(
  { weight: 30, arbitrary: fc.array(user, { minLength: 1, maxLength: 3 }) },
  { weight: 5, arbitrary: fc.tuple(user, fc.constantFrom(...BAD_USERS)) },
  { weight: 5, arbitrary: fc.tuple(fc.constantFrom(...BAD_USERS), user, fc.constantFrom(...BAD_USERS)) },
  { weight: 1, arbitrary: fc.constant(ONE_WITH_MANY_EMAILS) },
  { weight: 1, arbitrary: fc.constant([TALKATIVE]) },
);

const request: fc.Arbitrary<RequestDraft> = fc.record({
  tenant: fc.constantFrom(0, 0, 0, 1, 2),
  offsetMs: fc.constantFrom(0, 0, 0, 1, 999, MINUTE_MS, HOUR_MS, -HOUR_MS, DAY_MS, -DAY_MS, 8 * DAY_MS),
  keyKind: fc.constantFrom<KeyKind>('secret', 'secret', 'publishable'),
  keyId: fc.constantFrom('key_test', 'key_other'),
  idempotencyKey: fc.constantFrom(null, null, null, null, 'once', 'once', 'Once', 'ключ'),
  users,
  cut: fc.constantFrom('whole', 'whole', 'whole', 'rest', 'users', 'users, some late'),
});

const personalAct: fc.Arbitrary<Act> = fc.record({
  kind: fc.constantFrom('unmerge' as const, 'unmerge' as const, 'erase' as const),
  tenant: fc.constantFrom(0, 0, 0, 1),
  pick: fc.nat(1_000),
  atMs: fc.constantFrom(0, -HOUR_MS, DAY_MS),
});

const act: fc.Arbitrary<Act> = fc.oneof(
  personalAct,
  personalAct,
  fc.record({
    kind: fc.constant('sweep' as const),
    // Whole days: PostgreSQL keeps events up to a day longer, SQLite goes by the millisecond.
    day: fc.constantFrom(1, 2, 9, 20),
    eventsDays: fc.constantFrom(1, 2, 1_000),
    tracesMs: fc.constantFrom(HOUR_MS, 1e15),
    rejectionsMs: fc.constantFrom(12.5 * HOUR_MS, 1e15),
    rejectionBytesMax: fc.constantFrom(200, 1e15),
  }),
);

export const history: fc.Arbitrary<readonly Step[]> = fc.array(
  fc.record({
    again: fc.boolean(),
    requests: fc.array(request, { minLength: 1, maxLength: 7, size: 'max' }),
    act: fc.option(act, { freq: 4 }),
  }),
  { minLength: 2, maxLength: 6, size: 'max' },
);

/** By the clock of a step. */
export function timeOf(step: number): number {
  return HISTORY_START + step * MINUTE_MS;
}

/** The batches of a history, as a log would give them. */
export function batchesOf(steps: readonly Step[]): Unplaced[][] {
  const batches: Unplaced[][] = [];
  let late: Unplaced[] = [];
  let count = 0;
  for (const [index, { requests, again }] of steps.entries()) {
    const batch = late;
    late = [];
    const repeated = again ? (steps[index - 1]?.requests ?? []) : [];
    for (const draft of [...repeated, ...requests]) {
      const records = recordsOf(draft, timeOf(index), ++count);
      const split = draft.cut === 'users, some late' ? Math.ceil(records.length / 2) : records.length;
      batch.push(...records.slice(0, split));
      late.push(...records.slice(split));
    }
    batches.push(batch);
  }
  return late.length === 0 ? batches : [...batches, late];
}

function recordsOf(draft: RequestDraft, now: number, count: number): Unplaced[] {
  const receivedAt = now + draft.offsetMs;
  const about = {
    // Not in the order of arrival within a millisecond, as from several edges.
    traceId: traceIdOf(receivedAt, (count * 0x5bd1e995) % 2 ** 47),
    tenantId: TENANTS[draft.tenant] as string,
    receivedAt,
    keyId: draft.keyId,
    keyKind: draft.keyKind,
  };
  const whole = judged(draft.users);
  // The edge refuses a request without a valid user.
  if (whole === null || whole.rejections.length === whole.userCount) return [];
  const { idempotencyKey } = draft;
  if (draft.cut === 'whole' || draft.cut === 'rest') {
    const firstUserIndex = draft.cut === 'rest' ? 2 : 0;
    return [{ ...about, ...shifted(whole, firstUserIndex), idempotencyKey, firstUserIndex }];
  }
  const bodyHash = bodyHashOf(whole.body);
  return draft.users.map((one, index) => ({
    ...about,
    ...shifted(judged([one]) as Judged, index),
    idempotencyKey: idempotencyKey === null || index === 0 ? idempotencyKey : `${idempotencyKey}\u001f${index}`,
    ...(idempotencyKey !== null && { bodyHash }),
    firstUserIndex: index,
  }));
}

type Judged = Pick<LogRecord, 'body' | 'userCount' | 'eventCount' | 'rejections'>;

function judged(texts: readonly string[]): Judged | null {
  const body = Buffer.from(`{"users":[${texts.join(',')}]}`);
  const summary = validateBody(body).validation;
  if (!summary.ok) return null;
  const { userCount, eventCount, rejections } = summary;
  return { body, userCount, eventCount, rejections };
}

function shifted(record: Judged, by: number): Judged {
  return { ...record, rejections: record.rejections.map((row) => ({ ...row, userIndex: row.userIndex + by })) };
}
