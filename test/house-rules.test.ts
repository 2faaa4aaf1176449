/**
 * The rules of the house: who may import whom, and what source files may not do. Each rule is a function over the source
 * files; it finds nothing in `src`, and it finds the offence in a bad example, so that no rule passes by matching nothing.
 */

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';

/** Texts by path below src. */
type Sources = ReadonlyMap<string, string>;

interface Rule {
  readonly rule: string;
  /** One line per offence. */
  readonly find: (sources: Sources) => string[];
  /** Files by path, which break the rule once. */
  readonly bad: Readonly<Record<string, string>>;
}

interface Import {
  readonly from: string;
  /** Path below src, or the bare name of a package. */
  readonly to: string;
  readonly kind: 'static' | 'dynamic' | 'thread';
}

const SRC = fileURLToPath(new URL('../src', import.meta.url));
const PURE = /^(json\/|columnar\/|validation\/|identity\/|intake\/|plans\/|errors\.ts$|model\.ts$)/;
/** Pure as well, and needed to know phone numbers (loaded with the first one) and to derive ids. */
const PURE_PACKAGES = /^(libphonenumber-js\/[a-z]+|node:module|node:crypto)$/;
/** They put the parts together, and are the only files that name backends. */
const COMPOSITION = /^(main\.ts$|wiring\/)/;
/** Everything else is in a folder. */
const AT_THE_ROOT = new Set([
  ...['errors.ts', 'keys.ts', 'log.ts', 'main.ts', 'members.ts', 'model.ts', 'plans.ts', 'store-writer.ts', 'store.ts'],
]);
/** They parse a string alone, or what this program wrote, in which no client has chosen a name. */
const OWN_JSON = new Set([
  ...['json/parse.ts', 'json/scanner.ts', 'main.ts', 'migration/marker.ts'],
  ...[
    'views/people-search.ts',
    'views/catalogue.ts',
    'views/trace.ts',
    'backends/kafka/message.ts',
    'backends/sql/keys.ts',
  ],
  ...[
    'backends/embedded/log/frames.ts',
    'backends/embedded/log/segments.ts',
    'backends/embedded/log/segment-reader.ts',
    'backends/embedded/migration-source.ts',
  ],
  ...['backup/manifest.ts', 'backup/notes.ts'],
  ...['cli/doctor-data.ts', 'cli/export.ts', 'cli/import.ts'],
]);

function importsIn(sources: Sources): Import[] {
  const found: Import[] = [];
  for (const [from, text] of sources) {
    const add = (target: string, kind: Import['kind']): void => {
      found.push({ from, to: target.startsWith('.') ? join(dirname(from), target) : target, kind });
    };
    for (const [, target = ''] of text.matchAll(/(?:^|\n)(?:import|export)\b[^;]*?\bfrom '([^']+)'/g)) {
      add(target, 'static');
    }
    for (const [, target = ''] of text.matchAll(/\bimport\('([^']+)'\)/g)) add(target, 'dynamic');
    // Threads are started by file name, which is an import all the same.
    for (const [, target = ''] of text.matchAll(/threadFile\('(\.[^']+)'/g)) add(`${target}.ts`, 'thread');
  }
  return found;
}

function importRule(isOffence: (row: Import) => boolean): Rule['find'] {
  return (sources) =>
    importsIn(sources)
      .filter(isOffence)
      .map(({ from, to }) => `${from} imports ${to}`);
}

function fileRule(isOffence: (file: string, text: string) => boolean): Rule['find'] {
  return (sources) => [...sources].filter(([file, text]) => isOffence(file, text)).map(([file]) => file);
}

const backendOf = (path: string): string | undefined => /^backends\/([^/]+)\//.exec(path)?.[1];
const isEdge = (path: string): boolean => path.startsWith('edge/');
const isProcessor = (path: string): boolean => path.startsWith('processor/');

/** Each circle as the chain of files that leads back to its first. A thread is not loaded by the file that starts it. */
function importCircles(sources: Sources): string[] {
  const targets = Map.groupBy(
    importsIn(sources).filter(({ kind }) => kind !== 'thread'),
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
  for (const file of sources.keys()) walk(file, []);
  return circles;
}

const RULES: readonly Rule[] = [
  {
    rule: 'json, columnar, validation, identity, intake, plans, errors and model import nothing but each other',
    find: importRule(
      ({ from, to }) =>
        PURE.test(from) &&
        !PURE.test(to) &&
        !(from.startsWith('identity/') && PURE_PACKAGES.test(to)) &&
        // It compiles JSON Schemas.
        !(from === 'plans/compiled-plan.ts' && to === 'ajv/dist/2020.js') &&
        // It matches their patterns.
        !(from === 'plans/pattern.ts' && to === 're2js'),
    ),
    bad: { 'validation/shape.ts': `import { readFileSync } from 'node:fs';` },
  },
  {
    rule: 'of node:crypto identity takes hashes alone, no randomness',
    find: fileRule((file, text) => {
      const names = /import (.+) from 'node:crypto'/.exec(text)?.[1];
      return file.startsWith('identity/') && names !== undefined && names !== '{ hash }';
    }),
    bad: { 'identity/node-id.ts': `import { hash, randomUUID } from 'node:crypto';` },
  },
  {
    rule: 'json, columnar, validation, identity, intake, plans, errors and model read no clock, no environment and no randomness',
    find: fileRule(
      (file, text) => PURE.test(file) && /Date\.now|new Date\(\)|Math\.random|process\.|performance\./.test(text),
    ),
    bad: { 'model.ts': 'export const startedAt = Date.now();' },
  },
  {
    rule: 'edge and processor never import each other, nor a backend',
    find: importRule(
      ({ from, to }) =>
        (isEdge(from) && (isProcessor(to) || backendOf(to) !== undefined)) ||
        (isProcessor(from) && (isEdge(to) || backendOf(to) !== undefined)),
    ),
    bad: { 'processor/batch.ts': `import type { Edge } from '../edge/edge.ts';` },
  },
  {
    rule: 'of the processor, backends import what predicts alone',
    find: importRule(
      ({ from, to }) => backendOf(from) !== undefined && isProcessor(to) && to !== 'processor/predict.ts',
    ),
    bad: { 'backends/embedded/store/store.ts': `import { decide } from '../../../processor/decide.ts';` },
  },
  {
    rule: 'a backend imports no other backend, but for what SQLite and PostgreSQL share',
    find: importRule(({ from, to }) => {
      const [own, target] = [backendOf(from), backendOf(to)];
      if (own === undefined || target === undefined || own === target) return false;
      return target !== 'sql' || (own !== 'embedded' && own !== 'postgres');
    }),
    bad: { 'backends/kafka/log.ts': `import { codeOf } from '../postgres/pool-errors.ts';` },
  },
  {
    rule: 'only main.ts and wiring import backends, dynamically',
    find: importRule(
      ({ from, to, kind }) =>
        backendOf(from) === undefined && backendOf(to) !== undefined && (!COMPOSITION.test(from) || kind === 'static'),
    ),
    bad: { 'wiring/opening.ts': `import { openPool } from '../backends/postgres/pool.ts';` },
  },
  {
    rule: 'no thread runs a file of a backend, but one that its own backend starts',
    find: importRule(
      ({ from, to, kind }) => kind === 'thread' && backendOf(to) !== undefined && backendOf(from) !== backendOf(to),
    ),
    bad: { 'edge/edge.ts': `new Worker(threadFile('../backends/embedded/log/writer', import.meta.url));` },
  },
  {
    rule: 'threads are started with threadFile, where the rules above see them',
    find: fileRule((_file, text) =>
      [...text.matchAll(/new Worker\(\s*([^,)]*)/g)].some(
        ([, file = '']) => !/^threadFile\('\.|^this\.#parts\.threadFile$/.test(file),
      ),
    ),
    bad: { 'edge/validate-body.ts': `new Worker(new URL('../backends/embedded/log/writer.ts', import.meta.url));` },
  },
  {
    rule: 'only main.ts imports wiring, besides wiring itself',
    find: importRule(({ from, to }) => to.startsWith('wiring/') && !COMPOSITION.test(from)),
    bad: { 'cli/keys.ts': `import { openKeyStore } from '../wiring/opening.ts';` },
  },
  {
    rule: 'no file imports itself through others, type imports included',
    find: importCircles,
    bad: {
      'store.ts': `import type { LogReader } from './log.ts';`,
      'log.ts': `import type { Store } from './store.ts';`,
    },
  },
  {
    rule: 'the root of src holds the command line, the model, the errors and the interfaces, nothing else',
    find: fileRule((file) => !file.includes('/') && !AT_THE_ROOT.has(file)),
    bad: { 'opening.ts': '' },
  },
  {
    rule: 'only config/config.ts reads the process environment',
    find: fileRule((file, text) => file !== 'config/config.ts' && text.includes('process.env')),
    bad: { 'cli/keys.ts': `const url = process.env['STORE_URL'];` },
  },
  {
    rule: 'what clients sent is parsed by json/parse.ts: JSON.parse misreads escaped property names',
    find: fileRule((file, text) => text.includes('JSON.parse(') && !OWN_JSON.has(file)),
    bad: { 'processor/prepare.ts': 'const body = JSON.parse(text);' },
  },
  {
    rule: 'there is no utils.ts, no index.ts and no helpers.ts',
    find: fileRule((file) => /(^|\/)(utils?|index|helpers?)\.ts$/.test(file)),
    bad: { 'edge/utils.ts': '' },
  },
  {
    rule: 'every file opens with what it owns',
    find: fileRule((_file, text) => !text.startsWith('/**\n * ')),
    bad: { 'edge/edge.ts': `import { createServer } from 'node:http';` },
  },
];

function sourceFiles(): Sources {
  const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.ts'));
  return new Map(files.map((file) => [file, readFileSync(resolve(SRC, file), 'utf8')]));
}

suite('The rules of the house', () => {
  const sources = sourceFiles();

  test('the scan sees the imports that are there', () => {
    const imports = importsIn(sources);
    assert.ok(sources.size > 20);
    const sees = (from: string, to: string, kind: Import['kind']): boolean =>
      imports.some((row) => row.from === from && row.to === to && row.kind === kind);
    assert.ok(sees('edge/request-intake.ts', 'log.ts', 'static'));
    assert.ok(sees('wiring/edge-thread.ts', 'backends/embedded/log/appender.ts', 'dynamic'));
    assert.ok(sees('backends/embedded/log/appender.ts', 'backends/embedded/log/writer.ts', 'thread'));
  });

  for (const { rule, find, bad } of RULES) {
    test(rule, () => assert.deepEqual(find(sources), []));
    test(`a bad example is found: ${rule}`, () => {
      assert.equal(find(new Map(Object.entries(bad))).length, 1);
    });
  }
});
