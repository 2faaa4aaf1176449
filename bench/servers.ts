/**
 * Starts and ends the servers that are measured, each as a process of its own on a free port of the loopback interface,
 * each Sluice with a fresh data folder on a real disk. A `Stage` knows all that it started, and `close` ends exactly
 * those, by process id, and removes the folders; the runner calls it at the end of a benchmark and on Ctrl-C.
 */

import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, rmSync } from 'node:fs';
import { get } from 'node:http';
import { type AddressInfo, connect, createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

export const PROJECT = dirname(dirname(fileURLToPath(import.meta.url)));
const READY_SECONDS_MAX = 30;
const STOP_SECONDS_MAX = 35;
const POLL_MILLISECONDS = 2;
const run = promisify(execFile);

export interface Server {
  readonly name: string;
  readonly port: number;
  /** Of the process itself; for `npm start` of npm, whose child the server is. */
  readonly pid: number;
  readonly key: string;
  /** Whether it keeps working on what it has responded to. */
  readonly stores: boolean;
  /** From spawn to the first 200 of /readyz. */
  readonly readySeconds: number;
  stop(): Promise<void>;
}

export interface SluiceOptions {
  readonly edges?: number;
  readonly nodeArguments?: readonly string[];
  /** Start through npm, as a person would. */
  readonly npm?: boolean;
  /** Start on the folder of an earlier start instead of a fresh one. */
  readonly folder?: string;
  /** Further settings, as environment variables. */
  readonly settings?: Readonly<Record<string, string>>;
}

export class Stage {
  private static count = 0;
  private readonly root: string;
  private readonly project: string;
  private readonly main: string;
  private readonly children = new Set<ChildProcess>();
  private folders = 0;
  private closed = false;

  /**
   * `root` is where data folders are made; it is removed in the end, if it is empty then. `project` is the checkout
   * whose server is started; baselines and other programs are always those beside this file.
   */
  constructor(root: string, project: string = PROJECT) {
    Stage.count += 1;
    this.root = join(root, `${process.pid}-${Stage.count}`);
    this.project = project;
    this.main = join(project, 'bin', 'sluice.js');
  }

  freshFolder(): string {
    this.folders += 1;
    const folder = join(this.root, String(this.folders));
    mkdirSync(folder, { recursive: true });
    return folder;
  }

  removeFolder(folder: string): void {
    rmSync(folder, { recursive: true, force: true });
  }

  /** The programs beside this file that store nothing. */
  async startBaseline(name: 'bare' | 'canned' | 'sdk-responder'): Promise<Server> {
    const port = await freePort();
    const file = join(PROJECT, 'bench', `${name}.ts`);
    const probe = name === 'canned' ? connectable : ready;
    return this.start(name, [process.execPath, file, String(port)], {}, { port, key: 'none', stores: false, probe });
  }

  async createKey(folder: string, settings: Readonly<Record<string, string>> = {}): Promise<string> {
    const words = ['keys', 'create', '--name', 'bench', '--kind', 'secret', '--env', 'development', '--json'];
    const env = environment({ SLUICE_DATA: folder, ...settings });
    const { stdout } = await run(process.execPath, [this.main, ...words], { env, cwd: this.project, timeout: 30_000 });
    const made = JSON.parse(stdout) as { key?: unknown };
    if (typeof made.key !== 'string') throw new Error(`"sluice keys create --json" printed no key: ${stdout}`);
    return made.key;
  }

  async startSluice(name: string, key: string | null, options: SluiceOptions): Promise<Server> {
    if (!existsSync(this.main)) throw new Error(`${this.main} is not there, so there is no Sluice to measure`);
    const port = await freePort();
    const folder = options.folder ?? this.freshFolder();
    const settings: Record<string, string> = {
      PORT: String(port),
      HOST: '127.0.0.1',
      SLUICE_DATA: folder,
      ...options.settings,
    };
    if (options.edges !== undefined) settings['SLUICE_EDGES'] = String(options.edges);
    const words = options.npm
      ? ['npm', 'start']
      : [process.execPath, ...(options.nodeArguments ?? []), this.main, 'serve'];
    const actualKey = key ?? (options.folder === undefined ? await this.createKey(folder, options.settings) : 'none');
    return this.start(name, words, settings, { port, key: actualKey, stores: true, probe: ready });
  }

  /** Runs the program beside this file to its end; hands it the argument as JSON, and back what it printed as JSON. */
  async runProgram<Result>(name: string, argument: object, secondsMax: number): Promise<Result> {
    mkdirSync(this.root, { recursive: true });
    const file = join(PROJECT, 'bench', `${name}.ts`);
    const child = spawn(process.execPath, [file, JSON.stringify(argument)], {
      cwd: PROJECT,
      env: environment({}),
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true,
    });
    this.children.add(child);
    const timer = setTimeout(() => signalGroup(child, 'SIGKILL'), secondsMax * 1000);
    let printed = '';
    let complaints = '';
    child.stdout.setEncoding('utf8').on('data', (part: string) => {
      printed += part;
    });
    child.stderr.setEncoding('utf8').on('data', (part: string) => {
      complaints = `${complaints}${part}`.slice(-2000);
    });
    const ending = await new Promise<string>((resolve) => {
      child.once('error', (error) => resolve(error.message));
      child.once('close', (code, signal) => resolve(String(signal ?? code)));
    });
    clearTimeout(timer);
    this.children.delete(child);
    if (ending !== '0') throw new Error(`${name} ended with ${ending}:\n${complaints}`);
    return JSON.parse(printed) as Result;
  }

  /** Ends all that is still running, without waiting for it to agree, and removes the data. */
  close(): void {
    if (this.closed) return;
    this.closed = true;
    for (const child of this.children) signalGroup(child, 'SIGKILL');
    rmSync(this.root, { recursive: true, force: true });
  }

  private async start(
    name: string,
    words: readonly string[],
    settings: Readonly<Record<string, string>>,
    at: Pick<Server, 'port' | 'key' | 'stores'> & { readonly probe: (port: number) => Promise<boolean> },
  ): Promise<Server> {
    mkdirSync(this.root, { recursive: true });
    const logFile = join(this.root, `${name.replaceAll(/\W+/g, '-')}-${at.port}.log`);
    const log = openSync(logFile, 'a');
    const [command = '', ...rest] = words;
    const from = performance.now();
    // A group of its own: npm starts a shell that starts the server, and all of them must end together.
    const child = spawn(command, rest, {
      cwd: this.project,
      env: environment(settings),
      stdio: ['ignore', log, log],
      detached: true,
    });
    closeSync(log);
    this.children.add(child);
    const exited = new Promise<void>((resolve) => {
      child.once('exit', () => resolve());
      child.once('error', () => resolve());
    });
    while (!(await at.probe(at.port))) {
      const late = performance.now() - from > READY_SECONDS_MAX * 1000;
      if (late || child.pid === undefined || child.exitCode !== null || child.signalCode !== null) {
        throw new Error(`${name} did not get ready:\n${readFileSync(logFile, 'utf8').slice(-2000)}`);
      }
      await sleep(POLL_MILLISECONDS);
    }
    const readySeconds = (performance.now() - from) / 1000;
    const stop = async (): Promise<void> => {
      signalGroup(child, 'SIGTERM');
      const timer = setTimeout(() => signalGroup(child, 'SIGKILL'), STOP_SECONDS_MAX * 1000);
      await exited;
      clearTimeout(timer);
      this.children.delete(child);
    };
    return { name, port: at.port, pid: child.pid ?? 0, key: at.key, stores: at.stores, readySeconds, stop };
  }
}

function signalGroup(child: ChildProcess, signal: NodeJS.Signals): void {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, signal);
  } catch {
    // It has ended already.
  }
}

/** What this process has, without settings of Sluice: a benchmark runs the defaults wherever it does not say otherwise. */
function environment(settings: Readonly<Record<string, string>>): Record<string, string | undefined> {
  const inherited = Object.entries(process.env).filter(
    ([name]) => !/^(SLUICE_|(PORT|HOST|STORE_URL|LOG_URL|NODE_OPTIONS)$)/.test(name),
  );
  // There is no load balancer that has to move away before a server stops.
  return { ...Object.fromEntries(inherited), SLUICE_DRAIN: '0', ...settings };
}

async function ready(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const request = get({ port, host: '127.0.0.1', path: '/readyz', agent: false, timeout: 1000 }, (response) => {
      response.resume();
      resolve(response.statusCode === 200);
    });
    request.on('timeout', () => request.destroy());
    request.on('error', () => resolve(false));
  });
}

async function connectable(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ port, host: '127.0.0.1' });
    socket.on('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.on('error', () => resolve(false));
  });
}

async function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => resolve(port));
    });
  });
}
