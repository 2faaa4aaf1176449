/**
 * Bodies made to hurt: small ones that inflate to gigabytes, JSON that is costly to parse, and more megabytes at once than
 * the server wants to hold. Each gets its response, memory stays within a stated cap, and meanwhile others are served.
 * Times and memory are printed as diagnostics; the bounds asserted are generous, for this is no benchmark.
 */

import assert from 'node:assert/strict';
import { suite, type TestContext, test } from 'node:test';
import { brotliCompressSync, constants, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { scanLargeBody } from '../../src/json/large-body.ts';
import { NO_KEYS } from '../../src/json/scanner.ts';
import { type HttpResponse, eventually, post, type TestServer, user } from '../server.ts';
import { ask, bodyText, makeKey, memoryBytes, metric, recordOf, useServer, withWrongChecksum } from './fixture.ts';

const MB = 1_048_576;
const INFLATED_BYTES = 120 * MB;
/**
 * While a hostile body is validated, `/livez` must respond within this time, in one of a few tries: a busy machine may
 * stop for a moment, but a server that a body holds up is held up every time.
 */
const LIVEZ_MS_MAX = 1_000;
const LIVEZ_TRIES = 4;
/** Ten bombs one after another and five at a time may hold 50 MB of inflated bodies, and what was not yet collected. */
const BOMB_GROWTH_MAX = 192 * MB;
/** JSON takes many times its size once it is parsed; a body of 10 MB at most this much. */
const HOSTILE_JSON_PEAK_MAX = 1_536 * MB;
/** The whole process, with 32 MB of bodies allowed in flight. */
const CROWD_PEAK_MAX = 640 * MB;

const SMALL = JSON.stringify({ users: [user('small')] });

/** What the work gives, and the slowest response of `/livez` meanwhile, in milliseconds; of the first try that is in time. */
async function besideLivez<T>(server: TestServer, work: () => Promise<T>): Promise<{ result: T; slowest: number }> {
  for (let tries = 1; ; tries += 1) {
    const working = work();
    const slowest = await slowestLivez(server, working);
    if (slowest < LIVEZ_MS_MAX || tries === LIVEZ_TRIES) return { result: await working, slowest };
  }
}

/** Asks `/livez` again and again while the work continues; gives the slowest response in milliseconds. */
async function slowestLivez(server: TestServer, work: Promise<unknown>): Promise<number> {
  const state = { isOver: false };
  const watched = work.finally(() => {
    state.isOver = true;
  });
  let slowest = 0;
  do {
    const asked = performance.now();
    assert.equal((await ask(server, '/livez')).status, 200);
    slowest = Math.max(slowest, performance.now() - asked);
  } while (!state.isOver);
  await watched;
  return slowest;
}

suite('Compressed bombs', () => {
  const server = useServer();
  const zeros = Buffer.alloc(INFLATED_BYTES);
  // Gzip allows members one after another: ten megabytes of these inflate to ten gigabytes.
  const member = gzipSync(Buffer.alloc(MB, ' '), { level: 9 });
  const members = Buffer.concat(Array.from({ length: Math.floor((10 * MB) / member.length) }, () => member));
  const bombs: [name: string, encoding: string, packed: Buffer][] = [
    ['gzip', 'gzip', gzipSync(zeros, { level: 1 })],
    ['gzip in members, of 10 MB packed,', 'gzip', members],
    ['deflate', 'deflate', deflateSync(zeros, { level: 1 })],
    ['brotli', 'br', brotliCompressSync(zeros, { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } })],
    ['zstd', 'zstd', zstdCompressSync(zeros)],
  ];
  for (const [name, encoding, packed] of bombs) {
    test(`a ${name} bomb gets 413, and memory stays flat`, async (t: TestContext) => {
      const send = (): Promise<HttpResponse> => post(server(), server().key, packed, { 'content-encoding': encoding });
      assert.ok(packed.length <= 10 * MB);
      assert.equal((await send()).status, 413);
      const before = memoryBytes(server().pid).now;
      const responses: HttpResponse[] = [];
      for (let round = 0; round < 2; round++) responses.push(...(await Promise.all(Array.from({ length: 5 }, send))));
      for (const { status, body, headers } of responses) {
        // Five at once may be more than the room for large bodies; both responses are honest.
        assert.ok(status === 413 || status === 503, String(status));
        if (status === 413) assert.deepEqual(body, { error: 'payload too large', trace_id: headers.get('x-trace-id') });
      }
      const growth = memoryBytes(server().pid).now - before;
      t.diagnostic(`${packed.length} bytes packed; memory grew by ${Math.round(growth / MB)} MB`);
      assert.ok(growth < BOMB_GROWTH_MAX, `memory grew by ${growth} bytes`);
    });
  }

  test('a bomb behind a wrong key is not even inflated', async () => {
    const [, encoding, packed] = bombs[4] as (typeof bombs)[number];
    const response = await post(server(), withWrongChecksum(server().key), packed, { 'content-encoding': encoding });
    assert.equal(response.status, 401);
  });

  test('after all bombs nothing is in flight and events are accepted', async () => {
    await eventually('nothing is in flight', async () => (await metric(server(), 'sluice_in_flight_bytes')) === 0);
    assert.equal((await post(server(), server().key, SMALL)).status, 202);
  });
});

suite('JSON that is costly to parse', () => {
  const server = useServer();
  const withProperty = (json: string): string =>
    `{"users":[{"identifiers":{"user_id":"a"},"events":[{"event_name":"e","p":${json}}]},${JSON.stringify(user('b'))}]}`;
  const nested = '['.repeat(1_000_000) + ']'.repeat(1_000_000);
  const nestedObjects = '{"a":'.repeat(300_000) + '1' + '}'.repeat(300_000);
  const emptyObjects = `[${'{},'.repeat(2_999_999)}{}]`;
  const keys = (count: number, key: (n: number) => number | string): string =>
    `{${Array.from({ length: count }, (_, n) => `"${key(n)}":1`).join(',')}}`;

  /** [accepted, rejected] for a 202, the message for a 400. */
  const hostile: [name: string, body: string, outcome: [number, number] | string][] = [
    ['a million nested arrays', nested, 'body must be a JSON object, not an array'],
    ['a million nested arrays in a property', withProperty(nested), [1, 1]],
    ['300,000 nested objects in a property', withProperty(nestedObjects), [1, 1]],
    [
      'a million arrays that are never closed',
      nested.slice(0, 1_000_000),
      'body is not valid JSON: ends too early at line 1, column 1000001, expected a value or a closing bracket',
    ],
    ['three million empty objects', withProperty(emptyObjects), [2, 0]],
    ['three million empty users', `{"users":${emptyObjects}}`, 'users must hold at most 1000 users, not 3000000'],
    ['600,000 keys', withProperty(keys(600_000, (n) => `key${n}`)), [2, 0]],
    [
      'integer keys that share their low bits',
      withProperty(keys(600_000, (n) => (n * 65_536) % 4_294_967_294)),
      [2, 0],
    ],
    ['huge integer keys that share their low bits', withProperty(keys(450_000, (n) => 2 ** 53 - 1_024 * n)), [2, 0]],
    ['a number of two million digits', withProperty('9'.repeat(2_000_000)), [2, 0]],
    ['five million escapes', withProperty(`"${'\\n'.repeat(5_000_000)}"`), [2, 0]],
    ['the same key half a million times', withProperty(keys(500_000, () => 'a')), [2, 0]],
  ];
  for (const [name, body, outcome] of hostile) {
    test(`${name}: gets a response by the rules while /livez keeps responding`, async (t: TestContext) => {
      assert.ok(body.length <= 10 * MB, `${body.length} bytes`);
      let started = 0;
      const { result: response, slowest } = await besideLivez(server(), () => {
        started = performance.now();
        return post(server(), server().key, body);
      });
      t.diagnostic(
        `${(body.length / MB).toFixed(1)} MB validated in ${Math.round(performance.now() - started)} ms, slowest /livez ${slowest.toFixed(1)} ms`,
      );
      assert.ok(slowest < LIVEZ_MS_MAX);
      if (typeof outcome === 'string') {
        assert.equal(response.status, 400);
        assert.equal((response.body as { message: string }).message, outcome);
      } else {
        assert.equal(response.status, 202);
        const { users_accepted, users_rejected } = response.body as Record<string, number>;
        assert.deepEqual([users_accepted, users_rejected], outcome);
        const kept = Buffer.from(scanLargeBody(Buffer.from(body), NO_KEYS).kept ?? '').toString();
        // Not `equal`: its message would have both.
        assert.ok(bodyText(await recordOf(server(), response)) === kept);
      }
    });
  }

  test('a dry run of three million empty objects is checked against the tracking plan while /livez keeps responding', async (t: TestContext) => {
    const { key } = await makeKey(server().dataFolder, { account: 'planned' });
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
    const body = JSON.stringify({ unplanned_events: 'warn', events: {} });
    assert.equal((await ask(server(), '/plan', { method: 'PUT', headers, body })).status, 200);
    const { result: response, slowest } = await besideLivez(server(), () =>
      ask(server(), '/ingest/events/check', { method: 'POST', headers, body: withProperty(emptyObjects) }),
    );
    t.diagnostic(`slowest /livez ${slowest.toFixed(1)} ms`);
    const { users } = response.body as { readonly users: { readonly violations: object[] }[] };
    assert.deepEqual(
      users.map(({ violations }) => violations.length),
      [1, 1],
    );
    assert.ok(slowest < LIVEZ_MS_MAX);
  });

  test('bodies that are too small for the other thread do not hold up the event loop for long either', async (t: TestContext) => {
    const bodies = [nested.slice(0, 125_000), `{"users":[${'{},'.repeat(41_000)}{}]}`, keys(9_000, (n) => n * 65_536)];
    const send = async (): Promise<void> => {
      for (const body of bodies) assert.equal((await post(server(), server().key, body)).status, 400);
    };
    await send();
    const { slowest } = await besideLivez(server(), () => Promise.all(Array.from({ length: 4 }, send)));
    t.diagnostic(`slowest /livez ${slowest.toFixed(1)} ms`);
    assert.ok(slowest < LIVEZ_MS_MAX);
  });

  test('all of that together stayed within the stated memory', (t: TestContext) => {
    const { peak } = memoryBytes(server().pid);
    t.diagnostic(`at most ${Math.round(peak / MB)} MB resident`);
    assert.ok(peak < HOSTILE_JSON_PEAK_MAX);
  });
});

suite('More large bodies at once than may be in flight', () => {
  const server = useServer({ env: { SLUICE_IN_FLIGHT_BYTES: '32MB' } });

  test('forty of 10 MB: some are accepted, the others asked to retry later, none crash, memory is bounded', async (t: TestContext) => {
    const body = Buffer.from(`{"users":[${JSON.stringify(user('large'))}],"pad":"${'x'.repeat(10 * MB - 200)}"}`);
    const sending = Array.from({ length: 40 }, () => post(server(), server().key, body));
    const responses = await Promise.all(sending);
    const count = (status: number): number => responses.filter((response) => response.status === status).length;
    const { peak } = memoryBytes(server().pid);
    t.diagnostic(`${count(202)} accepted, ${count(503)} asked to retry; at most ${Math.round(peak / MB)} MB resident`);
    assert.ok(count(202) > 0 && count(503) > 0);
    assert.equal(count(202) + count(503), 40);
    for (const { status, headers } of responses) if (status === 503) assert.equal(headers.get('retry-after'), '1');
    assert.ok(peak < CROWD_PEAK_MAX, `${peak} bytes`);
    assert.equal((await post(server(), server().key, SMALL)).status, 202);
    await eventually('nothing is in flight', async () => (await metric(server(), 'sluice_in_flight_bytes')) === 0);
  });
});
