/**
 * The lines that people paste: the shell and a browser understand them, and the address is one that can be called.
 */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { runInNewContext } from 'node:vm';
import { baseUrlOf } from '../../src/config/base-url.ts';
import { curlLine, fetchSnippet } from '../../src/cli/curl.ts';
import { makeKey } from '../../src/keys/format.ts';

test('the curl line is one line, and a shell takes it apart into a whole request', async () => {
  const key = makeKey('secret', 'development');
  const line = curlLine('http://[::1]:8080', key);
  assert.ok(!line.includes('\n'));
  const { stdout } = await promisify(execFile)('sh', ['-c', `set -- ${line}\nprintf '%s\\n' "$@"`]);
  const [curl, show, url, , authorization, , contentType, , body = ''] = stdout.split('\n');
  assert.deepEqual(
    [curl, show, url, authorization, contentType],
    ['curl', '-i', 'http://[::1]:8080/ingest/events', `Authorization: Bearer ${key}`, 'Content-Type: application/json'],
  );
  const { users } = JSON.parse(body) as { users: { identifiers: object; events: { event_name: string }[] }[] };
  assert.equal(users.length, 1);
  assert.equal(users[0]?.events.length, 1);
  assert.ok(users[0]?.events[0]?.event_name);
});

test('the browser snippet sends a whole request', async (context) => {
  const key = makeKey('publishable', 'development');
  const server = createServer().listen(0, '127.0.0.1');
  context.after(() => server.close());
  await once(server, 'listening');
  const arrived = new Promise<{ method?: string; url?: string; authorization?: string; body: unknown }>((resolve) => {
    server.on('request', (request, response) => {
      void json(request).then((body) => {
        response.end();
        const { method, url, headers } = request;
        resolve({ method: method ?? '', url: url ?? '', authorization: headers.authorization ?? '', body });
      });
    });
  });
  const snippet = fetchSnippet(baseUrlOf('127.0.0.1', (server.address() as AddressInfo).port), key);
  await runInNewContext(`(async () => { ${snippet} })()`, {
    fetch,
    location: { pathname: '/cart' },
    crypto,
    // A returning visitor keeps the id.
    localStorage: { anon_id: 'visitor-1' },
  });
  assert.deepEqual(await arrived, {
    method: 'POST',
    url: '/ingest/events',
    authorization: `Bearer ${key}`,
    body: {
      users: [{ identifiers: { anon_id: 'visitor-1' }, events: [{ event_name: 'page_viewed', path: '/cart' }] }],
    },
  });
});

test('the address is one that can be called, also when the server listens on all of them', () => {
  assert.equal(baseUrlOf('127.0.0.1', 80), 'http://127.0.0.1:80');
  assert.equal(baseUrlOf('0.0.0.0', 8_080), 'http://127.0.0.1:8080');
  assert.equal(baseUrlOf('::', 8_080), 'http://[::1]:8080');
  assert.equal(baseUrlOf('fe80::1', 8_080), 'http://[fe80::1]:8080');
  assert.equal(baseUrlOf('events.example', 8_080), 'http://events.example:8080');
});
