import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { join } from 'node:path';
import { suite, type TestContext, test } from 'node:test';
import { openSqliteKeyStore } from '../../src/backends/embedded/keys.ts';
import { makeKey, makeSession, useServer } from '../edge/fixture.ts';
import { headOf, RawClient } from '../edge/raw-socket.ts';
import { eventually, post, removeFolder, startServer, type TestServer } from '../server.ts';
import { type LiveClient, openLive, type OpenOptions } from './live-client.ts';

let accounts = 0;

/** A tenant of its own, whose streams end with the test. */
async function tenantOn(context: TestContext, server: TestServer) {
  const account = `live ${++accounts}`;
  const { key, id: keyId } = await makeKey(server.dataFolder, { account });
  const open = async (query = '', options: OpenOptions = {}): Promise<LiveClient> => {
    const client = await openLive(server, query, { key, ...options });
    context.after(() => client.close());
    return client;
  };
  const send = async (names: readonly string[], userId = 'u-1', more: object = {}, by = key): Promise<void> => {
    const events = names.map((event_name) => ({ event_name, ...more }));
    const { status } = await post(server, by, { users: [{ identifiers: { user_id: userId }, events }] });
    assert.equal(status, 202);
  };
  const get = async (path: string): Promise<Record<string, unknown>> => {
    const response = await fetch(server.baseUrl + path, { headers: { authorization: `Bearer ${key}` } });
    return (await response.json()) as Record<string, unknown>;
  };
  return { account, key, keyId, open, send, get };
}

/** Nearly as much as an event on a stream may have. */
const LARGE = 'x'.repeat(900_000);

const names = (events: readonly Record<string, unknown>[]): unknown[] => events.map(({ event_name: name }) => name);
const numbered = (count: number, from = 0): string[] => Array.from({ length: count }, (_, n) => `event ${from + n}`);

suite('The live stream', () => {
  const server = useServer();

  test('shows an event within a second of its 202, as the API shows it', async (t) => {
    const { open, send, get, keyId } = await tenantOn(t, server());
    const live = await open();
    assert.equal(live.status, 200);
    assert.equal(live.headers.get('content-type'), 'text/event-stream; charset=utf-8');
    assert.equal(live.headers.get('cache-control'), 'no-store');
    assert.ok(live.headers.get('x-trace-id'));
    assert.equal(live.headers.get('access-control-allow-origin'), null);
    assert.match(live.text(), /^retry: 1000\n/);
    const waits: number[] = [];
    for (let n = 1; n <= 5; n++) {
      await send(['purchase'], 'u-1', { revenue: 12.5, note: 'two\nlines\u2028 and more' });
      const acceptedAt = performance.now();
      const event = (await live.events(n)).at(-1);
      waits.push(performance.now() - acceptedAt);
      const { events } = (await get('/events')) as { events: Record<string, unknown>[] };
      assert.deepEqual(event, events[0]);
      assert.equal(event?.['key_id'], keyId);
    }
    // Not the longest: a machine that is busy with other tests may stop for a moment in any of them.
    assert.ok(Math.min(...waits) < 1_000, `${waits.join(', ')} ms`);
  });

  test('shows what comes after it was opened, in the order of arrival', async (t) => {
    const { open, send, get } = await tenantOn(t, server());
    await send(['before']);
    await eventually('it is stored', async () => ((await get('/events'))['events'] as unknown[]).length === 1);
    const live = await open();
    for (let n = 0; n < 5; n++) await send([`event ${n}`]);
    assert.deepEqual(names(await live.events(5)), numbered(5));
  });

  test('two tenants never see each other’s events, whatever they ask for', async (t) => {
    const one = await tenantOn(t, server());
    const other = await tenantOn(t, server());
    const mine = await one.open();
    const theirs = await other.open();
    const spying = await other.open(`?key_id=${one.keyId}`);
    await one.send(['one']);
    await other.send(['other']);
    await one.send(['one again']);
    await other.send(['the end']);
    assert.deepEqual(names(await mine.events(2)), ['one', 'one again']);
    assert.deepEqual(names(await theirs.events(2)), ['other', 'the end']);
    assert.deepEqual(spying.messages, []);
    const stranger = (await one.get('/profiles?user_id=u-1'))['id'] as string;
    assert.equal((await other.open(`?profile_id=${stranger}`)).status, 404);
  });

  test('continues after Last-Event-ID, of the same tenant alone', async (t) => {
    const one = await tenantOn(t, server());
    const other = await tenantOn(t, server());
    const mine = await one.open();
    await one.send(['one']);
    await mine.events(1);
    const headers = { authorization: `Bearer ${other.key}`, 'last-event-id': mine.lastId() ?? '' };
    const refused = await fetch(`${server().baseUrl}/live`, { headers });
    assert.equal(refused.status, 400);
    assert.match(await refused.text(), /was given to another account or environment/);
  });

  test('filters by name and by key', async (t) => {
    const { open, send, account, keyId } = await tenantOn(t, server());
    const second = await makeKey(server().dataFolder, { account });
    const byName = await open('?event_name=purchase');
    const byKey = await open(`?key_id=${second.id}`);
    const byBoth = await open(`?event_name=purchase&key_id=${keyId}`);
    await send(['view', 'purchase'], 'u-1', { n: 1 });
    await send(['view', 'purchase'], 'u-2', { n: 2 }, second.key);
    await send(['purchase'], 'u-1', { n: 3 });
    const shown = async (live: LiveClient, count: number): Promise<unknown[]> =>
      (await live.events(count)).map(({ event_name: name, properties }) => [name, (properties as { n: number }).n]);
    assert.deepEqual(await shown(byName, 3), [
      ['purchase', 1],
      ['purchase', 2],
      ['purchase', 3],
    ]);
    assert.deepEqual(await shown(byKey, 2), [
      ['view', 2],
      ['purchase', 2],
    ]);
    assert.deepEqual(await shown(byBoth, 2), [
      ['purchase', 1],
      ['purchase', 3],
    ]);
  });

  test('filters by person, as who is who changes', async (t) => {
    const { open, send, get, key } = await tenantOn(t, server());
    await send(['first'], 'u-1');
    await post(server(), key, { users: [{ identifiers: { anon_id: 'a-1' }, events: [{ event_name: 'first' }] }] });
    const idOf = (query: string): Promise<string> =>
      eventually('the profile is there', async () => (await get(`/profiles?${query}`))['id'] as string | undefined);
    const [known, anonymous] = [await idOf('user_id=u-1'), await idOf('anon_id=a-1')];
    const live = await open(`?profile_id=${anonymous.toUpperCase()}`);
    await send(['not mine'], 'u-2');
    await post(server(), key, {
      users: [{ identifiers: { user_id: 'u-1', anon_id: 'a-1' }, events: [{ event_name: 'merges' }] }],
    });
    assert.deepEqual(names(await live.events(1)), ['merges']);
    await send(['by the survivor'], 'u-1');
    const events = await live.events(2);
    assert.deepEqual(names(events), ['merges', 'by the survivor']);
    assert.equal(new Set([known, anonymous]).size, 2);
    assert.equal(await idOf('anon_id=a-1'), events[1]?.['profile_id']);
    const afterwards = await open(`?profile_id=${[known, anonymous].find((id) => id !== events[1]?.['profile_id'])}`);
    await send(['by an id that was merged away'], 'u-1');
    assert.deepEqual(names(await afterwards.events(1)), ['by an id that was merged away']);
  });

  test('shows at most 50 a second and says how many it skipped', async (t) => {
    const { open, send } = await tenantOn(t, server());
    const live = await open();
    const filtered = await open('?event_name=event+299');
    await send(numbered(300));
    const skipped = await eventually('it says what it skipped', () => {
      const reported = live.messages
        .filter(({ event }) => event === 'skipped')
        .map(({ data }) => data['events'] as number);
      const sum = reported.reduce((total, events) => total + events, 0);
      return sum + live.messages.length - reported.length >= 300 ? sum : null;
    });
    const shown = live.messages.filter(({ event }) => event === 'event');
    assert.equal(shown.length + skipped, 300);
    assert.ok(shown.length >= 50 && shown.length <= 100, `${shown.length} shown`);
    // The newest are never the ones that are left out.
    assert.deepEqual(
      shown.slice(-50).map(({ data }) => data['event_name']),
      numbered(300).slice(-50),
    );
    // What a listener does not ask for does not count against it.
    assert.deepEqual(names(await filtered.events(1)), ['event 299']);
    // A client that reconnects does not get the skipped count again.
    const again = await open('', { lastEventId: live.lastId() });
    await send(['the next']);
    assert.deepEqual(names(await again.events(1)), ['the next']);
    assert.equal(again.messages.length, 1);
  });

  test('continues after Last-Event-ID without loss or repeats, also beside one that is level', async (t) => {
    const { open, send } = await tenantOn(t, server());
    const steady = await open();
    const first = await open();
    await send(numbered(8));
    await first.events(8);
    // From the middle: as if the rest had been lost on the way.
    const middle = first.messages[2]?.id ?? '';
    const atEnd = first.lastId();
    first.close();
    await send(numbered(5, 8));
    const resumed = await open('', { lastEventId: middle });
    const resumedAtEnd = await open('', { lastEventId: atEnd });
    await send(numbered(5, 13));
    assert.deepEqual(names(await resumed.events(15)), numbered(15, 3));
    assert.deepEqual(names(await resumedAtEnd.events(10)), numbered(10, 8));
    assert.deepEqual(names(await steady.events(18)), numbered(18));
  });

  test('streams that continue at the same moment from different events each get what they miss', async (t) => {
    const { open, send } = await tenantOn(t, server());
    const first = await open();
    await send(numbered(8));
    await first.events(8);
    const ids = first.messages.map(({ id }) => id);
    first.close();
    const [late, early, end] = await Promise.all([
      open('', { lastEventId: ids[5] ?? '' }),
      open('', { lastEventId: ids[1] ?? '' }),
      open('', { lastEventId: ids[7] ?? '' }),
    ]);
    await send(['the next']);
    assert.deepEqual(names(await early.events(7)), [...numbered(6, 2), 'the next']);
    assert.deepEqual(names(await late.events(3)), [...numbered(2, 6), 'the next']);
    assert.deepEqual(names(await end.events(1)), ['the next']);
    assert.deepEqual(
      [early, late, end].map(({ messages }) => messages.length),
      [7, 3, 1],
    );
  });

  test('a stream that broke before its first event continues without a gap', async (t) => {
    const { open, send } = await tenantOn(t, server());
    const first = await open();
    const start = first.lastId();
    first.close();
    await send(['meanwhile']);
    assert.deepEqual(names(await (await open('', { lastEventId: start })).events(1)), ['meanwhile']);
  });

  test('ends when the client ends its side of the connection', async (t) => {
    const { key } = await tenantOn(t, server());
    const client = await RawClient.open(server().port);
    t.after(() => client.destroy());
    await client.send(headOf(key, [], 'GET /live HTTP/1.1'));
    assert.equal((await client.next())?.status, 200);
    client.finish();
    await eventually('the stream ends', () => client.isClosed);
  });

  test('bad questions are refused with the name of what is wrong', async (t) => {
    const { key } = await tenantOn(t, server());
    for (const [query, lastEventId, message] of [
      ['?profile_id=ada', undefined, 'profile_id must be the id of a profile'],
      ['?environment=staging', undefined, 'environment must be production or development'],
      ['?name=x', undefined, /^unknown parameter name/],
      ['', 'nonsense', 'Last-Event-ID is not one that this call gave: send it as it was in the response'],
    ] as const) {
      const headers = { authorization: `Bearer ${key}`, ...(lastEventId && { 'last-event-id': lastEventId }) };
      const response = await fetch(`${server().baseUrl}/live${query}`, { headers });
      const body = (await response.json()) as { message: string };
      assert.equal(response.status, 400, query);
      if (typeof message === 'string') assert.equal(body.message, message);
      else assert.match(body.message, message);
    }
    assert.equal((await fetch(`${server().baseUrl}/live`)).status, 401);
    const head = await fetch(`${server().baseUrl}/live`, {
      method: 'HEAD',
      headers: { authorization: `Bearer ${key}` },
    });
    assert.equal(head.status, 200);
  });

  test('ends within two seconds of the revocation of its key', async (t) => {
    const { open, keyId } = await tenantOn(t, server());
    const live = await open();
    const keyStore = openSqliteKeyStore(join(server().dataFolder, 'keys.db'));
    await keyStore.revoke(keyId, Date.now());
    await keyStore.close();
    // With room for a machine that is busy with other tests.
    await eventually('the stream ends', () => live.isOver(), 10_000);
    assert.equal((await open()).status, 401);
  });

  test('a session opens it for the environment that the address names, until it is over', async (t) => {
    const { account, send } = await tenantOn(t, server());
    const { cookie } = await makeSession(server().dataFolder, { account, email: `${accounts}@example.com` });
    const open = (query: string): Promise<LiveClient> => openLive(server(), query, { headers: { cookie } });
    const [live, elsewhere] = [await open('?environment=development'), await open('?environment=production')];
    t.after(() => [live, elsewhere].forEach((stream) => stream.close()));
    assert.equal((await open('')).status, 400);
    await send(['seen']);
    assert.deepEqual(names(await live.events(1)), ['seen']);
    assert.deepEqual(elsewhere.messages, []);
    const headers = { cookie, origin: server().baseUrl };
    assert.equal((await fetch(`${server().baseUrl}/session`, { method: 'DELETE', headers })).status, 204);
    await eventually('both streams end', () => live.isOver() && elsewhere.isOver());
    assert.equal((await open('?environment=development')).status, 401);
  });

  test('a tenant can have 20 of them, and one that ends makes room for another', async (t) => {
    const { open, send } = await tenantOn(t, server());
    const all = await Promise.all(Array.from({ length: 20 }, () => open()));
    assert.ok(all.every(({ status }) => status === 200));
    const refused = await open();
    assert.equal(refused.status, 503);
    await eventually('it says why', () => refused.text().includes('too many live views are open'));
    await send(['to all']);
    for (const live of all) assert.deepEqual(names(await live.events(1)), ['to all']);
    const other = await tenantOn(t, server());
    assert.equal((await other.open()).status, 200);
    all[0]?.close();
    await eventually('there is room again', async () => (await open()).status === 200);
  });

  test('a reader who does not read is skipped, not waited for', async (t) => {
    const { open, send, key } = await tenantOn(t, server());
    const { port } = server();
    const socket = connect({ port, host: '127.0.0.1' });
    t.after(() => socket.destroy());
    socket.pause();
    socket.write(`GET /live HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${key}\r\n\r\n`);
    const live = await open();
    // More than sockets and the bound hold together; the one who reads has read each before the next.
    for (let n = 1; n <= 18; n++) {
      await send([`event ${n}`], 'u-1', { large: LARGE });
      await live.events(n);
    }
    let received = '';
    socket.setEncoding('utf8').on('data', (text: string) => {
      received += text;
    });
    socket.resume();
    const came = (): { events: number; skipped: number } => ({
      events: received.split('event: event\n').length - 1,
      skipped: Number(/event: skipped\ndata: \{"events":(\d+)\}/.exec(received)?.[1] ?? 0),
    });
    await eventually('the other one hears that it missed some', () => came().skipped > 0, 20_000);
    const { skipped } = came();
    await eventually('it has the rest, of which the newest is the last', () => came().events === 18 - skipped, 20_000);
    assert.ok(received.lastIndexOf('"event_name":"event 18"') > received.indexOf('event: skipped'));
  });
});

suite('A server with open streams', () => {
  test('stops in time, and ends them', async (t) => {
    const server = await startServer({ env: { SLUICE_SHUTDOWN: '20s' } });
    t.after(async () => {
      await server.kill();
      removeFolder(server.dataFolder);
    });
    const { open, send, key } = await tenantOn(t, server);
    const live = await open();
    const silent = connect({ port: server.port, host: '127.0.0.1' });
    t.after(() => silent.destroy());
    silent.on('error', () => {}).pause();
    silent.write(`GET /live HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${key}\r\n\r\n`);
    for (let n = 1; n <= 14; n++) {
      await send([`event ${n}`], 'u-1', { large: LARGE });
      await live.events(n);
    }
    assert.equal(await server.stop(), 0);
    assert.ok(!/deadline/.test(server.stderr()));
    await eventually('the stream ends', () => live.isOver());
  });
});
