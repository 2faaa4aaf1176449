/**
 * Every route with every kind of key, on servers for any environment and for production alone. The routes come from the
 * server's own description of itself, so a new one is in the table from its first day; what to expect of each cell is
 * computed by one small function. Ids in paths are those of a profile and a trace that are really there, and belong to
 * one of the tenants. The table is printed.
 */

import assert from 'node:assert/strict';
import { suite, type TestContext, test } from 'node:test';
import { makeKey as makeUnknownKey } from '../../src/keys/format.ts';
import { eventually, post, type TestServer, user } from '../server.ts';
import { ask, logOf, makeKey, useServer, withWrongChecksum } from './fixture.ts';

const ACCOUNT = 'default';
const OTHER_ACCOUNT = 'another';

/** How a key is sent, with what, and whose it is. */
interface KeyCase {
  readonly name: string;
  readonly key: string | null;
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
const OWNED_USER = 'somebody';

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
  ];
}

async function routesOf(server: TestServer): Promise<Route[]> {
  const { body } = await ask(server, '/openapi.json');
  const { paths } = body as { paths: Record<string, Record<string, unknown>> };
  const described = Object.entries(paths).flatMap(([path, operations]) =>
    Object.keys(operations).map((method): Route => ({ method: method.toUpperCase(), path, isThere: true })),
  );
  const unknown = ['/nowhere', '/ingest/nothing'].flatMap((path) =>
    ['GET', 'POST'].map((method): Route => ({ method, path, isThere: false })),
  );
  // What erases comes last, so that the others find something.
  const isErasing = ({ method }: Route): number => (method === 'DELETE' ? 1 : 0);
  return [...described, ...unknown].sort((left, right) => isErasing(left) - isErasing(right));
}

async function sendOwned(server: TestServer, key: string): Promise<Owned> {
  const sent = await post(server, key, { users: [user(OWNED_USER)] });
  const traceId = sent.headers.get('x-trace-id') ?? '';
  const profileId = await eventually('the request is processed', async () => {
    const { body } = await ask(server, `/profiles?user_id=${OWNED_USER}`, {
      headers: { authorization: `Bearer ${key}` },
    });
    return (body as { id?: string }).id;
  });
  return { traceId, profileId };
}

/** The path with what it needs to be answered to the owner. */
function filledPath({ path }: Route, { traceId, profileId }: Owned): string {
  const filled = path.replace('{id}', profileId).replace('{trace_id}', traceId);
  return path === '/profiles' ? `${filled}?user_id=${OWNED_USER}` : filled;
}

function bodyFor({ method, path }: Route, { traceId }: Owned, keyName: string): string | null {
  if (method !== 'POST') return null;
  return JSON.stringify(path.startsWith('/ingest/') ? { users: [user(`by ${keyName}`)] } : { trace_id: traceId });
}

/** The routes for operators need no key and belong to no tenant; all others need one. */
const OPEN_ROUTES = new Set(['/livez', '/readyz', '/metrics', '/openapi.json', '/docs']);

function expectedStatus(route: Route, { name, tenantId }: KeyCase, environment: 'any' | 'production'): number {
  const isIngest = route.path.startsWith('/ingest/');
  if (name === 'publishable' && !isIngest) return 403;
  if (!route.isThere) return 404;
  if (OPEN_ROUTES.has(route.path)) return 200;
  if (tenantId === null) return 401;
  if (environment !== 'any' && !tenantId.endsWith(`/${environment}`)) return 401;
  if (isIngest) return 202;
  // Lists are there for every tenant; what has an id, or is looked for, is there for its owner alone.
  const isOneThing = route.path.includes('{') || route.path === '/profiles';
  if (isOneThing && name !== OWNER) return 404;
  // The request merged nothing that could be unmerged, which only the owner may learn.
  if (route.path.endsWith('/unmerge')) return 400;
  return route.method === 'DELETE' ? 202 : 200;
}

for (const environment of ['any', 'production'] as const) {
  suite(`Every route with every key, on a server for ${environment === 'any' ? 'any environment' : environment}`, () => {
    const server = useServer({ env: { SLUICE_ENVIRONMENT: environment } });

    test('nobody gets in where they do not belong, and what is written goes to the tenant of the key', async (t: TestContext) => {
      const cases = await keyCases(server());
      const routes = await routesOf(server());
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
          const { status, headers, text } = await ask(server(), filledPath(route, owned), {
            method: route.method,
            headers: {
              ...(one.key !== null && { authorization: `Bearer ${one.key}` }),
              ...(body !== null && { 'content-type': 'application/json' }),
            },
            body,
          });
          row[one.name] = status;
          const expected = expectedStatus(route, one, environment);
          if (status !== expected) wrong.push(`${route.method} ${route.path}, ${one.name}: ${status}, not ${expected}`);
          if (status === 401 && text !== '{"error":"unauthorized"}') wrong.push(`a 401 says ${text}`);
          if (one.name !== OWNER && text.includes(owned.profileId)) wrong.push(`${route.path} tells ${one.name}`);
          if (status === 202 && route.method === 'POST')
            tenantOfTrace.set(headers.get('x-trace-id') ?? '', one.tenantId);
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
