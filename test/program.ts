/**
 * The program as `npm test` starts it: src/ and what it depends on, bundled into few files. Otherwise Node.js looks for,
 * reads and links hundreds of files in each of seven threads at every start of a server, which takes a third of its
 * processor time, and the tests start many hundreds. Files keep their places, so that what is found relative to a
 * module is found. A test file that is run without `npm test` starts src/main.ts itself. That the program runs as
 * it is published, which is not bundled, is for `package.test.ts`.
 */

import { copyFileSync, globSync, mkdirSync, readFileSync, renameSync, rmSync, symlinkSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
// Comes with vite, which builds the dashboard. As a dependency of this package npm would ask for its builds for every system.
import { rolldown } from 'rolldown';
import { ROOT } from './choice.ts';

/** Beside the packages, which some modules look for by name. */
const BUNDLE = join(ROOT, 'node_modules', '.sluice-test-program');

/** The client of Kafka reads a file that lies beside its modules. */
const READS_ITS_FILES = /^@platformatic\//;

/** Resolves with the file to start. */
export async function bundleProgram(): Promise<string> {
  const made = `${BUNDLE}-${process.pid}`;
  rmSync(made, { recursive: true, force: true });
  const bundle = await rolldown({
    input: Object.fromEntries(entries().map((file) => [relative(ROOT, file).replace(/\.ts$/, ''), file])),
    platform: 'node',
    external: [READS_ITS_FILES],
    logLevel: 'silent',
    plugins: [{ name: 'own places', transform: withPlace }],
  });
  await bundle.write({ dir: made, format: 'esm', chunkFileNames: 'src/[name]-[hash].js' });
  await bundle.close();
  copyFileSync(join(ROOT, 'package.json'), join(made, 'package.json'));
  mkdirSync(join(made, 'dashboard'));
  symlinkSync(join(ROOT, 'dashboard', 'dist'), join(made, 'dashboard', 'dist'));
  symlinkSync(join(ROOT, 'sdk'), join(made, 'sdk'));
  rmSync(BUNDLE, { recursive: true, force: true });
  renameSync(made, BUNDLE);
  return join(BUNDLE, 'src', 'main.js');
}

/** The program, and the threads that it starts by the names of their files. */
function entries(): string[] {
  const threads = globSync('src/**/*.ts', { cwd: ROOT }).flatMap((file) => {
    const source = readFileSync(join(ROOT, file), 'utf8');
    const names = source.matchAll(/threadFile\('([^']+)', import\.meta\.url\)/g);
    return Array.from(names, ([, name]) => resolve(ROOT, dirname(file), `${name}.ts`));
  });
  return [...new Set([join(ROOT, 'src', 'main.ts'), ...threads])];
}

/** A module that asks where it is hears where it would be if it were not bundled. */
function withPlace(code: string, file: string): string | null {
  const path = relative(ROOT, file);
  if (!path.startsWith('src') || !code.includes('import.meta.url')) return null;
  const place = pathToFileURL(join(BUNDLE, path.replace(/\.ts$/, '.js')));
  return code.replaceAll('import.meta.url', JSON.stringify(place.href));
}
