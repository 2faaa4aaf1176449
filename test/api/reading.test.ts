/** Reading back on a real server, from the request to the response: who a person is, and why, and for whom. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { useServer } from '../edge/fixture.ts';
import { post } from '../server.ts';
import { type EventPage, type Profile, tenant, user } from './reading-tenant.ts';

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
    const responses = await Promise.all(
      Array.from({ length: 20 }, (_, n) => post(server(), key, user({ user_id: `${n}` }))),
    );
    const traces = await Promise.all(responses.map(({ headers }) => get(`/traces/${headers.get('x-trace-id')}`)));
    for (const { status, body } of traces) {
      assert.equal(status, 200);
      assert.match((body as { status: string }).status, /^(?:pending|processed)$/);
      assert.equal((body as { users_accepted: number }).users_accepted, 1);
    }
  });

  test('two that turn out to be one person are explained, can be unmerged, and stay separate', async () => {
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
    for (const [from, to, message] of [
      ['email:eve@example.com', 'anon_id:a-1', 'from is not an identifier of this profile'],
      ['anon_id:a-1', 'user_id:a-1', 'to is not an identifier of this profile'],
      ['email:eve@example.com', 'anon_id:a-2', 'from and to are not identifiers of this profile'],
    ]) {
      const { status, headers, body } = await get(`/profiles/${merged.id}/identity?from=${from}&to=${to}`);
      assert.equal(status, 404);
      assert.deepEqual(body, { error: 'not found', trace_id: headers.get('x-trace-id'), message });
    }

    const path = `/profiles/${merged.id}/unmerge`;
    assert.equal((await act('POST', path, { trace_id: first })).status, 400);
    const undone = await act('POST', path, { trace_id: signIn });
    const actId = undone.headers.get('x-trace-id');
    assert.deepEqual(undone.body, { trace_id: actId, undone: 1, profile_ids: [anonymous.id, known.id] });
    assert.equal((await get(`/traces/${actId}`)).status, 404);
    assert.equal((await act('POST', path, { trace_id: signIn })).status, 400);
    assert.equal(((await get('/profiles?user_id=u-1')).body as Profile).id, known.id);
    await send(user({ user_id: 'u-1', anon_id: 'a-1' }));
    assert.notEqual(((await get('/profiles?anon_id=a-1')).body as Profile).id, known.id);
    const { body: audit } = await get('/audit');
    assert.deepEqual(
      (audit as { entries: { kind: string; trace_id: string }[] }).entries.map(({ kind, trace_id }) => [
        kind,
        trace_id,
      ]),
      [['unmerge', actId]],
    );
    assert.deepEqual((await get(`/audit?trace_id=${actId}`)).body, audit);
    assert.deepEqual((await get(`/audit?trace_id=${signIn}`)).body, { entries: [], next_cursor: null });
  });

  test('who is erased is gone from every response, and every event is still accounted for', async () => {
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
    const empty = [
      ...['canary@example.com', 'u-1', before.id, ...before.merged_ids].map(
        (value) => `/profiles/search?value=${value}`,
      ),
      ...['/events', '/events?after=', '/events/counts', '/rejections', '/rejections/reasons', '/receipts', '/ledger'],
      '/audit',
    ];
    for (const path of empty) {
      const { status, text } = await other.get(path);
      assert.equal(status, 200);
      assert.ok(!text.includes('canary') && !text.includes(before.id) && !text.includes(merging), path);
      assert.match(text, /"(?:profiles|events|buckets|rejections|reasons|minutes|hours|entries)":\[\]/);
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
      '/profiles/search?value=canary-6',
    ]) {
      await get(path);
    }
    assert.ok(!server().stderr().includes('canary'));
    assert.ok(!server().stderr().includes(key));
    assert.ok(!server().stderr().includes('request failed unexpectedly'));
  });
});
