/**
 * Clocks and the order of writes, on a running server whose clock is set by libfaketime: ten years ahead and back, while
 * it runs and across a restart, a day back, ten years back at a start, and then steps of which the first is within the
 * bound. The last write wins, repeats are recognised, retention removes nothing, and every event is accounted for. And an
 * erase while the clock is ahead: data that is received after it is kept.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS } from '../../src/model.ts';
import { wallClock, whyNoFakeTime } from '../faults/faketime.ts';
import { type LedgerResponse, type TraceResponse } from '../faults/processor-load.ts';
import { folderIn, launch } from '../faults/scope.ts';
import { eventually, post, read, type TestServer } from '../server.ts';
import { testKafka, whyNoKafka } from '../servers/kafka.ts';
import { testPostgres, whyNoPostgres } from '../servers/postgres.ts';

const TEN_MINUTES_MS = 10 * MINUTE_MS;
/** Less than the clock jumps, so that a server that believes it would remove everything. */
const RETENTION = {
  SLUICE_EVENT_RETENTION: '30d',
  SLUICE_TRACE_RETENTION: '30d',
  SLUICE_REJECTION_RETENTION: '7d',
  SLUICE_LOG_RETENTION: '7d',
};

interface Trace extends TraceResponse {
  readonly received_at: string;
}

interface Health {
  readonly status: string;
  readonly clock_held_seconds: number;
  readonly clock_behind_seconds: number;
}

/** One client, which continues over restarts of the server. */
class Client {
  server: TestServer;
  readonly key: string;
  sent = 0;
  /** Values that were written. */
  values = 0;
  /** How often both other requests were repeated. */
  repeats = 0;

  constructor(server: TestServer) {
    this.server = server;
    this.key = server.key;
  }

  get<T>(path: string): Promise<T> {
    return read<T>(this.server, this.key, path);
  }

  async send(user: object, headers: Record<string, string> = {}): Promise<Trace & { readonly receivedAt: number }> {
    const { status, body } = await post(this.server, this.key, { users: [user, { events: [] }] }, headers);
    assert.equal(status, 202);
    this.sent += 1;
    const { trace_id } = body as { trace_id: string };
    const trace = await eventually('the request is processed', async () => {
      const found = await this.get<Trace>(`/traces/${trace_id}`);
      return found.status === 'processed' ? found : undefined;
    });
    return { ...trace, receivedAt: Date.parse(trace.received_at) };
  }

  /** A new value of a property, which has to be the one that is read back. Returns when it was received. */
  async write(plan: string): Promise<number> {
    const { receivedAt } = await this.send({
      identifiers: { user_id: 'ada' },
      user_properties: { plan },
      events: [{ event_name: 'wrote' }],
    });
    this.values += 1;
    const profile = await this.get<{ user_properties: { plan: string } }>('/profiles?user_id=ada');
    assert.equal(profile.user_properties.plan, plan);
    return receivedAt;
  }

  once(): Promise<Trace> {
    const user = { identifiers: { user_id: 'bob' }, events: [{ event_name: 'once' }] };
    return this.send(user, { 'Idempotency-Key': 'the-same' });
  }

  onceByEventId(): Promise<Trace> {
    return this.send({ identifiers: { user_id: 'cy' }, events: [{ event_name: 'once', $event_id: 'the-same' }] });
  }

  /** Sent before, and recognised. */
  async repeat(): Promise<void> {
    this.repeats += 1;
    assert.notEqual((await this.once()).duplicate_of, null);
    assert.equal((await this.onceByEventId()).users[0]?.events, 0);
  }

  /** Erases the person of `write`. */
  async erase(): Promise<void> {
    const { id } = await this.get<{ id: string }>('/profiles?user_id=ada');
    const headers = { authorization: `Bearer ${this.key}` };
    const { status } = await fetch(`${this.server.baseUrl}/profiles/${id}`, { method: 'DELETE', headers });
    assert.equal(status, 202);
  }
}

async function keepsOrderAcrossJumps(
  scope: AsyncDisposableStack,
  more: Readonly<Record<string, string>>,
): Promise<void> {
  const clock = wallClock(scope);
  const dataFolder = folderIn(scope);
  const env = { ...RETENTION, ...clock.env, ...more };
  const client = new Client(await launch(scope, { dataFolder, env }));
  const restart = async (): Promise<void> => {
    await client.server.kill();
    client.server = await launch(scope, { dataFolder, env });
  };
  const heldLines = (): number => client.server.stderr().split('it is not trusted').length - 1;

  const start = await client.write('at the start');
  await client.once();
  await client.onceByEventId();

  clock.set('+3650d');
  const ahead = await client.write('ten years ahead');
  assert.ok(ahead >= start && ahead - start < TEN_MINUTES_MS, `received ${ahead - start} ms later`);
  await client.repeat();
  const held = await eventually('it is said', async () => {
    const health = await client.get<Health>('/health');
    return health.clock_held_seconds > 0 ? health : undefined;
  });
  assert.equal(held.status, 'ready');
  assert.ok(Math.abs(held.clock_held_seconds - 3_650 * 86_400) < 600);
  await eventually('it is logged', () => heldLines() > 0);

  await restart();
  const restarted = await client.write('ten years ahead, after a restart');
  assert.ok(restarted > ahead && restarted - start < TEN_MINUTES_MS);
  await client.repeat();
  assert.ok(heldLines() > 0, client.server.stderr());

  clock.set('+0');
  const back = await client.write('back again');
  assert.ok(back > restarted && back - start < TEN_MINUTES_MS);
  await client.repeat();
  await eventually('it is over', () => client.server.stderr().includes('the clock is right again'));

  clock.set('-1d');
  const behind = await client.write('a day behind');
  assert.ok(behind > back && behind - start < TEN_MINUTES_MS);
  await eventually('it is said', async () => {
    const { clock_behind_seconds: seconds } = await client.get<Health>('/health');
    return Math.abs(seconds - DAY_MS / SECOND_MS) < 600;
  });
  // Before Sluice, as a clock that was never set: what it gains after the start counts all the same.
  clock.set('-3650d');
  await restart();
  const last = await client.write('ten years behind at a start');
  assert.ok(last > behind && last - start < TEN_MINUTES_MS);
  await client.repeat();

  clock.set('+42000s');
  const followed = await client.write('half a day ahead');
  assert.ok(followed - start > 11 * HOUR_MS, `received ${followed - start} ms later`);
  await client.repeat();
  clock.set('+84000s');
  const bound = await client.write('nearly a day ahead');
  assert.ok(bound - start < 12 * HOUR_MS + TEN_MINUTES_MS, `received ${bound - start} ms later`);
  await client.repeat();

  // One event for each value, and one for each of the two requests that were repeated.
  const { totals, balanced } = await client.get<LedgerResponse>('/ledger');
  assert.equal(balanced, true);
  assert.equal(totals.events['stored'], client.values + 2);
  assert.equal(totals.events['duplicates'], 2 * client.repeats);
  const { events } = await client.get<{ events: object[] }>('/events');
  assert.equal(events.length, client.values + 2);
  // Each request has a user without identifiers. Where a log keeps requests whole, those of a repeat are not kept again.
  const { rejections } = await client.get<{ rejections: object[] }>('/rejections?limit=500');
  assert.ok(rejections.length >= client.sent - client.repeats, `${rejections.length} of ${client.sent}`);
}

/** The clock is ahead while a person is erased, and right at the next start. */
async function eraseAhead(scope: AsyncDisposableStack, more: Readonly<Record<string, string>>): Promise<void> {
  const clock = wallClock(scope);
  const dataFolder = folderIn(scope);
  const env = { ...clock.env, ...more };
  const client = new Client(await launch(scope, { dataFolder, env }));
  await client.write('before the erase');
  clock.set('+3600s');
  await client.erase();
  await client.server.kill();
  clock.set('+0');
  client.server = await launch(scope, { dataFolder, env });
  await client.write('after the erase');
}

const onPostgres = async () => ({ STORE_URL: await (await testPostgres()).newDatabase() });
const onKafka = async () => {
  const { brokers, newTopicName } = await testKafka();
  return { ...(await onPostgres()), LOG_URL: `kafka://${brokers}/${newTopicName()}?replication=1&partitions=2` };
};

interface Installation {
  readonly where: string;
  readonly skip: string | false;
  readonly settings: () => Promise<Readonly<Record<string, string>>>;
}

const INSTALLATIONS: readonly Installation[] = [
  { where: 'in a data folder', skip: false, settings: async () => ({ SLUICE_EDGES: '2' }) },
  { where: 'with PostgreSQL', skip: whyNoPostgres(), settings: onPostgres },
  { where: 'with PostgreSQL and Kafka', skip: whyNoPostgres() || whyNoKafka(), settings: onKafka },
];

suite('A server whose clock is set', { skip: whyNoFakeTime(), timeout: 300_000 }, () => {
  for (const { where, skip, settings } of INSTALLATIONS) {
    test(`keeps the order of writes, recognises repeats and removes nothing, ${where}`, { skip }, async () => {
      await using scope = new AsyncDisposableStack();
      await keepsOrderAcrossJumps(scope, await settings());
    });
  }
});

suite('A person who was erased while the clock was ahead', { skip: whyNoFakeTime(), timeout: 300_000 }, () => {
  for (const { where, skip, settings } of INSTALLATIONS) {
    test(`can be stored again after a restart with the right clock, ${where}`, { skip }, async () => {
      await using scope = new AsyncDisposableStack();
      await eraseAhead(scope, await settings());
    });
  }
});
