/** Enforced tracking plans on a real server: pushed over the API, used by the edge within two seconds, by all ways in. */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { suite, test } from 'node:test';
import { openLive } from '../api/live-client.ts';
import { eventually, type HttpResponse, post, type TestServer } from '../server.ts';
import { ask, makeKey, recordOf, type TestKey, type TestKeyOptions, useServer } from './fixture.ts';

const ORDER = {
  type: 'object',
  properties: { total: { type: 'number' } },
  required: ['total'],
};
const ENFORCED = { events: { order_placed: { mode: 'enforce', schema: ORDER } } };

const withKey = ({ key }: TestKey): Record<string, string> => ({
  authorization: `Bearer ${key}`,
  'content-type': 'application/json',
});

const withoutBody = ({ key }: TestKey): Record<string, string> => ({ authorization: `Bearer ${key}` });

function put(server: TestServer, key: TestKey, plan: unknown): Promise<HttpResponse> {
  return ask(server, '/plan', { method: 'PUT', headers: withKey(key), body: JSON.stringify(plan) });
}

const order = (userId: string, total: unknown): object => ({
  identifiers: { user_id: userId },
  events: [{ event_name: 'page_viewed' }, { event_name: 'order_placed', total }],
});

const messagesOf = ({ body }: HttpResponse): string[] =>
  (body as { errors: { userIndex?: number; message: string }[] }).errors.map(({ message }) => message);

suite('Enforced tracking plans', () => {
  const server = useServer();
  let accounts = 0;
  const newTenant = (options: TestKeyOptions = {}): Promise<TestKey> =>
    makeKey(server().dataFolder, { account: `plans ${accounts++}`, ...options });

  /** Until the edge has the plan. */
  async function pushed(key: TestKey, plan: unknown, isUsed: () => Promise<boolean>): Promise<void> {
    const response = await put(server(), key, plan);
    assert.equal(response.status, 200, response.text);
    await eventually('the edge uses the plan', async () => ((await isUsed()) ? true : undefined));
  }

  const isRejected = (key: TestKey) => async () =>
    (await post(server(), key.key, { users: [order('probe', 'x')] })).status === 400;

  test('a user that violates the plan is rejected with the path and the version, and kept', async () => {
    const key = await newTenant();
    assert.equal((await post(server(), key.key, { users: [order('u', 'x')] })).status, 202);
    await pushed(key, ENFORCED, isRejected(key));
    const response = await post(server(), key.key, { users: [order('u_1', 1), order('u_2', '1'), order('u_3', 3)] });
    assert.equal(response.status, 202);
    assert.deepEqual((response.body as { errors: unknown }).errors, [
      { userIndex: 1, message: 'events[1].total: must be a number (tracking plan, version 1)' },
    ]);
    assert.deepEqual((await recordOf(server(), response))?.rejections, [
      { userIndex: 1, message: 'events[1].total: must be a number (tracking plan, version 1)' },
    ]);
    const kept = await eventually('the rejection can be read', async () => {
      const { body } = await ask(server(), '/rejections', { headers: withKey(key) });
      return (body as { rejections: { payload: object }[] }).rejections.find(
        ({ payload }) => JSON.stringify(payload) === JSON.stringify(order('u_2', '1')),
      );
    });
    assert.ok(kept);
  });

  test('large bodies, which another thread validates, are checked by the same plan', async () => {
    const key = await newTenant();
    await pushed(key, ENFORCED, isRejected(key));
    const users = Array.from({ length: 1_000 }, (_, index) => order(`u_${index}`, index % 100 === 7 ? null : index));
    const response = await post(server(), key.key, { users });
    assert.equal(response.status, 202);
    assert.deepEqual((response.body as { users_rejected: number }).users_rejected, 10);
    assert.equal(messagesOf(response)[0], 'events[1].total: must be a number (tracking plan, version 1)');
  });

  test("messages of Segment's SDKs are checked one by one", async () => {
    const key = await newTenant();
    await pushed(key, ENFORCED, isRejected(key));
    const track = (total: unknown): object => ({
      type: 'track',
      event: 'order_placed',
      userId: 'u_1',
      properties: { total },
    });
    const send = (batch: object[]): Promise<HttpResponse> =>
      ask(server(), '/ingest/v1/batch', { method: 'POST', headers: withKey(key), body: JSON.stringify({ batch }) });
    const response = await send([track(1), track('1'), track(3)]);
    assert.equal(response.status, 200, response.text);
    assert.deepEqual((response.body as { errors: unknown }).errors, [
      { index: 1, message: 'events[0].total: must be a number (tracking plan, version 1)' },
    ]);
    const large = await send(Array.from({ length: 1_000 }, (_, index) => track(index === 999 ? 'x' : index)));
    assert.deepEqual((large.body as { errors: unknown }).errors, [
      { index: 999, message: 'events[0].total: must be a number (tracking plan, version 1)' },
    ]);
  });

  test('warnings reject nothing, unplanned events are rejected where the plan says so', async () => {
    const key = await newTenant();
    const plan = {
      unplanned_events: 'reject',
      events: { order_placed: { mode: 'warn', schema: ORDER }, page_viewed: {} },
    };
    const unplanned = { users: [{ identifiers: { user_id: 'u' }, events: [{ event_name: 'other' }] }] };
    await pushed(key, plan, async () => (await post(server(), key.key, unplanned)).status === 400);
    assert.equal((await post(server(), key.key, { users: [order('u', 'x')] })).status, 202);
    assert.deepEqual(messagesOf(await post(server(), key.key, unplanned)), [
      'events[0].event_name: is not in the tracking plan (tracking plan, version 1)',
    ]);
  });

  test('warnings are on the trace and counted, from the next second on', async () => {
    const key = await newTenant();
    assert.equal((await put(server(), key, { events: { order_placed: { mode: 'warn', schema: ORDER } } })).status, 200);
    const path = await eventually('the processor uses the plan', async () => {
      await post(server(), key.key, { users: [order('u', 'x')] });
      const { body } = await ask(server(), '/plan/violations?version=1', { headers: withKey(key) });
      return (body as { violations: { trace_id: string; path: string }[] }).violations.find(
        (one) => one.path === 'total',
      );
    });
    const { body } = await ask(server(), `/traces/${path.trace_id}`, { headers: withKey(key) });
    assert.deepEqual((body as { users: { warnings: string[] }[] }).users[0]?.warnings, [
      'events[1].total: must be a number (tracking plan, version 1)',
    ]);
  });

  test('objects of an enum are compared with objects that have members named like methods', async () => {
    const key = await newTenant();
    const kinds: object[] = [{ a: 1 }, { constructor: 1 }];
    const schema = { properties: { kind: { enum: kinds } } };
    const plan = { events: { order_placed: { mode: 'enforce', schema }, warned: { mode: 'warn', schema } } };
    const user = (name: string, kind: object): object => ({
      identifiers: { user_id: 'u' },
      events: [{ event_name: name, kind }],
    });
    await pushed(
      key,
      plan,
      async () => (await post(server(), key.key, { users: [user('order_placed', {})] })).status === 400,
    );
    const hostile: object[] = [{ toString: 1 }, { valueOf: 1 }];
    const users = [user('order_placed', { a: 1 }), ...hostile.map((kind) => user('order_placed', kind))];
    const response = await post(server(), key.key, { users: [...users, user('order_placed', { constructor: 1 })] });
    assert.equal(response.status, 202, response.text);
    const message = 'events[0].kind: must be one of {"a":1}, {"constructor":1} (tracking plan, version 1)';
    assert.deepEqual((response.body as { errors: unknown }).errors, [
      { userIndex: 1, message },
      { userIndex: 2, message },
    ]);
    const trace = await eventually('warned of', async () => {
      const { body } = await post(server(), key.key, { users: hostile.map((kind) => user('warned', kind)) });
      const { trace_id: id } = body as { trace_id: string };
      const processed = await eventually('processed', async () => {
        const { text } = await ask(server(), `/traces/${id}`, { headers: withoutBody(key) });
        return text.includes('"processed"') ? text : undefined;
      });
      return processed.includes('must be one of') ? processed : undefined;
    });
    assert.match(trace, /events\[0\]\.kind/);
    const { body } = await ask(server(), '/dead-letters', { headers: withoutBody(key) });
    assert.deepEqual((body as { dead_letters: unknown[] }).dead_letters, []);
  });

  test('an enforced event is checked even if its name is written with escapes', async () => {
    const key = await newTenant();
    await pushed(key, ENFORCED, isRejected(key));
    const send = (body: string): Promise<HttpResponse> =>
      ask(server(), '/ingest/events', { method: 'POST', headers: withKey(key), body });
    const escaped = '{"users":[{"identifiers":{"user_id":"u"},"events":[{"event_name":"\\u006frder_placed"}]}]}';
    assert.equal((await send(escaped)).status, 400);
    assert.equal((await send(escaped.replace('\\u006frder_placed', 'other'))).status, 202);
  });

  test('a plan applies to one tenant: the other environment and other accounts are not affected', async () => {
    const account = `plans ${accounts++}`;
    const dev = await makeKey(server().dataFolder, { account });
    const prod = await makeKey(server().dataFolder, { account, environment: 'production' });
    const publishable = await makeKey(server().dataFolder, { account, kind: 'publishable' });
    const other = await newTenant();
    await pushed(dev, ENFORCED, isRejected(dev));
    for (const key of [prod, other]) {
      assert.equal((await post(server(), key.key, { users: [order('u', 'x')] })).status, 202);
      const { body } = await ask(server(), '/plan', { headers: withKey(key) });
      assert.equal((body as { version: number }).version, 0);
    }
    assert.equal((await post(server(), publishable.key, { users: [order('u', 'x')] })).status, 400);
    assert.equal((await ask(server(), '/plan', { headers: withKey(publishable) })).status, 403);
    assert.equal((await put(server(), publishable, {})).status, 403);
  });

  test('a version pushed under load is used as a whole, within two seconds', async () => {
    const key = await newTenant();
    const planOf = (name: string): object => ({
      events: { order_placed: { mode: 'enforce', schema: { required: [name] } } },
    });
    await pushed(key, planOf('total_1'), isRejected(key));
    const stopping = new AbortController();
    const seen = new Set<string>();
    const load = Promise.all(
      [1, 2, 3, 4].map(async () => {
        while (!stopping.signal.aborted) {
          const response = await post(server(), key.key, { users: [order('u', 1)] });
          assert.equal(response.status, 400, response.text);
          const [message = ''] = messagesOf(response);
          const [, name, version] =
            /^events\[1\]\.total_(\d+): is required \(tracking plan, version (\d+)\)$/.exec(message) ?? [];
          assert.equal(name, version, message);
          seen.add(version ?? '');
        }
      }),
    );
    for (let version = 2; version <= 4; version++) {
      assert.equal((await put(server(), key, planOf(`total_${version}`))).status, 200);
      await eventually('the new version is used', async () => seen.has(String(version)) || undefined);
    }
    stopping.abort();
    await load;
  });

  test('Live masks what is personal unless asked, and an erase lists it', async () => {
    const key = await newTenant();
    const personal = { schema: { properties: { card: { 'x-personal': true } } } };
    const plan = {
      events: { paid: personal },
      user_properties: personal,
      profile_fields: { schema: { properties: { first_name: { 'x-personal': true } } } },
    };
    assert.equal((await put(server(), key, plan)).status, 200);
    const masked = await openLive(server(), '?include=person', { key: key.key });
    const shown = await openLive(server(), '?include=person&personal=show', { key: key.key });
    const user = {
      identifiers: { user_id: 'ada', first_name: 'Ada' },
      events: [{ event_name: 'paid', card: '4111', total: 1 }],
    };
    await post(server(), key.key, { users: [user] });
    const [first = {}, second = {}] = [...(await masked.events(1)), ...(await shown.events(1))];
    assert.deepEqual(first['properties'], { card: '•••', total: 1 });
    assert.equal((first['person'] as { name: string }).name, '•••');
    assert.deepEqual(second['properties'], { card: '4111', total: 1 });
    assert.equal((second['person'] as { name: string }).name, 'Ada');
    masked.close();
    shown.close();
    const profile = String(first['profile_id']);
    for (const path of ['/events', `/profiles/${profile}/events`]) {
      const read = async (query: string): Promise<Record<string, unknown> | undefined> => {
        const { body } = await ask(server(), `${path}?include=person${query}`, { headers: withKey(key) });
        return (body as { events: Record<string, unknown>[] }).events[0];
      };
      assert.deepEqual(await read('&personal=mask'), first);
      assert.deepEqual(await read(''), second);
    }
    const erased = await ask(server(), `/profiles/${profile}`, {
      method: 'DELETE',
      headers: { authorization: `Bearer ${key.key}` },
    });
    assert.equal(erased.status, 202);
    assert.deepEqual((erased.body as { personal: unknown }).personal, {
      profile_fields: ['first_name'],
      user_properties: ['card'],
      events: { paid: ['card'] },
    });
  });

  test('a plan is pushed, read, listed; the same again changes nothing; one based on an older version is refused', async () => {
    const key = await newTenant();
    const empty = await ask(server(), '/plan', { headers: withKey(key) });
    assert.deepEqual(empty.body, {
      version: 0,
      created_at: null,
      created_by: null,
      plan: { unplanned_events: 'allow', events: {} },
    });
    const first = await put(server(), key, { version: 0, ...ENFORCED });
    assert.deepEqual(
      [first.status, (first.body as { version: number; is_new: boolean; created_by: string }).created_by],
      [200, key.id],
    );
    assert.equal(((await put(server(), key, ENFORCED)).body as { is_new: boolean }).is_new, false);
    const overtaken = await put(server(), key, { version: 0, events: {} });
    assert.equal(overtaken.status, 409);
    assert.match(
      (overtaken.body as { message: string }).message,
      /based on version 0, but the newest is 1: merge its changes, then set version to 1/,
    );
    assert.equal((await put(server(), key, { version: 1, events: {} })).status, 200);
    const { body } = await ask(server(), '/plan?version=1', { headers: withKey(key) });
    assert.deepEqual((body as { plan: unknown }).plan, { unplanned_events: 'allow', ...ENFORCED });
    assert.equal((await ask(server(), '/plan?version=3', { headers: withKey(key) })).status, 404);
    const versions = (await ask(server(), '/plan/versions', { headers: withKey(key) })).body;
    assert.deepEqual(
      (versions as { versions: { version: number; enforces: boolean }[] }).versions.map((one) => [
        one.version,
        one.enforces,
      ]),
      [
        [2, false],
        [1, true],
      ],
    );
  });

  test('a stored plan that this version cannot read counts as none, and nothing personal is shown meanwhile', async () => {
    const account = `plans ${accounts++}`;
    assert.equal(
      (await put(server(), await makeKey(server().dataFolder, { account }), { unplanned_events: 'reject' })).status,
      200,
    );
    // One that the edge has not seen without the plan.
    const key = await makeKey(server().dataFolder, { account });
    const database = new DatabaseSync(join(server().dataFolder, 'keys.db'), { timeout: 5_000 });
    database.prepare('UPDATE plans SET plan = ? WHERE account_id = ?').run('{"modes":{}}', key.accountId);
    database.close();
    const body = JSON.stringify({ users: [order('u', 'x')] });
    const headers = withKey(key);
    const sent = await ask(server(), '/ingest/events', { method: 'POST', headers, body });
    assert.equal(sent.status, 202, sent.text);
    const checked = await ask(server(), '/ingest/events/check', { method: 'POST', headers, body });
    assert.equal((checked.body as { plan_version: unknown }).plan_version, null, checked.text);
    await eventually('it is logged', async () => server().stderr().includes('a stored tracking plan cannot be read'));

    const catalogue = await ask(server(), '/catalogue', { headers });
    assert.equal(catalogue.status, 503);
    assert.match((catalogue.body as { message: string }).message, /tracking plan cannot be read.*push it again/);
    const profile = await eventually('the person is there', async () => {
      const found = await ask(server(), '/profiles?user_id=u', { headers });
      return found.status === 200 ? (found.body as { id: string }).id : undefined;
    });
    const erased = await ask(server(), `/profiles/${profile}`, { method: 'DELETE', headers: withoutBody(key) });
    assert.equal(erased.status, 202, erased.text);
  });

  test('a plan with mistakes is refused with the path of each, and one that is too large is 413', async () => {
    const key = await newTenant();
    const wrong = await put(server(), key, {
      events: { e: { schema: { properties: { a: { type: 'text' } } } } },
      x: 1,
    });
    assert.equal(wrong.status, 400);
    assert.match(
      (wrong.body as { message: string }).message,
      /^x is unknown.*\nevents\.e\.schema\.properties\.a\.type must be/,
    );
    assert.equal((await put(server(), key, [])).status, 400);
    assert.equal((await put(server(), key, { events: {}, x: 'x'.repeat(1_100_000) })).status, 413);
  });
});
