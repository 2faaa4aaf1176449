/**
 * Retries: the same batch sent five times at once and across restarts, and a 202 that is lost on the wire. With
 * one Idempotency-Key it is stored once, and the traces of the others say whose duplicate they are. The same key
 * with another body is another request.
 */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { suite, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { Connection, ConnectionLostError } from '../faults/connection.ts';
import { allEvents, settled, type TraceResponse } from '../faults/processor-load.ts';
import { folderIn, launch, type Scope } from '../faults/scope.ts';
import { createKey, post, read } from '../server.ts';

const SENDERS = 5;
const BATCH = {
  users: [
    { identifiers: { user_id: 'ada', email: 'ada@example.com' }, events: [{ event_name: 'a' }, { event_name: 'b' }] },
    { identifiers: {}, events: [{ event_name: 'never stored' }] },
    { identifiers: { anon_id: 'device-1' }, events: [{ event_name: 'c' }] },
  ],
};
const BATCH_EVENTS = 3;

interface WarnedTrace {
  readonly duplicate_of: string | null;
  readonly users: readonly { readonly warnings: readonly string[] }[];
}

interface Ingested {
  readonly trace_id: string;
}

async function sendAtOnce(server: { baseUrl: string }, key: string, idempotencyKey: string): Promise<string[]> {
  const responses = await Promise.all(
    Array.from({ length: SENDERS }, () => post(server, key, BATCH, { 'Idempotency-Key': idempotencyKey })),
  );
  return responses.map(({ status, body }) => {
    assert.equal(status, 202);
    return (body as Ingested).trace_id;
  });
}

/** The one trace that was stored; all others have to be its duplicates. */
async function originalOf(server: { baseUrl: string }, key: string, traceIds: readonly string[]): Promise<string> {
  const traces = await Promise.all(
    traceIds.map(async (traceId) => ({ traceId, ...(await read<TraceResponse>(server, key, `/traces/${traceId}`)) })),
  );
  const stored = traces.filter(({ duplicate_of }) => duplicate_of === null);
  assert.equal(stored.length, 1);
  const original = stored[0]?.traceId ?? '';
  for (const { traceId, duplicate_of, users, users_accepted } of traces) {
    assert.equal(users_accepted, 2);
    assert.equal(
      users.reduce((sum, { events }) => sum + events, 0),
      traceId === original ? BATCH_EVENTS : 0,
    );
    if (traceId !== original) assert.equal(duplicate_of, original);
  }
  return original;
}

/** Hands everything on; replies are dropped, with the connection, as long as `isDropping`. */
async function startProxy(scope: Scope, port: number): Promise<{ port: number; isDropping: boolean; dropped: number }> {
  const sockets = new Set<Socket>();
  const state = { port: 0, isDropping: true, dropped: 0 };
  const proxy = createServer((client) => {
    const upstream = connect({ host: '127.0.0.1', port });
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on('error', () => undefined);
    }
    client.pipe(upstream);
    upstream.on('data', (reply) => {
      if (!state.isDropping) {
        client.write(reply);
        return;
      }
      state.dropped += 1;
      client.destroy();
      upstream.destroy();
    });
    client.on('close', () => upstream.destroy());
    upstream.on('close', () => client.destroy());
  });
  proxy.listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  scope.defer(() => {
    for (const socket of sockets) socket.destroy();
    proxy.close();
  });
  state.port = (proxy.address() as AddressInfo).port;
  return state;
}

suite('A batch with an Idempotency-Key', () => {
  test('that is sent five times at once, and again after kill -9 and after a stop, is stored once', async () => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    const args = ['--edges', '2'];
    const first = await launch(scope, { dataFolder, args });
    const { key } = first;
    const traceIds = await sendAtOnce(first, key, 'batch-1');
    await first.kill('SIGKILL');
    const second = await launch(scope, { dataFolder, args });
    traceIds.push(...(await sendAtOnce(second, key, 'batch-1')));
    assert.equal(await second.stop(), 0);
    const third = await launch(scope, { dataFolder, args });
    traceIds.push(...(await sendAtOnce(third, key, 'batch-1')));
    const others = await sendAtOnce(third, key, 'batch-2');

    const ledger = await settled(third, key);
    const events = await allEvents(third, key);
    assert.deepEqual(
      new Set(events.map(({ trace_id }) => trace_id)),
      new Set([await originalOf(third, key, traceIds), await originalOf(third, key, others)]),
    );
    assert.equal(events.length, 2 * BATCH_EVENTS);
    const { received, stored, duplicates } = ledger.totals.events;
    assert.deepEqual([received, stored, duplicates], [4 * SENDERS * BATCH_EVENTS, 6, (4 * SENDERS - 2) * BATCH_EVENTS]);
    assert.deepEqual([ledger.totals.users['stored'], ledger.totals.users['duplicates']], [4, (4 * SENDERS - 2) * 2]);
  });

  test('is not stored twice with any Content-Encoding; another body is stored, with a warning, also after kill -9', async () => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    const first = await launch(scope, { dataFolder });
    const { key } = first;
    const other = { users: [...BATCH.users, { identifiers: { user_id: 'bob' }, events: [{ event_name: 'd' }] }] };
    const send = async (server: { baseUrl: string }, batch: object, isCompressed = false): Promise<string> => {
      const text = JSON.stringify(batch);
      const response = await fetch(`${server.baseUrl}/ingest/events`, {
        method: 'POST',
        headers: {
          Authorization: `Bearer ${key}`,
          'Content-Type': 'application/json',
          'Idempotency-Key': 'reused',
          ...(isCompressed && { 'Content-Encoding': 'gzip' }),
        },
        body: isCompressed ? gzipSync(text) : text,
      });
      assert.equal(response.status, 202);
      return ((await response.json()) as Ingested).trace_id;
    };
    const traceIds = [await send(first, BATCH), await send(first, other)];
    await first.kill('SIGKILL');
    const second = await launch(scope, { dataFolder });
    traceIds.push(await send(second, BATCH, true), await send(second, other, true));

    const ledger = await settled(second, key);
    assert.deepEqual([ledger.totals.events['stored'], ledger.totals.events['duplicates']], [7, 7]);
    const traces = await Promise.all(traceIds.map((id) => read<WarnedTrace>(second, key, `/traces/${id}`)));
    assert.deepEqual(
      traces.map(({ duplicate_of }) => duplicate_of),
      [null, null, traceIds[0], traceIds[1]],
    );
    const warnings = traces.map(({ users }) => users.flatMap((user) => user.warnings));
    assert.deepEqual(warnings[0], []);
    // Of the one user in each that is not valid.
    for (const [retry, first] of [
      [2, 0],
      [3, 1],
    ] as const) {
      assert.equal(warnings[retry]?.length, 1);
      assert.match(warnings[retry][0] ?? '', new RegExp(`^not kept as a rejection: .* trace ${traceIds[first]} has`));
    }
    assert.equal(warnings[1]?.length, 1);
    assert.match(
      warnings[1][0] ?? '',
      new RegExp(`Idempotency-Key was used with another body by trace ${traceIds[0]}`),
    );
  });

  test('of another tenant is another batch', async () => {
    await using scope = new AsyncDisposableStack();
    const server = await launch(scope, { dataFolder: folderIn(scope) });
    const other = await createKey(server.dataFolder, { env: 'production' });
    const mine = await sendAtOnce(server, server.key, 'same');
    const theirs = await sendAtOnce(server, other.key, 'same');
    await settled(server, server.key);
    await settled(server, other.key);
    assert.ok(mine.includes(await originalOf(server, server.key, mine)));
    assert.ok(theirs.includes(await originalOf(server, other.key, theirs)));
  });

  test('whose 202 is lost on the wire is stored once when it is sent again', async () => {
    await using scope = new AsyncDisposableStack();
    const server = await launch(scope, { dataFolder: folderIn(scope) });
    const { key } = server;
    const proxy = await startProxy(scope, server.port);
    const send = (connection: Connection) => connection.ingest(key, 'lost on the way', JSON.stringify(BATCH));
    for (let attempt = 0; attempt < 3; attempt++) {
      const connection = await Connection.open(proxy.port);
      await assert.rejects(send(connection), ConnectionLostError);
    }
    assert.equal(proxy.dropped, 3);
    proxy.isDropping = false;
    const connection = await Connection.open(proxy.port);
    const reply = await send(connection);
    connection.close();
    assert.equal(reply.status, 202);

    const ledger = await settled(server, key);
    assert.deepEqual([ledger.totals.events['stored'], ledger.totals.events['duplicates']], [3, 9]);
    const events = await allEvents(server, key);
    assert.equal(events.length, BATCH_EVENTS);
    const { trace_id } = JSON.parse(reply.body) as Ingested;
    const trace = await read<TraceResponse>(server, key, `/traces/${trace_id}`);
    assert.ok(trace.duplicate_of !== null);
    for (const event of events) assert.equal(event.trace_id, trace.duplicate_of);
    const original = await read<TraceResponse>(server, key, `/traces/${trace.duplicate_of}`);
    assert.equal(original.duplicate_of, null);
  });
});
