/** The SDK in Node against the real server: what flush() reports as delivered is stored exactly once, whatever fails. */

import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { Sluice, type Rejection, type ServerOptions, type SluiceEvents } from '../../sdk/src/server.ts';
import { bodyText, logOf, useServer, UUID_V7, withWrongChecksum } from '../edge/fixture.ts';
import { removeFolder, startServer, temporaryFolder } from '../server.ts';
import { type Gate, openGate } from './gate.ts';
import { droppedByClients, storedEvents, storedNumbers } from './stored.ts';

const QUICK = { retryDelayMs: 20, retryDelayMaxMs: 50 };
/** The machine may be busy with other tests. */
const PATIENT = { timeoutMs: 60_000 };

interface Heard {
  readonly sluice: Sluice;
  readonly delivered: string[];
  readonly rejected: Rejection[];
  readonly dropped: SluiceEvents['dropped'][];
  readonly retries: SluiceEvents['retry'][];
}

function listenedTo(options: ServerOptions): Heard {
  const sluice = new Sluice({ ...QUICK, ...options });
  const heard: Heard = { sluice, delivered: [], rejected: [], dropped: [], retries: [] };
  sluice.on('delivered', ({ event_ids }) => heard.delivered.push(...event_ids));
  sluice.on('rejected', (rejection) => heard.rejected.push(rejection));
  sluice.on('dropped', (drop) => heard.dropped.push(drop));
  sluice.on('retry', (retry) => heard.retries.push(retry));
  return heard;
}

const numbers = (count: number): number[] => Array.from({ length: count }, (_, n) => n);
const numbersIn = (body: string): number[] => Array.from(body.matchAll(/"n":(\d+)/g), ([, n]) => Number(n));

suite('The SDK and a server', () => {
  const server = useServer();
  let gate: Gate;
  const options = (): ServerOptions => ({ url: gate.url, key: server().key });

  before(async () => {
    gate = await openGate(() => server().baseUrl);
  });
  after(() => gate.close());

  test('calls are stored in their order, with ids and times of the moment of the call', async () => {
    const { sluice, delivered } = listenedTo(options());
    sluice.identify({ user_id: 'ada', email: 'ada@example.com' }, { plan: 'pro' });
    const ids = numbers(5).map((n) => sluice.track('called', { n }));
    assert.deepEqual(await sluice.flush(PATIENT), { delivered: 6, rejected: [], dropped: 0, pending: 0 });
    for (const id of ids) assert.match(id, UUID_V7);
    assert.deepEqual(ids.toSorted(), ids);
    assert.deepEqual(delivered.slice(1), ids);
    const events = await storedEvents(server(), 'called');
    assert.deepEqual(await storedNumbers(server(), 'called'), numbers(5));
    assert.equal(new Set(events.map(({ profile_id }) => profile_id)).size, 1);
    const profile = await fetch(`${server().baseUrl}/profiles?email=ada@example.com`, {
      headers: { authorization: `Bearer ${server().key}` },
    });
    const { identifiers, user_properties } = (await profile.json()) as Record<string, unknown>;
    assert.deepEqual(identifiers, { user_id: ['ada'], email: ['ada@example.com'], phone_number: [], anon_id: [] });
    assert.deepEqual(user_properties, { plan: 'pro' });
  });

  test('a batch is sent when it has enough calls, when it has enough bytes, and after its time', async () => {
    gate.seen.length = 0;
    const sent = async (more: Partial<ServerOptions>, calls: number, filling = ''): Promise<number[]> => {
      const { sluice, delivered } = listenedTo({ ...options(), batchDelayMs: 60_000, ...more });
      for (const n of numbers(calls)) sluice.user({ user_id: 'ada' }).track('batched', { n, filling });
      const began = gate.seen.length;
      while (delivered.length < calls) await new Promise((resolve) => sluice.on('delivered', resolve));
      return gate.seen.slice(began).map(({ body }) => numbersIn(body).length);
    };
    assert.deepEqual(await sent({ batchUsersMax: 4 }, 8), [4, 4]);
    assert.deepEqual(await sent({ batchBytesMax: 2_500 }, 4, 'x'.repeat(1_000)), [2, 2]);
    assert.deepEqual(await sent({ batchDelayMs: 5 }, 3), [3]);
  });

  test('a response that is lost: the same bytes and the same Idempotency-Key again, and stored once', async () => {
    gate.seen.length = 0;
    gate.faults.push('lose the response');
    const { sluice, retries } = listenedTo(options());
    for (const n of numbers(3)) sluice.user({ user_id: 'ada' }).track('lost', { n });
    const { delivered } = await sluice.flush(PATIENT);
    assert.equal(delivered, 3);
    assert.deepEqual(
      retries.map(({ status }) => status),
      [0],
    );
    const [first, second] = gate.seen;
    assert.equal(first?.body, second?.body);
    assert.equal(first?.idempotencyKey, second?.idempotencyKey);
    assert.deepEqual(await storedNumbers(server(), 'lost'), numbers(3));
  });

  test('429, 503, 408, an empty 202 and a 200 of a proxy are retried, and Retry-After is honoured', async () => {
    gate.faults.push(
      { status: 429, headers: { 'retry-after': '1' } },
      { status: 503, headers: { 'retry-after': new Date(Date.now() - 5_000).toUTCString() } },
      { status: 408 },
      { status: 202 },
      { status: 200, body: '<html>Sign in to this network</html>' },
      { status: 500 },
    );
    const { sluice, retries } = listenedTo(options());
    sluice.user({ user_id: 'ada' }).track('retried', { n: 0 });
    const { delivered } = await sluice.flush(PATIENT);
    assert.equal(delivered, 1);
    assert.deepEqual(
      retries.map(({ status }) => status),
      [429, 503, 408, 202, 200, 500],
    );
    assert.ok((retries[0]?.delay_ms ?? 0) >= 1_000);
    for (const { delay_ms } of retries.slice(1)) assert.ok(delay_ms <= QUICK.retryDelayMaxMs);
    assert.deepEqual(await storedNumbers(server(), 'retried'), [0]);
  });

  test('413 halves the batch until it fits, and the later ones are small from the start', async () => {
    gate.seen.length = 0;
    gate.rule = (body) =>
      numbersIn(body).length > 3 ? { status: 413, body: '{"error":"payload too large"}' } : undefined;
    const { sluice, rejected } = listenedTo(options());
    for (const n of numbers(10)) sluice.user({ user_id: 'ada' }).track('halved', { n });
    const first = await sluice.flush(PATIENT);
    const refused = gate.seen.filter(({ status }) => status === 413).length;
    for (const n of numbers(20).slice(10)) sluice.user({ user_id: 'ada' }).track('halved', { n });
    const second = await sluice.flush(PATIENT);
    gate.rule = undefined;
    assert.deepEqual([first.delivered, second.delivered, rejected], [10, 10, []]);
    assert.equal(
      gate.seen.filter(({ status }) => status === 413).length,
      refused,
      'only the first batches were too large',
    );
    assert.equal(new Set(gate.seen.map(({ idempotencyKey }) => idempotencyKey)).size, gate.seen.length);
    assert.deepEqual(
      gate.seen.filter(({ status }) => status === 202).flatMap(({ body }) => numbersIn(body)),
      numbers(20),
    );
    assert.deepEqual(await storedNumbers(server(), 'halved'), numbers(20));
  });

  test('one event that is too large by itself is rejected, and the others arrive', async () => {
    gate.rule = (body) => (body.includes('huge') ? { status: 413, body: '{"error":"payload too large"}' } : undefined);
    const { sluice } = listenedTo(options());
    for (const n of numbers(4)) sluice.user({ user_id: 'ada' }).track('sized', { n, text: n === 2 ? 'huge' : 'small' });
    const { delivered, rejected } = await sluice.flush(PATIENT);
    gate.rule = undefined;
    assert.equal(delivered, 3);
    assert.deepEqual(
      rejected.map(({ event, message, status }) => [event['n'], message, status]),
      [[2, 'payload too large', 413]],
    );
  });

  test('a user that the server rejects is reported with its event and the reason; the others are delivered', async () => {
    const { sluice, rejected, delivered } = listenedTo(options());
    const good = sluice.user({ user_id: 'ada' }).track('partly', { n: 0 });
    sluice.track('partly', { n: 1 });
    sluice.user({ user_id: 'ada' }).track('partly', { n: 2, revenue: 'a lot' });
    const result = await sluice.flush(PATIENT);
    assert.equal(result.delivered, 1);
    assert.deepEqual(delivered, [good]);
    assert.deepEqual(result.rejected, rejected);
    assert.deepEqual(
      rejected.map(({ event, message, status }) => [event['n'], message, status]),
      [
        [1, 'at least one identifier is required (user_id, email, phone_number, or anon_id)', 202],
        [2, 'events[0].revenue must be a number', 202],
      ],
    );
    assert.deepEqual(await storedNumbers(server(), 'partly'), [0]);
  });

  test('400 and 401 are not retried, and every call is reported', async () => {
    gate.seen.length = 0;
    const bad = listenedTo(options());
    bad.sluice.track('nobody', { n: 0 });
    const { rejected } = await bad.sluice.flush(PATIENT);
    assert.deepEqual(
      rejected.map(({ status, message }) => [status, message.slice(0, 25)]),
      [[400, 'at least one identifier i']],
    );

    gate.faults.push({
      status: 400,
      body: '{"error":"validation failed","errors":[],"message":"body is not valid JSON"}',
    });
    bad.sluice.user({ user_id: 'ada' }).track('unread', { n: 0 });
    assert.deepEqual(
      (await bad.sluice.flush(PATIENT)).rejected.map(({ message }) => message),
      ['body is not valid JSON'],
    );

    const locked = listenedTo({ ...options(), key: withWrongChecksum(server().key) });
    for (const n of numbers(2)) locked.sluice.user({ user_id: 'ada' }).track('locked out', { n });
    const result = await locked.sluice.flush(PATIENT);
    assert.deepEqual(
      result.rejected.map(({ status, message }) => [status, message]),
      [
        [401, 'unauthorized'],
        [401, 'unauthorized'],
      ],
    );
    assert.deepEqual([bad.retries, locked.retries], [[], []]);
    assert.equal(gate.seen.length, 3);
  });

  test('a full queue drops the oldest and says so, and the next request carries the number until it is delivered', async () => {
    gate.seen.length = 0;
    gate.faults.push({ status: 503 }, { status: 401 });
    const { sluice, dropped } = listenedTo({ ...options(), queueUsersMax: 5, batchDelayMs: 60_000 });
    for (const n of numbers(8)) sluice.user({ user_id: 'ada' }).track('bounded', { n });
    assert.deepEqual(
      dropped,
      Array.from({ length: 3 }, () => ({ events: 1, reason: 'queue_full' })),
    );
    assert.equal((await sluice.flush(PATIENT)).rejected.length, 5, 'the second attempt got 401');
    sluice.user({ user_id: 'ada' }).track('bounded', { n: 8 });
    assert.equal((await sluice.flush(PATIENT)).delivered, 1);
    sluice.user({ user_id: 'ada' }).track('bounded', { n: 9 });
    assert.equal((await sluice.flush(PATIENT)).delivered, 1);
    assert.deepEqual(
      gate.seen.map(({ body }) => (JSON.parse(body) as { dropped_by_client?: number }).dropped_by_client),
      [3, 3, 3, undefined],
    );
    const bodies = (await logOf(server())).map(bodyText).filter((body) => body.includes('bounded'));
    assert.deepEqual(
      bodies.map((body) => body.includes('"dropped_by_client":3')),
      [true, false],
    );
    assert.deepEqual(await storedNumbers(server(), 'bounded'), [8, 9]);
    assert.deepEqual(await droppedByClients(server()), { totals: 3, hours: 3, metric: 3 });
  });

  test('the queue is bounded by bytes too, and an event that can never fit is dropped by itself', async () => {
    const { sluice, dropped } = listenedTo({ ...options(), queueBytesMax: 3_000, batchDelayMs: 60_000 });
    sluice.user({ user_id: 'ada' }).track('heavy', { n: 0, text: 'x'.repeat(4_000) });
    for (const n of [1, 2, 3]) sluice.user({ user_id: 'ada' }).track('heavy', { n, text: 'x'.repeat(1_000) });
    assert.deepEqual(dropped, [
      { events: 1, reason: 'too_large' },
      { events: 1, reason: 'queue_full' },
    ]);
    assert.equal((await sluice.flush(PATIENT)).delivered, 2);
    assert.deepEqual(await storedNumbers(server(), 'heavy'), [2, 3]);
  });

  test('flush() gives up after its time and says what is pending; close() drops that and says so', async () => {
    // Until the end: a request may reach the gate only after close() has given up.
    gate.rule = (body) => (body.includes('"never"') ? { status: 503 } : undefined);
    const { sluice, dropped } = listenedTo(options());
    for (const n of numbers(2)) sluice.user({ user_id: 'ada' }).track('never', { n });
    assert.deepEqual(await sluice.flush({ timeoutMs: 100 }), { delivered: 0, rejected: [], dropped: 0, pending: 2 });
    assert.deepEqual(await sluice.close({ timeoutMs: 10 }), { delivered: 0, rejected: [], dropped: 2, pending: 0 });
    sluice.user({ user_id: 'ada' }).track('never', { n: 2 });
    assert.deepEqual(dropped, [
      { events: 2, reason: 'closed' },
      { events: 1, reason: 'closed' },
    ]);
    assert.deepEqual(await sluice.flush(PATIENT), { delivered: 0, rejected: [], dropped: 0, pending: 0 });
    assert.deepEqual(await storedNumbers(server(), 'never'), []);
  });

  test('close() waits for the response of the request in flight, and drops only what was not sent', async () => {
    gate.rule = (body) => (body.includes('"in flight"') ? { responseDelayMs: 500 } : undefined);
    const { sluice, delivered, dropped } = listenedTo({ ...options(), batchUsersMax: 2 });
    const ids = numbers(5).map((n) => sluice.user({ user_id: 'ada' }).track('in flight', { n }));
    const [first, second] = await Promise.all([sluice.close({ timeoutMs: 50 }), sluice.close({ timeoutMs: 60_000 })]);
    gate.rule = undefined;
    assert.deepEqual(first, { delivered: 2, rejected: [], dropped: 3, pending: 0 });
    assert.deepEqual(second, first);
    assert.deepEqual(delivered, ids.slice(0, 2));
    assert.deepEqual(dropped, [{ events: 3, reason: 'closed' }]);
    assert.deepEqual(await storedNumbers(server(), 'in%20flight'), [0, 1]);
  });

  test('close() waits for that response no longer than requestTimeoutMs', async () => {
    gate.faults.push({ responseDelayMs: 2_000 });
    const { sluice, dropped } = listenedTo({ ...options(), requestTimeoutMs: 200 });
    sluice.user({ user_id: 'ada' }).track('unanswered', { n: 0 });
    assert.deepEqual(await sluice.close({ timeoutMs: 50 }), { delivered: 0, rejected: [], dropped: 1, pending: 0 });
    assert.deepEqual(dropped, [{ events: 1, reason: 'closed' }]);
  });

  test('a call whose data throws is rejected with status 0, and the others are delivered', async () => {
    const { sluice, rejected } = listenedTo(options());
    const ada = sluice.user({ user_id: 'ada' });
    const throwing = (name: string): object =>
      Object.defineProperty({}, name, {
        enumerable: true,
        get: () => {
          throw new Error('a mistake in a getter');
        },
      });
    const { proxy, revoke } = Proxy.revocable({}, {});
    revoke();
    sluice.identify({ user_id: 'ada' });
    const calls: Readonly<Record<string, () => string>> = {
      'track: properties': () => sluice.track('throwing', throwing('n') as never),
      'track: a revoked proxy': () => sluice.track('throwing', proxy),
      'track: timestamp': () => sluice.track('throwing', {}, throwing('timestamp')),
      'track: event_id': () => sluice.track('throwing', {}, throwing('event_id')),
      'track: options': () => sluice.track('throwing', {}, proxy),
      'track: a timestamp that is no Date': () => sluice.track('throwing', {}, { timestamp: 'now' as never }),
      'identify: a getter': () => sluice.identify(throwing('email') as never),
      'identify: a revoked proxy': () => sluice.identify(proxy),
      'identify: properties': () => sluice.identify(undefined, proxy),
      'user: identifiers': () => sluice.user(proxy).track('throwing', {}),
      'user: properties': () => ada.identify(proxy),
      'user: options': () => ada.track('throwing', {}, throwing('timestamp')),
    };
    for (const [name, call] of Object.entries(calls)) {
      const before = rejected.length;
      const id = call();
      assert.match(id, UUID_V7, name);
      assert.equal(rejected.length, before + 1, name);
      assert.deepEqual([rejected.at(-1)?.status, rejected.at(-1)?.event['$event_id']], [0, id], name);
    }
    sluice.track('throwing', { n: 0 });
    const result = await sluice.flush(PATIENT);
    assert.deepEqual(result, { delivered: 2, rejected, dropped: 0, pending: 0 });
    assert.deepEqual(await storedNumbers(server(), 'throwing'), [0]);
  });

  test('identify() with data that throws does not change the person', async () => {
    const { sluice } = listenedTo(options());
    sluice.identify({ user_id: 'ada' });
    const bob = {
      user_id: 'bob',
      get email(): string {
        throw new Error('a mistake in a getter');
      },
    };
    sluice.identify(bob);
    sluice.track('unchanged', { n: 0 });
    gate.seen.length = 0;
    await sluice.flush(PATIENT);
    assert.match(gate.seen[0]?.body ?? '', /"identifiers":\{"user_id":"ada"\},"events":\[\{"n":0/);
  });

  test('an event_id that is no string is rejected with status 0, and so is one that before() makes', async () => {
    const { sluice, rejected } = listenedTo({
      ...options(),
      before: ({ event, ...call }) => ({
        ...call,
        event: event['n'] === 1 ? { ...event, $event_id: 42 as never } : event,
      }),
    });
    const ada = sluice.user({ user_id: 'ada' });
    const ids = [42, null, ''].map((event_id) => ada.track('strange id', { n: 0 }, { event_id: event_id as never }));
    ids.push(ada.track('strange id', { n: 1 }));
    for (const id of ids) assert.match(id, UUID_V7);
    assert.deepEqual(
      rejected.map(({ event, status }) => [event['$event_id'], status]),
      ids.map((id) => [id, 0]),
    );
    assert.match(rejected[0]?.message ?? '', /event_id must be a string/);
    assert.equal(ada.track('strange id', { n: 2 }, { event_id: 'mine-2' }), 'mine-2');
    assert.equal((await sluice.flush(PATIENT)).delivered, 1);
  });

  test('a function named toJSON is left out as other functions are', async () => {
    const { sluice } = listenedTo(options());
    sluice.user({ user_id: 'ada' }).track('with a function', { n: 0, toJSON: () => null });
    sluice.user({ user_id: 'ada' }).track('with a text', { n: 0, toJSON: 'text' });
    assert.equal((await sluice.flush(PATIENT)).delivered, 2);
    assert.deepEqual(await storedNumbers(server(), 'with%20a%20function'), [0]);
    assert.equal((await storedEvents(server(), 'with%20a%20text'))[0]?.properties['toJSON'], 'text');
  });

  test('times that are longer than a timer can be do not end at once', async () => {
    gate.faults.push({ responseDelayMs: 100 });
    const { sluice, retries } = listenedTo({ ...options(), requestTimeoutMs: 1e12 });
    sluice.user({ user_id: 'ada' }).track('long', { n: 0 });
    assert.equal((await sluice.flush({ timeoutMs: Infinity })).delivered, 1);
    assert.deepEqual(retries, []);
  });

  test('before() may change a call or drop it, and a call that cannot be written as JSON is reported', async () => {
    const { sluice, rejected } = listenedTo({
      ...options(),
      before: (call) =>
        call.event['n'] === 0 ? null : { ...call, event: { ...call.event, email: undefined, seen: true } },
    });
    for (const n of [0, 1]) sluice.user({ user_id: 'ada' }).track('seen', { n, email: 'ada@example.com' });
    sluice.user({ user_id: 'ada' }).track('seen', { n: 2n });
    const result = await sluice.flush(PATIENT);
    assert.deepEqual(result, { delivered: 1, rejected, dropped: 0, pending: 0 });
    assert.deepEqual((await sluice.flush(PATIENT)).rejected, [], 'reported once');
    assert.deepEqual(
      rejected.map(({ event, status }) => [event['event_name'], status]),
      [['seen', 0]],
    );
    assert.match(rejected[0]?.message ?? '', /the call cannot be sent: .*BigInt/);
    const [event] = await storedEvents(server(), 'seen');
    const { $event_id: _id, ...properties } = event?.properties ?? {};
    assert.deepEqual(properties, { n: 1, seen: true });
  });

  test('calls without identifiers or options are about the same person, and what is no object is rejected', async () => {
    const { sluice, rejected } = listenedTo(options());
    sluice.identify({ user_id: 'eve' });
    for (const none of [undefined, null]) sluice.identify(none, { plan: 'pro' });
    sluice.track('bare', { n: 0 }, null as never);
    sluice.identify('ada' as never);
    sluice.track('bare', { n: 1 });
    const { delivered } = await sluice.flush(PATIENT);
    assert.equal(delivered, 5);
    assert.deepEqual(await storedNumbers(server(), 'bare'), [0, 1]);
    assert.match(
      rejected.map(({ message }) => message).join(),
      /^at least one identifier is required [^,]*, [^,]*, [^,]*, [^,]*$/,
    );
  });

  test('calls for which before() throws or returns no call are in the result of close(), at most 100 of them', async () => {
    const { sluice, rejected } = listenedTo({
      ...options(),
      before: ({ event }) => {
        if (event['n'] === 0) throw new Error('a mistake in before()');
        return undefined as never;
      },
    });
    for (const n of numbers(102)) sluice.user({ user_id: 'ada' }).track('refused', { n });
    const result = await sluice.close(PATIENT);
    assert.equal(rejected.length, 102);
    assert.match(rejected[0]?.message ?? '', /a mistake in before\(\)/);
    assert.deepEqual(result, { delivered: 0, rejected: rejected.slice(0, 100), dropped: 0, pending: 0 });
  });

  test('properties named like a member of the call do not replace it, and are kept with a prefix', async () => {
    const { sluice } = listenedTo(options());
    const own = { event_name: 'other', timestamp: 'soon', $event_id: 'mine' };
    const id = sluice.user({ user_id: 'ada' }).track('named', { n: 0, ...own });
    assert.equal((await sluice.flush(PATIENT)).delivered, 1);
    const [event] = await storedEvents(server(), 'named');
    assert.deepEqual(event?.properties, {
      $event_id: id,
      n: 0,
      property_event_name: 'other',
      property_timestamp: 'soon',
      property_$event_id: 'mine',
    });
  });

  test('waitUntil gets one delivery for the calls of a moment', async () => {
    const deliveries: Promise<unknown>[] = [];
    const { sluice } = listenedTo({ ...options(), waitUntil: (delivery) => void deliveries.push(delivery) });
    for (const n of numbers(3)) sluice.user({ user_id: 'ada' }).track('waited', { n });
    assert.equal(deliveries.length, 1);
    assert.deepEqual(await deliveries[0], { delivered: 3, rejected: [], dropped: 0, pending: 0 });
  });

  test('waitUntil that throws does not make a call throw, and the call is sent', async (context) => {
    const error = context.mock.method(console, 'error', () => undefined);
    const { sluice } = listenedTo({
      ...options(),
      waitUntil: () => {
        throw new Error('no request is being handled');
      },
    });
    sluice.user({ user_id: 'ada' }).track('waited in vain', { n: 0 });
    assert.equal((await sluice.flush(PATIENT)).delivered, 1);
    assert.equal(error.mock.callCount(), 1);
  });

  test('flush() and close() take null for no options', async () => {
    const { sluice } = listenedTo(options());
    sluice.user({ user_id: 'ada' }).track('without options', { n: 0 });
    assert.equal((await sluice.flush(null)).delivered, 1);
    assert.equal((await sluice.close(null)).pending, 0);
  });

  test('a listener that throws stops nothing, and one that was removed hears nothing', async (context) => {
    const error = context.mock.method(console, 'error', () => undefined);
    const { sluice, delivered } = listenedTo(options());
    sluice.on('delivered', () => {
      throw new Error('a mistake in the program');
    });
    let heard = 0;
    sluice.on('delivered', () => heard++)();
    sluice.user({ user_id: 'ada' }).track('heard', {});
    assert.equal((await sluice.flush(PATIENT)).delivered, 1);
    assert.deepEqual([delivered.length, heard, error.mock.callCount()], [1, 0, 1]);
  });

  test('a wrong url, key or limit is an error at once, and says what is wanted', () => {
    assert.throws(() => new Sluice({ url: 'events.example.com', key: 'pk_1' }), /url must be https:/);
    assert.throws(() => new Sluice({ url: gate.url, key: '' }), /key must be pk_/);
    for (const [batchUsersMax, message] of [
      [Number.NaN, /batchUsersMax must be at least 1/],
      [0, /batchUsersMax must be at least 1/],
      [1_001, /batchUsersMax must be at most 1000/],
    ] as const) {
      assert.throws(() => new Sluice({ ...options(), batchUsersMax }), message);
    }
  });
});

suite('The SDK and a server that is killed', () => {
  test('kill -9 in the middle: everything that is reported as delivered is stored exactly once', async (context) => {
    const dataFolder = temporaryFolder();
    let server = await startServer({ dataFolder });
    const { key } = server;
    const gate = await openGate(() => server.baseUrl);
    context.after(async () => {
      await gate.close();
      await server.kill();
      removeFolder(dataFolder);
    });
    const { sluice, delivered } = listenedTo({ url: gate.url, key, batchUsersMax: 20 });
    const ids = numbers(1_000).map((n) => sluice.user({ user_id: `user-${n % 7}` }).track('survived', { n }));
    // Long enough for a server that starts on a busy machine.
    const flushed = sluice.flush({ timeoutMs: 300_000 });
    while (delivered.length < 200) await new Promise((resolve) => sluice.on('delivered', resolve));
    // Where it is in the middle of a request: its response, if there was to be one, is lost.
    await server.kill('SIGKILL');
    server = { ...(await startServer({ dataFolder })), key };
    assert.deepEqual(await flushed, { delivered: 1_000, rejected: [], dropped: 0, pending: 0 });
    assert.deepEqual(delivered, ids);
    assert.deepEqual(await storedNumbers(server, 'survived'), numbers(1_000));
  });
});
