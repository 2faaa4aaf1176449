/** The rules of the house on who may import whom, read from the import lines of every source file. */

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, relative, resolve } from 'node:path';
import { suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';

const SRC = fileURLToPath(new URL('../src', import.meta.url));

interface Import {
  readonly from: string;
  /** Path below src, or the bare name of a package. */
  readonly to: string;
  readonly isDynamic: boolean;
  /** A file that is run as a thread: it is not loaded by the file that names it. */
  readonly isThread: boolean;
}

const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.ts'));

function importsOf(file: string): Import[] {
  const text = readFileSync(resolve(SRC, file), 'utf8');
  const found: Import[] = [];
  for (const match of text.matchAll(/(?:^|\n)(?:import|export)\b[^;]*?\bfrom '([^']+)'/g))
    found.push(row(match[1], 'static'));
  for (const match of text.matchAll(/\bimport\('([^']+)'\)/g)) found.push(row(match[1], 'dynamic'));
  // Threads are started by file name, which is an import all the same.
  for (const match of text.matchAll(/threadFile\('(\.[^']+)'/g)) found.push(row(`${match[1]}.ts`, 'thread'));
  return found;

  function row(target = '', kind: 'static' | 'dynamic' | 'thread'): Import {
    const to = target.startsWith('.') ? relative(SRC, resolve(SRC, dirname(file), target)) : target;
    return { from: file, to, isDynamic: kind !== 'static', isThread: kind === 'thread' };
  }
}

const imports = files.flatMap(importsOf);
const PURE = /^(json\/|columnar\/|validation\/|identity\/|errors\.ts$|model\.ts$)/;
/** Pure as well, and needed to know phone numbers (loaded with the first one) and to derive ids. */
const PURE_PACKAGES = /^(libphonenumber-js\/[a-z]+|node:module|node:crypto)$/;
/** They put the parts together, and alone name backends. */
const COMPOSITION = /^(main\.ts$|wiring\/)/;
/** Everything else has a room. */
const AT_THE_ROOT = [
  'errors.ts',
  'keys.ts',
  'log.ts',
  'main.ts',
  'members.ts',
  'model.ts',
  'store-writer.ts',
  'store.ts',
];
/** They parse a string alone, or what this program wrote, in which no client has chosen a name. */
const OWN_JSON = new Set([
  ...['json/parse.ts', 'json/scanner.ts', 'main.ts', 'migration/marker.ts', 'views/people-search.ts', 'views/trace.ts'],
  ...['backends/kafka/message.ts', 'backends/sql/keys.ts'],
  ...['backends/sqlite/log/segment-reader.ts', 'backends/sqlite/migrate/chunks.ts'],
  ...['backup/last-backup.ts', 'backup/manifest.ts', 'backup/unfinished-backup.ts', 'backup/unpack.ts'],
  ...['cli/doctor-data.ts', 'cli/export-file.ts', 'cli/import-send.ts', 'cli/import-state.ts'],
]);
const backendOf = (path: string): string | undefined => /^backends\/([^/]+)\//.exec(path)?.[1];

function offenders(isOffence: (row: Import) => boolean): string[] {
  return imports.filter(isOffence).map(({ from, to }) => `${from} imports ${to}`);
}

/** Each circle once, as the chain of files that leads back to its first. */
function importCircles(): string[] {
  const targets = Map.groupBy(
    imports.filter(({ isThread }) => !isThread),
    ({ from }) => from,
  );
  const done = new Set<string>();
  const circles: string[] = [];
  const walk = (file: string, chain: readonly string[]): void => {
    if (chain.includes(file)) circles.push([...chain.slice(chain.indexOf(file)), file].join(' → '));
    if (chain.includes(file) || done.has(file)) return;
    for (const { to } of targets.get(file) ?? []) walk(to, [...chain, file]);
    done.add(file);
  };
  for (const file of files) walk(file, []);
  return circles;
}

suite('The rules of the house', () => {
  test('the scan sees the imports that are there', () => {
    assert.ok(files.length > 20);
    assert.ok(
      imports.some(({ from, to }) => from === 'wiring/thread-parts.ts' && to === 'backends/sqlite/log/appender.ts'),
    );
    assert.ok(imports.some(({ from, to }) => from === 'edge/ingest.ts' && to === 'log.ts'));
    assert.ok(imports.some(({ to }) => to === 'backends/sqlite/log/writer.ts'));
  });

  test('json, columnar, validation, identity, errors and model import nothing but each other', () => {
    const isAllowed = (from: string, to: string): boolean =>
      PURE.test(to) || (from.startsWith('identity/') && PURE_PACKAGES.test(to));
    assert.deepEqual(
      offenders(({ from, to }) => PURE.test(from) && !isAllowed(from, to)),
      [],
    );
  });

  test('of node:crypto identity takes hashes alone, no randomness', () => {
    const names = files
      .filter((file) => file.startsWith('identity/'))
      .flatMap((file) => /import (.+) from 'node:crypto'/.exec(readFileSync(resolve(SRC, file), 'utf8'))?.[1] ?? []);
    assert.deepEqual([...new Set(names)], ['{ hash }']);
  });

  test('json, columnar, validation, identity, errors and model read no clock, no environment and no randomness', () => {
    const impure = files
      .filter((file) => PURE.test(file))
      .filter((file) =>
        /Date\.now|new Date\(\)|Math\.random|process\.|performance\./.test(readFileSync(resolve(SRC, file), 'utf8')),
      );
    assert.deepEqual(impure, []);
  });

  test('edge and processor never import each other, nor a backend', () => {
    const isEdge = (path: string): boolean => path.startsWith('edge/');
    const isProcessor = (path: string): boolean => path.startsWith('processor');
    assert.deepEqual(
      offenders(
        ({ from, to }) =>
          (isEdge(from) && (isProcessor(to) || backendOf(to) !== undefined)) ||
          (isProcessor(from) && (isEdge(to) || backendOf(to) !== undefined)),
      ),
      [],
    );
  });

  test('a backend imports no other backend, and only main.ts and wiring import backends, dynamically', () => {
    assert.deepEqual(
      offenders(({ from, to, isDynamic }) => {
        const target = backendOf(to);
        if (target === undefined) return false;
        const own = backendOf(from);
        // What SQLite and PostgreSQL share.
        if (target === 'sql' && (own === 'sqlite' || own === 'postgres')) return false;
        return own === undefined ? !COMPOSITION.test(from) || !isDynamic : own !== target;
      }),
      [],
    );
  });

  test('only main.ts imports wiring, besides wiring itself', () => {
    assert.deepEqual(
      offenders(({ from, to }) => to.startsWith('wiring/') && !COMPOSITION.test(from)),
      [],
    );
  });

  test('no file imports itself through others, type imports included', () => {
    assert.deepEqual(importCircles(), []);
  });

  test('the root of src holds the command line, the model, the errors and the interfaces, nothing else', () => {
    assert.deepEqual(files.filter((file) => !file.includes('/')).sort(), AT_THE_ROOT);
  });

  test('only config/config.ts reads the process environment', () => {
    const readers = files.filter((file) => readFileSync(resolve(SRC, file), 'utf8').includes('process.env'));
    assert.deepEqual(readers, ['config/config.ts']);
  });

  test('what clients sent is parsed by json/parse.ts: JSON.parse misreads escaped property names', () => {
    const callers = files.filter((file) => readFileSync(resolve(SRC, file), 'utf8').includes('JSON.parse('));
    assert.deepEqual(
      callers.filter((file) => !OWN_JSON.has(file)),
      [],
    );
  });

  test('there is no utils.ts, no index.ts and no file that says nothing about itself', () => {
    assert.deepEqual(
      files.filter((file) => /(^|\/)(utils?|index|helpers?)\.ts$/.test(file)),
      [],
    );
    assert.deepEqual(
      files.filter((file) => !readFileSync(resolve(SRC, file), 'utf8').startsWith('/**\n * ')),
      [],
    );
  });
});
