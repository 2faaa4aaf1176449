/**
 * Disks that tests may break: an ext4 in a file on a loop device, which can lose power, and a small tmpfs, which can be
 * full. Both need root on Linux with the right to mount; where that is not given, `hindrance` says why. A test that mounts
 * unmounts, also when the test fails.
 */

import { execFileSync } from 'node:child_process';
import { mkdirSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { removeFolder, temporaryFolder } from '../server.ts';
import { findTool } from '../tools.ts';
import { folderIn, type Scope } from './scope.ts';

/** EXT4_IOC_SHUTDOWN, with EXT4_GOING_FLAGS_NOLOGFLUSH: from now on nothing reaches the disk, the journal included. */
const SHUT_DOWN = `open(F, "<", $ARGV[0]) or die "$!"; $flags = pack("L", 2); ioctl(F, 0x8004587D, $flags) or die "$!";`;

/** Disks are not given back while a process has a file open there; a killed process needs a moment. */
const UNMOUNT_TRIES = 50;
const UNMOUNT_PAUSE_MS = 100;

function run(name: string, args: readonly string[]): void {
  const path = findTool(name);
  if (path === undefined) throw new Error(`${name} is not installed`);
  execFileSync(path, args, { stdio: ['ignore', 'ignore', 'pipe'] });
}

/** For the end of a test that failed: gone from view at once, and for good when the last process lets go of it. */
function unmountWhenFree(folder: string): void {
  run('umount', ['-l', folder]);
}

function unmount(folder: string): void {
  for (let tries = 1; ; tries += 1) {
    try {
      run('umount', [folder]);
      return;
    } catch (error) {
      if (tries === UNMOUNT_TRIES) throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, UNMOUNT_PAUSE_MS);
    }
  }
}

export interface Disk {
  /** Where it is mounted. */
  readonly folder: string;
}

export interface LoopDisk extends Disk {
  /** The power is gone: what was not synced is lost. Then the machine starts again. No process may use the disk meanwhile. */
  cutPower(): void;
  restorePower(): void;
}

export function mountLoopDisk(scope: Scope, megabytes: number): LoopDisk {
  const base = folderIn(scope);
  const image = join(base, 'disk.img');
  const folder = join(base, 'disk');
  let mounted = false;
  const mount = (): void => {
    run('mount', ['-o', 'loop', image, folder]);
    mounted = true;
  };
  scope.defer(() => {
    if (mounted) unmountWhenFree(folder);
  });
  mkdirSync(folder);
  writeFileSync(image, '');
  truncateSync(image, megabytes * 1024 * 1024);
  run('mkfs.ext4', ['-q', '-F', image]);
  mount();
  return {
    folder,
    cutPower: () => run('perl', ['-e', SHUT_DOWN, folder]),
    restorePower: () => {
      unmount(folder);
      mounted = false;
      mount();
    },
  };
}

export function mountSmallDisk(scope: Scope, options: string): Disk {
  const folder = folderIn(scope);
  run('mount', ['-t', 'tmpfs', '-o', options, 'none', folder]);
  scope.defer(() => unmountWhenFree(folder));
  return { folder };
}

/** Why this machine cannot mount such a disk; undefined if it can. */
export function hindrance(kind: 'loop' | 'tmpfs'): string | undefined {
  if (process.platform !== 'linux') return `needs Linux, this is ${process.platform}`;
  if (process.getuid?.() !== 0) return 'needs root, to mount a disk of its own';
  const tools = kind === 'loop' ? ['mount', 'umount', 'mkfs.ext4', 'perl'] : ['mount', 'umount'];
  const missing = tools.filter((name) => findTool(name) === undefined);
  if (missing.length > 0) return `needs ${missing.join(', ')}`;
  return refusalToMount(kind);
}

function refusalToMount(kind: 'loop' | 'tmpfs'): string | undefined {
  const base = temporaryFolder();
  const folder = join(base, 'disk');
  try {
    mkdirSync(folder);
    if (kind === 'tmpfs') {
      run('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'none', folder]);
    } else {
      const image = join(base, 'disk.img');
      writeFileSync(image, '');
      truncateSync(image, 8 * 1024 * 1024);
      run('mkfs.ext4', ['-q', '-F', image]);
      run('mount', ['-o', 'loop', image, folder]);
    }
    unmount(folder);
    return undefined;
  } catch (error) {
    const said = (error as { stderr?: Buffer }).stderr?.toString().trim();
    return `${NOT_PERMITTED[kind]}: ${said ?? (error as Error).message}`;
  } finally {
    removeFolder(base);
  }
}

const NOT_PERMITTED = {
  loop: 'loop devices are not permitted here',
  tmpfs: 'mounting is not permitted here',
};

/**
 * The one skip that is allowed: the machine does not let us. It is visible, with the reason. On a CI machine everything
 * but the permission to mount has to be there, or the test would quietly stop testing.
 */
export function skipWithout(t: TestContext, reason: string | undefined): boolean {
  if (reason === undefined) return false;
  const isPermission = Object.values(NOT_PERMITTED).some((text) => reason.startsWith(text));
  if (process.env['CI'] !== undefined && !isPermission) throw new Error(`cannot run in CI: ${reason}`);
  t.skip(reason);
  return true;
}
