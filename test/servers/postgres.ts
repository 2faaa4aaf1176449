/**
 * Real PostgreSQL for the tests. `testPostgres` is one server for all: the one of TEST_POSTGRES_URL, which `npm test`
 * sets, or one that this process starts and that ends with it. `ownPostgres` is a server for one test alone, which may
 * stop and start it. PostgreSQL does not run as root: then another user runs it.
 *
 * Databases order text as English does, so that what relies on the order of bytes without saying so shows.
 */

import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chownSync, realpathSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { Client } from 'pg';
import { findTool } from '../tools.ts';
import { freePort, makeServerFolder, ready, type ServerFolder, type ServerProcess } from './processes.ts';

const run = promisify(execFile);

const USER = 'sluice';
const CONNECTIONS_MAX = 200;
/** Generous: recovery after an immediate stop, on a busy machine. */
const READY_MS_MAX = 60_000;
/** Who runs the server when we are root, best first. */
const OTHER_USERS = ['postgres', 'nobody'];

export interface TestPostgres {
  /** The URL of a fresh database: empty, or a copy of another one without connections. */
  readonly newDatabase: (original?: string) => Promise<string>;
}

export interface OwnPostgres extends TestPostgres {
  /** Of an empty database; stays the same over stops and starts. */
  readonly url: string;
  /** `immediate`: as if it crashed, with recovery at the next start. `fast`: ends what is under way, then stops. */
  readonly stop: (mode: 'immediate' | 'fast') => Promise<void>;
  /** Resolves when it takes connections. */
  readonly start: () => Promise<void>;
  readonly close: () => Promise<void>;
}

/** For `suite(name, { skip })`: false, or why these tests cannot run here. On a CI machine that is a failure. */
export function whyNoPostgres(kind: 'shared' | 'own' = 'shared'): string | false {
  const isShared = kind === 'shared' && process.env['TEST_POSTGRES_URL'] !== undefined;
  const failure = process.env['TEST_POSTGRES_MISSING'];
  if (isShared || (failure === undefined && findTool('initdb') !== undefined)) return false;
  const reason = `needs PostgreSQL: ${failure ?? 'install it, or run "npm test" as root on a Debian, which does'}`;
  if (process.env['CI'] !== undefined) throw new Error(`cannot run in CI: ${reason}`);
  return reason;
}

let shared: Promise<string> | undefined;
let madeCount = 0;

export async function testPostgres(): Promise<TestPostgres> {
  shared ??= sharedUrl();
  const url = await shared;
  return { newDatabase: async (original) => newDatabase(url, original) };
}

async function sharedUrl(): Promise<string> {
  return process.env['TEST_POSTGRES_URL'] ?? (await startSharedPostgres()).url;
}

/**
 * For the process that starts the one server of a whole run. Its data would not survive a crash of the machine, and nothing goes
 * round the hundreds of databases that the tests leave behind, for speed.
 */
export async function startSharedPostgres(): Promise<Pick<OwnPostgres, 'url' | 'close'>> {
  const settings = ['fsync=off', 'full_page_writes=off', 'synchronous_commit=off', 'autovacuum=off'];
  return openPostgres(settings.flatMap((setting) => ['-c', setting]));
}

export async function ownPostgres(): Promise<OwnPostgres> {
  return openPostgres([]);
}

async function openPostgres(settings: readonly string[]): Promise<OwnPostgres> {
  const initdb = findTool('initdb');
  if (initdb === undefined) throw new Error('there is no PostgreSQL: initdb was not found');
  const folder = makeServerFolder('postgres', 'SIGQUIT');
  try {
    const owner = await ownerOf(folder);
    const password = randomBytes(12).toString('hex');
    const data = await initialise(initdb, folder, owner, password);
    const port = await freePort();
    const url = `postgres://${USER}:${password}@127.0.0.1:${port}/postgres`;
    const args = ['-D', data, '-p', String(port), '-k', folder.path, '-c', 'listen_addresses=127.0.0.1'];
    args.push('-c', `max_connections=${CONNECTIONS_MAX}`, ...settings);
    let server: ServerProcess | undefined;
    const start = async (): Promise<void> => {
      if (server?.isRunning() === true) return;
      const started = folder.run('postgres', join(dirname(realpathSync(initdb)), 'postgres'), args, owner);
      server = started;
      await ready('PostgreSQL', started, READY_MS_MAX, async () => takesConnections(url));
    };
    await start();
    return {
      url: await newDatabase(url),
      newDatabase: async (original) => newDatabase(url, original),
      start,
      stop: async (mode) => server?.end(mode === 'immediate' ? 'SIGQUIT' : 'SIGINT'),
      close: async () => folder.remove(),
    };
  } catch (error) {
    await folder.remove();
    throw error;
  }
}

interface Owner {
  readonly uid?: number;
  readonly gid?: number;
}

/** The user who runs the server, and who owns the folder from now on. */
async function ownerOf(folder: ServerFolder): Promise<Owner> {
  if (process.getuid?.() !== 0) return {};
  for (const name of OTHER_USERS) {
    try {
      const [uid, gid] = await Promise.all(
        ['-u', '-g'].map(async (flag) => Number((await run('id', [flag, name])).stdout)),
      );
      if (uid === undefined || gid === undefined) continue;
      chownSync(folder.path, uid, gid);
      return { uid, gid };
    } catch {
      // There is no such user; the next one, then.
    }
  }
  throw new Error(`PostgreSQL does not run as root, and there is no user ${OTHER_USERS.join(' or ')} to run it as`);
}

async function initialise(initdb: string, folder: ServerFolder, owner: Owner, password: string): Promise<string> {
  const data = join(folder.path, 'data');
  const passwordFile = join(folder.path, 'password');
  writeFileSync(passwordFile, password, { mode: 0o600 });
  if (owner.uid !== undefined && owner.gid !== undefined) chownSync(passwordFile, owner.uid, owner.gid);
  const args = ['-D', data, '-U', USER, '--pwfile', passwordFile, '--auth=scram-sha-256', '--no-sync'];
  args.push('--encoding=UTF8', '--locale=C.UTF-8');
  const options = { ...owner, cwd: folder.path, env: { PATH: process.env['PATH'], LC_ALL: 'C' } };
  try {
    await run(initdb, [...args, '--locale-provider=icu', '--icu-locale=en'], options);
  } catch {
    // Before PostgreSQL 15, or built without ICU.
    await run(initdb, args, options);
  }
  return data;
}

async function takesConnections(url: string): Promise<boolean> {
  try {
    await withClient(url, async (client) => client.query('SELECT 1'));
    return true;
  } catch {
    return false;
  }
}

async function newDatabase(serverUrl: string, original?: string): Promise<string> {
  const name = `sluice_test_${process.pid}_${madeCount++}_${randomBytes(4).toString('hex')}`;
  const template = original === undefined ? 'template0' : new URL(original).pathname.slice(1);
  await withClient(serverUrl, async (client) => client.query(`CREATE DATABASE ${name} TEMPLATE ${template}`));
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  return url.href;
}

/** As an operator does; `file` is made. */
export async function dumpDatabase(url: string, file: string): Promise<void> {
  await run(findTool('pg_dump') ?? 'pg_dump', ['--format=custom', `--file=${file}`, url]);
}

/** Into a database of its own. */
export async function restoreDatabase(file: string): Promise<string> {
  const url = await (await testPostgres()).newDatabase();
  await run(findTool('pg_restore') ?? 'pg_restore', ['--exit-on-error', '--no-owner', `--dbname=${url}`, file]);
  return url;
}

export async function withClient<T>(url: string, work: (client: Client) => Promise<T>): Promise<T> {
  const client = new Client({ connectionString: url });
  // An end of the connection between two queries is no news: the next query says so.
  client.on('error', () => {});
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}
