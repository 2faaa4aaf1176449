/**
 * Starts the real server as its own process, on a free port and a fresh data folder, and talks to it. Everything that
 * it starts is ended, by its process id, when the test is over.
 */

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

/** TEST_PROGRAM is the same program, bundled (`program.ts`). */
export const MAIN = process.env['TEST_PROGRAM'] ?? fileURLToPath(new URL('../src/main.ts', import.meta.url));

/** What every program that a test starts gets; with the cache it need not compile what others have compiled before. */
export const PROGRAM_ENV = {
  PATH: process.env['PATH'],
  NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'],
};

/** No test waits for load balancers that it does not have, or depends on the disk of the machine. */
export const TEST_SETTINGS = { SLUICE_DISK_FREE_MIN: '0', SLUICE_DRAIN: '0' };

/** How long `eventually` waits before it asks again: a tenth of what it has waited, within these. */
const ASK_MS_MIN = 20;
const ASK_MS_MAX = 100;

export interface ServerOptions {
  readonly dataFolder?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly args?: readonly string[];
  /** A command to run the server under, such as strace. */
  readonly under?: readonly string[];
  /** Whom it runs as; only root can choose. */
  readonly uid?: number;
  readonly gid?: number;
}

export interface TestServer {
  readonly baseUrl: string;
  readonly port: number;
  readonly dataFolder: string;
  readonly process: ChildProcess;
  /** The server's own process id, also when it runs under another command. */
  readonly pid: number;
  /** The key that the first start printed; empty on later starts. */
  readonly key: string;
  /** All that it wrote so far. */
  stdout(): string;
  stderr(): string;
  /** Resolves with the exit code, or the name of the signal. */
  readonly ended: Promise<number | string>;
  kill(signal?: NodeJS.Signals): Promise<number | string>;
  stop(): Promise<number | string>;
}

export function temporaryFolder(): string {
  return mkdtempSync(join(tmpdir(), 'sluice-test-'));
}

export function removeFolder(folder: string): void {
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  // What a log leaves beside its folder.
  for (const name of ['ends', 'name']) rmSync(`${folder}-${name}`, { force: true });
}

/** Rejects with everything the server said if it ends before it listens. */
export async function startServer(options: ServerOptions = {}): Promise<TestServer> {
  const dataFolder = options.dataFolder ?? temporaryFolder();
  const command = [...(options.under ?? []), process.execPath, MAIN, 'serve', ...(options.args ?? [])];
  const child = spawn(command[0] as string, command.slice(1), {
    env: { ...PROGRAM_ENV, PORT: '0', SLUICE_DATA: dataFolder, ...TEST_SETTINGS, ...options.env },
    stdio: ['ignore', 'pipe', 'pipe'],
    ...userOf(options),
  });
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  const ended = once(child, 'close').then(([code, signal]) => (code ?? signal) as number | string);

  const listening = new Promise<{ port: number; pid: number }>((resolve, reject) => {
    createInterface({ input: child.stderr }).on('line', (line) => {
      stderr += `${line}\n`;
      if (line.includes('"msg":"listening"')) resolve(JSON.parse(line) as { port: number; pid: number });
    });
    child.once('error', reject);
    void ended.then((how) => reject(new Error(`the server ended (${how}) before it listened:\n${stdout}${stderr}`)));
  });
  const { port, pid } = await listening;
  // The words for people follow the log line; the first start prints a key among them.
  for (let tries = 0; tries < 2_000 && !/listening on .*\n\n/s.test(stdout); tries++) await sleep(10);

  const kill = (signal: NodeJS.Signals = 'SIGKILL'): Promise<number | string> => {
    try {
      process.kill(pid, signal);
    } catch {
      // It has ended already.
    }
    return ended;
  };
  return {
    baseUrl: `http://127.0.0.1:${port}`,
    port,
    dataFolder,
    process: child,
    pid,
    key: /sk_dev_[0-9A-Za-z]{38}/.exec(stdout)?.[0] ?? '',
    stdout: () => stdout,
    stderr: () => stderr,
    ended,
    kill,
    stop: () => kill('SIGTERM'),
  };
}

function userOf({ uid, gid }: Pick<ServerOptions, 'uid' | 'gid'>): { uid?: number; gid?: number } {
  return { ...(uid !== undefined && { uid }), ...(gid !== undefined && { gid }) };
}

export function sleep(milliseconds: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, milliseconds);
  });
}

/**
 * Asks again and again until the response is truthy; fails after the deadline with the words given. The deadline is long,
 * since the machine may be busy with other tests, and only a failure waits for it. The longer it takes the rarer it asks:
 * to ask costs the server more than to wait.
 */
export async function eventually<T>(
  what: string,
  ask: () => T | Promise<T>,
  deadlineMs = 60_000,
): Promise<NonNullable<Awaited<T>>> {
  const startedAt = performance.now();
  for (let waited = 0; waited < deadlineMs; waited = performance.now() - startedAt) {
    const reply = await ask();
    if (reply) return reply as NonNullable<Awaited<T>>;
    await sleep(Math.min(Math.max(waited / 10, ASK_MS_MIN), ASK_MS_MAX));
  }
  throw new Error(`did not happen within ${deadlineMs} ms: ${what}`);
}

export interface HttpResponse {
  readonly status: number;
  readonly headers: Headers;
  readonly body: unknown;
  readonly text: string;
}

export async function post(
  server: Pick<TestServer, 'baseUrl'>,
  key: string | null,
  body: unknown,
  headers: Record<string, string> = {},
): Promise<HttpResponse> {
  const response = await fetch(`${server.baseUrl}/ingest/events`, {
    method: 'POST',
    headers: {
      ...(key !== null && { authorization: `Bearer ${key}` }),
      'content-type': 'application/json',
      ...headers,
    },
    body: typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body),
  });
  return readResponse(response);
}

export async function get({ baseUrl }: Pick<TestServer, 'baseUrl'>, key: string, path: string): Promise<HttpResponse> {
  return readResponse(await fetch(baseUrl + path, { headers: { authorization: `Bearer ${key}` } }));
}

/** The body of the response, which must be a 200. */
export async function read<T>(server: Pick<TestServer, 'baseUrl'>, key: string, path: string): Promise<T> {
  const { status, text, body } = await get(server, key, path);
  assert.equal(status, 200, `${path}: ${text}`);
  return body as T;
}

/** Waits until the request is processed, and returns its trace. */
export async function processed<T>(
  server: Pick<TestServer, 'baseUrl'>,
  key: string,
  traceId: string,
  deadlineMs?: number,
): Promise<T> {
  const trace = await eventually(
    `the request ${traceId} is processed`,
    async () => {
      const { body } = await get(server, key, `/traces/${traceId}`);
      return (body as { status?: string } | undefined)?.status === 'processed' ? body : undefined;
    },
    deadlineMs,
  );
  return trace as T;
}

export async function readResponse(response: Response): Promise<HttpResponse> {
  const text = await response.text();
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    body = undefined;
  }
  return { status: response.status, headers: response.headers, body, text };
}

export function user(id: string, events: object[] = [{ event_name: 'tested' }]): object {
  return { identifiers: { user_id: id }, events };
}

/** Makes a key with the command, as a person would. */
export async function createKey(
  dataFolder: string,
  options: { kind?: string; env?: string; account?: string; more?: readonly string[] } = {},
): Promise<{ id: string; key: string; account: string }> {
  const { kind = 'secret', env = 'development', account, more = [] } = options;
  const output = await runSluice(
    ['keys', 'create', '--name', 'test', '--kind', kind, '--env', env, '--json'].concat(
      account === undefined ? [] : ['--account', account],
      more,
    ),
    { SLUICE_DATA: dataFolder },
  );
  if (output.code !== 0) throw new Error(output.stderr);
  return JSON.parse(output.stdout) as { id: string; key: string; account: string };
}

export async function runSluice(
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
  as: Pick<ServerOptions, 'uid' | 'gid'> = {},
): Promise<{ code: number; stdout: string; stderr: string }> {
  const child = spawn(process.execPath, [MAIN, ...args], { env: { ...PROGRAM_ENV, ...env }, ...userOf(as) });
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  const [code] = (await once(child, 'close')) as [number];
  return { code, stdout, stderr };
}
