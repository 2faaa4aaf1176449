/**
 * Tens of thousands of requests that are nearly good, from a fixed seed, many ahead of their responses on each connection.
 * Whatever they are, every response is one that the contract knows, the server lives, and every event is accounted for: the users in
 * the log are exactly those that were acknowledged.
 */

import assert from 'node:assert/strict';
import { suite, type TestContext, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { eventually, post, sleep, type TestServer, user } from '../server.ts';
import { ask, logOf, metric, useServer } from './fixture.ts';
import { Random, tameRequest, wildRequest } from './mutations.ts';
import { type RawResponse, RawClient } from './raw-socket.ts';

const SEED = 20_261_114;
/** As many on every machine, so that the same are sent. */
const REQUESTS = 8_000;
const CONNECTIONS = 6;
const BATCH = 40;
/** Without a response for so long, a client finds out whether there is still one to come. */
const QUIET_MS = 50;

const BARRIER = gzipSync(JSON.stringify({ users: [user('barrier')] }));

const STATUSES = new Set([202, 400, 401, 404, 405, 413, 431, 503]);

/** The responses that clients got. */
class Tally {
  readonly statuses = new Map<number, number>();
  readonly acceptedByTrace = new Map<string, number>();
  readonly traces = new Set<string>();
  sent = 0;

  note({ status, headers, body }: RawResponse): void {
    this.statuses.set(status, (this.statuses.get(status) ?? 0) + 1);
    const traceId = headers.get('x-trace-id') ?? '';
    this.traces.add(traceId);
    if (status === 202)
      this.acceptedByTrace.set(traceId, (JSON.parse(body) as { users_accepted: number }).users_accepted);
  }
}

/**
 * Once requests that were sent later are durable, those sent before are too, and their responses are on the way. These are
 * compressed, as some of those are, and there are two of them, one after the other.
 */
async function barrier(server: TestServer, tally: Tally): Promise<void> {
  for (let n = 0; n < 2; n++) {
    const response = await post(server, server.key, BARRIER, { 'content-encoding': 'gzip' });
    assert.equal(response.status, 202);
    tally.note({ status: response.status, headers: new Map([...response.headers]), body: response.text });
  }
  await sleep(QUIET_MS);
}

/** Reads until every request has its response, the server has closed, or nothing more can come because the rest was no request. */
async function readResponses(server: TestServer, client: RawClient, expected: number, tally: Tally): Promise<void> {
  let responded = 0;
  let wasQuiet = false;
  while (responded < expected) {
    const isClosed = client.isClosed;
    const responses = client.take();
    for (const response of responses) tally.note(response);
    responded += responses.length;
    if (responses.length > 0) wasQuiet = false;
    else if (isClosed || wasQuiet) return;
    else {
      await sleep(QUIET_MS);
      if (client.isClosed) continue;
      const late = client.take();
      for (const response of late) tally.note(response);
      responded += late.length;
      if (late.length > 0) continue;
      await barrier(server, tally);
      wasQuiet = true;
    }
  }
}

async function fuzzConnection(server: TestServer, random: Random, tally: Tally, isOver: () => boolean): Promise<void> {
  let client = await RawClient.open(server.port);
  while (!isOver()) {
    const requests = Array.from({ length: BATCH }, () => tameRequest(random, server.key));
    // A wild one often ends the connection: mostly last, so that the others count.
    const isWild = random.chance(60);
    if (isWild) requests[random.chance(80) ? BATCH - 1 : random.below(BATCH)] = wildRequest(random, server.key);
    tally.sent += requests.length;
    await client.send(Buffer.concat(requests));
    await readResponses(server, client, requests.length, tally);
    // After a wild one it is unknown where in a request the server is.
    if (!isWild && !client.isClosed) continue;
    client.destroy();
    client = await RawClient.open(server.port);
  }
  client.destroy();
}

suite('Requests mutated at random', () => {
  const server = useServer();

  test(`every response follows the contract, the server keeps running, and every event is accounted for (seed ${SEED})`, async (t: TestContext) => {
    const tally = new Tally();
    const started = performance.now();
    const isOver = (): boolean => tally.sent >= REQUESTS;
    await Promise.all(
      Array.from({ length: CONNECTIONS }, (_, n) => fuzzConnection(server(), new Random(SEED + n), tally, isOver)),
    );
    const seconds = (performance.now() - started) / 1_000;
    t.diagnostic(`seed ${SEED}: ${tally.sent} requests in ${seconds.toFixed(1)} s`);
    t.diagnostic(
      `responses: ${[...tally.statuses]
        .toSorted(([a], [b]) => a - b)
        .map(([status, count]) => `${status}: ${count}`)
        .join(', ')}`,
    );

    assert.deepEqual(
      [...tally.statuses.keys()].filter((status) => !STATUSES.has(status)),
      [],
    );
    assert.equal((await ask(server(), '/livez')).status, 200);
    await eventually('nothing is in flight', async () => (await metric(server(), 'sluice_in_flight_bytes')) === 0);
    const worrying = server()
      .stderr()
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith('{"level":"info"'))
      // A mutated Origin header makes a secret key look leaked, and it is right to say so.
      .filter((line) => !line.includes('probably leaked'));
    assert.deepEqual(worrying, []);

    const records = await logOf(server());
    const stored = new Map<string, number>();
    for (const { traceId, userCount, rejections } of records) {
      assert.ok(tally.traces.has(traceId), `no client got a response for ${traceId}`);
      if (userCount > rejections.length) stored.set(traceId, userCount - rejections.length);
    }
    assert.deepEqual(stored, tally.acceptedByTrace);
    const sum = (counts: Iterable<number>): number => [...counts].reduce((total, count) => total + count, 0);
    const accepted = sum(tally.acceptedByTrace.values());
    t.diagnostic(`${accepted} users acknowledged, ${sum(stored.values())} in the log`);
    assert.equal(await metric(server(), 'sluice_users_accepted_total'), accepted);
    // Otherwise the mutations are too mild or too harsh to find anything.
    const few = sum(tally.statuses.values()) / 200;
    for (const status of [202, 400, 401, 404, 405]) assert.ok((tally.statuses.get(status) ?? 0) > few, `few ${status}`);
  });
});
