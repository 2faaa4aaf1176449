/**
 * Where the time goes: `node bench/profile.ts edge-1` (or `end-to-end`, `end-to-end-ids`, `merge-storm`, `soak`) runs Sluice under Node's CPU
 * profiler while the load generator drives it, and prints, thread by thread, time by module and the costliest functions. Given `.cpuprofile` files
 * instead, it prints those. Figures are self time; the profiler itself costs some, so shares count, not rates.
 */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Context, perSecond, SHORT, withContext } from './context.ts';
import { EDGE_CASES } from './edge.ts';
import { sendStorm } from './merge-storm.ts';
import { sendAndWait } from './pipeline.ts';
import { Reader } from './reading.ts';
import { table, thousands } from './report.ts';
import { PROJECT, type Server } from './servers.ts';
import { Soak } from './soak.ts';

const LOAD_SECONDS = 8;
const SOAK_SECONDS = 40;
const FUNCTIONS_SHOWN = 14;
const EVENTS = 400_000;
const PEOPLE = 40_000;

interface CallFrame {
  readonly functionName: string;
  readonly url: string;
  /** Counted from zero; -1 for native functions. */
  readonly lineNumber: number;
}

interface ProfileNode {
  readonly id: number;
  readonly callFrame: CallFrame;
  readonly children?: readonly number[];
  readonly positionTicks?: readonly { readonly line: number; readonly ticks: number }[];
}

interface CpuProfile {
  readonly nodes: readonly ProfileNode[];
  readonly samples: readonly number[];
  /** Microseconds; the time of the sample at the same index. */
  readonly timeDeltas: readonly number[];
}

/** Puts a server under load, and says how it went. */
type Load = (context: Context, server: Server, folder: string) => Promise<string>;

const LOADS: ReadonlyMap<string, Load> = new Map([
  ...EDGE_CASES.map((edge): [string, Load] => [
    edge.name,
    async (context, server) => {
      const result = await context.drive(server, edge, LOAD_SECONDS);
      return `${thousands(perSecond(result))} requests/s`;
    },
  ]),
  ['end-to-end', async (context, server) => endToEnd(context, server, false)],
  ['end-to-end-ids', async (context, server) => endToEnd(context, server, true)],
  ['merge-storm', mergeStorm],
  ['soak', soak],
]);

async function endToEnd(context: Context, server: Server, eventIds: boolean): Promise<string> {
  const reader = new Reader(server);
  const population = { people: PEOPLE, order: { seed: 1 }, carries: 'everything', eventIds } as const;
  const { perSecond, seconds } = await sendAndWait(context, server, reader, population, EVENTS);
  reader.close();
  return `${thousands(perSecond)} events/s, ${seconds.toFixed(1)} s`;
}

/** People are seen apart in the same profile: of its records a third merge. */
async function mergeStorm(context: Context, server: Server): Promise<string> {
  const reader = new Reader(server);
  const { perSecond, seconds } = await sendStorm(context, server, reader, PEOPLE);
  reader.close();
  return `${thousands(perSecond)} merges/s, the last ${seconds.toFixed(1)} s`;
}

async function soak(context: Context, server: Server, folder: string): Promise<string> {
  const { rows } = await new Soak(context, server, folder).run(SOAK_SECONDS);
  return `lag at most ${Math.max(...rows.map(({ lagSecondsMax }) => lagSecondsMax)).toFixed(1)} s`;
}

async function profileServer(underLoad: Load): Promise<void> {
  const dataRoot = join(PROJECT, 'bench', '.data');
  await withContext({ pace: SHORT, seconds: LOAD_SECONDS + 2, dataRoot }, async (context) =>
    context.onStage(async (stage) => {
      const profiles = stage.freshFolder();
      const folder = stage.freshFolder();
      const key = await stage.createKey(folder);
      const server = await stage.startSluice('ours', key, {
        folder,
        nodeArguments: ['--cpu-prof', `--cpu-prof-dir=${profiles}`],
      });
      context.progress.begin('under the profiler', LOAD_SECONDS + 1);
      const result = await underLoad(context, server, folder);
      await server.stop();
      context.progress.close();
      console.log(`${result} under the profiler`);
      for (const file of readdirSync(profiles).sort()) print(readProfile(join(profiles, file)));
    }),
  );
}

function readProfile(file: string): CpuProfile {
  return JSON.parse(readFileSync(file, 'utf8')) as CpuProfile;
}

function print(profile: CpuProfile): void {
  const { categories, functions, idle } = selfTimes(profile);
  const busy = [...categories.values()].reduce((sum, value) => sum + value, 0);
  const total = busy + idle;
  console.log(`\n## ${threadName(profile)}: busy ${seconds(busy)} of ${seconds(total)}\n`);
  if (busy < total * 0.02) return;
  const share = (value: number): string => `${((value / busy) * 100).toFixed(1)} %`;
  const rows = (times: ReadonlyMap<string, number>): string[][] =>
    [...times].sort(([, a], [, b]) => b - a).map(([name, value]) => [name, seconds(value), share(value)]);
  console.log(table(['module', 'self time', 'share of busy'], rows(categories)).join('\n'));
  console.log('');
  console.log(table(['function', 'self time', 'share of busy'], rows(functions).slice(0, FUNCTIONS_SHOWN)).join('\n'));
}

interface SelfTimes {
  readonly categories: ReadonlyMap<string, number>;
  readonly functions: ReadonlyMap<string, number>;
  readonly idle: number;
}

function selfTimes(profile: CpuProfile): SelfTimes {
  const nodes = new Map(profile.nodes.map((node) => [node.id, node]));
  const parents = new Map(profile.nodes.flatMap((node) => (node.children ?? []).map((child) => [child, node])));
  const selfMicros = new Map<number, number>();
  for (const [at, id] of profile.samples.entries()) {
    selfMicros.set(id, (selfMicros.get(id) ?? 0) + Math.max(0, profile.timeDeltas[at] ?? 0));
  }
  const categories = new Map<string, number>();
  const functions = new Map<string, number>();
  let idle = 0;
  for (const [id, micros] of selfMicros) {
    const node = nodes.get(id);
    if (node === undefined) continue;
    if (node.callFrame.functionName === '(idle)') {
      idle += micros;
      continue;
    }
    const callers: CallFrame[] = [];
    for (let up = parents.get(id); up !== undefined; up = parents.get(up.id)) callers.push(up.callFrame);
    add(functions, nameOf(node.callFrame), micros);
    // The engine counts built-ins such as JSON.parse as time of the line that calls them, so lines are distinguished.
    const ticks = node.positionTicks ?? [];
    const tickTotal = ticks.reduce((sum, tick) => sum + tick.ticks, 0);
    if (tickTotal === 0) add(categories, categoryOf(node.callFrame, callers, null), micros);
    for (const tick of ticks) {
      add(categories, categoryOf(node.callFrame, callers, tick.line), (micros * tick.ticks) / tickTotal);
    }
  }
  return { categories, functions, idle };
}

const ENGINE: ReadonlyMap<string, string> = new Map([
  ['(garbage collector)', 'garbage collection'],
  ['(program)', 'native: HTTP parser, socket reads, waiting for a core'],
  ['(root)', 'other'],
]);

const sources = new Map<string, readonly string[]>();

/**
 * The module whose work it is: a folder of ours, a module of Node, or a package. Native functions have no file, so they are
 * the work of their caller. `line` counts from one, as the profiler's ticks do; null when it is not known.
 */
function categoryOf(frame: CallFrame, callers: readonly CallFrame[], line: number | null): string {
  const engine = ENGINE.get(frame.functionName);
  if (engine !== undefined) return engine;
  const isParsing =
    line !== null && frame.url.startsWith('file:') && sourceLine(frame.url, line).includes('JSON.parse(');
  if (isParsing) return 'JSON.parse';
  const { url = '' } = [frame, ...callers].find((one) => one.url !== '') ?? {};
  const [, folder, builtIn, name] =
    /\/src\/(.+)\/[^/]+$|^node:(?:internal\/)?([^/]+)|\/node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(url) ?? [];
  return folder ?? (builtIn === undefined ? (name ?? 'other') : `node:${builtIn}`);
}

function nameOf(frame: CallFrame): string {
  const name = frame.functionName === '' ? '(anonymous)' : frame.functionName;
  if (frame.url === '') return name;
  const file = frame.url.replace(/^.*\/(src|node_modules)\//, '$1/');
  return `${name} ${file}:${frame.lineNumber + 1}`;
}

function sourceLine(url: string, line: number): string {
  let lines = sources.get(url);
  if (lines === undefined) {
    try {
      lines = readFileSync(fileURLToPath(url), 'utf8').split('\n');
    } catch {
      lines = [];
    }
    sources.set(url, lines);
  }
  return lines[line - 1] ?? '';
}

function threadName(profile: CpuProfile): string {
  const urls = profile.nodes.map((node) => node.callFrame.url);
  const has = (end: string): boolean => urls.some((url) => url.endsWith(end));
  if (has('/log/writer.ts')) return 'log writer thread';
  if (has('/validator-thread.ts')) return 'validator thread';
  if (has('/processor/processor.ts')) return 'processor thread';
  if (has('/store/reader-thread.ts')) return 'store reader thread';
  return has('/edge/ingest.ts') ? 'edge thread' : 'main thread';
}

function add(times: Map<string, number>, name: string, micros: number): void {
  times.set(name, (times.get(name) ?? 0) + micros);
}

function seconds(micros: number): string {
  return `${(micros / 1e6).toFixed(2)} s`;
}

const names = process.argv.slice(2);
const files = names.filter((name) => name.endsWith('.cpuprofile'));
const load = LOADS.get(names[0] ?? '');
if (files.length > 0) {
  for (const file of files) print(readProfile(file));
} else if (load === undefined) {
  console.log(`node bench/profile.ts ${[...LOADS.keys()].join('|')}\nnode bench/profile.ts FILE…`);
  process.exitCode = 1;
} else {
  await profileServer(load);
}
