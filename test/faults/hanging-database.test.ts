/**
 * A PostgreSQL that hangs under a running server: known keys continue, and the log says so in a few lines without a stack.
 * Every source of lines is at work: key usage, key lookups, reading, the processor.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { makeKey } from '../../src/keys/format.ts';
import { openWireTo } from '../scaling/wire.ts';
import { readResponse, eventually, post, sleep, type TestServer, user } from '../server.ts';
import { testPostgres, whyNoPostgres } from '../servers/postgres.ts';
import { becomesReady, install, metricOf } from '../scaling/installation.ts';
import { testKafka, whyNoKafka } from '../servers/kafka.ts';
import { folderIn, launch } from './scope.ts';

/** Until the first calls are given up, 6 s with this setting, and for a few more rounds of each. */
const HANGING_MS = 13_000;
/** Less than the minute after which a line is repeated. */
const HANGING_MS_MAX = 40_000;
const SAID_MEANWHILE = ['key usage cannot be recorded', 'the processor waits', 'reads fail'];
const SEND_EVERY_MS = 200;
const DEADLINE_MS = 60_000;
/** The check of every second, its timeout, and a margin for a busy machine; SLUICE_STORE_TIMEOUT is 30 s. */
const NOT_READY_MS_MAX = 15_000;
/** Several checks, each of which times out. */
const STAYS_NOT_READY_MS = 8_000;

interface Line {
  readonly level: string;
  readonly msg: string;
  readonly reason?: string;
}

suite('A PostgreSQL that hangs', { skip: whyNoPostgres(), timeout: 180_000 }, () => {
  test('is logged once by each part that needs it, without a stack, and so is its return', async (t) => {
    await using scope = new AsyncDisposableStack();
    const wire = await openWireTo(await (await testPostgres()).newDatabase());
    scope.defer(() => wire.close());
    const env = { STORE_URL: wire.url, SLUICE_STORE_TIMEOUT: '1s' };
    const server = await launch(scope, { dataFolder: folderIn(scope), env });
    const send = async (): Promise<number> => (await post(server, server.key, { users: [user('u')] })).status;
    assert.equal(await send(), 202);
    await eventually('it is idle', async () => {
      const { text } = await readResponse(await fetch(`${server.baseUrl}/metrics`));
      return /^sluice_processed_records_total 1$/m.test(text);
    });
    const before = server.stderr().length;
    const lines = (): Line[] =>
      server
        .stderr()
        .slice(before)
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => JSON.parse(line) as Line);

    wire.cut();
    const unknown: Promise<number>[] = [];
    const isSaid = (): boolean => SAID_MEANWHILE.every((words) => lines().some(({ msg }) => msg.startsWith(words)));
    // Longer on a busy machine, which takes its time to give up.
    for (let at = 0; at < HANGING_MS || (at < HANGING_MS_MAX && !isSaid()); at += SEND_EVERY_MS) {
      assert.equal(await send(), 202);
      const other = makeKey('secret', 'development');
      unknown.push(post(server, other, { users: [user('u')] }).then(({ status }) => status));
      const headers = { authorization: `Bearer ${server.key}` };
      unknown.push(fetch(`${server.baseUrl}/profiles?user_id=u`, { headers }).then(({ status }) => status));
      await sleep(SEND_EVERY_MS);
    }
    const whileAway = lines();
    assert.ok((await metricOf(server, 'sluice_processor_retries_total')) > 0);
    t.diagnostic(whileAway.map(({ msg }) => msg).join('; '));
    wire.repair();
    await eventually('the processor continues', () => lines().some(({ msg }) => msg === 'the processor continues'));
    await eventually('reading is said to work again', async () => {
      const headers = { authorization: `Bearer ${server.key}` };
      await readResponse(await fetch(`${server.baseUrl}/profiles?user_id=u`, { headers }));
      return lines().some(({ msg }) => msg === 'reads work again');
    });
    await eventually('key usage is written again', async () => {
      await send();
      return lines().some(({ msg }) => msg === 'key usage is recorded again');
    });
    assert.ok((await Promise.all(unknown)).every((status) => status === 503 || status === 200 || status === 401));

    assert.doesNotMatch(server.stderr(), /"stack"/);
    const counts = Map.groupBy(whileAway, ({ msg, reason }) => `${msg}: ${reason}`);
    // What differs in its reason alone is of the processor: each of its reasons is said once.
    for (const [line, { length }] of counts) assert.equal(length, 1, `${length} times: ${line}`);
    for (const words of SAID_MEANWHILE)
      assert.ok(
        whileAway.some(({ msg }) => msg.startsWith(words)),
        words,
      );
    assert.ok(whileAway.length <= 8, whileAway.map((line) => JSON.stringify(line)).join('\n'));
    await eventually(
      'all is processed',
      async () => {
        const { text } = await readResponse(await fetch(`${server.baseUrl}/metrics`));
        return /^sluice_backlog_bytes 0$/m.test(text);
      },
      DEADLINE_MS,
    );
  });

  test('leaves processors and API servers not ready within seconds, until it responds', {
    skip: whyNoKafka(),
  }, async () => {
    await using scope = new AsyncDisposableStack();
    const wire = await openWireTo(await (await testPostgres()).newDatabase());
    scope.defer(() => wire.close());
    const { brokers, newTopicName } = await testKafka();
    const { api, start } = await install(scope, { brokers, topic: newTopicName(), partitions: 1, storeUrl: wire.url });
    const servers = [api, await start('processor')];
    await Promise.all(servers.map(becomesReady));

    wire.cut();
    const isReady = async ({ baseUrl }: TestServer): Promise<boolean> => (await fetch(`${baseUrl}/readyz`)).ok;
    const becomesNotReady = (server: TestServer) =>
      eventually('it is not ready', async () => !(await isReady(server)), NOT_READY_MS_MAX);
    await Promise.all(servers.map(becomesNotReady));
    for (let at = 0; at < STAYS_NOT_READY_MS; at += SEND_EVERY_MS) {
      assert.deepEqual(await Promise.all(servers.map(isReady)), [false, false]);
      await sleep(SEND_EVERY_MS);
    }
    wire.repair();
    await Promise.all(servers.map(becomesReady));
  });
});
