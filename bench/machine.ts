/**
 * What the figures were measured on, said without naming the machine: processor, cores, memory, Node, the kind of file
 * system under the data folder and how long it takes to make 4 kB durable there. The last one decides more about a
 * durable server than the processor does, so it is measured, not looked up.
 */

import { closeSync, fdatasyncSync, mkdirSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs';
import { availableParallelism, cpus, release, totalmem, type } from 'node:os';
import { join, resolve } from 'node:path';

export interface Machine {
  readonly processor: string;
  readonly cores: number;
  readonly memoryGigabytes: number;
  readonly system: string;
  readonly node: string;
  readonly fileSystem: string;
  /** Median and 99th percentile of appending 4 kB to a file and syncing it, in milliseconds. */
  readonly syncMilliseconds: { readonly p50: number; readonly p99: number };
}

const SYNCS = 200;

export function describeMachine(folder: string): Machine {
  mkdirSync(folder, { recursive: true });
  return {
    processor: cpus()[0]?.model.trim() ?? 'unknown',
    cores: availableParallelism(),
    memoryGigabytes: Math.round(totalmem() / 1e9),
    system: `${type()} ${release()}`,
    node: process.versions.node,
    fileSystem: fileSystemOf(resolve(folder)),
    syncMilliseconds: measureSyncs(join(folder, `sync-${process.pid}`)),
  };
}

export function machineLine(machine: Machine): string {
  const { syncMilliseconds: sync } = machine;
  return (
    `${machine.processor}, ${machine.cores} cores, ${machine.memoryGigabytes} GB, ${machine.system}, ` +
    `Node ${machine.node}, ${machine.fileSystem}, sync of 4 kB ${sync.p50.toFixed(2)} ms (p99 ${sync.p99.toFixed(2)} ms)`
  );
}

function fileSystemOf(folder: string): string {
  let mounts: string;
  try {
    mounts = readFileSync('/proc/self/mounts', 'utf8');
  } catch {
    return 'unknown file system';
  }
  let found = { point: '', kind: 'unknown file system' };
  for (const line of mounts.split('\n')) {
    const [, point = '', kind = ''] = line.split(' ');
    const inside = point === '/' || folder === point || folder.startsWith(`${point}/`);
    if (point !== '' && inside && point.length >= found.point.length) found = { point, kind };
  }
  return found.kind;
}

function measureSyncs(file: string): { p50: number; p99: number } {
  const block = Buffer.alloc(4096, 'x');
  const times: number[] = [];
  const descriptor = openSync(file, 'w');
  try {
    for (let n = 0; n < SYNCS; n += 1) {
      const from = performance.now();
      writeSync(descriptor, block);
      fdatasyncSync(descriptor);
      times.push(performance.now() - from);
    }
  } finally {
    closeSync(descriptor);
    rmSync(file, { force: true });
  }
  times.sort((a, b) => a - b);
  return { p50: times[SYNCS / 2] ?? 0, p99: times[Math.floor(SYNCS * 0.99)] ?? 0 };
}
