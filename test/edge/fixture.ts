/**
 * What the tests of the edge share: one real server a suite, keys made beside it, its log and its metrics read back.
 * Keys are written straight to the key store, which takes effect as if the command had made them and is much faster.
 */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before } from 'node:test';
import { openSqliteKeyStore } from '../../src/backends/embedded/keys.ts';
import { openEmbeddedLogReader } from '../../src/backends/embedded/log/reader.ts';
import { createKey, newAccount } from '../../src/keys/manage.ts';
import type { LogRecord } from '../../src/log.ts';
import { type Environment, type KeyKind, MINUTE_MS } from '../../src/model.ts';
import { invite } from '../../src/sign-in/invite.ts';
import { newSession } from '../../src/sign-in/session.ts';
import { tokenHashOf } from '../../src/sign-in/token.ts';
import { readAll } from '../contract/log-entries.ts';
import {
  type HttpResponse,
  readResponse,
  removeFolder,
  type ServerOptions,
  startServer,
  type TestServer,
} from '../server.ts';

export const UUID_V7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

/** Starts a server before the suite and ends it, with its folder, after. */
export function useServer(options: ServerOptions = {}): () => TestServer {
  let server: TestServer | undefined;
  before(async () => {
    server = await startServer(options);
  });
  after(async () => {
    await server?.kill();
    if (server) removeFolder(server.dataFolder);
  });
  return () => {
    if (!server) throw new Error('the server has not started yet');
    return server;
  };
}

export interface TestKey {
  readonly id: string;
  readonly key: string;
  readonly accountId: string;
}

export interface TestKeyOptions {
  readonly kind?: KeyKind;
  readonly environment?: Environment;
  readonly origins?: readonly string[];
  readonly account?: string;
  readonly expired?: boolean;
  readonly revoked?: boolean;
}

export async function makeKey(dataFolder: string, options: TestKeyOptions = {}): Promise<TestKey> {
  const { kind = 'secret', environment = 'development', origins = [], account = 'default' } = options;
  const store = openSqliteKeyStore(join(dataFolder, 'keys.db'));
  try {
    const now = Date.now() - 2 * MINUTE_MS;
    const { id: accountId } = await store.ensureAccount(newAccount(account, now));
    const expiresAt = options.expired === true ? now + MINUTE_MS : null;
    const { key, row } = await createKey(store, {
      name: 'test',
      kind,
      environment,
      origins,
      expiresAt,
      accountId,
      now,
    });
    if (options.revoked === true) await store.revoke(row.id, Date.now());
    return { id: row.id, key, accountId };
  } finally {
    await store.close();
  }
}

/** A member with a session, and the cookie of that; the password is one that no one can type. */
export async function makeSession(
  dataFolder: string,
  { account = 'default', email }: { account?: string; email: string },
): Promise<{ cookie: string; accountId: string }> {
  const keyStore = openSqliteKeyStore(join(dataFolder, 'keys.db'));
  const { members } = keyStore;
  try {
    const now = Date.now();
    const { id: accountId } = await keyStore.ensureAccount(newAccount(account, now));
    const invitation = await invite(members, { accountId, kind: 'invitation', email, member: null }, now);
    const tokenHash = tokenHashOf(invitation?.token);
    if (tokenHash === undefined) throw new Error('no invitation was made');
    const { token, session } = newSession({ address: '', token: undefined }, now);
    const memberId = `mem_${email}`;
    const member = await members.acceptInvitation({
      tokenHash,
      memberId,
      email,
      passwordHash: 'none',
      session,
      at: now,
    });
    if (typeof member === 'string') throw new Error(member);
    return { cookie: `sluice_session=${token}`, accountId };
  } finally {
    await keyStore.close();
  }
}

/** The same key with another last character: its checksum is wrong then. */
export function withWrongChecksum(key: string): string {
  return key.slice(0, -1) + (key.endsWith('0') ? '1' : '0');
}

export async function logOf({ dataFolder }: Pick<TestServer, 'dataFolder'>): Promise<LogRecord[]> {
  const reader = openEmbeddedLogReader({ folder: join(dataFolder, 'log') });
  try {
    const partitions = await reader.partitions();
    const records = await Promise.all(partitions.map((partition) => readAll(reader, partition)));
    return records.flat();
  } finally {
    await reader.close();
  }
}

/** The one record of the request that a response is about. */
export async function recordOf(server: TestServer, response: HttpResponse): Promise<LogRecord | undefined> {
  const traceId = response.headers.get('x-trace-id');
  return (await logOf(server)).find((record) => record.traceId === traceId);
}

export function bodyText(record: LogRecord | undefined): string {
  return Buffer.from(record?.body ?? []).toString('utf8');
}

export async function ask(server: TestServer, path: string, init: RequestInit = {}): Promise<HttpResponse> {
  return readResponse(await fetch(server.baseUrl + path, init));
}

export async function metric(server: TestServer, series: string): Promise<number> {
  const { text } = await ask(server, '/metrics');
  const line = text.split('\n').find((row) => row.startsWith(`${series} `));
  if (line === undefined) throw new Error(`there is no metric ${series}`);
  return Number(line.slice(series.length + 1));
}

/** Resident memory of a process; `peak` is the most it ever was. */
export function memoryBytes(pid: number): { now: number; peak: number } {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const kilobytes = (field: string): number => Number(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(status)?.[1]);
  return { now: kilobytes('VmRSS') * 1024, peak: kilobytes('VmHWM') * 1024 };
}
