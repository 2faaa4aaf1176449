/** What a session opens: every call of a tenant, of the member's own account, in an environment that is served. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { createKey } from '../../src/keys/manage.ts';
import { PROFILE_ID, TRACE_ID } from './canned-store.ts';
import { goodBody, goodPath } from './good-call.ts';
import { type MemberApp, NOW, startMemberApp } from './member-app.ts';

const DEVELOPMENT = { 'sluice-environment': 'development' };

/** Paths that belong to no tenant: for operators, the page, and members. */
const NOT_OF_A_TENANT =
  /^\/(livez|readyz|metrics|version|openapi\.json|docs|health|dashboard.*|session.*|invitations.*|members.*|keys.*|ingest\/sluice\.js|)$/;

/** One good call for each route of a tenant that the app has: a new one is in every test here from its first day. */
function tenantCalls({ app }: MemberApp): { method: string; path: string; json: object | undefined }[] {
  return [...app.methodsByPath].flatMap(([url, methods]) => {
    if (NOT_OF_A_TENANT.test(url)) return [];
    const query = url === '/profiles' ? '?user_id=u-1' : url === '/profiles/search' ? '?value=u-1' : '';
    const path = goodPath(url) + query;
    return ['GET', 'POST', 'DELETE']
      .filter((method) => methods.has(method) && url !== '/live')
      .map((method) => ({ method, path, json: method === 'POST' ? goodBody(url) : undefined }));
  });
}

suite('With a session', () => {
  test('every call of a tenant is served in the environment that is asked for, and no key is noted as used', async (t) => {
    const uses: unknown[] = [];
    const running = await startMemberApp(t, { noteUse: (key) => uses.push(key) });
    const { cookie } = await running.join('ada@example.com');
    const calls = tenantCalls(running);
    assert.ok(calls.length >= 12, `${calls.length}`);
    const tenantId = `${await running.accountId()}/development`;
    for (const { method, path, json } of calls) {
      const { status, text } = await running.ask(method, path, { cookie, json, headers: DEVELOPMENT });
      assert.ok([200, 202].includes(status), `${method} ${path}: ${text}`);
    }
    assert.deepEqual([...new Set(running.asked.map(({ arguments: [tenant] }) => tenant))], [tenantId]);
    assert.deepEqual(uses, []);
  });

  test('nothing of another account, nor of the other environment, is seen by any call', async (t) => {
    const running = await startMemberApp(t);
    const other = await running.join('eve@example.com', { account: 'other' });
    const own = await running.join('ada@example.com');
    const production = { 'sluice-environment': 'production' };
    const ownId = `${await running.accountId()}/development`;
    for (const { method, path, json } of tenantCalls(running)) {
      for (const [cookie, headers] of [
        [other.cookie, DEVELOPMENT],
        [other.cookie, production],
        [own.cookie, production],
      ] as const) {
        const { status, text } = await running.ask(method, path, { cookie, json, headers });
        assert.ok(!text.includes(PROFILE_ID) && !text.includes(TRACE_ID), `${method} ${path}: ${text}`);
        assert.ok([200, 404].includes(status), `${method} ${path}: ${text}`);
      }
    }
    assert.ok(running.asked.every(({ arguments: [tenant] }) => tenant !== ownId));
  });

  test('an environment must be named, and be one that is served', async (t) => {
    const running = await startMemberApp(t, { environment: 'production' });
    const { cookie } = await running.join('ada@example.com');
    for (const headers of [{}, DEVELOPMENT, { 'sluice-environment': 'any' }, { 'sluice-environment': '' }]) {
      for (const { method, path, json } of tenantCalls(running)) {
        const { status, body } = await running.ask(method, path, { cookie, json, headers });
        assert.equal(status, 400, `${method} ${path}`);
        assert.equal((body as { message: string }).message, 'the header Sluice-Environment must be production');
      }
    }
    assert.deepEqual(running.asked, []);
    const { status } = await running.ask('GET', '/events', { cookie, headers: { 'sluice-environment': 'production' } });
    assert.equal(status, 200);
  });

  test('a key that is sent along is what counts, good or bad', async (t) => {
    const running = await startMemberApp(t);
    const { cookie } = await running.join('ada@example.com');
    const accountId = await running.accountId('other');
    const options = {
      name: 'k',
      environment: 'development',
      origins: [],
      expiresAt: null,
      accountId,
      now: NOW,
    } as const;
    const { key } = await createKey(running.keyStore, { ...options, kind: 'secret' });
    const publishable = await createKey(running.keyStore, { ...options, kind: 'publishable' });
    for (const { method, path, json } of tenantCalls(running)) {
      const statusWith = async (authorization: string): Promise<number> => {
        const headers = { ...DEVELOPMENT, authorization };
        return (await running.ask(method, path, { cookie, json, headers })).status;
      };
      assert.equal(await statusWith(`Bearer ${publishable.key}`), 403, path);
      for (const bad of ['', 'Bearer', 'Bearer sk_dev_short', `Basic ${key}`]) assert.equal(await statusWith(bad), 401);
      await statusWith(`Bearer ${key}`);
    }
    const tenants = new Set(running.asked.map(({ arguments: [tenant] }) => tenant));
    assert.deepEqual([...tenants], [`${accountId}/development`]);
  });

  test('keys open nothing that is for members, with or without a session beside them', async (t) => {
    const running = await startMemberApp(t);
    const accountId = await running.accountId();
    const options = {
      name: 'k',
      environment: 'development',
      origins: [],
      expiresAt: null,
      accountId,
      now: NOW,
    } as const;
    const secret = await createKey(running.keyStore, { ...options, kind: 'secret' });
    const publishable = await createKey(running.keyStore, { ...options, kind: 'publishable' });
    const { cookie } = await running.join('ada@example.com');
    const ask = (key: string, sent: string | null) =>
      running.ask('GET', '/members', { cookie: sent, headers: { authorization: `Bearer ${key}` } });
    const refused = await ask(secret.key, null);
    assert.deepEqual([refused.status, refused.headers['cache-control']], [401, 'no-store']);
    assert.equal((await ask(publishable.key, null)).status, 403);
    assert.equal((await ask(publishable.key, cookie)).status, 403);
  });

  test('the session is renewed and its cookie sent again by calls of a tenant, too', async (t) => {
    const running = await startMemberApp(t);
    const { cookie } = await running.join('ada@example.com');
    running.clock.now += 600_000;
    const response = await running.ask('GET', '/events', { cookie, headers: DEVELOPMENT });
    assert.equal(response.cookie, cookie);
  });
});
