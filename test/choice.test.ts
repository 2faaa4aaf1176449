/** The lists of test files are true: all that they name is there, and quick files need nothing but Node.js. */

import assert from 'node:assert/strict';
import { existsSync, globSync } from 'node:fs';
import { resolve } from 'node:path';
import { suite, test } from 'node:test';
import { chosenFiles, LONG, QUICK, ROOT } from './choice.ts';
import { importedBy } from './imports.ts';

suite('Which test files run', () => {
  test('the quick and the long ones are there', () => {
    assert.deepEqual(
      [...QUICK, ...LONG].filter((place) => !existsSync(resolve(ROOT, place))),
      [],
    );
  });

  test('no quick one needs a browser, a database, a broker or another tool, all of which are found by tools.ts', () => {
    const tools = resolve(ROOT, 'test/tools.ts');
    const needsTools = (file: string): boolean => importedBy([resolve(ROOT, file)]).has(tools);
    assert.ok(needsTools('test/contract/postgres-store.test.ts'));
    assert.deepEqual(chosenFiles(['--quick']).filter(needsTools), []);
  });

  test('without arguments every one runs once, the long ones first', () => {
    const files = chosenFiles([]);
    assert.deepEqual(files.toSorted(), globSync('test/**/*.test.ts', { cwd: ROOT }).sort());
    assert.deepEqual(files.slice(0, LONG.length), LONG);
  });

  test('files of one folder are spread over the run', () => {
    const rest = chosenFiles([]).slice(LONG.length);
    const places = rest.flatMap((file, index) => (file.startsWith('test/dashboard/') ? [index / rest.length] : []));
    assert.ok((places[0] ?? 1) < 0.1 && (places.at(-1) ?? 0) > 0.9, places.join(', '));
  });
});
