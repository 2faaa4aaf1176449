/**
 * Sees to it that the script that the server serves is the one of these sources: builds it when it is missing or older. It
 * is made elsewhere and then takes the place of the old one, so test files may do this side by side.
 */

import { execFile } from 'node:child_process';
import { globSync, mkdirSync, renameSync, statSync, utimesSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { removeFolder } from '../server.ts';

export const SDK = fileURLToPath(new URL('../../sdk', import.meta.url));
export const BUILT_SCRIPT = join(SDK, 'dist/sluice.js');

export async function ensureBuiltScript(): Promise<void> {
  const built = changedAt(BUILT_SCRIPT);
  const sources = globSync(['src/*.ts', 'vite.config.ts'], { cwd: SDK });
  if (sources.every((file) => changedAt(join(SDK, file)) <= built)) return;
  const began = new Date();
  // On the same disk, so that it can be moved.
  const folder = join(SDK, 'dist', `build-${process.pid}`);
  const vite = join(dirname(createRequire(import.meta.url).resolve('vite/package.json')), 'bin/vite.js');
  await promisify(execFile)(process.execPath, [vite, 'build', '--outDir', folder], { cwd: SDK });
  // What was changed while it was built may not be in it: as old as its beginning.
  utimesSync(join(folder, 'sluice.js'), began, began);
  mkdirSync(dirname(BUILT_SCRIPT), { recursive: true });
  renameSync(join(folder, 'sluice.js'), BUILT_SCRIPT);
  removeFolder(folder);
}

function changedAt(file: string): number {
  return statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0;
}
