/** The servers that other tests rely on: what they promise, on real ones. */

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { suite, test } from 'node:test';
import { Admin } from '@platformatic/kafka';
import { Client } from 'pg';
import { eventually } from '../server.ts';
import { testKafka, whyNoKafka } from './kafka.ts';
import { ownPostgres, testPostgres, whyNoPostgres } from './postgres.ts';

/** Generous: the machine may be busy with other tests. */
const DEADLINE_MS = 60_000;

async function query(url: string, text: string): Promise<unknown[]> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query<Record<string, unknown>>(text)).rows;
  } finally {
    await client.end();
  }
}

suite('PostgreSQL for the tests', { skip: whyNoPostgres('own') }, () => {
  test('each database is fresh and empty', async () => {
    const { newDatabase } = await testPostgres();
    const first = await newDatabase();
    await query(first, 'CREATE TABLE things (name text)');
    const second = await newDatabase();
    assert.notEqual(first, second);
    const tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'";
    assert.deepEqual(await query(first, tables), [{ tablename: 'things' }]);
    assert.deepEqual(await query(second, tables), []);
  });

  test('a server of its own syncs its files, and comes back with its data under the same URL', async (t) => {
    const server = await ownPostgres();
    t.after(async () => server.close());
    assert.deepEqual(await query(server.url, 'SHOW fsync'), [{ fsync: 'on' }]);
    assert.deepEqual(await query(server.url, 'SHOW synchronous_commit'), [{ synchronous_commit: 'on' }]);
    await query(server.url, 'CREATE TABLE things (name text)');
    await query(server.url, "INSERT INTO things VALUES ('kept')");
    for (const mode of ['immediate', 'fast'] as const) {
      await server.stop(mode);
      await assert.rejects(query(server.url, 'SELECT 1'), { code: 'ECONNREFUSED' });
      await server.start();
      assert.deepEqual(await query(server.url, 'SELECT name FROM things'), [{ name: 'kept' }]);
    }
  });

  test('nothing is left behind by a process that is killed', async (t) => {
    const program = `
      const { ownPostgres } = await import(${JSON.stringify(import.meta.resolve('./postgres.ts'))});
      const { url } = await ownPostgres();
      const { Client } = await import('pg');
      const client = new Client({ connectionString: url });
      await client.connect();
      const { rows } = await client.query('SHOW data_directory');
      console.log(JSON.stringify({ url, folder: rows[0].data_directory }));
    `;
    const child: ChildProcess = spawn(process.execPath, ['--input-type=module', '-e', program], {
      cwd: import.meta.dirname,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    t.after(() => child.kill('SIGKILL'));
    assert.ok(child.stdout !== null);
    const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
    const { url, folder } = JSON.parse(line) as { url: string; folder: string };
    await query(url, 'SELECT 1');
    child.kill('SIGKILL');
    await eventually('the folder is gone', () => !existsSync(folder), DEADLINE_MS);
    await assert.rejects(query(url, 'SELECT 1'), { code: 'ECONNREFUSED' });
  });
});

suite('Kafka for the tests', { skip: whyNoKafka() }, () => {
  const clientOptions = (brokers: string) => ({
    clientId: 'servers-test',
    bootstrapBrokers: brokers.split(','),
    connectTimeout: 2_000,
  });

  test('the shared one takes topics of different names', async (t) => {
    const { brokers, newTopicName } = await testKafka();
    const admin = new Admin(clientOptions(brokers));
    t.after(async () => admin.close());
    const topics = [newTopicName(), newTopicName()];
    await admin.createTopics({ topics, partitions: 2, replicas: 1 });
    const known = await admin.listTopics();
    assert.ok(topics.every((topic) => known.includes(topic)));
    assert.equal(new Set(topics).size, 2);
  });
});
