/** Reading back on a real server, from the request to the answer: what was sent, by whom, and what came of it. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { ask, makeKey, useServer } from '../edge/fixture.ts';
import { type Answer, eventually, post, type TestServer } from '../server.ts';

/** What these tests look at in answers. */
interface Profile {
  readonly id: string;
  readonly merged_ids: string[];
  readonly identifiers: Record<string, string[]>;
  readonly user_properties: Record<string, unknown>;
  readonly event_count: number;
}
interface Event {
  readonly id: string;
  readonly event_name: string;
  readonly profile_id: string | null;
  readonly trace_id: string;
}
interface EventPage {
  readonly events: Event[];
  readonly next_cursor: string | null;
}

let accounts = 0;

/** Each test has a tenant of its own on the shared server. */
async function tenant(server: TestServer) {
  const { key } = await makeKey(server.dataFolder, { account: `reading ${++accounts}` });
  const authorization = `Bearer ${key}`;
  const get = (path: string): Promise<Answer> => ask(server, path, { headers: { authorization } });
  const act = (method: string, path: string, body?: object): Promise<Answer> =>
    ask(server, path, {
      method,
      headers: { authorization, ...(body !== undefined && { 'content-type': 'application/json' }) },
      body: body === undefined ? null : JSON.stringify(body),
    });
  /** Sends, and waits until it can be read back. */
  const send = async (body: unknown): Promise<string> => {
    const answer = await post(server, key, body);
    const traceId = answer.headers.get('x-trace-id') ?? '';
    await processed(traceId);
    return traceId;
  };
  const processed = (traceId: string): Promise<unknown> =>
    eventually('the request is processed', async () => {
      const { status, body } = await get(`/traces/${traceId}`);
      assert.equal(status, 200);
      return (body as { status: string }).status === 'processed';
    });
  return { key, get, act, send };
}

function user(identifiers: object, events: object[] = [{ event_name: 'tested' }], more: object = {}): object {
  return { users: [{ identifiers, events, ...more }] };
}

suite('Reading back', () => {
  const server = useServer();

  test('numbers come back digit for digit, and a key called __proto__ is data', async () => {
    const { get, send } = await tenant(server());
    await send(
      '{"users":[{"identifiers":{"user_id":"u-1","__proto__":"field"},"user_properties":{"__proto__":{"n":12345678901234567890},"constructor":1e400},"events":[{"event_name":"bought","revenue":0.10000000000000000001,"event_value":9007199254740993,"__proto__":-0.0,"list":[123456789012345678]}]}]}',
    );
    const { text } = await get('/profiles?user_id=u-1&provenance=1');
    assert.match(text, /"profile_fields":\{"__proto__":"field"\}/);
    assert.match(text, /"user_properties":\{"__proto__":\{"n":12345678901234567890\},"constructor":1e400\}/);
    assert.match(text, /"__proto__":\{"value":\{"n":12345678901234567890\},"trace_id"/);
    const events = await get('/events');
    assert.match(events.text, /"revenue":0\.10000000000000000001,"event_value":9007199254740993/);
    assert.match(events.text, /"__proto__":-0(\.0)?,"list":\[123456789012345678\]/);
  });

  test('a request has a trace from the moment of its 202', async () => {
    const { key, get } = await tenant(server());
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, n) => post(server(), key, user({ user_id: `${n}` }))),
    );
    const traces = await Promise.all(answers.map(({ headers }) => get(`/traces/${headers.get('x-trace-id')}`)));
    for (const { status, body } of traces) {
      assert.equal(status, 200);
      assert.match((body as { status: string }).status, /^(?:pending|processed)$/);
      assert.equal((body as { users_accepted: number }).users_accepted, 1);
    }
  });

  test('two that turn out to be one person are told why, can be parted again, and stay apart', async () => {
    const { get, act, send } = await tenant(server());
    const first = await send(user({ anon_id: 'a-1' }, [{ event_name: 'viewed' }]));
    await send(user({ user_id: 'u-1', email: 'ADA@example.com' }, [{ event_name: 'ordered' }]));
    const anonymous = (await get('/profiles?anon_id=a-1')).body as Profile;
    const known = (await get('/profiles?user_id=u-1')).body as Profile;
    assert.notEqual(anonymous.id, known.id);

    const signIn = await send(user({ user_id: 'u-1', anon_id: 'a-1' }, [{ event_name: 'signed_in' }]));
    const merged = (await get('/profiles?email=ada@example.com')).body as Profile;
    assert.equal(merged.id, anonymous.id);
    assert.deepEqual(merged.merged_ids, [known.id]);
    assert.equal(merged.event_count, 3);
    assert.deepEqual((await get(`/profiles/${known.id}`)).body, merged);
    const timeline = (await get(`/profiles/${known.id}/events`)).body as EventPage;
    assert.deepEqual(
      new Set(timeline.events.map(({ event_name }) => event_name)),
      new Set(['viewed', 'ordered', 'signed_in']),
    );
    assert.ok(timeline.events.every(({ profile_id }) => profile_id === merged.id));

    const why = await get(`/profiles/${merged.id}/identity?from=email:Ada@Example.com&to=anon_id:a-1`);
    const { chain } = why.body as { chain: { kind: string; trace_id: string }[] };
    assert.deepEqual(
      chain.map(({ kind }) => kind),
      ['link', 'merge', 'link'],
    );
    assert.deepEqual([chain[1]?.trace_id, chain[2]?.trace_id], [signIn, first]);
    assert.equal((await get(`/profiles/${merged.id}/identity?from=email:eve@example.com&to=anon_id:a-1`)).status, 404);

    const path = `/profiles/${merged.id}/unmerge`;
    assert.equal((await act('POST', path, { trace_id: first })).status, 400);
    const undone = await act('POST', path, { trace_id: signIn });
    assert.deepEqual(undone.body, { undone: 1, profile_ids: [anonymous.id, known.id] });
    assert.equal((await act('POST', path, { trace_id: signIn })).status, 400);
    assert.equal(((await get('/profiles?user_id=u-1')).body as Profile).id, known.id);
    await send(user({ user_id: 'u-1', anon_id: 'a-1' }));
    assert.notEqual(((await get('/profiles?anon_id=a-1')).body as Profile).id, known.id);
    const { body: audit } = await get('/audit');
    assert.deepEqual(
      (audit as { acts: { kind: string; trace_id: string }[] }).acts.map(({ kind, trace_id }) => [kind, trace_id]),
      [['unmerge', undone.headers.get('x-trace-id')]],
    );
  });

  test('who is erased is gone from every answer, and the books still balance', async () => {
    const { get, act, send } = await tenant(server());
    const traceId = await send(
      user({ user_id: 'gone', email: 'gone@example.com' }, [{ event_name: 'x' }, { event_name: 'y' }]),
    );
    await send(user({ user_id: 'stays' }));
    const { id } = (await get('/profiles?user_id=gone')).body as Profile;
    const erased = await act('DELETE', `/profiles/${id}`);
    assert.equal(erased.status, 202);
    assert.deepEqual(erased.body, { trace_id: erased.headers.get('x-trace-id') });
    for (const path of [
      `/profiles/${id}`,
      `/profiles/${id}/events`,
      `/profiles/${id}/identity`,
      '/profiles?email=gone@example.com',
    ]) {
      assert.equal((await get(path)).status, 404, path);
    }
    assert.equal((await act('DELETE', `/profiles/${id}`)).status, 404);
    assert.equal(((await get('/events')).body as EventPage).events.length, 1);
    assert.equal((await get(`/traces/${traceId}`)).status, 200);
    for (const path of ['/events', '/audit', `/traces/${traceId}`])
      assert.ok(!(await get(path)).text.includes('gone'), path);
    const { balanced, totals } = (await get('/ledger')).body as {
      balanced: boolean;
      totals: Record<string, Record<string, number>>;
    };
    assert.ok(balanced);
    assert.equal(totals['events']?.['received'], 3);
    assert.equal(totals['events']?.['erased'], 2);
  });

  test('pages neither repeat nor skip anything, whatever comes in between them', async () => {
    const { get, send } = await tenant(server());
    const day = (n: number): string => new Date(Date.UTC(2026, 0, 1, 0, n)).toISOString();
    // Every third has the same time as the one before: a cursor by time alone would lose some.
    const times = Array.from({ length: 60 }, (_, n) => day(10 + n - (n % 3 === 2 ? 1 : 0)));
    await send(
      user(
        { user_id: 'u-1' },
        times.map((timestamp, n) => ({ event_name: `e-${n}`, timestamp })),
      ),
    );
    const { id } = (await get('/profiles?user_id=u-1')).body as Profile;
    for (const path of ['/events', `/profiles/${id}/events`]) {
      const seen: Event[] = [];
      let cursor: string | null = '';
      for (let page = 0; cursor !== null; page++) {
        assert.ok(page < 20);
        const { body } = await get(`${path}?limit=7&to=2026-02-01&cursor=${encodeURIComponent(cursor)}`);
        const { events, next_cursor } = body as EventPage;
        seen.push(...events);
        cursor = next_cursor;
        const late = [day(0), day(30), day(200)].map((timestamp) => ({ event_name: 'late', timestamp }));
        if (page < 4) await send(user({ user_id: 'u-1' }, late));
      }
      const names = seen.map(({ event_name }) => event_name).filter((name) => name !== 'late');
      assert.equal(new Set(seen.map(({ id }) => id)).size, seen.length);
      assert.deepEqual(names.toSorted(), times.map((_, n) => `e-${n}`).toSorted());
    }
  });

  test('whoever follows along gets each event once, in order of arrival', async () => {
    const { get, send } = await tenant(server());
    await send(user({ user_id: 'u-0' }));
    let { last } = (await get('/events?after=')).body as { last: string };
    const names: string[] = [];
    for (const name of ['a', 'b', 'c']) {
      await send(
        user({ user_id: name }, [{ event_name: name, timestamp: '2001-01-01' }, { event_name: `${name}${name}` }]),
      );
      for (let events: Event[] = [], more = true; more; more = events.length > 0) {
        const { body } = await get(`/events?limit=1&after=${encodeURIComponent(last)}`);
        ({ events, last } = body as { events: Event[]; last: string });
        names.push(...events.map(({ event_name }) => event_name));
      }
    }
    assert.deepEqual(names, ['a', 'aa', 'b', 'bb', 'c', 'cc']);
  });

  test('events are counted by time and name, and found by either', async () => {
    const { get, send } = await tenant(server());
    await send(
      user({ user_id: 'u-1' }, [
        { event_name: 'sold', timestamp: '2026-01-01T00:59:59.999Z', revenue: 1.5 },
        { event_name: 'sold', timestamp: '2026-01-01T01:00:00Z', revenue: 2 },
        { event_name: 'seen', timestamp: '2026-01-01T01:30:00+00:00' },
        { event_name: 'seen', timestamp: '2026-01-02T00:00:00Z' },
      ]),
    );
    const range = 'from=2026-01-01&to=2026-01-02';
    const [one, two] = ['2026-01-01T00:00:00.000Z', '2026-01-01T01:00:00.000Z'];
    const buckets = async (query: string): Promise<unknown> =>
      ((await get(`/events/counts?${range}&${query}`)).body as { buckets: unknown }).buckets;
    assert.deepEqual(await buckets('interval=day'), [{ start: one, events: 3, revenue: 3.5 }]);
    assert.deepEqual(await buckets('interval=hour'), [
      { start: one, events: 1, revenue: 1.5 },
      { start: two, events: 2, revenue: 2 },
    ]);
    assert.deepEqual(await buckets('interval=day&group_by=event_name'), [
      { start: one, event_name: 'seen', events: 1, revenue: 0 },
      { start: one, event_name: 'sold', events: 2, revenue: 3.5 },
    ]);
    const found = (await get(`/events?event_name=seen&${range}`)).body as EventPage;
    assert.equal(found.events.length, 1);
  });

  test('a rejected user can be looked at, with its reason', async () => {
    const { get, send } = await tenant(server());
    const traceId = await send(
      '{"users":[{"identifiers":{"user_id":"u-1"},"events":[{"event_name":"x"},{"event_name":" ","n":12345678901234567890}]},{"identifiers":{"user_id":"u-2"},"events":[]}]}',
    );
    const reason = 'events[].event_name is required and must be a non-empty string';
    const { text, body } = await get(`/rejections?reason=${encodeURIComponent(reason.replace('[]', '[7]'))}`);
    const { rejections } = body as { rejections: { trace_id: string; userIndex: number; reason: string }[] };
    assert.deepEqual(
      rejections.map((one) => [one.trace_id, one.userIndex, one.reason]),
      [[traceId, 0, reason]],
    );
    assert.ok(text.includes('"n":12345678901234567890'));
    assert.equal(((await get('/rejections')).body as { rejections: unknown[] }).rejections.length, 2);
    assert.equal(((await get('/rejections?to=2026-01-01')).body as { rejections: unknown[] }).rejections.length, 0);
  });

  test('a tenant neither sees nor changes anything of another, on any route', async () => {
    const owner = await tenant(server());
    const other = await tenant(server());
    await owner.send(user({ anon_id: 'a-1' }));
    await owner.send(user({ user_id: 'u-1', email: 'canary@example.com' }));
    const merging = await owner.send(user({ user_id: 'u-1', anon_id: 'a-1' }));
    await owner.send(user({}));
    const before = (await owner.get('/profiles?user_id=u-1')).body as Profile;
    const own = ['', '/events', '/identity'].map((rest) => `/profiles/${before.id}${rest}`);
    for (const path of [...own, '/profiles?user_id=u-1', '/profiles?email=canary@example.com', `/traces/${merging}`]) {
      assert.equal((await owner.get(path)).status, 200, path);
      assert.equal((await other.get(path)).status, 404, path);
    }
    for (const path of ['/events', '/events?after=', '/events/counts', '/rejections', '/ledger', '/audit']) {
      const { status, text } = await other.get(path);
      assert.equal(status, 200);
      assert.ok(!text.includes('canary') && !text.includes(before.id) && !text.includes(merging), path);
      assert.match(text, /"(?:events|buckets|rejections|hours|acts)":\[\]/);
    }
    const unmerge = await other.act('POST', `/profiles/${before.id}/unmerge`, { trace_id: merging });
    assert.equal(unmerge.status, 404);
    assert.equal((await other.act('DELETE', `/profiles/${before.id}`)).status, 404);
    assert.deepEqual((await owner.get(`/profiles/${before.id}`)).body, before);
    // A cursor of one tenant shows another one nothing but its own.
    const { next_cursor } = (await owner.get('/events?limit=1')).body as EventPage;
    const { text } = await other.get(`/events?cursor=${encodeURIComponent(next_cursor ?? '')}`);
    assert.ok(!text.includes(before.id));
  });

  test('nothing that was asked for gets into the log of the server', async () => {
    const { get, key } = await tenant(server());
    for (const path of [
      '/profiles?email=canary-1@example.com',
      '/profiles?email=canary-2@example.com&limit=1',
      '/profiles/canary-3',
      '/events?cursor=canary-4',
      '/rejections?reason=canary-5',
    ]) {
      await get(path);
    }
    assert.ok(!server().stderr().includes('canary'));
    assert.ok(!server().stderr().includes(key));
    assert.ok(!server().stderr().includes('request failed unexpectedly'));
  });
});
