/** The responses of reading calls, letter for letter and by their schemas: names, times, digits, keys such as __proto__. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { Check } from 'typebox/value';
import { type Json, jsonText, raw } from '../../src/api/responses.ts';
import { inlined, openApiDocument } from './document.ts';
import { KEY_ID, NODE_ID, PROFILE_ID, TRACE_ID } from './canned-store.ts';
import { goodBody, goodPath } from './good-call.ts';
import { type AskOptions, startReadingApp } from './reading-app.ts';

const AT = '2026-11-14T09:30:01.210Z';
const UNMERGE: AskOptions = { method: 'POST', json: { trace_id: TRACE_ID.toUpperCase() } };

const PROFILE_TEXT = `{"id":"${PROFILE_ID}","merged_ids":["${NODE_ID}"],"identifiers":{"user_id":["u-1"],"email":["Ada@example.com"],"phone_number":[],"anon_id":["a-1","a-2"]},"profile_fields":{"__proto__":"field","city":"Lisbon"},"user_properties":{"__proto__":{"__proto__":{"x":1},"constructor":null},"big":12345678901234567890.10,"hasOwnProperty":1e400},"first_seen":"${AT}","last_seen":"2026-11-14T09:30:01.211Z","event_count":3}`;
const PROVENANCE_TEXT = `{"profile_fields":{"__proto__":{"value":"field","trace_id":"${TRACE_ID}","received_at":"${AT}"},"city":{"value":"Lisbon","trace_id":"${TRACE_ID}","received_at":"${AT}"}},"user_properties":{"__proto__":{"value":{"__proto__":{"x":1},"constructor":null},"trace_id":"${TRACE_ID}","received_at":"${AT}"},"big":{"value":12345678901234567890.10,"trace_id":"${TRACE_ID}","received_at":"${AT}"},"hasOwnProperty":{"value":1e400,"trace_id":"${TRACE_ID}","received_at":"${AT}"}}}`;
const EVENT_TEXT = `{"id":"${TRACE_ID}.0.0","event_name":"order \\"completed\\"\u2028","timestamp":"2026-11-14T09:30:00.000Z","received_at":"${AT}","revenue":0.10000000000000000001,"event_value":null,"properties":{"__proto__":9007199254740993,"a":[1.50]},"profile_id":"${PROFILE_ID}","trace_id":"${TRACE_ID}","userIndex":0,"key_id":"${KEY_ID}"}`;
const BOOKS_TEXT = `{"received":7,"stored":1,"duplicates":2,"erased":1,"expired":1,"dead_letters":1,"pending":1,"difference":0}`;
const MERGE_TEXT = `"from":"${NODE_ID}","into":"${PROFILE_ID}","via":{"type":"anon_id","value":"a-1"}`;
const IDENTITY_TEXT = `"identifiers":[{"type":"anon_id","value":"a-1","node":"${PROFILE_ID}","first_trace_id":"${TRACE_ID}","userIndex":0,"first_seen":"${AT}"},{"type":"email","value":"Ada@example.com","node":"${NODE_ID}","first_trace_id":"${TRACE_ID}","userIndex":0,"first_seen":"${AT}"}],"merges":[{${MERGE_TEXT},"nodes":["${PROFILE_ID}","${NODE_ID}"],"trace_id":"${TRACE_ID}","userIndex":0,"at":"${AT}"}],"refusals":[{"type":"email","value":"eve@example.com","reason":"other_user_id","trace_id":"${TRACE_ID}","userIndex":0,"at":"${AT}","count":2}]`;

const SEEN_TEXT = `"count":10,"examined":4,"is_sampled":true,"first_seen":"${AT}","last_seen":"2026-11-14T09:30:01.212Z","key_ids":["${KEY_ID}"],"property_count":1,"changes":[{"change":"new_type","property":"__proto__","type":"string","at":"2026-11-14T09:30:01.211Z"}]`;
const PROPERTIES_TEXT = `"properties":[{"name":"__proto__","share":0.75,"types":[{"type":"string","share":0.3333,"first_seen":"2026-11-14T09:30:01.211Z"},{"type":"number","share":0.6667,"first_seen":"${AT}"}],"examples":["<b>","1.5"],"is_personal":false,"first_seen":"${AT}","last_seen":"2026-11-14T09:30:01.211Z"}],"other_properties":2`;

suite('A response is exactly this', () => {
  const cases: [path: string, status: number, text: string, options?: AskOptions][] = [
    ['/profiles?user_id=u-1', 200, PROFILE_TEXT],
    [
      `/profiles/search?value=${NODE_ID}`,
      200,
      `{"profiles":[{"matched":["id"],"profile":${PROFILE_TEXT}}],"next_cursor":"next","is_partial":false}`,
    ],
    [
      '/profiles/search?include=last_event&cursor=next',
      200,
      `{"profiles":[{"matched":[],"profile":${PROFILE_TEXT},"last_event_at":"2026-11-14T09:30:00.000Z"}],"next_cursor":null,"is_partial":false}`,
    ],
    ['/profiles/search?value=nobody&cursor=next', 200, '{"profiles":[],"next_cursor":null,"is_partial":false}'],
    ['/profiles/count', 200, '{"profiles":3}'],
    [`/profiles/${NODE_ID}`, 200, PROFILE_TEXT],
    [`/profiles/${PROFILE_ID}?provenance=1`, 200, `${PROFILE_TEXT.slice(0, -1)},"provenance":${PROVENANCE_TEXT}}`],
    [`/profiles/${PROFILE_ID}/events`, 200, `{"events":[${EVENT_TEXT}],"next_cursor":"next"}`],
    ['/events?cursor=next', 200, `{"events":[${EVENT_TEXT}],"next_cursor":null}`],
    ['/events?after=', 200, `{"events":[${EVENT_TEXT}],"last":"last"}`],
    [
      '/events/counts',
      200,
      '{"buckets":[{"start":"2026-11-14T09:00:00.000Z","events":2,"revenue":[{"currency":"EUR","events":1,"revenue":0.5}]}]}',
    ],
    [
      '/events/counts?group_by=event_name',
      200,
      '{"buckets":[{"start":"2026-11-14T09:00:00.000Z","event_name":"x","events":2,"revenue":[{"currency":"EUR","events":1,"revenue":0.5}]}]}',
    ],
    [`/profiles/${PROFILE_ID}/identity`, 200, `{${IDENTITY_TEXT}}`],
    [
      `/profiles/${PROFILE_ID}/unmerge`,
      200,
      `{"trace_id":"trace-1","undone":1,"profile_ids":["${PROFILE_ID}","${NODE_ID}"]}`,
      UNMERGE,
    ],
    [`/profiles/${PROFILE_ID}`, 202, '{"trace_id":"trace-1"}', { method: 'DELETE' }],
    [
      '/traces',
      200,
      `{"traces":[{"trace_id":"${TRACE_ID}","status":"processed","received_at":"${AT}","processed_at":"2026-11-14T09:30:01.248Z","users_accepted":1,"users_rejected":1,"duplicate_of":null,"key_id":"${KEY_ID}","events":3}],"next_cursor":"next"}`,
    ],
    [
      `/traces/${TRACE_ID}`,
      200,
      `{"trace_id":"${TRACE_ID}","status":"processed","received_at":"${AT}","processed_at":"2026-11-14T09:30:01.248Z","users_accepted":1,"users_rejected":1,"duplicate_of":null,"key_id":"${KEY_ID}","format":"sluice","users":[{"userIndex":0,"status":"accepted","profile_id":"${PROFILE_ID}","events":1,"duplicate_events":1,"merged":[{"from":"${NODE_ID}","into":"${PROFILE_ID}"}],"warnings":["w"],"message":null},{"userIndex":1,"status":"rejected","profile_id":null,"events":0,"merged":[],"warnings":[],"message":"m"}]}`,
    ],
    [
      '/rejections',
      200,
      `{"rejections":[{"id":"${TRACE_ID}.0","trace_id":"${TRACE_ID}","userIndex":0,"received_at":"${AT}","message":"events[3] x","reason":"events[] x","payload":{"a":1.0},"payload_is_cut":false,"key_id":"${KEY_ID}","format":"sluice","event_names":["\\"x\\""],"resubmitted_at":"${AT}","accepted_by":null},{"id":"${TRACE_ID}.0","trace_id":"${TRACE_ID}","userIndex":0,"received_at":"${AT}","message":"y","reason":"y","payload":"{\\"a\\":\\"","payload_is_cut":true,"key_id":"${KEY_ID}","format":"sluice","event_names":[],"resubmitted_at":null,"accepted_by":null}],"next_cursor":"next"}`,
    ],
    [
      '/rejections/reasons',
      200,
      `{"reasons":[{"reason":"events[] \\"x\\"","users":3,"resubmitted":1,"last_at":"${AT}","trace_id":"${TRACE_ID}","userIndex":4}]}`,
    ],
    [
      '/receipts',
      200,
      '{"minutes":[{"start":"2026-11-14T09:00:00.000Z","users_accepted":5,"users_rejected":2,"events_accepted":9}]}',
    ],
    [
      '/catalogue',
      200,
      `{"events":[{"event_name":"order / \\"completed\\"",${SEEN_TEXT}}],"other_events":4,"user_properties":{${SEEN_TEXT},${PROPERTIES_TEXT}},"profile_fields":null}`,
    ],
    [
      `/catalogue/${encodeURIComponent('order / "completed"')}`,
      200,
      `{"event_name":"order / \\"completed\\"",${SEEN_TEXT},${PROPERTIES_TEXT}}`,
    ],
    [
      '/audit',
      200,
      `{"entries":[{"kind":"erase","trace_id":"${TRACE_ID}","at":"${AT}","detail":{"n":1.0}}],"next_cursor":"next"}`,
    ],
  ];

  for (const [path, status, text, options = {}] of cases) {
    test(`${options.method ?? 'GET'} ${path}`, async (t) => {
      const { ask } = await startReadingApp(t);
      const reply = await ask(path, options);
      assert.equal(reply.text, text);
      assert.equal(reply.status, status);
      assert.equal(reply.headers['content-type'], 'application/json; charset=utf-8');
      assert.equal(reply.headers['cache-control'], 'no-store');
      assert.equal(reply.headers['x-trace-id'], 'trace-1');
    });
  }
});

suite('The ledger', () => {
  const hours = (text: string): string[] => [...text.matchAll(/"hour":"([^"]*)"/g)].map(([, hour = '']) => hour);

  test('have the hours asked for, newest first, and totals and balance over all of them', async (t) => {
    const { ask } = await startReadingApp(t);
    const { text, body } = await ask('/ledger');
    const [newest, before] = ['2026-11-14T09:00:00.000Z', '2026-11-14T08:00:00.000Z'];
    const total = '"received":21,"stored":3,"duplicates":6,"erased":3,"expired":3,"dead_letters":3,"pending":3';
    assert.equal(
      text,
      `{"balanced":false,"missing_records":0,"lost_records":0,"warnings":[],"hours":[{"hour":"${newest}","users":${BOOKS_TEXT},"events":${BOOKS_TEXT},"users_rejected":0,"users_resubmitted":0,"dropped_by_clients":0},{"hour":"${before}","users":${BOOKS_TEXT},"events":${BOOKS_TEXT},"users_rejected":4,"users_resubmitted":1,"dropped_by_clients":3}],"totals":{"users":{${total.replace('21', '22')},"difference":1},"events":{${total},"difference":0},"dropped_by_clients":5}}`,
    );
    const { totals } = body as { totals: unknown };
    const narrow = (await ask('/ledger?from=2026-11-14T08:59:59Z&to=2026-11-14T09:00:00Z')) as {
      text: string;
      body: unknown;
    };
    assert.deepEqual(hours(narrow.text), [before]);
    assert.deepEqual((narrow.body as { totals: unknown }).totals, totals);
  });

  test('go back as far as one asks', async (t) => {
    const { ask } = await startReadingApp(t);
    assert.equal(hours((await ask('/ledger?from=2026-01-01')).text).length, 3);
    assert.deepEqual(hours((await ask('/ledger?to=2026-11-10')).text), ['2026-11-04T09:00:00.000Z']);
    assert.equal(hours((await ask('/ledger?from=2026-12-01')).text).length, 0);
  });
});

suite('Why two identifiers are one person (rule 15)', () => {
  test('is reported as one chain of requests, with a sentence for each step', async (t) => {
    const { ask } = await startReadingApp(t);
    const { status, body } = await ask(`/profiles/${PROFILE_ID}/identity?from=email:ADA@example.com&to=anon_id:a-1`);
    assert.equal(status, 200);
    const { chain } = body as { chain: { kind: string; text: string; trace_id: string }[] };
    assert.deepEqual(
      chain.map(({ kind }) => kind),
      ['link', 'merge', 'link'],
    );
    assert.deepEqual(
      chain.map(({ text }) => text),
      [
        `email Ada@example.com was first seen at ${AT} in users[0] of request ${TRACE_ID}, and belongs to profile ${NODE_ID}.`,
        `At ${AT}, users[0] of request ${TRACE_ID} had both anon_id a-1 of profile ${PROFILE_ID} and an identifier of profile ${NODE_ID}, so ${NODE_ID} was merged into ${PROFILE_ID}.`,
        `anon_id a-1 was first seen at ${AT} in users[0] of request ${TRACE_ID}, and belongs to profile ${PROFILE_ID}.`,
      ],
    );
    assert.ok(chain.every(({ trace_id }) => trace_id === TRACE_ID));
  });

  test('of an identifier and itself is that it was seen', async (t) => {
    const { ask } = await startReadingApp(t);
    const { body } = await ask(`/profiles/${PROFILE_ID}/identity?from=anon_id:a-1&to=anon_id:a-1`);
    assert.equal((body as { chain: unknown[] }).chain.length, 1);
  });

  test('is not found for an unknown identifier, or of another type', async (t) => {
    const { ask } = await startReadingApp(t);
    for (const query of ['from=email:ada@example.com&to=user_id:a-1', 'from=anon_id:A-1&to=anon_id:a-1']) {
      assert.equal((await ask(`/profiles/${PROFILE_ID}/identity?${query}`)).status, 404, query);
    }
  });
});

test('every response matches its schema in the OpenAPI document', async (t) => {
  const document = await openApiDocument();
  const { ask } = await startReadingApp(t, { newTraceId: () => TRACE_ID });
  const chain = '/profiles/{id}/identity?from=email:ada@example.com&to=anon_id:a-1';
  const paths = [
    '/profiles?user_id=u-1',
    '/profiles/search?value=u-1',
    '/events?include=person',
    '/traces/{trace_id}?include=person',
    '/profiles/{id}?provenance=1',
    '/events?after=',
    '/events/counts?group_by=event_name',
    chain,
  ];
  const described = Object.entries(document.paths).flatMap(([path, item]) =>
    Object.entries(item)
      .filter(([, { tags }]) => tags.includes('Reading back'))
      .map(([method]) => [method, path] as const),
  );
  const needsQuery = ['/profiles'];
  const all = [
    ...described.filter(([, path]) => !needsQuery.includes(path)),
    ...paths.map((path) => ['get', path] as const),
  ];
  for (const [method, path] of all) {
    const item = document.paths[path.replace(/\?.*/, '')];
    const operation = item?.[method as 'get' | 'post' | 'put' | 'delete'];
    const json = method === 'post' || method === 'put' ? { json: goodBody(path) } : {};
    const reply = await ask(goodPath(path), { method: method.toUpperCase(), ...json });
    const response = operation?.responses[reply.status];
    assert.ok(response !== undefined && 'content' in response, `${method} ${path}: ${reply.status}`);
    assert.ok(
      Check(inlined(document, response.content?.['application/json']?.schema) as object, reply.body),
      reply.text,
    );
  }
  assert.equal(all.length, described.length - needsQuery.length + paths.length);
});

suite('JSON text', () => {
  test('of any value reads back as the value', () => {
    fc.assert(
      fc.property(fc.jsonValue({ depthSize: 'medium' }), (value) => {
        assert.deepEqual(JSON.parse(jsonText(value as Json)), JSON.parse(JSON.stringify(value)));
      }),
    );
  });

  test('of a map has its keys, whatever they are called', () => {
    const keys = fc.oneof(fc.string(), fc.constantFrom('__proto__', 'constructor', 'toJSON', '"', '\u2028', '\ud800'));
    fc.assert(
      fc.property(fc.array(fc.tuple(keys, fc.jsonValue())), (entries) => {
        const map = new Map(entries as [string, Json][]);
        const read = JSON.parse(jsonText(map)) as object;
        assert.deepEqual(new Set(Object.keys(read)), new Set(map.keys()));
        for (const [key, value] of map) {
          const own: unknown = Object.getOwnPropertyDescriptor(read, key)?.value;
          assert.equal(JSON.stringify(own), JSON.stringify(value));
        }
      }),
    );
  });

  test('takes text as it is only where it is marked, and a mark cannot come from a client', () => {
    assert.equal(
      jsonText([raw('1.0'), '1.0', undefined, { a: undefined, b: raw('{"c":00}') }]),
      '[1.0,"1.0",null,{"b":{"c":00}}]',
    );
    assert.equal(jsonText(JSON.parse('{"rawJSON":"1","TEXT":"2"}') as Json), '{"rawJSON":"1","TEXT":"2"}');
  });
});
