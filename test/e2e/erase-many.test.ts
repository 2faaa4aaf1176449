/** Erasing a person with very many events: it goes in pieces, so that processing and reading continue meanwhile. */

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { suite, test } from 'node:test';
import { settled } from '../faults/processor-load.ts';
import { folderIn, launch } from '../faults/scope.ts';
import { eventually, post, read, type TestServer, user } from '../server.ts';
import { testPostgres, whyNoPostgres } from '../servers/postgres.ts';

const REQUESTS = 40;
const EVENTS_PER_REQUEST = 1_000;

suite('Erasing a person with very many events', () => {
  test('lets others be processed and read before it is done', async () => {
    await using scope = new AsyncDisposableStack();
    const server = await launch(scope, { dataFolder: folderIn(scope) });
    const { baseUrl, key } = server;
    const headers = { authorization: `Bearer ${key}` };
    const ids = Array.from({ length: REQUESTS * EVENTS_PER_REQUEST }, () => randomUUID());
    for (let n = 0; n < REQUESTS; n += 1) {
      const used = ids.slice(n * EVENTS_PER_REQUEST, (n + 1) * EVENTS_PER_REQUEST);
      const events = used.map((eventId) => ({ event_name: 'x', $event_id: eventId }));
      await post(server, key, { users: [user('many', events), user(`other-${n}`)] });
    }
    await settled(server, key);
    const { id, event_count: count } = await read<{ id: string; event_count: number }>(
      server,
      key,
      '/profiles?user_id=many',
    );
    assert.equal(count, REQUESTS * EVENTS_PER_REQUEST);

    const erase = { isDone: false };
    const erasing = fetch(`${baseUrl}/profiles/${id}`, { method: 'DELETE', headers }).finally(() => {
      erase.isDone = true;
    });
    let readMeanwhile = 0;
    let processedMeanwhile = 0;
    while (!erase.isDone) {
      const { trace_id: traceId } = JSON.parse((await post(server, key, { users: [user('late')] })).text) as {
        trace_id: string;
      };
      await eventually('it is processed', async () => {
        const { status } = await read<{ status: string }>(server, key, `/traces/${traceId}`);
        if (!erase.isDone) readMeanwhile += 1;
        return status === 'processed';
      });
      if (!erase.isDone) processedMeanwhile += 1;
    }
    assert.equal((await erasing).status, 202);
    assert.ok(readMeanwhile > 1 && processedMeanwhile > 1, `${readMeanwhile} reads, ${processedMeanwhile} processed`);
    assert.equal((await fetch(`${baseUrl}/profiles/${id}`, { headers })).status, 404);
    const { totals } = await settled(server, key);
    assert.equal(totals.events['erased'], REQUESTS * EVENTS_PER_REQUEST);

    // Their ids are free again.
    const again = ids.slice(-EVENTS_PER_REQUEST).map((eventId) => ({ event_name: 'x', $event_id: eventId }));
    await post(server, key, { users: [user('other-0', again)] });
    await settled(server, key);
    const { event_count: stored } = await read<{ event_count: number }>(server, key, '/profiles?user_id=other-0');
    assert.equal(stored, 1 + EVENTS_PER_REQUEST);
  });

  test('is in the audit as not finished if the server is killed in the middle, and can be repeated', () =>
    killAndStart({}));

  test('so it is on PostgreSQL', { skip: whyNoPostgres() }, async () => {
    await killAndStart({ STORE_URL: await (await testPostgres()).newDatabase() });
  });
});

interface AuditPage {
  readonly entries: readonly {
    readonly kind: string;
    readonly detail: { readonly nodes: number; readonly events: number; readonly is_finished?: false };
  }[];
}

async function killAndStart(env: Readonly<Record<string, string>>): Promise<void> {
  await using scope = new AsyncDisposableStack();
  const dataFolder = folderIn(scope);
  const killed = await launch(scope, { dataFolder, env });
  const { key } = killed;
  const events = Array.from({ length: EVENTS_PER_REQUEST }, () => ({ event_name: 'x' }));
  for (let n = 0; n < REQUESTS; n += 1) await post(killed, key, { users: [user('many', events), user('other')] });
  await settled(killed, key);
  const { id } = await read<{ id: string }>(killed, key, '/profiles?user_id=many');
  const entryOn = async (server: TestServer) => (await read<AuditPage>(server, key, '/audit')).entries[0];
  const headers = { authorization: `Bearer ${key}` };
  const erasing = assert.rejects(fetch(`${killed.baseUrl}/profiles/${id}`, { method: 'DELETE', headers }));
  const part = await eventually('a part is erased', () => entryOn(killed));
  assert.equal(part.detail.is_finished, false);
  await killed.kill('SIGKILL');
  await erasing;
  assert.ok(part.detail.events > 0 && part.detail.events < REQUESTS * EVENTS_PER_REQUEST);

  const server = await launch(scope, { dataFolder, env });
  const [interrupted] = (await read<AuditPage>(server, key, '/audit')).entries;
  assert.equal(interrupted?.detail.is_finished, false);
  const repeated = await fetch(`${server.baseUrl}/profiles/${id}`, { method: 'DELETE', headers });
  assert.equal(repeated.status, 202);
  const { entries } = await read<AuditPage>(server, key, '/audit');
  assert.deepEqual(
    entries.map(({ kind, detail: { nodes, is_finished: isFinished } }) => [kind, nodes, isFinished]),
    [
      ['erase', 1, undefined],
      ['erase', 0, false],
    ],
  );
  assert.equal(
    entries.reduce((sum, { detail }) => sum + detail.events, 0),
    REQUESTS * EVENTS_PER_REQUEST,
  );
  assert.equal((await fetch(`${server.baseUrl}/profiles/${id}`, { headers })).status, 404);
  const { totals } = await settled(server, key);
  assert.equal(totals.events['erased'], REQUESTS * EVENTS_PER_REQUEST);
  assert.equal(totals.events['stored'], REQUESTS);
}
