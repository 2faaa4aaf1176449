/** Lists and counts on a real server: what is in them, in which order, and how one continues from page to page. */

import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { suite, test } from 'node:test';
import { useServer } from '../edge/fixture.ts';
import { eventually, post } from '../server.ts';
import { type Event, type EventPage, type Profile, tenant, user } from './reading-tenant.ts';

suite('Lists and counts', () => {
  const server = useServer();

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

  test('a client that follows along gets each event once, in order of arrival', async () => {
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

  test('events are counted by time and name, with revenue by currency, and found by either', async () => {
    const { get, send } = await tenant(server());
    await send(
      user({ user_id: 'u-1' }, [
        { event_name: 'sold', timestamp: '2026-01-01T00:59:59.999Z', revenue: 1.5, currency: 'EUR' },
        { event_name: 'sold', timestamp: '2026-01-01T01:00:00Z', revenue: -2, currency: 'usd' },
        { event_name: 'sold', timestamp: '2026-01-01T01:00:00Z', revenue: 3, currency: 'EUR' },
        { event_name: 'seen', timestamp: '2026-01-01T01:30:00+00:00' },
        { event_name: 'seen', timestamp: '2026-01-02T00:00:00Z' },
      ]),
    );
    const range = 'from=2026-01-01&to=2026-01-02';
    const [one, two] = ['2026-01-01T00:00:00.000Z', '2026-01-01T01:00:00.000Z'];
    const sum = (currency: string, events: number, revenue: number): object => ({ currency, events, revenue });
    const buckets = async (query: string): Promise<unknown> =>
      ((await get(`/events/counts?${range}&${query}`)).body as { buckets: unknown }).buckets;
    assert.deepEqual(await buckets('interval=day'), [
      { start: one, events: 4, revenue: [sum('EUR', 2, 4.5), sum('USD', 1, -2)] },
    ]);
    assert.deepEqual(await buckets('interval=hour'), [
      { start: one, events: 1, revenue: [sum('EUR', 1, 1.5)] },
      { start: two, events: 3, revenue: [sum('EUR', 1, 3), sum('USD', 1, -2)] },
    ]);
    assert.deepEqual(await buckets('interval=day&group_by=event_name'), [
      { start: one, event_name: 'seen', events: 1, revenue: [] },
      { start: one, event_name: 'sold', events: 3, revenue: [sum('EUR', 2, 4.5), sum('USD', 1, -2)] },
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

  test('what came in is counted by minute, and what was wrong by reason, also when nothing of a request was valid', async () => {
    const { get, key, send } = await tenant(server());
    const before = Date.now();
    await send({ users: [{ identifiers: { user_id: 'u-1' }, events: [{ event_name: 'x' }, { event_name: 'y' }] }, 7] });
    const refused = await post(server(), key, { users: [7, 8] });
    assert.equal(refused.status, 400);
    const traceId = refused.headers.get('x-trace-id');
    // From the moment of the response on, processed or not.
    const { minutes } = (await get('/receipts')).body as { minutes: Record<string, unknown>[] };
    const sum = (name: string): number => minutes.reduce((total, minute) => total + Number(minute[name]), 0);
    assert.deepEqual(['users_accepted', 'users_rejected', 'events_accepted'].map(sum), [1, 3, 2]);
    for (const { start } of minutes) {
      assert.match(String(start), /:00\.000Z$/);
      assert.ok(Date.parse(String(start)) > before - 60_000);
    }
    const hourAgo = new Date(before - 3_600_000).toISOString();
    assert.deepEqual((await get(`/receipts?to=${hourAgo}`)).body, { minutes: [] });
    await eventually('the refused users are kept', async () => {
      const { reasons } = (await get('/rejections/reasons')).body as { reasons: Record<string, unknown>[] };
      const [first] = reasons;
      if (first?.['users'] !== 3) return false;
      const newest = { last_at: first['last_at'], trace_id: traceId, userIndex: 1 };
      assert.deepEqual(first, { reason: 'user must be an object', users: 3, resubmitted: 0, ...newest });
      return true;
    });
    assert.deepEqual((await get(`/rejections/reasons?to=${hourAgo}`)).body, { reasons: [] });
  });

  test('a client that has a value finds the people that it belongs to, whatever it is', async () => {
    const { get, send } = await tenant(server());
    await send(user({ user_id: 'both', email: 'Ada@example.com' }));
    await send(user({ anon_id: 'both' }));
    await send(user({ phone_number: '+49 30 901820' }));
    const found = async (value: string): Promise<[matched: string[], profile: Profile][]> => {
      const { status, body } = await get(`/profiles/search?value=${value}`);
      assert.equal(status, 200);
      const { profiles } = body as { profiles: { matched: string[]; profile: Profile }[] };
      return profiles.map(({ matched, profile }) => [matched, profile]);
    };
    const ada = (await get('/profiles?user_id=both')).body as Profile;
    const visitor = (await get('/profiles?anon_id=both')).body as Profile;
    assert.deepEqual(await found('both'), [
      [['user_id'], ada],
      [['anon_id'], visitor],
    ]);
    assert.deepEqual(await found('ADA@EXAMPLE.COM'), [[['email'], ada]]);
    assert.equal((await found('+4930901820')).length, 1);
    assert.deepEqual(await found(ada.id.toUpperCase()), [[['id'], ada]]);
    // Merged, the two are one, by whatever they are found; each id stands for it.
    await send(user({ user_id: 'both', anon_id: 'both' }));
    const merged = (await get('/profiles?user_id=both')).body as Profile;
    assert.deepEqual(await found('both'), [[['user_id', 'anon_id'], merged]]);
    for (const { id } of [ada, visitor]) assert.deepEqual(await found(id), [[['id'], merged]]);
    assert.deepEqual(await found('bo'), [[['user_id', 'anon_id'], merged]]);
    for (const value of [
      'oth',
      'null',
      '%25',
      '*',
      '__proto__',
      "'%20OR%201=1",
      '019a8262-f0d8-83b1-a1c5-000000000000',
    ]) {
      assert.deepEqual(await found(value), [], value);
    }
  });

  test('events and traces say with which key they came', async () => {
    const { get, key, send } = await tenant(server());
    const traceId = await send(user({ user_id: 'u-1' }));
    const { key_id: keyId } = (await get(`/traces/${traceId}`)).body as { key_id: string };
    assert.match(keyId, /^key_[0-9A-Za-z]{12}$/);
    const { text, body } = await get('/events');
    assert.deepEqual(
      (body as { events: { key_id: string }[] }).events.map(({ key_id }) => key_id),
      [keyId],
    );
    assert.ok(!text.includes(key));
  });

  test('a cursor that was changed, or is of another list, is refused or shows what is there, and breaks nothing', async () => {
    const { get, send } = await tenant(server());
    await send(user({ user_id: 'u-1' }, [{ event_name: 'a' }, { event_name: 'b' }, { event_name: 'c' }]));
    const { next_cursor: cursor } = (await get('/events?limit=1')).body as EventPage;
    assert.ok(cursor);
    for (const path of ['/rejections?', '/audit?']) {
      assert.equal((await get(`${path}cursor=${encodeURIComponent(cursor)}`)).status, 400, path);
    }
    assert.equal((await get(`/events?after=${encodeURIComponent(cursor)}`)).status, 400);
    const [own = '', mark = ''] = cursor.split('.');
    const withChecksum = (marked: string): string => `${marked}.${hash('sha256', marked, 'hex').slice(0, 8)}`;
    assert.equal(withChecksum(`${own}.${mark}`), cursor);
    const decoded = Buffer.from(own, 'base64url').toString();
    const numbers = [
      '-1',
      '1.5',
      '1e3',
      '1e400',
      'NaN',
      '99999999999999999999',
      '9223372036854775808',
      '',
      ' ',
      "'",
      '\0',
    ];
    const forged = [
      ...numbers.map((number) => decoded.replace(/\d+/, number)),
      ...numbers.map((number) => decoded.replace(/\d+$/, number)),
      `${decoded} 1`,
      decoded.slice(0, -3),
    ].map((text) => withChecksum(`${Buffer.from(text).toString('base64url')}.${mark}`));
    for (const given of [
      ...forged,
      own,
      `${cursor}.${mark}`,
      '%00',
      '%ff',
      '=',
      'null',
      'x'.repeat(5_000),
      `${cursor}!`,
      cursor.slice(1),
    ]) {
      for (const path of ['/events?cursor=', '/events?after=', '/rejections?cursor=', '/audit?cursor=']) {
        const { status } = await get(path + given);
        assert.ok(status === 200 || status === 400, `${status} ${path}${given}`);
      }
    }
    assert.ok(!server().stderr().includes('request failed unexpectedly'));
  });

  test('the whole of time can be asked for', async () => {
    const { get, send } = await tenant(server());
    const events = ['0000-01-01', '1969-12-31T23:59:59.999Z', '9999-12-31T23:59:59.999Z'].map((timestamp) => ({
      event_name: 'x',
      timestamp,
    }));
    await send(user({ user_id: 'u-1' }, events));
    const range = 'from=0000-01-01&to=9999-12-31T23:59:59.999Z';
    const page = (await get(`/events?${range}`)).body as EventPage;
    assert.equal(page.events.length, 2);
    assert.equal(((await get('/events')).body as EventPage).events.length, 3);
    const counts = await get('/events/counts?interval=day&from=1969-12-31&to=1970-01-01');
    assert.deepEqual(counts.body, { buckets: [{ start: '1969-12-31T00:00:00.000Z', events: 1, revenue: [] }] });
    assert.equal((await get(`/events/counts?interval=day&${range}`)).status, 400);
    for (const path of ['/rejections', '/rejections/reasons', '/ledger']) {
      assert.equal((await get(`${path}?${range}`)).status, 200);
    }
    assert.equal((await get(`/receipts?${range}`)).status, 400);
  });
});
