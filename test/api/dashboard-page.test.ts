import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, type TestContext, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { removeFolder, temporaryFolder } from '../server.ts';
import { type RunningApp, startApp } from './running-app.ts';

const HTML = `<!doctype html><title>Sluice</title>${'<p>words</p>'.repeat(200)}`;
const SCRIPT = `console.log("${'ä'.repeat(2_000)}");`;
const STYLE = 'p{color:red}';
const ICON = '<svg xmlns="http://www.w3.org/2000/svg"/>';
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

function emptyFolder(context: TestContext): string {
  const folder = temporaryFolder();
  context.after(() => removeFolder(folder));
  return folder;
}

function build(folder: string): void {
  mkdirSync(join(folder, 'dist', 'assets'), { recursive: true });
  writeFileSync(join(folder, 'dist', 'index.html'), HTML);
  writeFileSync(join(folder, 'dist', 'favicon.svg'), ICON);
  writeFileSync(join(folder, 'dist', 'assets', 'index-abc123.js'), SCRIPT);
  writeFileSync(join(folder, 'dist', 'assets', 'index-abc123.css'), STYLE);
  writeFileSync(join(folder, 'secret.txt'), 'not for you');
}

function startIn(context: TestContext, folder: string): Promise<RunningApp> {
  return startApp(context, { pageFolder: pathToFileURL(`${join(folder, 'dist')}/`) });
}

async function startBuilt(context: TestContext): Promise<RunningApp> {
  const folder = emptyFolder(context);
  build(folder);
  return startIn(context, folder);
}

async function bytesOf(port: number, path: string, encoding: string): Promise<{ bytes: Buffer; headers: Headers }> {
  const { request } = await import('node:http');
  return new Promise((resolve, reject) => {
    const headers = { 'accept-encoding': encoding };
    request({ port, host: '127.0.0.1', path, headers, agent: false }, (incoming) => {
      const chunks: Buffer[] = [];
      incoming.on('data', (chunk: Buffer) => chunks.push(chunk));
      incoming.on('end', () => {
        resolve({ bytes: Buffer.concat(chunks), headers: new Headers(incoming.headers as Record<string, string>) });
      });
    })
      .on('error', reject)
      .end();
  });
}

describe('the page of the dashboard', () => {
  for (const path of [
    '/dashboard',
    '/dashboard/',
    '/dashboard/production/live?name=purchase',
    '/dashboard/development/people/019a8262-f0d8-83b1-a1c5-7d20f4e6b98a',
    '/dashboard/sign-in?next=%2Fdashboard',
    '/dashboard/nothing.js',
    '/dashboard/assets',
  ]) {
    test(`${path} is the page, under its own policy and requested again each time`, async (t) => {
      const { call } = await startBuilt(t);
      const { status, text, headers } = await call('GET', path);
      assert.equal(status, 200);
      assert.equal(text, HTML);
      assert.equal(headers['content-type'], 'text/html; charset=utf-8');
      assert.equal(headers['content-security-policy'], POLICY);
      assert.equal(headers['cache-control'], 'no-cache');
      assert.equal(headers['x-frame-options'], 'DENY');
      assert.equal(headers['x-content-type-options'], 'nosniff');
      assert.equal(headers['x-trace-id'], 'trace-1');
    });
  }

  test('assets have their types and stay in caches for a year', async (t) => {
    const { call } = await startBuilt(t);
    for (const [path, type, content] of [
      ['/dashboard/assets/index-abc123.js', 'text/javascript; charset=utf-8', SCRIPT],
      ['/dashboard/assets/index-abc123.css?x=1', 'text/css; charset=utf-8', STYLE],
    ] as const) {
      const { status, text, headers } = await call('GET', path);
      assert.equal(status, 200);
      assert.equal(text, content);
      assert.equal(headers['content-type'], type);
      assert.equal(headers['cache-control'], 'public, max-age=31536000, immutable');
    }
    const icon = await call('GET', '/dashboard/favicon.svg');
    assert.deepEqual([icon.text, icon.headers['content-type']], [ICON, 'image/svg+xml']);
    assert.equal(icon.headers['cache-control'], 'no-cache');
  });

  test('an asset that there is not is not found, and is not the page', async (t) => {
    const { call } = await startBuilt(t);
    for (const path of ['/dashboard/assets/old-000000.js', '/dashboard/assets/', '/dashboard/assets/__proto__']) {
      const { status, text } = await call('GET', path);
      assert.equal(status, 404, path);
      assert.deepEqual(JSON.parse(text), { error: 'not found', trace_id: JSON.parse(text).trace_id });
    }
  });

  test('no path leads out of the folder', async (t) => {
    const { call } = await startBuilt(t);
    for (const path of [
      '/dashboard/../secret.txt',
      '/dashboard/%2e%2e/secret.txt',
      '/dashboard/..%2fsecret.txt',
      '/dashboard/assets/../../secret.txt',
      '/dashboard/assets/%2e%2e%2f%2e%2e%2fsecret.txt',
      '/dashboard/assets/..%5c..%5csecret.txt',
      '/dashboard//secret.txt',
      '/dashboard/index.html%00.js',
    ]) {
      const { text } = await call('GET', path);
      assert.ok(!text.includes('not for you'), path);
    }
  });

  test('HEAD says what GET would, without the body', async (t) => {
    const { call } = await startBuilt(t);
    for (const path of ['/dashboard', '/dashboard/assets/index-abc123.js']) {
      const got = await call('GET', path);
      const head = await call('HEAD', path);
      assert.equal(head.status, 200);
      assert.equal(head.text, '');
      for (const name of ['etag', 'content-type', 'content-length', 'cache-control']) {
        assert.equal(head.headers[name], got.headers[name], name);
      }
    }
  });

  test('other methods are refused', async (t) => {
    const { call } = await startBuilt(t);
    for (const path of ['/dashboard', '/dashboard/assets/index-abc123.js']) {
      const { status, headers } = await call('POST', path);
      assert.deepEqual([status, headers.allow], [405, 'GET, HEAD'], path);
    }
  });
});

describe('how the page is carried', () => {
  test('it is compressed as the client takes it, and reads the same', async (t) => {
    const { port } = await startBuilt(t);
    const path = '/dashboard/assets/index-abc123.js';
    for (const [accepted, expected, unpack] of [
      ['gzip, deflate, br', 'br', brotliDecompressSync],
      ['gzip, deflate', 'gzip', gunzipSync],
      ['gzip, br;q=0', 'gzip', gunzipSync],
      ['BR;q=0.5', 'br', brotliDecompressSync],
      ['deflate, gzip;q=0.0', null, (bytes: Buffer) => bytes],
      ['', null, (bytes: Buffer) => bytes],
    ] as const) {
      for (const round of ['first', 'second']) {
        const { bytes, headers } = await bytesOf(port, path, accepted);
        assert.equal(headers.get('content-encoding'), expected, `${accepted}, ${round}`);
        assert.equal(unpack(bytes).toString(), SCRIPT);
        assert.equal(headers.get('content-length'), String(bytes.length));
        assert.equal(headers.get('vary'), 'accept-encoding');
      }
    }
  });

  test('what is small goes as it is', async (t) => {
    const { port } = await startBuilt(t);
    const { bytes, headers } = await bytesOf(port, '/dashboard/assets/index-abc123.css', 'br');
    assert.deepEqual([bytes.toString(), headers.get('content-encoding')], [STYLE, null]);
  });

  test('what the client has already is not sent again, whichever form it has', async (t) => {
    const { call } = await startBuilt(t);
    const tags = new Set<string>();
    for (const encoding of ['identity', 'gzip', 'br']) {
      const headers = { 'accept-encoding': encoding };
      const { etag = '' } = (await call('GET', '/dashboard', { headers })).headers;
      tags.add(etag);
      for (const named of [etag, `"other", W/${etag}`, '*']) {
        const again = await call('GET', '/dashboard', { headers: { ...headers, 'if-none-match': named } });
        assert.deepEqual([again.status, again.text, again.headers.etag], [304, '', etag], named);
        assert.equal(again.headers['cache-control'], 'no-cache');
      }
      const other = await call('GET', '/dashboard', { headers: { ...headers, 'if-none-match': '"other"' } });
      assert.equal(other.status, 200);
    }
    assert.equal(tags.size, 3);
  });
});

describe('a page that was not built', () => {
  test('says how to build it, and is there as soon as it is built', async (t) => {
    const folder = emptyFolder(t);
    const { call, errors } = await startIn(t, folder);
    for (const path of ['/dashboard', '/dashboard/assets/index-abc123.js']) {
      const { status, text, headers } = await call('GET', path);
      assert.equal(status, 503);
      assert.match(text, /npm run build:dashboard/);
      assert.equal(headers['content-type'], 'text/plain; charset=utf-8');
      assert.equal(headers['cache-control'], 'no-store');
    }
    assert.deepEqual(errors, []);
    build(folder);
    assert.equal((await call('GET', '/dashboard')).text, HTML);
  });

  test('a folder with assets and no page is no page either', async (t) => {
    const folder = emptyFolder(t);
    mkdirSync(join(folder, 'dist', 'assets'), { recursive: true });
    const { call } = await startIn(t, folder);
    assert.equal((await call('GET', '/dashboard')).status, 503);
  });
});
