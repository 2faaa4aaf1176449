/**
 * What the tests of `sluice migrate` share: the command in this process and in one of its own, and both sides of a migration
 * side by side.
 */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { lockFolder } from '../../src/backends/embedded/folder-lock.ts';
import { openSqliteKeyStore } from '../../src/backends/embedded/keys.ts';
import { openEmbeddedLogReader } from '../../src/backends/embedded/log/reader.ts';
import { openSqliteMigrationSource } from '../../src/backends/embedded/migration-source.ts';
import { openSqliteStore } from '../../src/backends/embedded/store/store.ts';
import { openPostgresKeyStore } from '../../src/backends/postgres/keys.ts';
import { openPostgresMigrationTarget } from '../../src/backends/postgres/migration-target.ts';
import { openPool, type PostgresPool } from '../../src/backends/postgres/pool.ts';
import { openPostgresStore } from '../../src/backends/postgres/store.ts';
import { type MigrateShell, runMigrate } from '../../src/cli/migrate.ts';
import { keyFileOf, logFolderOf, storeFileOf } from '../../src/data-folder/files.ts';
import type { TenantId } from '../../src/model.ts';
import type { KeyStore } from '../../src/keys.ts';
import type { Store, StoredEvent } from '../../src/store.ts';
import { OLDEST } from '../../src/views/cursor.ts';
import { NOON } from '../contract/member-rows.ts';
import { arrivedAfter } from '../contract/store-arrivals.ts';
import type { Scope } from '../faults/scope.ts';
import { assertSame } from '../processor/store-dump.ts';
import { MAIN, PROGRAM_ENV } from '../server.ts';
import { type Ran, testShell } from './data-shell.ts';

const SMALL_CHUNKS = { rows: 100, length: 1e6 };

/** In this process, in small chunks. */
export async function migrateHere(args: readonly string[], changes: Partial<MigrateShell> = {}): Promise<Ran> {
  const { shell, out, err } = testShell({});
  const code = await runMigrate(args, {
    ...shell,
    lockFolder,
    openSource: (folder) => openSqliteMigrationSource(folder, SMALL_CHUNKS),
    openTarget: openPostgresMigrationTarget,
    ...changes,
  });
  return { code, out: out(), err: err() };
}

/** As a person runs it, or another program of ours. */
export async function runProgram(
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
  program = MAIN,
): Promise<Ran & { readonly signal: string | null }> {
  const child = spawn(process.execPath, [program, ...args], {
    env: { ...PROGRAM_ENV, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const [out, err, [code, signal]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]);
  return { code: code as number, signal: signal as string | null, out, err };
}

export async function poolOf(scope: Scope, url: string): Promise<PostgresPool> {
  const pool = await openPool({ url, max: 4, applicationName: 'sluice test' });
  scope.defer(() => pool.close());
  return pool;
}

/** The name of the log of a data folder. */
export async function logNameOf(dataFolder: string): Promise<string> {
  const log = openEmbeddedLogReader({ folder: logFolderOf(dataFolder) });
  await log.close();
  return log.name;
}

export async function assertSameStores(
  dataFolder: string,
  pool: PostgresPool,
  logName: string,
  traceIds: readonly string[],
): Promise<void> {
  await using scope = new AsyncDisposableStack();
  const here = openSqliteStore(storeFileOf(dataFolder));
  scope.defer(() => here.close());
  const there = openPostgresStore({ pool: pool.share(), logName });
  scope.defer(() => there.close());
  assert.ok((await assertSame(withRoundedRevenue(here), withRoundedRevenue(there), traceIds)) > 1_000);
  const { eventsInLedger, eventsInTables } = await there.recount();
  assert.equal(eventsInTables, eventsInLedger);
}

/**
 * What a processor adds after the migration may go into another shard than what was migrated, and a sum of two sums is rounded
 * otherwise than the sum of all.
 */
function withRoundedRevenue(store: Store): Store {
  const counts: Store['counts'] = async (tenantId, query) => {
    const buckets = await store.counts(tenantId, query);
    return buckets.map(({ start, eventName, events, revenue }) => {
      const rounded = revenue.map((sum) => ({ ...sum, revenue: Number(sum.revenue?.toPrecision(12)) }));
      return { start, eventName, events, revenue: rounded };
    });
  };
  return new Proxy(store, {
    get(target, name) {
      if (name === 'counts') return counts;
      const value: unknown = Reflect.get(target, name);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}

/** Of every person, and every person by every identifier. */
export async function assertSameTimelines(dataFolder: string, pool: PostgresPool): Promise<void> {
  await using scope = new AsyncDisposableStack();
  const here = openSqliteStore(storeFileOf(dataFolder));
  scope.defer(() => here.close());
  const there = openPostgresStore({ pool: pool.share(), logName: '' });
  scope.defer(() => there.close());
  const page = { limit: 500, cursor: null };
  for (const tenantId of await here.tenants()) {
    const { rows, nextCursor } = await here.profiles(tenantId, page);
    assert.equal(nextCursor, null);
    for (const { id } of rows) {
      const query = { ...page, profileId: id, eventName: null, from: null, to: null };
      assert.deepEqual(await there.events(tenantId, query), await here.events(tenantId, query));
      for (const { type, value } of (await here.identity(tenantId, id))?.identifiers ?? []) {
        const found = await there.findProfile(tenantId, type, value);
        assert.deepEqual(found, await here.findProfile(tenantId, type, value));
      }
    }
  }
}

/** With the cursors that the embedded store gave. */
export async function assertSameArrivals(dataFolder: string, pool: PostgresPool): Promise<void> {
  await using scope = new AsyncDisposableStack();
  const here = openSqliteStore(storeFileOf(dataFolder));
  scope.defer(() => here.close());
  const there = openPostgresStore({ pool: pool.share(), logName: '' });
  scope.defer(() => there.close());
  const inOrder = async (store: Store, tenantId: TenantId, after: string): Promise<StoredEvent[]> =>
    (await arrivedAfter({ store }, after, tenantId)).events.map((event) => Object.assign(event, { cursor: '' }));
  let compared = 0;
  for (const tenantId of await here.tenants()) {
    const { events } = await arrivedAfter({ store: here }, OLDEST, tenantId);
    assert.deepEqual(await inOrder(there, tenantId, OLDEST), await inOrder(here, tenantId, OLDEST));
    for (const { cursor } of events.filter((_, index) => index % 40 === 0)) {
      assert.deepEqual(await inOrder(there, tenantId, cursor), await inOrder(here, tenantId, cursor));
      compared += 1;
    }
    const { last } = await here.arrivals(tenantId, null, 1);
    assert.deepEqual(await inOrder(there, tenantId, last), []);
  }
  assert.ok(compared > 4, `${compared} cursors were compared`);
}

export async function assertSameKeys(dataFolder: string, pool: PostgresPool): Promise<void> {
  await using scope = new AsyncDisposableStack();
  const here = openSqliteKeyStore(keyFileOf(dataFolder));
  const there = openPostgresKeyStore(pool.share());
  for (const store of [here, there]) scope.defer(() => store.close());
  assert.deepEqual(await keyResults(there), await keyResults(here));
}

async function keyResults(keys: KeyStore): Promise<unknown[]> {
  const { members } = keys;
  const responses: unknown[] = [await keys.accounts(), await keys.list()];
  for (const { id } of await keys.accounts()) {
    const listed = await members.members(id);
    responses.push(listed, await members.invitations(id, NOON), await keys.volumes(id, 0));
    for (const { email } of listed) responses.push(await members.findMember(email));
  }
  return responses;
}
