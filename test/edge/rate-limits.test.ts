/**
 * Rate limits of keys: the bucket by itself, with a clock that tests set and several threads that share it, and what a
 * server with several edges responds over the limit.
 */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { openSqliteKeyStore } from '../../src/backends/embedded/keys.ts';
import { allocateRateLimits, RateLimits } from '../../src/edge/rate-limits.ts';
import type { RateLimit } from '../../src/keys.ts';
import { readResponse, eventually, post, user } from '../server.ts';
import { makeKey, metric, useServer } from './fixture.ts';

const SECOND_NS = 1_000_000_000n;

function limited(id: string, usersPerSecond: number, burstUsers: number) {
  return { id, rateLimit: { usersPerSecond, burstUsers } };
}

/** Buckets with a clock of their own. */
function buckets(servers = 1, buffer = allocateRateLimits()) {
  const clock = { now: 1_000n * SECOND_NS };
  const limits = new RateLimits(buffer, servers, () => clock.now);
  const wait = (milliseconds: number): void => {
    clock.now += BigInt(milliseconds) * 1_000_000n;
  };
  return { limits, wait };
}

suite('The bucket of a key', () => {
  test('has no bound where the key has no limit', () => {
    const { limits } = buckets();
    const free = { id: 'key_free', rateLimit: null };
    for (let n = 0; n < 100; n++) assert.equal(limits.take(free, 1_000), 0);
    assert.equal(limits.take(free, 0), 0);
  });

  test('gives the burst at once, then the rate', () => {
    const { limits, wait } = buckets();
    const key = limited('key_a', 10, 30);
    for (let n = 0; n < 30; n++) assert.equal(limits.take(key, 1), 0, `user ${n}`);
    assert.ok(limits.take(key, 1) > 0 && limits.take(key, 0) > 0);
    for (let n = 0; n < 20; n++) {
      wait(100);
      assert.equal(limits.take(key, 0), 0);
      assert.equal(limits.take(key, 1), 0);
      assert.ok(limits.take(key, 1) > 0);
    }
    wait(60_000);
    for (let n = 0; n < 30; n++) assert.equal(limits.take(key, 1), 0);
    assert.ok(limits.take(key, 1) > 0, 'a pause gives no more than the burst');
  });

  test('is full with a changed limit, whatever was taken too much with the old one', () => {
    const { limits } = buckets();
    assert.equal(limits.take(limited('key_a', 1, 1), 1_000), 0);
    assert.ok(limits.take(limited('key_a', 1, 1), 1) > 0);
    assert.equal(limits.take(limited('key_a', 500, 500), 1), 0);
  });

  test('lets a request pass that is larger than the burst, and waits until it is paid back', () => {
    const { limits, wait } = buckets();
    const key = limited('key_a', 100, 1);
    assert.equal(limits.take(key, 1_000), 0);
    const milliseconds = limits.take(key, 0);
    assert.ok(milliseconds > 9_900 && milliseconds <= 10_000, String(milliseconds));
    wait(milliseconds - 5);
    assert.ok(limits.take(key, 1) > 0);
    wait(5);
    assert.equal(limits.take(key, 1), 0);
  });

  test('is that of one key alone, and a changed limit is used at once', () => {
    const { limits } = buckets();
    assert.equal(limits.take(limited('key_a', 1, 1), 5), 0);
    assert.ok(limits.take(limited('key_a', 1, 1), 1) > 0);
    assert.equal(limits.take(limited('key_b', 1, 1), 1), 0);
    assert.equal(limits.take(limited('key_a', 1, 100), 1), 0);
  });

  test('of one of several servers has its share of rate and burst', () => {
    const { limits, wait } = buckets(4);
    const key = limited('key_a', 40, 40);
    for (let n = 0; n < 10; n++) assert.equal(limits.take(key, 1), 0);
    assert.ok(limits.take(key, 1) > 0);
    wait(1_001);
    for (let n = 0; n < 10; n++) assert.equal(limits.take(key, 1), 0);
    assert.ok(limits.take(key, 1) > 0);
  });

  test('is one for threads that share the memory, and keys beyond the places have one per thread', () => {
    const buffer = allocateRateLimits();
    const [one, two] = [buckets(1, buffer), buckets(1, buffer)];
    for (let n = 0; n < 4_000; n++) {
      const key = limited(`key_${n}`, 1, 2);
      assert.equal(one.limits.take(key, 1) + two.limits.take(key, 1), 0);
      assert.ok(one.limits.take(key, 1) > 0 && two.limits.take(key, 1) > 0, key.id);
    }
    for (let n = 4_000; n < 20_000; n++) assert.equal(one.limits.take(limited(`key_${n}`, 1, 1), 1), 0);
    assert.ok(one.limits.take(limited('key_19999', 1, 1), 1) > 0);
  });

  test('loses nothing where threads take from it at the same moment', async () => {
    const workerData = { buffer: allocateRateLimits(), ready: new Int32Array(new SharedArrayBuffer(4)), threads: 2 };
    const taken = await Promise.all(
      Array.from({ length: workerData.threads }, async () => {
        const worker = new Worker(new URL('./rate-limits-thread.ts', import.meta.url), { workerData });
        return new Promise<number>((resolve, reject) => worker.once('message', resolve).once('error', reject));
      }),
    );
    assert.equal(
      taken.reduce((sum, count) => sum + count, 0),
      10_000,
    );
  });
});

suite('A server and a key with a rate limit', () => {
  const server = useServer({ env: { SLUICE_EDGES: '2' } });
  /** So slow that nothing comes back into the bucket during a test. */
  const SLOW: RateLimit = { usersPerSecond: 1, burstUsers: 600 };

  async function limit(keyId: string, rateLimit: RateLimit | null): Promise<void> {
    const store = openSqliteKeyStore(join(server().dataFolder, 'keys.db'));
    await store.edit(keyId, { rateLimit });
    await store.close();
  }
  const users = (count: number): object => ({ users: Array.from({ length: count }, (_, n) => user(`u${n}`)) });
  /** Each on a connection of its own, so that all edges get some. */
  const send = (key: string, count: number) => post(server(), key, users(count), { connection: 'close' });

  test('beyond the burst the response is 503 with Retry-After and the reason, over all edges together', async () => {
    const { id, key } = await makeKey(server().dataFolder);
    const { key: other } = await makeKey(server().dataFolder);
    await limit(id, SLOW);
    const statuses: number[] = [];
    for (let n = 0; n < 12; n++) statuses.push((await send(key, 100)).status);
    assert.deepEqual(statuses.slice(0, 6), [202, 202, 202, 202, 202, 202]);
    assert.ok(
      statuses.slice(7).every((status) => status === 503),
      statuses.join(),
    );

    const refused = await send(key, 1);
    assert.deepEqual(refused.body, {
      error: 'service temporarily unavailable',
      trace_id: refused.headers.get('x-trace-id'),
      message: 'this key may send 1 users per second: retry after the seconds in Retry-After',
    });
    assert.match(refused.headers.get('retry-after') ?? '', /^[1-9]\d*$/);
    assert.equal((await send(other, 100)).status, 202);
    assert.ok((await metric(server(), 'sluice_unavailable_total{reason="rate_limit"}')) >= 5);
  });

  test('under /ingest/v1/ the response is 429, and a limit that is removed is gone', async () => {
    const { id, key } = await makeKey(server().dataFolder);
    await limit(id, SLOW);
    const batch = Array.from({ length: 1_000 }, (_, n) => ({ type: 'track', event: 'e', userId: `u${n}` }));
    const segment = async () => {
      const authorization = `Basic ${Buffer.from(`${key}:`).toString('base64')}`;
      const init = { method: 'POST', headers: { authorization }, body: JSON.stringify({ batch }) };
      return readResponse(await fetch(`${server().baseUrl}/ingest/v1/batch`, init));
    };
    assert.equal((await segment()).status, 200);
    const refused = await segment();
    assert.equal(refused.status, 429);
    assert.equal((refused.body as { code: string }).code, 'rate_limited');
    assert.ok(Number(refused.headers.get('retry-after')) >= 30);
    assert.equal((await send(key, 1)).status, 503, 'one bucket for both forms');
    await limit(id, null);
    await eventually('it is served again', async () => (await segment()).status === 200);
  });

  test('under /ingest/v1/ each message counts, whether or not it is of the same person or valid', async () => {
    const invalid = { type: 'track', userId: 'u' };
    const track = { ...invalid, event: 'e' };
    const batches = [
      Array.from({ length: 1_000 }, () => track),
      [track, ...Array.from({ length: 999 }, () => invalid)],
    ];
    for (const batch of batches) {
      const { id, key } = await makeKey(server().dataFolder);
      await limit(id, SLOW);
      const authorization = `Basic ${Buffer.from(`${key}:`).toString('base64')}`;
      const init = { method: 'POST', headers: { authorization }, body: JSON.stringify({ batch }) };
      const segment = async () => readResponse(await fetch(`${server().baseUrl}/ingest/v1/batch`, init));
      assert.equal((await segment()).status, 200);
      const { status, headers } = await segment();
      assert.equal(status, 429);
      const seconds = Number(headers.get('retry-after'));
      assert.ok(seconds > 300 && seconds <= 400, `1,000 messages, a burst of 600: ${seconds}`);
    }
  });

  test('what was received with a key, what was rejected and limited, and the last page are counted', async () => {
    const { id, key, accountId } = await makeKey(server().dataFolder, { kind: 'publishable' });
    await limit(id, SLOW);
    const origin = 'https://shop.example';
    const body = { users: [...(users(999) as { users: object[] }).users, {}] };
    assert.equal((await post(server(), key, body, { origin })).status, 202);
    assert.equal((await post(server(), key, body)).status, 503);
    const store = openSqliteKeyStore(join(server().dataFolder, 'keys.db'));
    try {
      const volume = await eventually('both edges have written it', async () => {
        const written = (await store.volumes(accountId, Date.now())).get(id);
        return written !== undefined && written.users > 0 && written.requestsLimited > 0 ? written : undefined;
      });
      assert.deepEqual(volume, { users: 999, events: 999, usersRejected: 1, requestsLimited: 1 });
      assert.equal((await store.list()).find((one) => one.id === id)?.lastOrigin, origin);
    } finally {
      await store.close();
    }
  });
});
