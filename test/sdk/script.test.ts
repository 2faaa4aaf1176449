/** The SDK as it is handed out: the script that the server serves, and the package for npm. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { before, suite, test, type TestContext } from 'node:test';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { constants, gunzipSync, gzipSync } from 'node:zlib';
import { buildOperatorApp } from '../../src/api/app.ts';
import { startApp } from '../api/running-app.ts';
import { removeFolder, temporaryFolder } from '../server.ts';
import { BUILT_SCRIPT, ensureBuiltScript, SDK } from './built-script.ts';

const SCRIPT_BYTES_MAX = 5_250;
const FOREVER = 'public, max-age=31536000, immutable';
const BRIEFLY = 'public, max-age=3600';
const run = promisify(execFile);

suite('The script for pages', () => {
  before(ensureBuiltScript);

  test(`is at most ${SCRIPT_BYTES_MAX} bytes, gzipped`, (context) => {
    const bytes = gzipSync(readFileSync(BUILT_SCRIPT), { level: constants.Z_BEST_COMPRESSION }).length;
    context.diagnostic(`${bytes} bytes`);
    assert.ok(bytes <= SCRIPT_BYTES_MAX, `${bytes} bytes`);
  });

  test('is served to every site, compressed, and for an hour', async (context) => {
    const { call, port } = await startApp(context);
    const plain = await call('GET', '/ingest/sluice.js');
    assert.equal(plain.status, 200);
    assert.equal(plain.text, readFileSync(BUILT_SCRIPT, 'utf8'));
    assert.equal(plain.headers['content-type'], 'text/javascript; charset=utf-8');
    assert.equal(plain.headers['cache-control'], BRIEFLY);
    assert.equal(plain.headers['access-control-allow-origin'], '*');
    assert.equal(plain.headers['cross-origin-resource-policy'], 'cross-origin');
    const { stdout } = await run(
      'curl',
      ['-s', '-H', 'accept-encoding: gzip', `http://127.0.0.1:${port}/ingest/sluice.js`],
      { encoding: 'buffer' },
    );
    assert.equal(gunzipSync(stdout).toString('utf8'), plain.text);
  });

  test('is not sent again to those who have it, and cached for a year under its hash', async (context) => {
    const { call } = await startApp(context);
    const { headers } = await call('GET', '/ingest/sluice.js');
    const tag = headers.etag ?? '';
    assert.equal((await call('GET', '/ingest/sluice.js', { headers: { 'if-none-match': tag } })).status, 304);
    const hash = tag.slice(1, 17);
    const cachingOf = async (query: string): Promise<string | undefined> =>
      (await call('GET', `/ingest/sluice.js${query}`)).headers['cache-control'];
    assert.equal(await cachingOf(`?v=${hash}`), FOREVER);
    for (const query of ['?v=', `?v=${hash.slice(0, 3)}`, `?v=${'A'.repeat(16)}`, `?v=${hash}&v=${hash}`]) {
      assert.equal(await cachingOf(query), BRIEFLY, query);
    }
  });

  test('is not found on a server that takes in no events, which says where it is; other methods get 405', async (context) => {
    const api = await startApp(context, { role: 'api' });
    const missing = await api.call('GET', '/ingest/sluice.js?v=1');
    assert.equal(missing.status, 404);
    assert.match(missing.text, /servers with the role edge/);
    const { call } = await startApp(context);
    assert.equal((await call('POST', '/ingest/sluice.js')).status, 405);
  });

  test('is served by a server that only takes in events', async () => {
    const app = buildOperatorApp({
      serverFactory: (handler) => createServer(handler),
      version: '1.2.3',
      role: 'edge',
      readiness: () => ({ ready: true, reasons: [] }),
      renderMetrics: () => '',
      newTraceId: () => 'trace',
      onError: () => undefined,
      onUnavailable: () => undefined,
    });
    assert.equal((await app.inject('/ingest/sluice.js')).statusCode, 200);
    await app.close();
  });

  test('that was not built gets 503 with what to do, and is found once it is', async (context) => {
    const folder = folderOf(context);
    const sdkScript = pathToFileURL(join(folder, 'sluice.js'));
    const { call } = await startApp(context, { sdkScript });
    const missing = await call('GET', '/ingest/sluice.js');
    assert.equal(missing.status, 503);
    assert.equal(missing.text, 'The SDK is not built yet. Run: npm run build:sdk\n');
    writeFileSync(sdkScript, 'void 0;');
    assert.equal((await call('GET', '/ingest/sluice.js')).text, 'void 0;');
  });
});

suite('The package', () => {
  test('gives browsers one platform and everything else the other, with types', async (context) => {
    const folder = folderOf(context);
    const installed = join(folder, 'node_modules/@sluice/sdk');
    mkdirSync(installed, { recursive: true });
    cpSync(join(SDK, 'package.json'), join(installed, 'package.json'));
    const tsc = join(SDK, '../node_modules/.bin/tsc');
    await run(tsc, ['-p', join(SDK, 'tsconfig.build.json'), '--outDir', join(installed, 'dist')]);

    const program = `
      import { Sluice } from '@sluice/sdk';
      const sluice = new Sluice<{ signed_up: { plan: string } }>({ url: 'http://127.0.0.1:9', key: 'pk_1' });
      sluice.track('signed_up', { plan: 'pro' });
      // @ts-expect-error: the types are there
      sluice.track('signed_up', { plan: 1 });
      console.log(import.meta.resolve('@sluice/sdk').replace(/.*\\//, ''), typeof sluice.close);
    `;
    writeFileSync(join(folder, 'program.ts'), program);
    writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
    const onServer = await run(process.execPath, ['program.ts'], { cwd: folder });
    assert.equal(onServer.stdout, 'server.js function\n');
    const resolve = "console.log(import.meta.resolve('@sluice/sdk').replace(/.*\\//, ''))";
    const inBrowser = await run(process.execPath, ['-C', 'browser', '--input-type=module', '-e', resolve], {
      cwd: folder,
    });
    assert.equal(inBrowser.stdout, 'browser.js\n');

    const options = ['--noEmit', '--strict', '--module', 'nodenext', '--lib', 'esnext,dom', '--skipLibCheck'];
    for (const conditions of [[], ['--customConditions', 'browser']]) {
      await run(tsc, [...options, ...conditions, 'program.ts'], { cwd: folder });
    }
  });
});

function folderOf(context: TestContext): string {
  const folder = temporaryFolder();
  context.after(() => removeFolder(folder));
  return folder;
}
