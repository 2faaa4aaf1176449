/**
 * Erasing a person while requests from before still wait in the log: what is left is what would be left if they had been
 * processed at once. Before they are processed, nothing says that their identifiers are one person's.
 */

import assert from 'node:assert/strict';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { suite, test } from 'node:test';
import { Client } from 'pg';
import { storeFileOf } from '../../src/data-folder/files.ts';
import { Connection } from '../faults/connection.ts';
import { settled } from '../faults/processor-load.ts';
import { folderIn, launch, type Scope } from '../faults/scope.ts';
import { read } from '../server.ts';
import { testPostgres, whyNoPostgres } from '../servers/postgres.ts';

interface Running {
  readonly baseUrl: string;
  readonly port: number;
  readonly key: string;
}

/** Keeps the processor from processing until what it returns is called. */
type Hold = () => Promise<() => Promise<void>>;

const HELD_MS = 500;
/** The server waits for 10 s. */
const HELD_TOO_LONG_MS = 11_000;

async function send(connection: Connection, key: string, ...users: readonly Record<string, string>[]): Promise<void> {
  for (const identifiers of users) {
    const body = JSON.stringify({ users: [{ identifiers, events: [{ event_name: 'tested' }] }] });
    assert.equal((await connection.ingest(key, null, body)).status, 202);
  }
}

async function statusOf({ baseUrl, key }: Running, query: string): Promise<number> {
  return (await fetch(`${baseUrl}/profiles?${query}`, { headers: { authorization: `Bearer ${key}` } })).status;
}

/** Sends requests of which only the last says that all are of `ada`, who is erased before any of them is processed. */
async function eraseBehind(scope: Scope, server: Running, hold: Hold, heldMs: number): Promise<object> {
  const { baseUrl, key } = server;
  const connection = await Connection.open(server.port);
  scope.defer(() => connection.close());
  await send(connection, key, { user_id: 'ada' }, { user_id: 'bob' });
  await settled(server, key);
  const { id } = await read<{ id: string }>(server, key, '/profiles?user_id=ada');

  const release = await hold();
  await send(connection, key, { anon_id: 'phone' }, { anon_id: 'phone', email: 'ada@example.com' });
  await send(connection, key, { anon_id: 'laptop', email: 'ada@example.com' }, { anon_id: 'laptop', user_id: 'ada' });
  await send(connection, key, { anon_id: 'tablet', user_id: 'bob' });
  const erasing = fetch(`${baseUrl}/profiles/${id}`, { method: 'DELETE', headers: { authorization: `Bearer ${key}` } });
  await sleep(heldMs);
  await release();
  const response = await erasing;
  assert.equal(response.status, 202);
  await settled(server, key);
  return (await response.json()) as object;
}

async function assertAllErased(server: Running): Promise<void> {
  for (const query of ['user_id=ada', 'anon_id=phone', 'anon_id=laptop', 'email=ada@example.com']) {
    assert.equal(await statusOf(server, query), 404, query);
  }
  assert.equal(await statusOf(server, 'anon_id=tablet'), 200);
}

function holdSqlite(dataFolder: string): Hold {
  return async () => {
    const holder = new DatabaseSync(storeFileOf(dataFolder), { timeout: 5_000 });
    holder.exec('BEGIN IMMEDIATE');
    return async () => holder.close();
  };
}

suite('Erasing a person whose latest requests are not processed yet', () => {
  test('erases what they link to the person too', async () => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    const server = await launch(scope, { dataFolder });
    const erased = await eraseBehind(scope, server, holdSqlite(dataFolder), HELD_MS);
    assert.ok(!('warning' in erased), JSON.stringify(erased));
    await assertAllErased(server);
  });

  test('does the same on PostgreSQL', { skip: whyNoPostgres() }, async () => {
    await using scope = new AsyncDisposableStack();
    const STORE_URL = await (await testPostgres()).newDatabase();
    const server = await launch(scope, { dataFolder: folderIn(scope), env: { STORE_URL } });
    const erased = await eraseBehind(scope, server, () => holdPostgres(STORE_URL), HELD_MS);
    assert.ok(!('warning' in erased), JSON.stringify(erased));
    await assertAllErased(server);
  });

  test('erases without them after 10 s, and says so', { skip: whyNoPostgres() }, async () => {
    await using scope = new AsyncDisposableStack();
    const STORE_URL = await (await testPostgres()).newDatabase();
    const server = await launch(scope, { dataFolder: folderIn(scope), env: { STORE_URL } });
    const erased = await eraseBehind(scope, server, () => holdPostgres(STORE_URL), HELD_TOO_LONG_MS);
    assert.ok('warning' in erased, JSON.stringify(erased));
    assert.equal(await statusOf(server, 'user_id=ada'), 404);
  });
});

async function holdPostgres(url: string): Promise<() => Promise<void>> {
  const holder = new Client({ connectionString: url });
  await holder.connect();
  await holder.query('BEGIN; LOCK TABLE sluice.positions IN SHARE MODE');
  return () => holder.end();
}
