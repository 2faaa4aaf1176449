/**
 * Server processes of the tests, and the temporary folder that they keep their data and what they say in. A guardian
 * (a small shell) waits for this process to end, in whatever way, kill -9 included; then it ends the servers that
 * still run and removes the folder. So nothing is left behind, and nothing here keeps this process from ending.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { removeFolder } from '../server.ts';

/**
 * Below the ports that the system gives to outgoing connections: none of those can take the port of a server that is
 * down for a moment, and no client that tries to reach it can end up connected to itself.
 */
const PORTS = { from: 20_000, to: 31_999 };
const PORT_TRIES_MAX = 50;
/** For a server to end by itself before it is killed. */
const END_MS_MAX = 10_000;
const SAID_LINES_MAX = 30;

/** Each line names the processes that run now. At the end of the input they end, and then the folder goes. */
const GUARDIAN = `
pids=
while read -r line; do pids=$line; done
for pid in $pids; do kill -s "$2" "$pid" 2>/dev/null; done
for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  alive=
  for pid in $pids; do kill -0 "$pid" 2>/dev/null && alive=yes; done
  [ -z "$alive" ] && break
  sleep 0.25
done
for pid in $pids; do kill -s KILL "$pid" 2>/dev/null; done
rm -rf -- "$1"
`;

export interface ServerProcess {
  isRunning(): boolean;
  /** The last lines of what it said. */
  said(): string;
  hasSaid(text: string): boolean;
  /** Resolves when it has ended; at once if it had. Kills it if it takes too long. */
  end(signal: NodeJS.Signals): Promise<void>;
}

export interface RunOptions {
  readonly uid?: number;
  readonly gid?: number;
  readonly env?: Readonly<Record<string, string>>;
}

export interface ServerFolder {
  readonly path: string;
  /** What it says goes to `<name>.log` in the folder. */
  run(name: string, command: string, args: readonly string[], options?: RunOptions): ServerProcess;
  /** Ends what still runs and removes the folder. */
  remove(): Promise<void>;
}

/** `endSignal` is what the servers in the folder get when they are no longer needed. */
export function makeServerFolder(name: string, endSignal: 'SIGKILL' | 'SIGQUIT'): ServerFolder {
  const path = mkdtempSync(join(tmpdir(), `sluice-${name}-`));
  const running = new Map<ServerProcess, number>();
  const guardian = spawn('/bin/sh', ['-c', GUARDIAN, 'guardian', path, endSignal.slice(3)], {
    // A session of its own: Ctrl-C in a terminal is for us, and we end the servers.
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
    cwd: '/',
  });
  guardian.unref();
  const pipe = guardian.stdin as NonNullable<typeof guardian.stdin> & { unref?: () => void };
  pipe.on('error', () => {});
  pipe.unref?.();
  const tellGuardian = (): void => {
    if (pipe.writable) pipe.write(`${[...running.values()].join(' ')}\n`);
  };

  const run: ServerFolder['run'] = (processName, command, args, options = {}) => {
    const logFile = join(path, `${processName}.log`);
    const log = openSync(logFile, 'a');
    const child = spawn(command, args, {
      cwd: path,
      detached: true,
      stdio: ['ignore', log, log],
      env: { PATH: process.env['PATH'], LC_ALL: 'C', ...options.env },
      ...(options.uid === undefined ? {} : { uid: options.uid }),
      ...(options.gid === undefined ? {} : { gid: options.gid }),
    });
    closeSync(log);
    child.unref();
    const server = serverProcess(child, logFile);
    if (child.pid !== undefined) {
      running.set(server, child.pid);
      tellGuardian();
    }
    child.on('error', () => {});
    child.once('exit', () => {
      running.delete(server);
      tellGuardian();
    });
    return server;
  };

  const remove = async (): Promise<void> => {
    await Promise.all([...running.keys()].map((server) => server.end(endSignal)));
    removeFolder(path);
    pipe.end();
  };
  return { path, run, remove };
}

function serverProcess(child: ChildProcess, logFile: string): ServerProcess {
  const isRunning = (): boolean => child.pid !== undefined && child.exitCode === null && child.signalCode === null;
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    if (!isRunning()) return;
    // The process that waits for the end has to be kept alive until then.
    child.ref();
    const ended = once(child, 'exit');
    child.kill(signal);
    const timer = setTimeout(() => child.kill('SIGKILL'), END_MS_MAX);
    await ended;
    clearTimeout(timer);
  };
  const text = (): string => (existsSync(logFile) ? readFileSync(logFile, 'utf8') : '');
  const said = (): string => text().trimEnd().split('\n').slice(-SAID_LINES_MAX).join('\n');
  return { isRunning, said, hasSaid: (part) => text().includes(part), end };
}

/** Waits until `isReady`; throws with what the server said when it ends before, or takes too long. */
export async function ready(
  what: string,
  server: ServerProcess,
  msMax: number,
  isReady: () => Promise<boolean>,
): Promise<void> {
  const deadline = performance.now() + msMax;
  while (!(await isReady())) {
    if (!server.isRunning()) throw new Error(`${what} ended before it was ready:\n${server.said()}`);
    if (performance.now() > deadline) {
      throw new Error(`${what} was not ready within ${msMax / 1_000} s:\n${server.said()}`);
    }
    await sleep(50);
  }
}

/** A port of 127.0.0.1 that nothing listens on now. */
export async function freePort(): Promise<number> {
  for (let tries = 0; tries < PORT_TRIES_MAX; tries++) {
    const port = PORTS.from + Math.floor(Math.random() * (PORTS.to - PORTS.from + 1));
    if (await isFree(port)) return port;
  }
  throw new Error(`found no free port between ${PORTS.from} and ${PORTS.to}`);
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  const listening = new Promise<boolean>((resolve) => {
    server.once('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => resolve(true));
  });
  const isListening = await listening;
  if (isListening) await new Promise((resolve) => server.close(resolve));
  return isListening;
}
