/** The published package is JavaScript, built by `tsc`; this packs it, unpacks it elsewhere, looks into it and uses it. */

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { globSync, readdirSync, symlinkSync } from 'node:fs';
import { join, relative } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { ensureBuiltPage } from './dashboard/built-page.ts';
import { ensureBuiltScript } from './sdk/built-script.ts';
import { eventually, post, PROGRAM_ENV, removeFolder, temporaryFolder, TEST_SETTINGS, user } from './server.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const run = promisify(execFile);

/** The messages of commands and servers name pages of `docs/`, so these are in it; the decisions behind the code are not. */
function published(): string[] {
  const built = globSync('src/**/*.ts', { cwd: ROOT }).map((file) =>
    file.replace(/^src/, 'dist').replace(/\.ts$/, '.js'),
  );
  const page = globSync('dashboard/dist/**/*.*', { cwd: ROOT });
  const documents = ['README.md', 'CHANGELOG.md', 'LICENSE', ...globSync('docs/*.md', { cwd: ROOT })];
  return ['package.json', 'bin/sluice.js', 'sdk/dist/sluice.js', ...documents, ...built, ...page];
}

test('the package has what it needs and nothing else; unpacked elsewhere, it accepts an event and serves the SDK', {
  timeout: 300_000,
}, async (t) => {
  const folder = temporaryFolder();
  t.after(() => removeFolder(folder));
  // By itself npm would also build the page and the SDK, which are built, and under the servers of other tests.
  await Promise.all([ensureBuiltPage(), ensureBuiltScript()]);
  await run('npm', ['run', 'prepack'], { cwd: ROOT });
  await run('npm', ['pack', '--ignore-scripts', '--pack-destination', folder], { cwd: ROOT });
  const archive = readdirSync(folder).find((name) => name.endsWith('.tgz'));
  assert.ok(archive);
  await run('tar', ['xzf', archive], { cwd: folder });
  const packed = readdirSync(join(folder, 'package'), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(join(folder, 'package'), join(entry.parentPath, entry.name)));
  const expected = published();
  assert.ok(expected.includes('dashboard/dist/index.html'));
  const missing = expected.filter((file) => !packed.includes(file));
  // No tests, no benchmark results, no data, and nothing in `dist` of a source file that is gone.
  const surplus = packed.filter((file) => !expected.includes(file));
  assert.deepEqual({ missing, surplus }, { missing: [], surplus: [] });

  // What `npm install` would put there: the same dependencies that are installed here.
  symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));

  const bin = join(folder, 'package', 'bin', 'sluice.js');
  const { stdout } = await run(process.execPath, [bin, '--version']);
  assert.match(stdout, /^sluice \d+\.\d+\.\d+\n$/);

  const server = spawn(process.execPath, [bin, 'serve'], {
    env: { ...PROGRAM_ENV, PORT: '0', SLUICE_DATA: join(folder, 'data'), ...TEST_SETTINGS },
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const ended = once(server, 'close');
  t.after(async () => {
    server.kill('SIGTERM');
    await ended;
  });
  let words = '';
  server.stdout.setEncoding('utf8').on('data', (text: string) => {
    words += text;
  });
  await eventually('it prints a key', () => words.includes('More keys'), 30_000);
  const baseUrl = /http:\/\/127\.0\.0\.1:\d+/.exec(words)?.[0] ?? '';
  const key = /sk_dev_[0-9A-Za-z]{38}/.exec(words)?.[0] ?? '';
  const response = await post({ baseUrl }, key, { users: [user('ada')] });
  assert.equal(response.status, 202);
  const script = await fetch(`${baseUrl}/ingest/sluice.js`);
  assert.equal(script.status, 200);
});
