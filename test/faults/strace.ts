/**
 * Faults in system calls, made by strace: on a server from its start (`underStrace`) or on one that is running
 * (`attachStrace`). What strace saw is kept in a file and can be asked for.
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { findTool } from '../tools.ts';
import { eventually } from '../server.ts';

/** Why strace cannot be used here; undefined if it can. */
export function straceHindrance(): string | undefined {
  return findTool('strace') === undefined ? 'needs strace' : undefined;
}

/** The start of a command line that runs a program with faults injected, such as `fsync,fdatasync:retval=0`. */
export function underStrace(inject: string, output: string): string[] {
  const calls = inject.split(':')[0] ?? '';
  const filter = ['-e', `trace=${calls}`, '-e', `inject=${inject}`];
  // seccomp stops the program at the calls of interest only; all others go at full speed.
  return [findTool('strace') ?? 'strace', '-f', '--seccomp-bpf', '-qq', '-o', output, ...filter];
}

export interface Attached {
  /** Lines of the trace so far: thread, call with the file's path, result. */
  lines(): string[];
  detach(): Promise<void>;
}

/** `only` narrows it to calls on one path. */
export async function attachStrace(pid: number, inject: string, output: string, only?: string): Promise<Attached> {
  const calls = inject.split(':')[0] ?? '';
  const args = ['-f', '-y', '-o', output, '-e', `trace=${calls},unlink`, '-e', `inject=${inject}`, '-p', String(pid)];
  if (only !== undefined) args.push('-P', only);
  const child = spawn(findTool('strace') ?? 'strace', args, { stdio: ['ignore', 'ignore', 'pipe'] });
  const ended = once(child, 'close');
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said += text;
  });
  await eventually(`strace attaches: ${said}`, () => {
    if (child.exitCode !== null) throw new Error(`strace ended: ${said}`);
    return /attached/.test(said);
  });
  return {
    lines: () => (existsSync(output) ? readFileSync(output, 'utf8').split('\n').filter(Boolean) : []),
    detach: async () => {
      child.kill('SIGINT');
      await ended;
    },
  };
}
