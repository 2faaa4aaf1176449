/**
 * Log, store and keys of one installation are tied together by an id. Parts of two installations in one folder, a local
 * log with another database, a database with another topic: each is refused by name, and nothing is changed by that. And
 * a local log that has lost its end continues after what the database has processed.
 */

import assert from 'node:assert/strict';
import { cpSync, existsSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, before, suite, test } from 'node:test';
import { Admin } from '@platformatic/kafka';
import { Client } from 'pg';
import { tieDataFolder } from '../../src/backends/embedded/installation.ts';
import { makeTables } from '../../src/backends/postgres/make-tables.ts';
import { openPool } from '../../src/backends/postgres/pool.ts';
import { listSegments } from '../../src/backends/embedded/log/segments.ts';
import { makeKey } from '../../src/keys/format.ts';
import { createTopic } from '../backends/kafka/log-on-kafka.ts';
import { doctorHere } from '../cli/doctor-shell.ts';
import { copyIn, folderIn, launch, refusedStart, type Scope } from '../faults/scope.ts';
import { eventually, get, post, readResponse, runSluice, type TestServer, user } from '../server.ts';
import { testKafka, whyNoKafka } from '../servers/kafka.ts';
import { testPostgres, whyNoPostgres } from '../servers/postgres.ts';

type Env = Readonly<Record<string, string>>;

interface Stored {
  readonly balanced: boolean;
  readonly totals: {
    readonly users: { readonly stored: number; readonly duplicates: number; readonly pending: number };
  };
}

async function storedBy(server: TestServer, key: string): Promise<Stored> {
  return (await get(server, key, '/ledger')).body as Stored;
}

async function send(server: TestServer, key: string, count: number, storedThen: number): Promise<void> {
  for (let n = 0; n < count; n++) assert.equal((await post(server, key, { users: [user(`u${n}`)] })).status, 202);
  await eventually(`${storedThen} users are stored`, async () => {
    const { balanced, totals } = await storedBy(server, key);
    return balanced && totals.users.stored === storedThen;
  });
}

/** Of a new database and a topic of its own. */
async function newAddresses(): Promise<{ readonly STORE_URL: string; readonly LOG_URL: string }> {
  const [postgres, kafka] = [await testPostgres(), await testKafka()];
  const LOG_URL = `kafka://${kafka.brokers}/${kafka.newTopicName()}?replication=1&partitions=2`;
  return { STORE_URL: await postgres.newDatabase(), LOG_URL };
}

interface Used {
  readonly folder: string;
  readonly key: string;
}

/** A folder in which a server ran and stored a request. */
async function usedFolder(scope: Scope, env: Env = {}): Promise<Used> {
  const folder = folderIn(scope);
  const server = await launch(scope, { dataFolder: folder, env });
  await send(server, server.key, 3, 3);
  await server.stop();
  return { folder, key: server.key };
}

/** All at once, as far as a server can tell. */
async function rename(url: string, ...pairs: readonly (readonly [from: string, to: string])[]): Promise<void> {
  const server = new URL(url);
  server.pathname = '/postgres';
  const client = new Client({ connectionString: server.href });
  await client.connect();
  for (const [from] of pairs) {
    await client.query(`ALTER DATABASE ${from} ALLOW_CONNECTIONS false`);
    await client.query('SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = $1', [from]);
  }
  for (const [from, to] of pairs) await client.query(`ALTER DATABASE ${from} RENAME TO ${to}`);
  for (const [, to] of pairs) await client.query(`ALTER DATABASE ${to} ALLOW_CONNECTIONS true`);
  await client.end();
}

async function execute(url: string, statement: string): Promise<void> {
  const client = new Client({ connectionString: url });
  await client.connect();
  await client.query(statement);
  await client.end();
}

async function onKafka<T>(brokers: string, work: (admin: Admin) => Promise<T>): Promise<T> {
  const admin = new Admin({ clientId: 'test', bootstrapBrokers: brokers.split(',') });
  try {
    return await work(admin);
  } finally {
    await admin.close();
  }
}

function isTopic(brokers: string, topic: string): Promise<boolean> {
  return onKafka(brokers, async (admin) => (await admin.listTopics()).includes(topic));
}

/** Of the next event. Every start skips some, so that no cursor misses what was lost or put back. */
function nextNumberIn(folder: string): number {
  const store = new DatabaseSync(join(folder, 'store.db'), { readOnly: true });
  try {
    return Number(store.prepare("SELECT next FROM sequences WHERE name = 'event'").get()?.['next']);
  } finally {
    store.close();
  }
}

function takeFrom(other: string, folder: string, name: string): void {
  for (const found of readdirSync(folder)) if (found.startsWith(name)) rmSync(join(folder, found), { recursive: true });
  for (const found of readdirSync(other)) {
    if (found.startsWith(name)) cpSync(join(other, found), join(folder, found), { recursive: true });
  }
}

suite('A data folder', () => {
  const shared = new AsyncDisposableStack();
  let [one, other]: Used[] = [];
  before(async () => {
    [one, other] = await Promise.all([usedFolder(shared), usedFolder(shared)]);
  });
  after(() => shared.disposeAsync());

  /** Each test has its copy of a folder that was used. */
  function copyOfOne(scope: Scope): Used {
    assert.ok(one);
    return { folder: copyIn(scope, one.folder), key: one.key };
  }

  test('with log/, store.db or keys.db of another installation is refused by name, and opens again with its own', async () => {
    await using scope = new AsyncDisposableStack();
    const { folder, key } = copyOfOne(scope);
    for (const part of ['log', 'store.db', 'keys.db']) {
      takeFrom(other?.folder ?? '', folder, part);
      const words = await refusedStart({ dataFolder: folder });
      assert.match(words, /do not belong together: .* is of the installation [0-9a-f-]{36}/, part);
      assert.ok(words.includes(part === 'log' ? 'log/' : part), words);
      takeFrom(one?.folder ?? '', folder, part);
    }
    const again = await launch(scope, { dataFolder: folder });
    await send(again, key, 2, 5);
  });

  test('without keys.db is refused by servers and commands, since the accounts of its data are in there', async () => {
    await using scope = new AsyncDisposableStack();
    const { folder } = copyOfOne(scope);
    const remove = (start: string): void => {
      for (const name of readdirSync(folder)) if (name.startsWith(start)) rmSync(join(folder, name));
    };
    remove('keys.db');
    assert.match(await refusedStart({ dataFolder: folder }), /has a store\.db but no keys\.db/);
    const { code, stdout } = await runSluice(['doctor', '--data', folder]);
    assert.equal(code, 1);
    assert.match(stdout, /✗ keys .*has a store\.db but no\s+keys\.db/);
    assert.match(stdout, /→ Put keys\.db back/);
    const create = ['keys', 'create', '--name', 'new', '--kind', 'secret', '--env', 'development', '--data', folder];
    for (const command of [create, ['keys', 'list', '--data', folder], ['invite', '--data', folder]]) {
      const { code: refused, stderr } = await runSluice(command);
      assert.equal(refused, 1, command.join(' '));
      assert.match(stderr, /no keys\.db.* Put keys\.db back, .*--replace-lost-keys/);
    }
    assert.ok(!existsSync(join(folder, 'keys.db')));

    writeFileSync(join(folder, 'keys.db'), '');
    assert.match(await refusedStart({ dataFolder: folder }), /has a store\.db and its keys\.db is empty/);
    remove('keys.db');
    remove('store.db');
    assert.match(await refusedStart({ dataFolder: folder }), /has a log\/ but no keys\.db/);

    const { stdout: made } = await runSluice([...create, '--replace-lost-keys', '--json']);
    const { key } = JSON.parse(made) as { key: string };
    const again = await launch(scope, { dataFolder: folder });
    await send(again, key, 1, 4);
    const twice = await runSluice([...create, '--replace-lost-keys']);
    assert.match(twice.stderr, /has not lost its keys/);
  });

  test('with an older keys.db is reported by the doctor, and the accounts created since can get keys again', async () => {
    await using scope = new AsyncDisposableStack();
    const { folder } = copyOfOne(scope);
    const older = copyIn(scope, folder);
    const create = ['keys', 'create', '--name', 'new', '--kind', 'secret', '--env', 'development', '--data', folder];
    const keyOf = async (...more: string[]): Promise<string> => {
      const { stdout } = await runSluice([...create, ...more, '--json']);
      return (JSON.parse(stdout) as { key: string }).key;
    };
    const lostKey = await keyOf('--account', 'acme');
    const before = await launch(scope, { dataFolder: folder });
    await send(before, lostKey, 1, 1);
    await before.stop();
    takeFrom(older, folder, 'keys.db');
    const { code, stdout } = await runSluice(['doctor', '--data', folder]);
    assert.equal(code, 2);
    assert.match(stdout, /! keys .*data of 1 account that keys\.db does not\s+know/);
    const [id = ''] = /acct_[\w-]+/.exec(stdout) ?? [];
    const key = await keyOf('--account', id, '--replace-lost-keys');
    const again = await launch(scope, { dataFolder: folder });
    await send(again, key, 1, 2);
    assert.match((await runSluice(['doctor', '--data', folder])).stdout, /✓ keys/);
  });

  test('that is put back skips numbers of events, refuses the cursors that were given since, and gives all events after the others', async () => {
    await using scope = new AsyncDisposableStack();
    const { folder, key } = copyOfOne(scope);
    const copy = copyIn(scope, folder);
    const arrivals = async (server: TestServer, after: string): Promise<{ events: string[]; last: string }> => {
      const headers = { authorization: `Bearer ${key}` };
      const response = await fetch(`${server.baseUrl}/events?after=${after}`, { headers });
      assert.equal(response.status, 200);
      const { events, last } = (await response.json()) as { events: { event_name: string }[]; last: string };
      return { events: events.map(({ event_name: name }) => name), last };
    };
    const sendNamed = async (server: TestServer, name: string, storedThen: number): Promise<void> => {
      assert.equal((await post(server, key, { users: [user('u', [{ event_name: name }])] })).status, 202);
      await send(server, key, 0, storedThen);
    };
    const first = await launch(scope, { dataFolder: folder });
    const before = (await arrivals(first, 'oldest')).last;
    await sendNamed(first, 'lost', 4);
    const { events, last: lost } = await arrivals(first, before);
    assert.deepEqual(events, ['lost']);
    await first.kill();

    rmSync(folder, { recursive: true });
    cpSync(copy, folder, { recursive: true });
    const inCopy = nextNumberIn(folder);
    const second = await launch(scope, { dataFolder: folder });
    const atSecond = nextNumberIn(folder);
    assert.ok(atSecond > inCopy + 1_000_000);
    await sendNamed(second, 'new', 4);
    await sendNamed(second, 'newer', 5);
    const headers = { authorization: `Bearer ${key}` };
    const { status, body } = await fetch(`${second.baseUrl}/events?after=${lost}`, { headers }).then(readResponse);
    assert.equal(status, 400);
    assert.match((body as { message: string }).message, /^after was given after the copy .*"oldest" instead reads all/);
    assert.equal((await arrivals(second, 'oldest')).events.length, 5);
    // A cursor of an earlier start that the copy knows.
    const { last: known } = await arrivals(second, 'oldest');
    await second.stop();
    const third = await launch(scope, { dataFolder: folder });
    assert.ok(nextNumberIn(folder) > atSecond + 1_000_000);
    await sendNamed(third, 'newest', 6);
    assert.deepEqual((await arrivals(third, known)).events, ['newest']);
  });

  test('whose store.db or keys.db is removed under a running server makes it not ready until a restart', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = folderIn(scope);
    const server = await launch(scope, { dataFolder: folder });
    await send(server, server.key, 3, 3);
    const readiness = async (): Promise<string> => (await fetch(`${server.baseUrl}/readyz`)).text();
    renameSync(join(folder, 'keys.db'), join(folder, 'keys.moved'));
    await eventually('keys.db is missed', async () => (await readiness()).includes('keys.db was removed or replaced'));
    renameSync(join(folder, 'keys.moved'), join(folder, 'keys.db'));
    await eventually('it is ready again', async () => !(await readiness()).includes('not ready'));

    for (const name of readdirSync(folder)) if (name.startsWith('store.db')) rmSync(join(folder, name));
    assert.equal((await post(server, server.key, { users: [user('after')] })).status, 202);
    await eventually('store.db is missed', async () =>
      (await readiness()).includes('store.db was removed or replaced'),
    );
    // The processor and the main thread notice it by themselves, in any order.
    await eventually('the processor waits', async () => /the processor waits/.test(server.stderr()));
    await eventually('the log says what is not done', async () =>
      /store\.db was removed or replaced while the server runs: nothing is processed/.test(server.stderr()),
    );
    const { code, stdout } = await runSluice(['doctor', '--data', folder]);
    assert.equal(code, 1);
    assert.match(stdout, /✗ server +it is not ready: store\.db was removed or replaced/);
    await server.stop();
    const again = await launch(scope, { dataFolder: folder });
    await send(again, server.key, 1, 5);
  });

  test('of a server that was killed, with a store that a program has locked, is refused in words', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = folderIn(scope);
    tieDataFolder(folder);
    const holder = new DatabaseSync(join(folder, 'store.db'));
    scope.defer(async () => holder.close());
    // The write-ahead log that is there then looks as after a crash.
    holder.exec("UPDATE sequences SET next = next + 1 WHERE name = 'event'; BEGIN IMMEDIATE");
    assert.throws(() => tieDataFolder(folder), {
      name: 'OperatorError',
      message: /A program holds a lock on .*store\.db .*End that program/,
    });
  });

  test('without store.db rebuilds it from the log, and says so until log-warnings is removed', async () => {
    await using scope = new AsyncDisposableStack();
    const { folder, key } = copyOfOne(scope);
    for (const name of readdirSync(folder)) if (name.startsWith('store.db')) rmSync(join(folder, name));
    const again = await launch(scope, { dataFolder: folder });
    await send(again, key, 2, 5);
    const words = /store\.db was gone, so the store was rebuilt from the log, which begins with the first request/;
    assert.match(again.stderr(), words);
    await again.stop();
    const later = await launch(scope, { dataFolder: folder });
    assert.doesNotMatch(later.stderr(), words);
    const { warnings } = (await get(later, key, '/health')).body as { readonly warnings: string[] };
    assert.match(warnings.join(), words);
    assert.match((await doctorHere(folder)).words, new RegExp(`! log ${words.source}`));
    rmSync(join(folder, 'log-warnings'));
    assert.doesNotMatch((await doctorHere(folder)).words, words);
  });

  test('without store.db says so too if a start before was refused for another reason', async () => {
    await using scope = new AsyncDisposableStack();
    const [{ folder }, other] = [copyOfOne(scope), folderIn(scope)];
    tieDataFolder(other);
    for (const name of readdirSync(folder)) if (name.startsWith('store.db')) rmSync(join(folder, name));
    const [keys, kept] = [join(folder, 'keys.db'), join(folder, 'kept')];
    renameSync(keys, kept);
    cpSync(join(other, 'keys.db'), keys);
    assert.throws(() => tieDataFolder(folder), /do not belong together/);
    rmSync(keys);
    renameSync(kept, keys);
    assert.match(tieDataFolder(folder).join(), /^store\.db was gone, so the store was rebuilt/);
    assert.deepEqual(tieDataFolder(folder), []);
  });
});

suite('A local log beside PostgreSQL', { skip: whyNoPostgres() }, () => {
  test('that was written for another database is refused by name', async () => {
    await using scope = new AsyncDisposableStack();
    const [first, second] = [await (await testPostgres()).newDatabase(), await (await testPostgres()).newDatabase()];
    const { folder, key } = await usedFolder(scope, { STORE_URL: first });
    const words = await refusedStart({ dataFolder: folder, env: { STORE_URL: second } });
    assert.match(words, /belongs to the installation [0-9a-f-]{36}, but the database in STORE_URL is of/);
    const doctor = await runSluice(['doctor', '--json'], { SLUICE_DATA: folder, STORE_URL: second });
    const { findings } = JSON.parse(doctor.stdout) as { findings: { state: string; message: string }[] };
    const broken = findings.find(({ state }) => state === 'error');
    assert.ok(broken !== undefined && words.includes(broken.message), doctor.stdout);
    const again = await launch(scope, { dataFolder: folder, env: { STORE_URL: first } });
    await send(again, key, 2, 5);
  });

  test('whose database is renamed under a running server, so that its name leads to another, is never processed into that', async () => {
    await using scope = new AsyncDisposableStack();
    const postgres = await testPostgres();
    const [own, other] = [await postgres.newDatabase(), await postgres.newDatabase()];
    const otherPool = await openPool({ url: other, max: 1, applicationName: 'test' });
    await makeTables(otherPool);
    await otherPool.close();
    const server = await launch(scope, { dataFolder: folderIn(scope), env: { STORE_URL: own } });
    const { key } = server;
    await send(server, key, 3, 3);
    const [name, otherName] = [own, other].map((url) => new URL(url).pathname.slice(1)) as [string, string];
    const readiness = () => fetch(`${server.baseUrl}/readyz`).then(readResponse);

    await rename(own, [name, `${name}_own`], [otherName, name]);
    assert.equal((await post(server, key, { users: [user('while it is away')] })).status, 202);
    await eventually('it is not ready', async () => (await readiness()).status === 503);
    assert.match(
      JSON.stringify((await readiness()).body),
      /STORE_URL now points to a different database than at startup/,
    );
    const { status } = await post(server, makeKey('secret', 'production'), { users: [user('u')] });
    assert.equal(status, 503, 'whether there is such a key is not known');
    await eventually('the processor says why it waits', () =>
      /to that of the installation [0-9a-f-]{36}, and this server belongs to .*the processor waits/.test(
        server.stderr(),
      ),
    );
    assert.doesNotMatch(server.stderr(), /the store is at an earlier state/);

    await rename(own, [name, otherName], [`${name}_own`, name]);
    await eventually('it is ready again', async () => (await readiness()).status === 200);
    await send(server, key, 1, 5);
    const looking = await openPool({ url: other, max: 1, applicationName: 'test' });
    scope.defer(() => looking.close());
    const { rows } = await looking.query<{ count: number }>('SELECT count(*) FROM positions');
    assert.deepEqual(rows, [{ count: 0 }], 'nothing was written into the other database');
  });

  test('that has lost its end continues after what the database has processed', async () => {
    await using scope = new AsyncDisposableStack();
    const env = { STORE_URL: await (await testPostgres()).newDatabase() };
    const { folder, key } = await usedFolder(scope, env);
    const log = join(folder, 'log');
    cpSync(log, join(folder, 'earlier'), { recursive: true });
    const second = await launch(scope, { dataFolder: folder, env });
    await send(second, key, 10, 13);
    await second.kill();
    rmSync(log, { recursive: true });
    renameSync(join(folder, 'earlier'), log);
    assert.ok(listSegments(log).length > 0);
    const third = await launch(scope, { dataFolder: folder, env });
    await send(third, key, 20, 33);
  });
});

suite('A database', { skip: whyNoPostgres() || whyNoKafka(), timeout: 480_000 }, () => {
  test('that is written from one topic is refused with another, whatever the role', async () => {
    await using scope = new AsyncDisposableStack();
    const [postgres, kafka] = [await testPostgres(), await testKafka()];
    const STORE_URL = await postgres.newDatabase();
    const on = (topic: string): Env => ({
      STORE_URL,
      LOG_URL: `kafka://${kafka.brokers}/${topic}?replication=1&partitions=2`,
    });
    const [topic, another] = [kafka.newTopicName(), kafka.newTopicName()];
    const first = await launch(scope, { dataFolder: folderIn(scope), env: on(topic) });
    await send(first, first.key, 3, 3);
    await first.stop();
    const refused = async (role: string): Promise<void> => {
      const words = await refusedStart({ dataFolder: folderIn(scope), env: on(another), args: ['--role', role] });
      assert.match(words, /is written from the Kafka topic with the id/, role);
      assert.match(words, /UPDATE sluice\.identity SET log = NULL/, role);
    };
    // One that does not exist is not created by that.
    await Promise.all(['all', 'edge', 'processor'].map(refused));
    assert.equal(await isTopic(kafka.brokers, another), false);
    await createTopic(kafka.brokers, another);
    await refused('edge');
    const again = await launch(scope, { dataFolder: folderIn(scope), env: on(topic) });
    await send(again, first.key, 2, 5);
  });

  test('that is written from a topic is refused without LOG_URL, until an operator goes back to local logs', async () => {
    await using scope = new AsyncDisposableStack();
    const { STORE_URL, LOG_URL } = await newAddresses();
    const first = await launch(scope, { dataFolder: folderIn(scope), env: { STORE_URL, LOG_URL } });
    await send(first, first.key, 3, 3);
    const folder = folderIn(scope);
    const words = await refusedStart({ dataFolder: folder, env: { STORE_URL } });
    assert.match(words, /is written from the Kafka topic with the id .* but LOG_URL is not set/);
    assert.match(words, /UPDATE sluice\.identity SET log = NULL/);
    const doctor = await runSluice(['doctor', '--data', folder], { STORE_URL });
    assert.equal(doctor.code, 1, doctor.stdout);
    assert.match(doctor.stdout.replaceAll(/\s+/g, ' '), /but LOG_URL is not set/);
    const create = ['keys', 'create', '--name', 'k', '--kind', 'secret', '--env', 'production', '--account', 'another'];
    assert.equal((await runSluice([...create, '--data', folder], { STORE_URL })).code, 0, 'commands need no log');
    await first.stop();
    await execute(STORE_URL, 'UPDATE sluice.identity SET log = NULL');
    const local = await launch(scope, { dataFolder: folder, env: { STORE_URL } });
    await send(local, first.key, 2, 5);
  });

  test('that is moved from a log on disk to Kafka, and back, stores no user of a retry a second time', async () => {
    await using scope = new AsyncDisposableStack();
    const { STORE_URL, LOG_URL } = await newAddresses();
    const { folder, key } = await usedFolder(scope, { STORE_URL });
    const used = 3;
    const body = JSON.stringify({ users: [user('ada'), user('ben'), { identifiers: {} }, user('cy')] });
    const sendAgain = async (env: Env, idempotencyKey: string, stored: number, duplicates: number): Promise<void> => {
      const server = await launch(scope, { dataFolder: folder, env });
      assert.equal((await post(server, key, body, { 'idempotency-key': idempotencyKey })).status, 202);
      const totals = await eventually('it is processed', async () => {
        const { balanced, totals: now } = await storedBy(server, key);
        return balanced && now.users.pending === 0 ? now : undefined;
      });
      assert.deepEqual([totals.users.stored, totals.users.duplicates], [stored, duplicates]);
      const { rejections } = (await get(server, key, '/rejections')).body as { rejections: object[] };
      assert.equal(rejections.length, (stored - used) / 3, 'each rejected user is kept once');
      await server.stop();
    };
    await sendAgain({ STORE_URL }, 'before', used + 3, 0);
    await sendAgain({ STORE_URL, LOG_URL }, 'before', used + 3, 3);
    await sendAgain({ STORE_URL, LOG_URL }, 'on Kafka', used + 6, 3);
    await execute(STORE_URL, 'UPDATE sluice.identity SET log = NULL');
    await sendAgain({ STORE_URL }, 'on Kafka', used + 6, 6);
    await sendAgain({ STORE_URL }, 'before', used + 6, 9);
  });

  test('is refused with LOG_URL while the log in the data folder has requests that are not processed', async () => {
    await using scope = new AsyncDisposableStack();
    const { STORE_URL, LOG_URL } = await newAddresses();
    const { folder, key } = await usedFolder(scope, { STORE_URL });
    const node = await launch(scope, { dataFolder: folder, env: { STORE_URL } });
    const holder = new Client({ connectionString: STORE_URL });
    await holder.connect();
    await holder.query('BEGIN; LOCK TABLE sluice.positions');
    assert.equal((await post(node, key, { users: [user('waits')] })).status, 202);
    await node.kill();
    await holder.end();
    const refused = async (): Promise<string> => {
      const words = await refusedStart({ dataFolder: folder, env: { STORE_URL, LOG_URL } });
      assert.match(words, /has requests that are not processed yet, and a server with LOG_URL does not process them/);
      return words;
    };
    assert.doesNotMatch(await refused(), /UPDATE sluice/);
    // Elsewhere, where nothing is left behind, the topic is used.
    const other = await launch(scope, { dataFolder: folderIn(scope), env: { STORE_URL, LOG_URL } });
    await send(other, key, 1, 4);
    assert.match(await refused(), /UPDATE sluice\.identity SET log = NULL/);
    const doctor = await runSluice(['doctor', '--data', folder], { STORE_URL, LOG_URL });
    assert.match(doctor.stdout.replaceAll(/\s+/g, ' '), /has requests that are not processed yet/);
    await execute(STORE_URL, 'UPDATE sluice.identity SET log = NULL');
    const drained = await launch(scope, { dataFolder: folder, env: { STORE_URL } });
    await send(drained, key, 0, 5);
    await drained.stop();
    const last = await launch(scope, { dataFolder: folder, env: { STORE_URL, LOG_URL } });
    await send(last, key, 1, 6);
  });

  test('that an operator binds to another topic ends the servers that were started with the old one', async () => {
    await using scope = new AsyncDisposableStack();
    const [postgres, kafka] = [await testPostgres(), await testKafka()];
    const STORE_URL = await postgres.newDatabase();
    const topic = kafka.newTopicName();
    const env = { STORE_URL, LOG_URL: `kafka://${kafka.brokers}/${topic}?replication=1&partitions=2` };
    const start = (role: string) => launch(scope, { dataFolder: folderIn(scope), env, args: ['--role', role] });
    const first = await launch(scope, { dataFolder: folderIn(scope), env });
    await send(first, first.key, 3, 3);
    await first.stop();
    const [edge, api] = await Promise.all([start('edge'), start('api')]);
    await onKafka(kafka.brokers, (admin) => admin.deleteTopics({ topics: [topic] }));
    await eventually('the topic is gone', async () => !(await isTopic(kafka.brokers, topic)));
    await createTopic(kafka.brokers, topic, { partitions: 2 });
    const doctor = await runSluice(['doctor', '--data', folderIn(scope)], env);
    assert.equal(doctor.code, 1, doctor.stdout);
    assert.match(doctor.stdout.replaceAll(/\s+/g, ' '), /was deleted and made again/);
    const words = await refusedStart({ dataFolder: folderIn(scope), env, args: ['--role', 'processor'] });
    assert.match(words, /was deleted and made again/);
    await execute(STORE_URL, 'UPDATE sluice.identity SET log = NULL');
    await start('processor');
    for (const server of [edge, api]) {
      assert.notEqual(await server.ended, 0);
      assert.match(server.stderr(), /is now written from the Kafka topic with the id .*: restart it/);
    }
    const [newEdge, newApi] = await Promise.all([start('edge'), start('api')]);
    assert.equal((await post(newEdge, first.key, { users: [user('new')] })).status, 202);
    await eventually('it is stored, and all is accounted for', async () => {
      const { balanced, totals } = await storedBy(newApi, first.key);
      return balanced && totals.users.stored === 4;
    });
  });
});
