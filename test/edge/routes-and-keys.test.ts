/**
 * Every route with every kind of key, on servers for any environment and for production alone. The routes come from the
 * server's own description of itself, so a new one is in the table from its first day; what to expect of each cell is
 * computed by one small function. The table is printed.
 */

import assert from 'node:assert/strict';
import { suite, type TestContext, test } from 'node:test';
import { makeKey as makeUnknownKey } from '../../src/keys/format.ts';
import { type TestServer, user } from '../server.ts';
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
  return [...described, ...unknown];
}

/** The routes for operators need no key and belong to no tenant; all others must be listed here to be let in. */
const OPEN_ROUTES = new Set(['/livez', '/readyz', '/metrics', '/openapi.json', '/docs']);

function expectedStatus(route: Route, { name, tenantId }: KeyCase, environment: 'any' | 'production'): number {
  const isIngest = route.path.startsWith('/ingest/');
  if (name === 'publishable' && !isIngest) return 403;
  if (!route.isThere) return 404;
  if (OPEN_ROUTES.has(route.path)) return 200;
  if (tenantId === null) return 401;
  if (environment !== 'any' && !tenantId.endsWith(`/${environment}`)) return 401;
  return 202;
}

for (const environment of ['any', 'production'] as const) {
  suite(`Every route with every key, on a server for ${environment === 'any' ? 'any environment' : environment}`, () => {
    const server = useServer({ env: { SLUICE_ENVIRONMENT: environment } });

    test('nobody gets in where they do not belong, and what is written goes to the tenant of the key', async (t: TestContext) => {
      const cases = await keyCases(server());
      const routes = await routesOf(server());
      assert.ok(routes.some(({ path, method }) => path === '/ingest/events' && method === 'POST'));
      const table: Record<string, Record<string, number>> = {};
      const wrong: string[] = [];
      const tenantOfTrace = new Map<string, string | null>();

      for (const route of routes) {
        const row: Record<string, number> = {};
        for (const one of cases) {
          const { status, headers } = await ask(server(), route.path, {
            method: route.method,
            headers: {
              ...(one.key !== null && { authorization: `Bearer ${one.key}` }),
              'content-type': 'application/json',
            },
            body: route.method === 'GET' ? null : JSON.stringify({ users: [user(`by ${one.name}`)] }),
          });
          row[one.name] = status;
          const expected = expectedStatus(route, one, environment);
          if (status !== expected) wrong.push(`${route.method} ${route.path}, ${one.name}: ${status}, not ${expected}`);
          if (status === 202) tenantOfTrace.set(headers.get('x-trace-id') ?? '', one.tenantId);
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
