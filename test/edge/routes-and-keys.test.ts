/**
 * Every route with every kind of key and with sessions, on servers for any environment and for production alone. The
 * routes come from the server's own description of itself, and those that are not in it from the app, so a new one is in the
 * table from its first day; what to expect of each cell is computed by one small function. Ids in paths are those of a profile and a trace that are really there, and belong to
 * one of the tenants. The table is printed.
 */

import assert from 'node:assert/strict';
import { suite, type TestContext, test } from 'node:test';
import { makeKey as makeUnknownKey } from '../../src/keys/format.ts';
import { type HttpResponse, readResponse, eventually, post, type TestServer, user } from '../server.ts';
import { startApp } from '../api/running-app.ts';
import { ask, logOf, makeKey, makeSession, useServer, withWrongChecksum } from './fixture.ts';

const ACCOUNT = 'default';
const OTHER_ACCOUNT = 'another';

/** How a key is sent, with what, and whose it is. */
interface KeyCase {
  readonly name: string;
  readonly key: string | null;
  /** Of a signed-in browser, which asks for production from our own page. */
  readonly cookie?: string;
  /** The tenant that it writes to where it is let in. */
  readonly tenantId: string | null;
}

interface Route {
  readonly method: string;
  readonly path: string;
  readonly isThere: boolean;
}

/** The one tenant that has something to read, and what it has. */
const OWNER = 'secret prod';
const OWNERS_SESSION = 'session';
const OWNED_USER = 'somebody';
const OWNED_EVENT = 'owned by one tenant';

interface Owned {
  readonly traceId: string;
  readonly profileId: string;
}

async function keyCases({ dataFolder }: TestServer): Promise<KeyCase[]> {
  const dev = await makeKey(dataFolder, { account: ACCOUNT });
  const prod = await makeKey(dataFolder, { account: ACCOUNT, environment: 'production' });
  const other = await makeKey(dataFolder, { account: OTHER_ACCOUNT, environment: 'production' });
  const publishable = await makeKey(dataFolder, { account: ACCOUNT, kind: 'publishable', environment: 'production' });
  const revoked = await makeKey(dataFolder, { account: ACCOUNT, environment: 'production', revoked: true });
  const expired = await makeKey(dataFolder, { account: ACCOUNT, environment: 'production', expired: true });
  const own = await makeSession(dataFolder, { account: ACCOUNT, email: 'ada@example.com' });
  const others = await makeSession(dataFolder, { account: OTHER_ACCOUNT, email: 'eve@example.com' });
  return [
    { name: 'none', key: null, tenantId: null },
    { name: 'malformed', key: 'sk_prod_short', tenantId: null },
    { name: 'wrong checksum', key: withWrongChecksum(prod.key), tenantId: null },
    { name: 'unknown', key: makeUnknownKey('secret', 'production'), tenantId: null },
    { name: 'revoked', key: revoked.key, tenantId: null },
    { name: 'expired', key: expired.key, tenantId: null },
    { name: 'publishable', key: publishable.key, tenantId: `${publishable.accountId}/production` },
    { name: 'secret dev', key: dev.key, tenantId: `${dev.accountId}/development` },
    { name: 'secret prod', key: prod.key, tenantId: `${prod.accountId}/production` },
    { name: "another's secret", key: other.key, tenantId: `${other.accountId}/production` },
    { name: OWNERS_SESSION, key: null, cookie: own.cookie, tenantId: `${own.accountId}/production` },
    { name: "another's session", key: null, cookie: others.cookie, tenantId: `${others.accountId}/production` },
    { name: 'an unknown session', key: null, cookie: `sluice_session=${'A'.repeat(43)}`, tenantId: null },
  ];
}

/** Those that belong to members, and are for the page alone. */
const OF_PAGE = /^\/(session|invitations|members|keys)(\/|$)/;

async function routesOf(server: TestServer, t: TestContext): Promise<Route[]> {
  const { body } = await ask(server, '/openapi.json');
  const { paths } = body as { paths: Record<string, Record<string, unknown>> };
  const described = Object.entries(paths).flatMap(([path, operations]) =>
    (OF_PAGE.test(path) ? [] : Object.keys(operations)).map(
      (method): Route => ({ method: method.toUpperCase(), path, isThere: true }),
    ),
  );
  const unknown = ['/nowhere', '/ingest/nothing'].flatMap((path) =>
    ['GET', 'POST'].map((method): Route => ({ method, path, isThere: false })),
  );
  const { app } = await startApp(t);
  const more = [...app.methodsByPath].flatMap(([url, methods]) => {
    const path = url.replace(/:(\w+)/, '{$1}');
    // The page itself, and the root, which leads there, hold nothing of anyone.
    if (path in paths || path === '/' || path.startsWith('/dashboard')) return [];
    const there = [...methods].filter((method) => method !== 'HEAD');
    return there.map((method): Route => ({ method, path, isThere: true }));
  });
  // What erases comes last, so that the others find something; signing out comes after all of it.
  const isErasing = ({ method, path }: Route): number => (method !== 'DELETE' ? 0 : path === '/session' ? 2 : 1);
  return [...described, ...more, ...unknown].sort((left, right) => isErasing(left) - isErasing(right));
}

async function sendOwned(server: TestServer, key: string): Promise<Owned> {
  const owned = { identifiers: { user_id: OWNED_USER }, events: [{ event_name: OWNED_EVENT }] };
  const sent = await post(server, key, { users: [owned] });
  const traceId = sent.headers.get('x-trace-id') ?? '';
  const profileId = await eventually('the request is processed', async () => {
    const { body } = await ask(server, `/profiles?user_id=${OWNED_USER}`, {
      headers: { authorization: `Bearer ${key}` },
    });
    return (body as { id?: string }).id;
  });
  await eventually('the catalogue has the event', async () => {
    const path = `/catalogue/${encodeURIComponent(OWNED_EVENT)}`;
    return (await ask(server, path, { headers: { authorization: `Bearer ${key}` } })).status === 200;
  });
  return { traceId, profileId };
}

/** The path with what the owner needs to get it. */
function filledPath({ path }: Route, { traceId, profileId }: Owned, key: string | null): string {
  const filled = path
    .replace('{id}', profileId)
    .replace('{trace_id}', traceId)
    .replace('{event_name}', encodeURIComponent(OWNED_EVENT))
    .replace('{type}', 'track')
    .replace('{key}', key ?? 'none');
  return filled + (QUERIES[path] ?? '');
}

const QUERIES: Readonly<Record<string, string>> = {
  '/profiles': `?user_id=${OWNED_USER}`,
  '/profiles/search': `?value=${OWNED_USER}`,
  '/live': '?environment=production',
};

function isSegment(path: string): boolean {
  return /^\/ingest\/(v1|beacon|sourceConfig)\//.test(path);
}

function isCheck(path: string): boolean {
  return path === '/ingest/events/check';
}

function bodyFor({ method, path }: Route, { traceId }: Owned, keyName: string): string | null {
  // An empty plan changes nothing for the others.
  if (method === 'PUT') return '{}';
  if (method !== 'POST') return null;
  const message = { type: 'track', event: 'tested', userId: `by ${keyName}` };
  if (isSegment(path) && path.endsWith('/batch')) return JSON.stringify({ batch: [message] });
  if (isSegment(path)) return JSON.stringify(message);
  // Of the owner's own person, which no one else may learn of.
  if (isCheck(path)) return JSON.stringify({ users: [user(OWNED_USER)] });
  return JSON.stringify(path.startsWith('/ingest/') ? { users: [user(`by ${keyName}`)] } : { trace_id: traceId });
}

/** The routes for operators, and the SDK, need no key and belong to no tenant; all others need one. */
const OPEN_ROUTES = new Set([
  ...['/livez', '/readyz', '/metrics', '/version', '/openapi.json', '/docs'],
  ...['/ingest/sluice.js', '/ingest/v1/m'],
]);

/** Keys open nothing here: who has no cookie is no browser, and a change that says not where it comes from is refused. */
function expectedOfPage({ method, path }: Route, isBrowser: boolean, isMember: boolean): number {
  if (method !== 'GET' && !isBrowser) return 403;
  if (method === 'DELETE' && path === '/session') return 204;
  // The body is not what any of these wants.
  const isOpen = path === '/session' || path === '/invitations/look' || path === '/invitations/accept';
  if (method === 'POST' && isOpen) return 400;
  if (!isMember) return 401;
  if (method === 'POST') return 400;
  return path.includes('{') ? 404 : 200;
}

function expectedStatus(route: Route, one: KeyCase, environment: 'any' | 'production'): number {
  const { name, cookie, tenantId } = one;
  const isIngest = route.path.startsWith('/ingest/');
  if (name === 'publishable' && !isIngest) return 403;
  if (!route.isThere) return 404;
  if (OPEN_ROUTES.has(route.path)) return 200;
  if (OF_PAGE.test(route.path))
    return expectedOfPage(route, cookie !== undefined, cookie !== undefined && tenantId !== null);
  if (tenantId === null || (isIngest && cookie !== undefined)) return 401;
  if (environment !== 'any' && !tenantId.endsWith(`/${environment}`)) return 401;
  // A secret key is not accepted in an address.
  if (route.path.includes('{key}')) return name === 'publishable' ? 200 : 401;
  if (isIngest) return isSegment(route.path) || isCheck(route.path) ? 200 : 202;
  // What is rejected, failed or under way has other ids, and is fixed by another body.
  if (/^\/(rejections|dead-letters|jobs)\/\{/.test(route.path)) return 404;
  if (/^\/(rejections\/resubmit|dead-letters\/retry)$/.test(route.path)) return 400;
  // Lists are there for every tenant; what has an id, or is looked for, is there for its owner alone.
  const isOneThing = route.path.includes('{') || route.path === '/profiles';
  if (isOneThing && name !== OWNER && name !== OWNERS_SESSION) return 404;
  // The owner's key came before.
  if (route.method === 'DELETE' && name === OWNERS_SESSION) return 404;
  // The request merged nothing that could be unmerged, which only the owner may learn.
  if (route.path.endsWith('/unmerge')) return 400;
  return route.method === 'DELETE' ? 202 : 200;
}

for (const environment of ['any', 'production'] as const) {
  suite(`Every route with every key, on a server for ${environment === 'any' ? 'any environment' : environment}`, () => {
    const server = useServer({ env: { SLUICE_ENVIRONMENT: environment } });

    test('each key opens only its own routes and data, and what is written goes to its tenant', async (t: TestContext) => {
      const cases = await keyCases(server());
      const routes = await routesOf(server(), t);
      assert.ok(routes.some(({ path, method }) => path === '/ingest/events' && method === 'POST'));
      assert.ok(routes.some(({ path, method }) => path === '/profiles/{id}' && method === 'DELETE'));
      const owner = cases.find(({ name }) => name === OWNER);
      assert.ok(owner?.key);
      const owned = await sendOwned(server(), owner.key);
      const table: Record<string, Record<string, number>> = {};
      const wrong: string[] = [];
      const tenantOfTrace = new Map([[owned.traceId, owner.tenantId]]);

      for (const route of routes) {
        const row: Record<string, number> = {};
        for (const one of cases) {
          const body = bodyFor(route, owned, one.name);
          const { status, headers, text } = await askBriefly(server(), filledPath(route, owned, one.key), {
            method: route.method,
            headers: {
              ...(one.key !== null && { authorization: `Bearer ${one.key}` }),
              ...(one.cookie !== undefined && {
                cookie: one.cookie,
                origin: server().baseUrl,
                'sluice-environment': 'production',
              }),
              ...(body !== null && { 'content-type': 'application/json' }),
            },
            body,
          });
          row[one.name] = status;
          const expected = expectedStatus(route, one, environment);
          if (status !== expected) wrong.push(`${route.method} ${route.path}, ${one.name}: ${status}, not ${expected}`);
          if (status === 401 && !isSegment(route.path) && text !== '{"error":"unauthorized"}')
            wrong.push(`a 401 says ${text}`);
          const mayKnow = one.name === OWNER || one.name === OWNERS_SESSION;
          if (!mayKnow && text.includes(owned.profileId)) wrong.push(`${route.path} tells ${one.name}`);
          const isIngest = route.path.startsWith('/ingest/') && !OPEN_ROUTES.has(route.path);
          const isWritten = isIngest && !isCheck(route.path) && (status === 202 || status === 200);
          if (isWritten && route.method === 'POST') tenantOfTrace.set(headers.get('x-trace-id') ?? '', one.tenantId);
        }
        table[`${route.method} ${route.path}`] = row;
      }

      for (const line of tableLines(table)) t.diagnostic(line);
      assert.deepEqual(wrong, []);
      const records = await logOf(server());
      assert.deepEqual(new Map(records.map(({ traceId, tenantId }) => [traceId, tenantId])), tenantOfTrace);
      assert.equal(new Set(tenantOfTrace.values()).size, environment === 'any' ? 3 : 2);
    });
  });
}

/** A stream never ends by itself; that it began is enough. */
async function askBriefly(server: TestServer, path: string, init: RequestInit): Promise<HttpResponse> {
  if (!path.startsWith('/live')) return ask(server, path, init);
  const response = await fetch(server.baseUrl + path, init);
  if (response.status !== 200) return readResponse(response);
  await response.body?.cancel();
  return { status: response.status, headers: response.headers, body: undefined, text: '' };
}

function tableLines(table: Record<string, Record<string, number>>): string[] {
  const columns = Object.keys(Object.values(table)[0] ?? {});
  const width = Math.max(...Object.keys(table).map((name) => name.length));
  const line = (name: string, cells: readonly (string | number)[]): string =>
    [name.padEnd(width), ...cells.map((cell, n) => String(cell).padStart(columns[n]?.length ?? 0))].join('  ');
  return [
    line('', columns),
    ...Object.entries(table).map(([name, row]) =>
      line(
        name,
        columns.map((column) => row[column] ?? ''),
      ),
    ),
  ];
}
