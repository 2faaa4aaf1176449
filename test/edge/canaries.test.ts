/**
 * Personal data and keys, marked so that they can be found again, go through every path that a request can take: taken,
 * rejected, malformed, unauthorised, too large, and a log that breaks under the server. Then everything that the server
 * said is searched for them: its output at the most talkative level, its metrics, and the responses to other requests.
 */

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { suite, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { keyFileOf } from '../../src/data-folder/files.ts';
import { KEY_PATTERN, makeKey as makeUnknownKey } from '../../src/keys/format.ts';
import { type HttpResponse, readResponse, eventually, sleep, type TestServer } from '../server.ts';
import { ask, makeKey, useServer, withWrongChecksum } from './fixture.ts';

/** The log writes at most ten lines a second about requests; more slowly than that, none is left out. */
const LINES_A_SECOND = 8;

const ANY_CANARY = /canar|4366077|203\.0\.113|private\.example/i;
const NUMBERED = /canar(?:y|ia)(\d+)x/gi;

/** Marked personal data; the number tells whose it is. */
function canaries(n: number) {
  return {
    mail: `canary${n}x@private.example`,
    phone: `+4366077${1_000 + n}`,
    name: `Canaria${n}x Geheim`,
    word: `canary${n}x`,
    address: `203.0.113.${n}`,
  };
}

interface Probe {
  readonly what: string;
  readonly status: number;
  readonly path?: string;
  readonly method?: string;
  /** The value of the Authorization header; a good key if left out. */
  readonly authorization?: string | null;
  readonly headers?: Record<string, string>;
  readonly body?: string | Buffer;
  /** Whether the log has a line about it. */
  readonly isLogged?: boolean;
}

function probesFor(publishable: string, secret: string): ((c: ReturnType<typeof canaries>) => Probe)[] {
  const event = { event_name: 'e' };
  const users = (...all: unknown[]): string => JSON.stringify({ users: all });
  return [
    ({ mail, phone, name, word }) => ({
      what: 'accepted, canaries everywhere',
      status: 202,
      body: users({
        identifiers: { user_id: word, email: mail, phone_number: phone, first_name: name },
        user_properties: { [word]: name, [mail]: { [phone]: [mail] } },
        events: [{ event_name: word, [mail]: phone, nested: { [name]: word } }],
      }),
    }),
    ({ mail, word }) => ({
      what: 'partly rejected, canaries in the messages',
      status: 202,
      body: users(
        { identifiers: { email: mail }, events: [event] },
        { identifiers: { email: mail, [word]: 7 }, events: [event] },
        { identifiers: { email: mail }, user_properties: { [mail]: { [word]: '\0' } }, events: [event] },
      ),
    }),
    ({ mail, name }) => ({
      what: 'all rejected',
      status: 400,
      body: users({ identifiers: { email: mail, [name]: {} }, events: [event] }, mail, { [mail]: name }),
    }),
    ({ mail }) => ({
      what: 'JSON broken inside a canary',
      status: 400,
      body: `{"users":[{"email":"${mail}`,
      isLogged: true,
    }),
    ({ mail }) => ({ what: 'a bare canary for JSON', status: 400, body: mail, isLogged: true }),
    ({ mail }) => ({ what: 'a canary for the body', status: 400, body: JSON.stringify(mail), isLogged: true }),
    ({ mail }) => ({
      what: 'users that are a canary',
      status: 400,
      body: JSON.stringify({ users: mail }),
      isLogged: true,
    }),
    ({ mail }) => ({
      what: 'a canary behind bad UTF-8',
      status: 400,
      body: Buffer.concat([Buffer.from([0xff]), Buffer.from(mail)]),
      isLogged: true,
    }),
    ({ mail }) => ({
      what: 'a canary as a content type',
      status: 400,
      headers: { 'content-type': `text/${mail}` },
      isLogged: true,
    }),
    ({ word }) => ({
      what: 'a canary as an encoding',
      status: 400,
      headers: { 'content-encoding': word },
      isLogged: true,
    }),
    ({ mail }) => ({
      what: 'a canary that is not gzip',
      status: 400,
      headers: { 'content-encoding': 'gzip' },
      body: mail,
      isLogged: true,
    }),
    ({ mail }) => ({
      what: 'broken JSON in gzip',
      status: 400,
      headers: { 'content-encoding': 'gzip' },
      body: gzipSync(`{"${mail}`),
      isLogged: true,
    }),
    ({ mail }) => ({
      what: 'a canary as a long idempotency key',
      status: 400,
      headers: { 'idempotency-key': mail.repeat(20) },
      isLogged: true,
    }),
    ({ mail }) => ({ what: 'a canary for a key', status: 401, authorization: `Bearer ${mail}` }),
    ({ word }) => ({ what: 'a canary in a bad key', status: 401, authorization: `Bearer sk_prod_${word}` }),
    ({ mail, word }) => ({ what: 'basic authorization', status: 401, authorization: `Basic ${mail}:${word}` }),
    ({ mail }) => ({
      what: 'a canary for a key in the query',
      status: 401,
      authorization: null,
      path: `/ingest/events?key=${mail}`,
    }),
    ({ mail }) => ({
      what: 'a canary in the query',
      status: 400,
      path: `/ingest/events?email=${mail}`,
      body: '{',
      isLogged: true,
    }),
    () => ({
      what: 'a secret key in the query',
      status: 401,
      authorization: null,
      path: `/ingest/events?key=${secret}`,
    }),
    () => ({
      what: 'a publishable key in the query',
      status: 400,
      authorization: null,
      path: `/ingest/events?key=${publishable}`,
      body: '{',
      isLogged: true,
    }),
    ({ mail, word, address }) => ({
      what: 'canaries in headers',
      status: 400,
      headers: {
        'user-agent': mail,
        cookie: `session=${word}`,
        referer: `https://${word}/`,
        'x-forwarded-for': address,
        forwarded: `for=${address}`,
      },
      body: '{',
      isLogged: true,
    }),
    ({ word }) => ({
      what: 'an origin that the key is not for',
      status: 403,
      authorization: `Bearer ${publishable}`,
      headers: { origin: `https://${word}.example` },
    }),
    ({ mail }) => ({ what: 'too large', status: 413, body: Buffer.from(mail.padEnd(10_485_761)) }),
    ({ mail }) => ({ what: 'another method', status: 405, method: 'PUT', body: mail }),
    ({ mail }) => ({ what: 'another path', status: 404, method: 'GET', path: `/people/${mail}?email=${mail}` }),
    ({ mail }) => ({ what: 'asked for by path', status: 404, method: 'GET', path: `/profiles/${mail}` }),
    ({ word }) => ({ what: 'asked for', status: 404, method: 'GET', path: `/profiles?email=nobody-${word}@x.example` }),
    ({ mail }) => ({ what: 'a bad parameter', status: 400, method: 'GET', path: `/events?from=${mail}` }),
    ({ mail }) => ({ what: 'a path that cannot be decoded', status: 404, path: `/%zz/${mail}`, body: mail }),
  ];
}

async function send(server: TestServer, key: string, probe: Probe): Promise<HttpResponse> {
  const { authorization = `Bearer ${key}`, method = 'POST', path = '/ingest/events' } = probe;
  const body = method === 'GET' ? null : (probe.body ?? '{}');
  return readResponse(
    await fetch(server.baseUrl + path, {
      method,
      headers: {
        'content-type': 'application/json',
        ...(authorization !== null && { authorization }),
        ...probe.headers,
      },
      body: typeof body === 'string' || body === null ? body : new Uint8Array(body),
    }),
  );
}

function filesBelow(folder: string): string[] {
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).map((name) => join(folder, name));
  return files.filter((file) => statSync(file).isFile());
}

suite('Personal data and keys', () => {
  const server = useServer();
  const keys: string[] = [];

  /** What the server wrote, without the key that the first start shows on purpose. */
  function assertSilent(): void {
    const { key } = server();
    assert.doesNotMatch(server().stderr(), ANY_CANARY);
    assert.doesNotMatch(server().stderr(), KEY_PATTERN);
    assert.doesNotMatch(server().stdout().replaceAll(key, ''), ANY_CANARY);
    assert.doesNotMatch(server().stdout().replaceAll(key, ''), KEY_PATTERN);
  }

  test('they are in no log line, no metric and no response to another request, whatever became of their own', async () => {
    const publishable = await makeKey(server().dataFolder, { kind: 'publishable', origins: ['https://shop.example'] });
    const secret = await makeKey(server().dataFolder);
    const unknown = makeUnknownKey('secret', 'production');
    keys.push(server().key, publishable.key, secret.key, unknown, withWrongChecksum(secret.key));
    const probes = probesFor(publishable.key, secret.key).map((make, n) => make(canaries(n + 1)));
    for (const key of [unknown, withWrongChecksum(secret.key)]) {
      probes.push({ what: 'an unknown key', status: 401, authorization: `Bearer ${key}` });
    }

    let logged = 0;
    for (const [index, probe] of probes.entries()) {
      const response = await send(server(), secret.key, probe);
      assert.equal(response.status, probe.status, `${probe.what}: ${response.text}`);
      const everything = response.text + JSON.stringify([...response.headers]);
      for (const [, number] of everything.matchAll(NUMBERED)) assert.equal(Number(number), index + 1, probe.what);
      assert.doesNotMatch(everything, KEY_PATTERN);
      if (probe.isLogged !== true) continue;
      const traceId = response.headers.get('x-trace-id') ?? '';
      await eventually(`a log line about ${probe.what}`, () => server().stderr().includes(traceId));
      if (++logged % LINES_A_SECOND === 0) await sleep(1_000);
    }
    assert.ok(logged > 10);
    assert.doesNotMatch(server().stderr(), /lines_left_out/);
    assertSilent();
    const { text } = await ask(server(), '/metrics');
    assert.doesNotMatch(text, ANY_CANARY);
    assert.doesNotMatch(text, KEY_PATTERN);
  });

  test('no file holds a key, though it was used, refused, mistyped or sent in a query', () => {
    const files = filesBelow(server().dataFolder);
    assert.ok(files.some((file) => file.endsWith('keys.db-wal')) && files.some((file) => file.includes('/log/')));
    for (const file of files) {
      const bytes = readFileSync(file);
      for (const key of keys) assert.ok(!bytes.includes(key), `${key.slice(0, 8)}… is in ${file}`);
    }
  });

  test('they are in no log line when keys and log break under the server and it ends', async () => {
    const { dataFolder } = server();
    // Seen within the last minutes, so it is let in though the key store is gone.
    const known = keys[2] ?? '';
    const { mail, name } = canaries(200);
    const body = JSON.stringify({ users: [{ identifiers: { email: mail }, events: [{ event_name: name }] }] });
    // Otherwise a server that has lost the write-ahead log might respond from older pages, which it still has in memory.
    const keyFile = new DatabaseSync(keyFileOf(dataFolder));
    keyFile.exec('PRAGMA wal_checkpoint(TRUNCATE)');
    keyFile.close();
    for (const file of filesBelow(dataFolder).filter((path) => /keys\.db|\/log\/\d+\.log/.test(path))) {
      writeFileSync(file, randomBytes(Math.max(65_536, statSync(file).size)), { flag: 'r+' });
      // Bytes before the end of a segment are not read again by the server that appends to it.
      if (file.endsWith('.log')) rmSync(file);
    }
    const statuses = new Set<number | string>();
    for (let n = 0; n < 20; n++) {
      const signedIn = { authorization: null, headers: { cookie: `sluice_session=${'A'.repeat(43)}` } };
      const asking = { what: 'who is it', status: 0, method: 'GET', path: '/session', ...signedIn };
      await send(server(), known, asking).catch(() => null);
      const isKnown = n % 2 === 0;
      const authorization = `Bearer ${isKnown ? known : makeUnknownKey('secret', 'production')}`;
      const sending = send(server(), known, { what: 'into the void', status: 0, authorization, body });
      const status = await sending.then(
        (response) => response.status,
        () => 'no response',
      );
      // That a key is unknown may still be in SQLite's memory, and then it is the truth.
      if (isKnown || status !== 401) statuses.add(status);
    }
    assert.ok(!statuses.has(202) && !statuses.has(401), [...statuses].join());
    const { process, ended } = server();
    await eventually('the server ends', () => process.exitCode !== null || process.signalCode !== null);
    // Its last words are read.
    await ended;
    assert.match(server().stderr(), /"level":"fatal"/);
    assertSilent();
  });
});
