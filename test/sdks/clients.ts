/**
 * One program for each SDK, in the SDK's own language: it prints `ready` when it has loaded the SDK, waits for a line,
 * tracks events numbered from 0 with a short pause after each, and prints as JSON which numbers the SDK counts as sent.
 */

import { execFile, spawn } from 'node:child_process';
import { copyFileSync, globSync, mkdirSync, readFileSync } from 'node:fs';
import { basename, delimiter, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { PROGRAM_ENV } from '../server.ts';
import { findTool } from '../tools.ts';
import { mavenJars, npmPackages, pythonPackage } from './registries.ts';

const run = promisify(execFile);

/** How to run a program that uses an SDK. */
export interface Command {
  readonly program: string;
  readonly args: readonly string[];
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
}

export interface SdkClient {
  readonly name: string;
  /** The programs that it takes. */
  readonly tools: readonly string[];
  /** It may use the folder, which is empty. */
  readonly command: (folder: string) => Promise<Command>;
}

export function fileOf(name: string): string {
  return fileURLToPath(new URL(`clients/${name}`, import.meta.url));
}

/** A module of Node.js that imports SDKs of npm; as an argument, because imports are looked for beside the file. */
export async function nodeCommand(text: string): Promise<Command> {
  const cwd = await npmPackages('segment', ['@segment/analytics-node@3.1.0', '@rudderstack/rudder-sdk-node@3.0.13']);
  return { program: process.execPath, args: ['--input-type=module', '-e', text], cwd };
}

export async function pythonCommand(...args: readonly string[]): Promise<Command> {
  const env = { PYTHONPATH: await pythonPackage('segment-analytics-python==2.4.0') };
  return { program: findTool('python3') ?? 'python3', args, env };
}

/** Compiles a class to `folder`. By a compiler that is a jar, because many machines have Java without one. */
export async function javaCommand(file: string, folder: string): Promise<Command> {
  const jars = globSync(`${await mavenJars(fileOf('java/pom.xml'))}/*.jar`);
  const program = findTool('java') ?? 'java';
  const compiler = jars.find((jar) => /\/ecj-[^/]+$/.test(jar)) ?? '';
  await run(program, ['-jar', compiler, '-17', '-cp', jars.join(delimiter), '-d', folder, file]);
  return { program, args: ['-cp', [folder, ...jars].join(delimiter), basename(file, '.java')] };
}

/** Compiles a program to `folder`, with the modules of the client's go.mod. */
export async function goCommand(file: string, folder: string): Promise<Command> {
  mkdirSync(folder, { recursive: true });
  for (const name of ['go.mod', 'go.sum']) copyFileSync(fileOf(`go/${name}`), join(folder, name));
  copyFileSync(file, join(folder, 'main.go'));
  await run(findTool('go') ?? 'go', ['build', '-o', 'client', '.'], { cwd: folder });
  return { program: join(folder, 'client'), args: [] };
}

export const SDK_CLIENTS: readonly SdkClient[] = [
  {
    name: 'analytics-node',
    tools: [],
    command: () => nodeCommand(readFileSync(fileOf('analytics-node.mjs'), 'utf8')),
  },
  {
    name: 'rudder-sdk-node',
    tools: [],
    command: () => nodeCommand(readFileSync(fileOf('rudder-node.mjs'), 'utf8')),
  },
  { name: 'python', tools: ['python3', 'pip3'], command: () => pythonCommand(fileOf('python.py')) },
  { name: 'java', tools: ['java', 'mvn'], command: (folder) => javaCommand(fileOf('java/Client.java'), folder) },
];

export interface RunningClient {
  readonly start: () => void;
  /** The numbers that the SDK counts as sent; rejects with what the program said if it fails. */
  readonly sent: Promise<number[]>;
}

export interface ClientTask {
  readonly url: string;
  readonly key: string;
  readonly event: string;
  readonly count: number;
}

/** Resolves when the program has loaded its SDK. */
export async function startClient(command: Command, { url, key, event, count }: ClientTask): Promise<RunningClient> {
  const { program, args, cwd, env } = command;
  const task = { SLUICE_URL: url, SLUICE_KEY: key, SLUICE_EVENT: event, SLUICE_COUNT: String(count) };
  const child = spawn(program, args, { cwd, env: { ...PROGRAM_ENV, ...env, ...task } });
  let last = '';
  let errors = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors += text;
  });
  const ready = Promise.withResolvers<void>();
  createInterface({ input: child.stdout }).on('line', (line) => {
    if (line === 'ready') ready.resolve();
    last = line;
  });
  const sent = new Promise<number[]>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => {
      if (code === 0) resolve(JSON.parse(last) as number[]);
      else reject(new Error(`${program} ended (${code ?? signal}): ${last}\n${errors}`));
    });
  });
  await Promise.race([ready.promise, sent]);
  return { start: () => child.stdin.end('go\n'), sent };
}
