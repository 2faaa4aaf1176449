/**
 * Retries and the order of writes with several edges: each request is sent after the 202 of the one before it, over connections that are
 * spread over the edges, while nothing is processed, so that the processor finds all of it at once. Retries are
 * duplicates of their originals, the warning about another body is on the later request, and the last write wins.
 */

import assert from 'node:assert/strict';
import { DatabaseSync } from 'node:sqlite';
import { suite, test } from 'node:test';
import { Client } from 'pg';
import { storeFileOf } from '../../src/data-folder/files.ts';
import { Connection } from '../faults/connection.ts';
import { settled } from '../faults/processor-load.ts';
import { read } from '../server.ts';
import { folderIn, launch, type Scope } from '../faults/scope.ts';
import { testPostgres, whyNoPostgres } from '../servers/postgres.ts';

/** The kernel spreads connections over edges at random: with so many, that one edge gets none is very unlikely. */
const CONNECTIONS = 12;
const PEOPLE = 8;

interface Trace {
  readonly duplicate_of: string | null;
  readonly users: readonly { readonly events: number; readonly warnings: readonly string[] }[];
}

/** What was sent for one person, by trace. */
interface Sent {
  readonly userId: string;
  readonly original: string;
  readonly retry: string;
  readonly reused: string;
  readonly otherBody: string;
  readonly event: string;
  readonly sameEvent: string;
}

/** Sends each request over the next connection. */
class SpreadingClient {
  readonly #connections: readonly Connection[];
  readonly #key: string;
  #sent = 0;

  private constructor(connections: readonly Connection[], key: string) {
    this.#connections = connections;
    this.#key = key;
  }

  static async open(scope: Scope, port: number, key: string): Promise<SpreadingClient> {
    const connections = await Promise.all(Array.from({ length: CONNECTIONS }, () => Connection.open(port)));
    scope.defer(() => {
      for (const connection of connections) connection.close();
    });
    return new SpreadingClient(connections, key);
  }

  async send(user: object, idempotencyKey: string | null = null): Promise<string> {
    const connection = this.#connections[this.#sent % CONNECTIONS] as Connection;
    this.#sent += 1;
    const response = await connection.ingest(this.#key, idempotencyKey, JSON.stringify({ users: [user] }));
    assert.equal(response.status, 202, response.body);
    return (JSON.parse(response.body) as { trace_id: string }).trace_id;
  }

  async sendAll(userId: string): Promise<Sent> {
    const identifiers = { user_id: userId };
    const write = { identifiers, user_properties: { plan: 'first' }, events: [{ event_name: 'bought' }] };
    const once = { identifiers, events: [{ event_name: 'once', $event_id: `once-${userId}` }] };
    const original = await this.send(write, `retried-${userId}`);
    const reused = await this.send({ identifiers, events: [{ event_name: 'one' }] }, `reused-${userId}`);
    const event = await this.send(once);
    await this.send({ ...write, user_properties: { plan: 'second' } });
    const retry = await this.send(write, `retried-${userId}`);
    const otherBody = await this.send({ identifiers, events: [{ event_name: 'two' }] }, `reused-${userId}`);
    const sameEvent = await this.send(once);
    for (const step of ['third', 'fourth', 'last']) {
      await this.send({ ...write, user_properties: { step } });
    }
    return { userId, original, retry, reused, otherBody, event, sameEvent };
  }
}

/** What is wrong with what became of it, in words; empty if nothing is. */
async function mistakesIn(server: { baseUrl: string }, key: string, sent: Sent): Promise<string[]> {
  const trace = (id: string): Promise<Trace> => read<Trace>(server, key, `/traces/${id}`);
  const warningsOf = ({ users }: Trace): string => users.flatMap(({ warnings }) => warnings).join();
  const eventsOf = ({ users }: Trace): number => users.reduce((sum, { events }) => sum + events, 0);
  const profile = await read<{ user_properties: { plan: string; step: string } }>(
    server,
    key,
    `/profiles?user_id=${sent.userId}`,
  );
  const [original, retry, reused, otherBody, event, sameEvent] = await Promise.all(
    [sent.original, sent.retry, sent.reused, sent.otherBody, sent.event, sent.sameEvent].map(trace),
  );
  const facts = {
    'the original is stored': original?.duplicate_of === null,
    'the retry is its duplicate': retry?.duplicate_of === sent.original,
    'the first use of the key has no warning': reused !== undefined && warningsOf(reused) === '',
    'the other body names the first use': otherBody !== undefined && warningsOf(otherBody).includes(sent.reused),
    'the first event is stored': event !== undefined && eventsOf(event) === 1,
    'the repeated event is not': sameEvent !== undefined && eventsOf(sameEvent) === 0,
    'the write after the original wins over its retry': profile.user_properties.plan === 'second',
    'the last write wins': profile.user_properties.step === 'last',
  };
  return Object.entries(facts).flatMap(([fact, holds]) => (holds ? [] : [`${sent.userId}: not so: ${fact}`]));
}

async function embedded(scope: Scope, edges: number): Promise<void> {
  const dataFolder = folderIn(scope);
  const args = ['--edges', String(edges)];
  const server = await launch(scope, { dataFolder, args });
  const holder = new DatabaseSync(storeFileOf(dataFolder), { timeout: 5_000 });
  holder.exec('BEGIN IMMEDIATE');
  await sendAndLook(scope, server, async () => holder.close());
}

async function sendAndLook(
  scope: Scope,
  server: { baseUrl: string; port: number; key: string },
  release: () => Promise<void>,
): Promise<void> {
  const { key } = server;
  const sent: Sent[] = [];
  try {
    const client = await SpreadingClient.open(scope, server.port, key);
    for (let n = 0; n < PEOPLE; n += 1) sent.push(await client.sendAll(`person-${n}`));
  } finally {
    await release();
  }
  await settled(server, key);
  const mistakes = await Promise.all(sent.map((one) => mistakesIn(server, key, one)));
  assert.deepEqual(mistakes.flat(), []);
}

suite('Requests that are sent one after the other to different edges', () => {
  for (const edges of [2, 3]) {
    test(`of ${edges} are processed in the order of their responses`, async () => {
      await using scope = new AsyncDisposableStack();
      await embedded(scope, edges);
    });
  }

  test('of 2 with PostgreSQL are processed in the order of their responses', { skip: whyNoPostgres() }, async () => {
    await using scope = new AsyncDisposableStack();
    const STORE_URL = await (await testPostgres()).newDatabase();
    const server = await launch(scope, { dataFolder: folderIn(scope), args: ['--edges', '2'], env: { STORE_URL } });
    const holder = new Client({ connectionString: STORE_URL });
    await holder.connect();
    await holder.query('BEGIN; LOCK TABLE sluice.positions IN SHARE MODE');
    await sendAndLook(scope, server, () => holder.end());
  });
});
