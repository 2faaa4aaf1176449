/**
 * What Linux tells about a process under /proc: CPU time of all its threads, resident memory, bytes written to disk;
 * and of all processes together, to see whether others were at work meanwhile. On other systems every figure is NaN, and the tables print a dash.
 */

import { readdirSync, readFileSync, statfsSync } from 'node:fs';

/** Linux reports process times in hundredths of a second to every program, whatever the kernel's own tick is. */
const TICKS_PER_SECOND = 100;

export function cpuSeconds(pid: number): number {
  return statSeconds(read(pid, 'stat'));
}

export interface ThreadTime {
  readonly name: string;
  readonly seconds: number;
}

/** CPU time of each thread that lives now, by its number. Threads without a name of their own are `WorkerThread`s. */
export function threadTimes(pid: number): ReadonlyMap<string, ThreadTime> {
  let threads: string[] = [];
  try {
    threads = readdirSync(`/proc/${pid}/task`);
  } catch {
    // Not Linux, or it has ended.
  }
  return new Map(
    threads.map((thread) => {
      const text = read(pid, `task/${thread}/stat`);
      const name = text.slice(text.indexOf('(') + 1, text.lastIndexOf(')'));
      return [thread, { name, seconds: statSeconds(text) }];
    }),
  );
}

function statSeconds(text: string): number {
  // The command name is in parentheses and may hold spaces, so fields are counted after the last one.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
}

export function diskBytes(pid: number): number {
  return field(read(pid, 'io'), 'write_bytes');
}

/** CPU-seconds that all programs together have used since the machine started, what its host took away included. */
function systemCpuSeconds(): number {
  const [, user, nice, system, , , , , steal] = readText('/proc/stat').split('\n', 1)[0]?.split(/ +/).map(Number) ?? [];
  return ((user ?? 0) + (nice ?? 0) + (system ?? 0) + (steal ?? 0)) / TICKS_PER_SECOND;
}

/** CPU-seconds so far. */
export interface CpuReading {
  readonly servers: number;
  /** Of this process. */
  readonly own: number;
  readonly system: number;
}

export function cpuReading(...servers: readonly number[]): CpuReading {
  const own = process.cpuUsage();
  return {
    servers: servers.reduce((sum, pid) => sum + cpuSeconds(pid), 0),
    own: (own.user + own.system) / 1e6,
    system: systemCpuSeconds(),
  };
}

/** Between two readings; `others` is what neither these servers, nor this process, nor the load generator used. */
export function cpuUsed(
  from: CpuReading,
  to: CpuReading,
  generatorSeconds = 0,
): { readonly servers: number; readonly own: number; readonly others: number } {
  const [servers, own] = [to.servers - from.servers, to.own - from.own];
  return { servers, own, others: Math.max(0, to.system - from.system - servers - own - generatorSeconds) };
}

/** How many files, sockets and pipes it has open. */
export function openFiles(pid: number): number {
  try {
    return readdirSync(`/proc/${pid}/fd`).length;
  } catch {
    return Number.NaN;
  }
}

/** Megabytes (10^6 bytes): resident now, and at most so far. */
export function residentMegabytes(pid: number): { now: number; peak: number } {
  const text = read(pid, 'status');
  return { now: (field(text, 'VmRSS') * 1024) / 1e6, peak: (field(text, 'VmHWM') * 1024) / 1e6 };
}

/** No benchmark fills the disk up to less than this. */
export const DISK_RESERVE_BYTES = 2e9;

export function freeBytes(folder: string): number {
  const { bavail, bsize } = statfsSync(folder);
  return bavail * bsize;
}

function field(text: string, name: string): number {
  const match = new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(text);
  return match === null ? Number.NaN : Number(match[1]);
}

function read(pid: number, file: string): string {
  return readText(`/proc/${pid}/${file}`);
}

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
