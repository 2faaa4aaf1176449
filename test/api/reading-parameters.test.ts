/** What reading calls make of their parameters: what the store is asked, and how everything else is refused, in words. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { readParameters, timeParameter } from '../../src/api/parameters.ts';
import { DAY_MS, MINUTE_MS } from '../../src/model.ts';
import type { PeopleQuery } from '../../src/store.ts';
import { NODE_ID, PROFILE_ID, TRACE_ID } from './canned-store.ts';
import { NOW, startReadingApp } from './reading-app.ts';

const PAGE = { limit: 50, cursor: null };
const ANY_TIME = { from: null, to: null };
const TIME_TEXT = 'must be an ISO 8601 time, such as 2026-11-14T09:30:00Z';
const LIMIT_TEXT = 'limit must be a whole number from 1 to 500';
const CURSOR_TEXT = 'cursor is not one that the store gave';
const EVENTS_HAVE = 'known parameters: event_name, from, to, include, personal, limit, cursor';
const ONE_IDENTIFIER = 'exactly one of user_id, email, phone_number, anon_id is required';
const TYPED = (name: string): string =>
  `${name} must be a type (user_id, email, phone_number, anon_id), a colon and a value, such as email:ada@example.com`;

suite('What the store is asked', () => {
  const cases: [path: string, method: string, ...given: unknown[]][] = [
    ['/profiles?user_id=u%201', 'findProfile', 'user_id', 'u 1'],
    ['/profiles?user_id=U-1&email=&provenance=0', 'findProfile', 'user_id', 'U-1'],
    ['/profiles?email=%20ADA@Example.com', 'findProfile', 'email', 'ada@example.com'],
    ['/profiles?phone_number=%2B351%20210%20000%20000', 'findProfile', 'phone_number', '+351210000000'],
    ['/profiles?phone_number=+351+210+000+000', 'findProfile', 'phone_number', '+351210000000'],
    ['/profiles?phone_number=%20%2B351+210+000+000', 'findProfile', 'phone_number', '+351210000000'],
    ['/profiles?anon_id=__proto__', 'findProfile', 'anon_id', '__proto__'],
    [`/profiles/${NODE_ID.toUpperCase()}`, 'profile', NODE_ID],
    ['/events', 'events', { profileId: null, eventName: null, ...ANY_TIME, ...PAGE }],
    ['/events?event_name=&from=&to=', 'events', { profileId: null, eventName: null, ...ANY_TIME, ...PAGE }],
    [
      `/profiles/${PROFILE_ID}/events?event_name=a%26b&from=2026-11-14&to=2026-11-14T12:00:00%2B02:00&limit=500&cursor=c`,
      'events',
      {
        profileId: PROFILE_ID,
        eventName: 'a&b',
        from: Date.UTC(2026, 10, 14),
        to: Date.UTC(2026, 10, 14, 10),
        limit: 500,
        cursor: 'c',
      },
    ],
    [
      '/events?to=2026-11-14T12:00:00+02:00&limit=1',
      'events',
      { profileId: null, eventName: null, from: null, to: Date.UTC(2026, 10, 14, 10), limit: 1, cursor: null },
    ],
    ['/events?after=', 'arrivals', null, 50],
    ['/events?after=x&limit=7', 'arrivals', 'x', 7],
    ['/events?after=oldest', 'arrivals', 'oldest', 50],
    ['/events/counts', 'counts', { interval: 'hour', from: NOW - DAY_MS, to: NOW, byEventName: false }],
    [
      '/events/counts?interval=minute&group_by=event_name',
      'counts',
      { interval: 'minute', from: NOW - DAY_MS, to: NOW, byEventName: true },
    ],
    [
      '/events/counts?interval=day',
      'counts',
      { interval: 'day', from: NOW - 30 * DAY_MS, to: NOW, byEventName: false },
    ],
    [
      '/events/counts?to=2026-01-02',
      'counts',
      { interval: 'hour', from: Date.UTC(2026, 0, 1), to: Date.UTC(2026, 0, 2), byEventName: false },
    ],
    [`/traces/${TRACE_ID}`, 'trace', TRACE_ID],
    ['/traces?status=pending&limit=2', 'traces', { status: 'pending', limit: 2, cursor: null }],
    [
      '/profiles/search?property=plan&property_value=pro',
      'searchPeople',
      { text: null, exact: [], property: { name: 'plan', value: 'pro' }, budgetMs: 500, ...PAGE },
    ],
    [
      '/rejections?reason=events[12].event_name%20x',
      'rejections',
      { reason: 'events[].event_name x', eventName: null, keyId: null, isResubmitted: null, ...ANY_TIME, ...PAGE },
    ],
    [
      '/rejections?event_name=x&key_id=key_1&resubmitted=false',
      'rejections',
      { reason: null, eventName: 'x', keyId: 'key_1', isResubmitted: false, ...ANY_TIME, ...PAGE },
    ],
    ['/rejections/reasons', 'rejectionReasons', ANY_TIME],
    [
      '/rejections/reasons?from=2026-11-14&to=2026-11-15',
      'rejectionReasons',
      { from: Date.UTC(2026, 10, 14), to: Date.UTC(2026, 10, 15) },
    ],
    // The minute that has just begun and the 59 before it.
    ['/receipts', 'receipts', { from: NOW - 59 * MINUTE_MS, to: NOW + 1 }],
    [
      '/receipts?to=2026-11-14T09:00:00Z',
      'receipts',
      { from: Date.UTC(2026, 10, 14, 8), to: Date.UTC(2026, 10, 14, 9) },
    ],
    ['/receipts?from=2026-11-13T10:00:00Z', 'receipts', { from: NOW - DAY_MS, to: NOW + 1 }],
    ['/ledger?from=2026-11-14', 'ledger', ANY_TIME],
    ['/audit?limit=2', 'audit', { traceId: null, limit: 2, cursor: null }],
    [`/audit?trace_id=${TRACE_ID}`, 'audit', { traceId: TRACE_ID, limit: 50, cursor: null }],
  ];

  for (const [path, method, ...given] of cases) {
    test(path, async (t) => {
      const { ask, asked } = await startReadingApp(t);
      assert.equal((await ask(path)).status, 200);
      assert.deepEqual(
        asked.map((one) => [one.method, one.arguments.slice(1)]),
        [[method, given]],
      );
    });
  }

  test('a search looks for the value as each type, and for what begins with it', async (t) => {
    const { ask, asked } = await startReadingApp(t);
    const sought = async (query: string): Promise<unknown> => {
      asked.splice(0);
      assert.equal((await ask(`/profiles/search?value=${query}`)).status, 200);
      const [call] = asked;
      assert.ok(call !== undefined);
      const { text, exact } = call.arguments[1] as PeopleQuery;
      return [text, ...exact.map(({ type, normalised }) => [type, normalised])];
    };
    assert.deepEqual(await sought('Ada@Example.com%20'), [
      'Ada@Example.com',
      ['user_id', 'Ada@Example.com'],
      ['email', 'ada@example.com'],
      ['phone_number', 'text:Ada@Example.com'],
      ['anon_id', 'Ada@Example.com'],
    ]);
    assert.deepEqual(await sought('+351+210+000+000'), [
      '+351 210 000 000',
      ['user_id', '+351 210 000 000'],
      ['email', '+351 210 000 000'],
      ['phone_number', '+351210000000'],
      ['anon_id', '+351 210 000 000'],
    ]);
    assert.deepEqual(await sought('%20'), [null]);
  });

  test('people are looked up at once for all events of a page, and only when they are asked for', async (t) => {
    const { ask, asked } = await startReadingApp(t);
    for (const path of ['/events?', '/events?after=&', `/profiles/${PROFILE_ID}/events?`, `/traces/${TRACE_ID}?`]) {
      asked.splice(0);
      const { text } = await ask(`${path}include=person`);
      const looks = asked.filter(({ method }) => method === 'people');
      assert.deepEqual(
        looks.map((one) => one.arguments.slice(1)),
        [[[PROFILE_ID]]],
      );
      assert.match(text, new RegExp(`"person":{"id":"${PROFILE_ID}","name":"Ada","identifiers":{"user_id":\\["u-1"`));
      asked.splice(0);
      assert.doesNotMatch((await ask(path.slice(0, -1))).text, /person/);
      assert.ok(asked.every(({ method }) => method !== 'people'));
    }
  });

  test('a day of minutes is given, also when the request took a while, and not more', async (t) => {
    const { ask } = await startReadingApp(t);
    assert.equal((await ask('/receipts?from=2026-11-13T09:59:30Z')).status, 200);
    assert.equal((await ask('/receipts?from=2026-11-13T09:59:00Z')).status, 400);
    const { body } = await ask('/receipts?from=2026-11-13&to=2026-11-15');
    assert.equal(
      (body as { message: string }).message,
      'from and to span 2,880 minutes, the maximum is 1,440: use a shorter range',
    );
  });

  test('10,000 buckets are counted, and not one more', async (t) => {
    const { ask } = await startReadingApp(t);
    const from = '2026-01-01T00:00:30Z';
    const inside = new Date(Date.UTC(2026, 0, 1) + 10_000 * 60_000).toISOString();
    const beyond = new Date(Date.UTC(2026, 0, 1) + 10_000 * 60_000 + 1).toISOString();
    assert.equal((await ask(`/events/counts?interval=minute&from=${from}&to=${inside}`)).status, 200);
    const { status, body } = await ask(`/events/counts?interval=minute&from=${from}&to=${beyond}`);
    assert.equal(status, 400);
    assert.equal(
      (body as { message: string }).message,
      'from and to span 10,001 buckets of one minute each, the maximum is 10,000: use a longer interval',
    );
  });
});

suite('A parameter that cannot be understood gets 400 with its name', () => {
  const long = 'x'.repeat(513);
  const cases: [path: string, message: string][] = [
    ['/profiles', ONE_IDENTIFIER],
    ['/profiles?user_id=', ONE_IDENTIFIER],
    ['/profiles?user_id=a&email=b', ONE_IDENTIFIER],
    [
      '/profiles?userId=a',
      'unknown parameter userId: known parameters: user_id, email, phone_number, anon_id, provenance',
    ],
    ['/profiles?user_id=a&user_id=b', 'user_id is given more than once'],
    [`/profiles?user_id=${long}`, 'user_id must be at most 512 characters'],
    ['/profiles?user_id=a%00b', 'user_id contains a character that cannot be stored'],
    ['/profiles?user_id=a&provenance=yes', 'provenance must be 0 or 1'],
    [
      '/profiles/search?q=a',
      'unknown parameter q: known parameters: value, property, property_value, include, limit, cursor',
    ],
    ['/profiles/search?property_value=a', 'property_value goes with property'],
    ['/events?include=all', 'include must be person'],
    [`/profiles/search?value=${long}`, 'value must be at most 512 characters'],
    ['/profiles/search?value=a%00', 'value contains a character that cannot be stored'],
    ['/rejections/reasons?limit=5', 'unknown parameter limit: known parameters: from, to'],
    ['/rejections/reasons?from=2026-11-15&to=2026-11-14', 'from must be before to'],
    ['/receipts?from=x', `from ${TIME_TEXT}`],
    ['/receipts?from=2027-01-01', 'from must be before to (default: now)'],
    ['/receipts?from=2026-11-14&to=2026-11-14', 'from must be before to (default: now)'],
    [`/profiles/${PROFILE_ID}?x=1`, 'unknown parameter x: known parameters: provenance'],
    [`/profiles/${PROFILE_ID}/events?after=1`, `unknown parameter after: ${EVENTS_HAVE}`],
    [`/events?__proto__=1`, `unknown parameter __proto__: ${EVENTS_HAVE}, after`],
    [`/events?${'n'.repeat(100)}=1`, `unknown parameter ${'n'.repeat(64)}: ${EVENTS_HAVE}, after`],
    ...['0', '501', '-1', '1.5', '1e2', 'ten', '0x10', '٣', '9'.repeat(400)].map((limit): [string, string] => [
      `/events?limit=${encodeURIComponent(limit)}`,
      LIMIT_TEXT,
    ]),
    ['/events?from=yesterday', `from ${TIME_TEXT}`],
    ['/events?to=2026-02-30', `to ${TIME_TEXT}`],
    ['/events?to=1763100000', `to ${TIME_TEXT}`],
    ['/events?from=2026-11-14&to=2026-11-14', 'from must be before to'],
    ['/events?from=2026-11-15&to=2026-11-14', 'from must be before to'],
    [`/events?event_name=${long}`, 'event_name must be at most 512 characters'],
    ['/events?cursor=nonsense', CURSOR_TEXT],
    [`/profiles/${PROFILE_ID}/events?cursor=nonsense`, CURSOR_TEXT],
    ['/rejections?cursor=nonsense', CURSOR_TEXT],
    ['/audit?cursor=nonsense', CURSOR_TEXT],
    ['/events?after=nonsense', 'after is not one that this call gave: send it as it was in the response'],
    ['/events?after=x&event_name=y', 'after cannot be combined with event_name'],
    ['/events?after=&cursor=y', 'after cannot be combined with cursor'],
    ['/events?after=&from=2026-11-14', 'after cannot be combined with from'],
    ['/events/counts?interval=week', 'interval must be minute, hour or day'],
    ['/events/counts?group_by=profile_id', 'group_by must be event_name'],
    ['/events/counts?from=2027-01-01', 'from must be before to (default: now)'],
    [`/traces/${TRACE_ID}?full=1`, 'unknown parameter full: known parameters: include'],
    ['/traces?status=failed', 'status must be pending or processed'],
    [`/rejections?reason=${'x'.repeat(1_001)}`, 'reason must be at most 1000 characters'],
    ['/rejections?from=2026-11-15&to=2026-11-14', 'from must be before to'],
    ['/ledger?from=2026-11-15&to=2026-11-14', 'from must be before to'],
    ['/ledger?from=x', `from ${TIME_TEXT}`],
    [`/profiles/${PROFILE_ID}/identity?from=email:a`, 'from and to must be used together'],
    [`/profiles/${PROFILE_ID}/identity?to=email:a`, 'from and to must be used together'],
    [`/profiles/${PROFILE_ID}/identity?from=email&to=email:b`, TYPED('from')],
    [`/profiles/${PROFILE_ID}/identity?from=email:a&to=:b`, TYPED('to')],
    [`/profiles/${PROFILE_ID}/identity?from=first_name:a&to=email:b`, TYPED('from')],
  ];

  for (const [path, message] of cases) {
    test(path.length > 80 ? `${path.slice(0, 80)}…` : path, async (t) => {
      const { ask, errors } = await startReadingApp(t);
      const { status, body, headers } = await ask(path);
      assert.equal(status, 400);
      assert.deepEqual(body, { error: 'bad request', trace_id: headers['x-trace-id'], message });
      assert.deepEqual(errors, []);
    });
  }

  const bodies: [what: string, json: unknown, message: string][] = [
    ['an array', [], 'the body must be a JSON object with trace_id'],
    ['null', null, 'the body must be a JSON object with trace_id'],
    ['nothing in it', {}, 'trace_id must be the trace_id of the request that merged'],
    ['no UUID', { trace_id: 'x' }, 'trace_id must be the trace_id of the request that merged'],
    ['a number', { trace_id: 7 }, 'trace_id must be the trace_id of the request that merged'],
    ['something else', { trace_id: TRACE_ID, all: true }, 'the body has an unknown field; known are trace_id'],
    ['a request that merged nothing', { trace_id: NODE_ID }, `request ${NODE_ID} merged nothing in this profile`],
  ];

  for (const [what, json, message] of bodies) {
    test(`unmerge with ${what}`, async (t) => {
      const { ask, errors } = await startReadingApp(t);
      const { status, body } = await ask(`/profiles/${PROFILE_ID}/unmerge`, { method: 'POST', json });
      assert.equal(status, 400);
      assert.deepEqual(body, { error: 'bad request', trace_id: 'trace-1', message });
      assert.deepEqual(errors, []);
    });
  }

  test('unmerge without a body, with one that is not JSON, or with a __proto__ in it', async (t) => {
    const { ask, errors } = await startReadingApp(t);
    const path = `/profiles/${PROFILE_ID}/unmerge`;
    assert.equal((await ask(path, { method: 'POST' })).status, 400);
    assert.equal((await ask(path, { method: 'POST', json: JSON.parse('{"__proto__":1}') })).status, 400);
    assert.equal((await ask(path, { method: 'POST', headers: { 'content-type': 'text/xml' }, json: 1 })).status, 400);
    assert.deepEqual(errors, []);
  });
});

test('whatever stands in a query, it is understood or refused, and nothing else happens', async (t) => {
  const { ask, errors } = await startReadingApp(t);
  const paths = [
    '/events',
    '/events/counts',
    '/profiles',
    '/profiles/search',
    '/traces',
    '/rejections',
    '/rejections/reasons',
    '/receipts',
    '/ledger',
    '/catalogue',
    '/audit',
  ];
  const names = fc.constantFrom('limit', 'cursor', 'from', 'to', 'user_id', 'value', 'interval', 'after', '', 'x');
  const texts = fc.oneof(
    fc.string(),
    fc.constantFrom('%', '%zz', '%ff', '+', ';', '2026-11-14', '5', '%00', '&&=', '#'),
  );
  const query = fc.array(fc.tuple(names, texts), { maxLength: 3 });
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(...paths), query, async (path, pairs) => {
      const written = pairs.map(
        ([name, text]) => `${name}=${/^[%+;&=#][\w&=]*$/.test(text) ? text : encodeURIComponent(text)}`,
      );
      const { status } = await ask(`${path}?${written.join('&')}`);
      assert.ok(status === 200 || status === 400 || status === 404, `${status} ${written.join('&')}`);
    }),
    { numRuns: 300 },
  );
  assert.deepEqual(errors, []);
});

test('every time is read as it was meant, whether or not its plus sign was encoded', () => {
  const kinds = { from: timeParameter('') };
  fc.assert(
    fc.property(
      fc.date({ min: new Date('0001-01-01'), max: new Date('9998-01-01'), noInvalidDate: true }),
      fc.boolean(),
      (date, isEncoded) => {
        const text = date.toISOString().replace('Z', '+00:00');
        const { from } = readParameters(kinds, `/?from=${isEncoded ? encodeURIComponent(text) : text}`);
        assert.equal(from, date.getTime());
      },
    ),
  );
});
