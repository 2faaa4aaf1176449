/**
 * Sees to it that the page that the server serves is the one of these sources: builds it when it is missing or older,
 * and says so. Test files run side by side, so one builds while the others wait; the new page is made in a folder of its
 * own and then takes the place of the old one.
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { globSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { eventually } from '../server.ts';

const DASHBOARD = fileURLToPath(new URL('../../dashboard', import.meta.url));
export const BUILT_PAGE = join(DASHBOARD, 'dist');
const SOURCES = ['src/**', 'public/**', 'index.html', 'vite.config.ts', 'package.json'];
/** Out of the way of git and of the tools that look at sources. */
const LOCK = fileURLToPath(new URL('../../node_modules/.sluice-dashboard-build', import.meta.url));
const BUILD_MS_MAX = 120_000;

export async function ensureBuiltPage(): Promise<void> {
  await eventually('the page is built', async () => !isOld() || (await buildAlone()), BUILD_MS_MAX);
}

function isOld(): boolean {
  const built = changedAt(join(BUILT_PAGE, 'index.html'));
  const files = globSync(SOURCES, { cwd: DASHBOARD });
  return files.some((file) => changedAt(join(DASHBOARD, file)) > built);
}

function changedAt(file: string): number {
  return statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0;
}

/** False when another process is at it. */
async function buildAlone(): Promise<boolean> {
  if (!lock()) return false;
  try {
    if (isOld()) await build();
    return true;
  } finally {
    rmSync(LOCK, { recursive: true, force: true });
  }
}

function lock(): boolean {
  try {
    mkdirSync(LOCK);
    writeFileSync(join(LOCK, 'pid'), String(process.pid));
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    // The process that built it may have been killed.
    if (isAbandoned()) rmSync(LOCK, { recursive: true, force: true });
    return false;
  }
}

function isAbandoned(): boolean {
  try {
    process.kill(Number(readFileSync(join(LOCK, 'pid'), 'utf8')), 0);
    return false;
  } catch (error) {
    // Without a number yet: it has just begun.
    return (error as NodeJS.ErrnoException).code === 'ESRCH';
  }
}

async function build(): Promise<void> {
  console.log('The page is missing or older than its sources: building it…');
  const began = new Date();
  const made = join(LOCK, 'dist');
  const vite = join(dirname(createRequire(import.meta.url).resolve('vite/package.json')), 'bin/vite.js');
  const child = spawn(process.execPath, [vite, 'build', '--outDir', made, '--emptyOutDir'], {
    cwd: DASHBOARD,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  const listen = (text: string): void => {
    said += text;
  };
  child.stdout.setEncoding('utf8').on('data', listen);
  child.stderr.setEncoding('utf8').on('data', listen);
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0) throw new Error(`the page cannot be built:\n${said}`);
  // What was changed while it was built may not be in it: as old as its beginning.
  utimesSync(join(made, 'index.html'), began, began);
  rmSync(BUILT_PAGE, { recursive: true, force: true });
  renameSync(made, BUILT_PAGE);
}
