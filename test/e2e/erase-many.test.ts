/** Erasing a person with very many events: it goes in pieces, so that processing and reading continue meanwhile. */

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { suite, test } from 'node:test';
import { settled } from '../faults/processor-load.ts';
import { folderIn, launch } from '../faults/scope.ts';
import { eventually, post, read, user } from '../server.ts';

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
});
