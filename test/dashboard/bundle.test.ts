/** What the browser has to load, and who may import whom: the page knows the server by its HTTP API only. */

import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { before, suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { constants, gzipSync } from 'node:zlib';
import { BUILT_PAGE, ensureBuiltPage } from './built-page.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
/** Views are loaded when they are first opened: all of them together, and what every view needs. */
const BUNDLE_BYTES_MAX = 180_000;
const SHARED_BYTES_MAX = 110_000;

interface Import {
  readonly from: string;
  /** Path below the root, or the bare name of a package. */
  readonly to: string;
}

function importsOf(pattern: string): Import[] {
  return globSync(pattern, { cwd: ROOT }).flatMap((from) => {
    const text = readFileSync(join(ROOT, from), 'utf8');
    const targets = [
      ...text.matchAll(/(?:^|\n)(?:import|export)\b[^;]*?\bfrom '([^']+)'/g),
      ...text.matchAll(/(?:^|\n)import '([^']+)'/g),
      ...text.matchAll(/\bimport\('([^']+)'\)/g),
    ].map(([, target = '']) => target);
    return targets.map((target) => ({
      from,
      to: target.startsWith('.') ? relative(ROOT, resolve(ROOT, dirname(from), target)) : target,
    }));
  });
}

suite('The built page', () => {
  before(ensureBuiltPage);

  test(`all of its JavaScript and CSS is below ${BUNDLE_BYTES_MAX} bytes, gzipped`, (context) => {
    const files = globSync('**/*.{js,css}', { cwd: BUILT_PAGE });
    assert.ok(files.some((file) => file.endsWith('.js')) && files.some((file) => file.endsWith('.css')));
    const bytes = files
      .map((file) => gzipSync(readFileSync(join(BUILT_PAGE, file)), { level: constants.Z_BEST_COMPRESSION }).length)
      .reduce((sum, length) => sum + length, 0);
    context.diagnostic(`${bytes} bytes in ${files.length} files`);
    assert.ok(bytes < BUNDLE_BYTES_MAX, `${bytes} bytes`);
  });

  test(`what every view needs is below ${SHARED_BYTES_MAX} bytes, gzipped`, (context) => {
    const html = readFileSync(join(BUILT_PAGE, 'index.html'), 'utf8');
    const files = Array.from(html.matchAll(/"\/dashboard\/(assets\/[^"]+\.(?:js|css))"/g), ([, file = '']) => file);
    assert.ok(files.length >= 2, files.join(', '));
    const bytes = files
      .map((file) => gzipSync(readFileSync(join(BUILT_PAGE, file)), { level: constants.Z_BEST_COMPRESSION }).length)
      .reduce((sum, length) => sum + length, 0);
    context.diagnostic(`${bytes} bytes in ${files.length} files`);
    assert.ok(bytes < SHARED_BYTES_MAX, `${bytes} bytes`);
  });

  test('the HTML has no script, style or handler of its own, and names no other host', () => {
    const html = readFileSync(join(BUILT_PAGE, 'index.html'), 'utf8');
    for (const [, attributes = '', content = ''] of html.matchAll(/<script\b([^>]*)>(.*?)<\/script>/gs)) {
      assert.match(attributes, /\bsrc="\/dashboard\/assets\//);
      assert.equal(content, '');
    }
    assert.doesNotMatch(html, /<style|\sstyle=|\son[a-z]+=|javascript:|data:|https?:|="\/\//i);
  });

  test('there are no source maps and no sources among the files', () => {
    assert.deepEqual(globSync('**/*.{map,ts,tsx}', { cwd: BUILT_PAGE }), []);
  });
});

suite('The page and the server', () => {
  const ofPage = importsOf('dashboard/src/**/*.{ts,tsx}');
  const ofServer = importsOf('src/**/*.ts');

  test('the scan sees the imports that are there', () => {
    assert.ok(ofPage.some(({ from, to }) => from === 'dashboard/src/app.tsx' && to === 'dashboard/src/pages/live.tsx'));
    assert.ok(ofPage.some(({ to }) => to.endsWith('.css')));
    assert.ok(ofPage.some(({ to }) => to === 'react'));
    assert.ok(ofServer.length > 100);
  });

  test('the page imports nothing from outside of dashboard/ but the packages that it names', () => {
    const { dependencies = {}, devDependencies = {} } = JSON.parse(
      readFileSync(join(ROOT, 'dashboard/package.json'), 'utf8'),
    ) as Record<string, Record<string, string>>;
    const packages = Object.keys({ ...dependencies, ...devDependencies });
    const isOwn = (to: string): boolean =>
      to.startsWith('dashboard/') || packages.some((name) => to === name || to.startsWith(`${name}/`));
    assert.deepEqual(
      ofPage.filter(({ to }) => !isOwn(to)),
      [],
    );
  });

  test('the server imports nothing of the page', () => {
    assert.deepEqual(
      ofServer.filter(({ to }) => to.startsWith('dashboard/') || to.startsWith('sluice-dashboard')),
      [],
    );
  });

  test('the page puts no HTML together from text', () => {
    const offenders = globSync('dashboard/src/**/*.{ts,tsx}', { cwd: ROOT }).filter((file) =>
      /dangerouslySetInnerHTML|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function/.test(
        readFileSync(join(ROOT, file), 'utf8'),
      ),
    );
    assert.deepEqual(offenders, []);
  });
});
