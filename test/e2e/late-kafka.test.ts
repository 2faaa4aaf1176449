/**
 * Servers that start while Kafka is away, and PostgreSQL is there: they run, say why they are not ready, refuse events
 * with 503 and never with 401, and continue by themselves when Kafka comes.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { makeKey } from '../../src/keys/format.ts';
import { folderIn, launch } from '../faults/scope.ts';
import { readResponse, eventually, post, type TestServer, user } from '../server.ts';
import { newKey, becomesReady } from '../scaling/installation.ts';
import { ownKafka, whyNoKafka } from '../servers/kafka.ts';
import { testPostgres, whyNoPostgres } from '../servers/postgres.ts';

const DEADLINE_MS = 60_000;

suite('A server that starts before Kafka', { skip: whyNoKafka('own') || whyNoPostgres(), timeout: 240_000 }, () => {
  test('runs and is not ready in every role, and continues by itself', async () => {
    await using scope = new AsyncDisposableStack();
    const kafka = await ownKafka(1, { isStarted: false });
    scope.defer(() => kafka.close());
    const storeUrl = await (await testPostgres()).newDatabase();
    const env = {
      STORE_URL: storeUrl,
      LOG_URL: `kafka://${kafka.brokers}/${kafka.newTopicName()}?replication=1&partitions=2`,
    };
    const start = (role: string): Promise<TestServer> =>
      launch(scope, { dataFolder: `${folderIn(scope)}/none`, env, args: ['--role', role] });
    const edge = await start('edge');
    const [processor, api, stopped] = await Promise.all([start('processor'), start('api'), start('edge')]);
    const key = await newKey(storeUrl, 'late');
    const get = async (server: TestServer, path: string) =>
      readResponse(await fetch(`${server.baseUrl}${path}`, { headers: { authorization: `Bearer ${key}` } }));
    for (const server of [edge, processor, api]) {
      assert.equal((await get(server, '/livez')).status, 200);
      const ready = await get(server, '/readyz');
      assert.equal(ready.status, 503);
      assert.match(ready.text, /Kafka cannot be used yet: /);
    }
    for (const oneKey of [key, makeKey('secret', 'development')]) {
      const refused = await post(edge, oneKey, { users: [user('early')] });
      assert.deepEqual([refused.status, refused.headers.get('retry-after')], [503, '1']);
    }
    assert.equal((await get(api, '/profiles?user_id=early')).status, 503);
    // One that is stopped while it waits has nothing to wait for.
    assert.equal(await stopped.stop(), 0, stopped.stderr());

    await kafka.startBroker(0);
    for (const server of [edge, processor, api]) {
      // It is announced again; before, the port is closed for a moment.
      const isStarted = (): boolean => server.stdout().split('is listening on').length > 2;
      await eventually('it has started', isStarted, DEADLINE_MS);
      await becomesReady(server);
    }
    const accepted = await post(edge, key, { users: [user('late')] });
    assert.equal(accepted.status, 202, accepted.text);
    const { trace_id } = accepted.body as { trace_id: string };
    const isProcessed = async (): Promise<boolean> =>
      (await get(api, `/traces/${trace_id}`)).text.includes('"processed"');
    await eventually('it is processed', isProcessed, DEADLINE_MS);
    for (const server of [edge, processor, api]) {
      assert.equal(await server.stop(), 0, server.stderr());
      assert.doesNotMatch(server.stderr(), /"stack"|failed unexpectedly|crashed/);
      assert.equal(server.stderr().split('"msg":"Kafka cannot be used yet').length - 1, 1, server.stderr());
      assert.equal(server.stderr().split('"msg":"Kafka has been reached').length - 1, 1, server.stderr());
    }
  });
});
