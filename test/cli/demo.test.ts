/** `sluice demo`: a shop worth looking at, through the real API, and stored once however often it is sent. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { runDemo } from '../../src/cli/demo.ts';
import { shopOf } from '../../src/cli/demo-shop.ts';
import { DAY_MS, MINUTE_MS } from '../../src/model.ts';
import { eventually, removeFolder, startServer, temporaryFolder } from '../server.ts';
import { NOW, refusal, run, testShell, type TestShell } from './data-shell.ts';
import { startIngestStub } from './ingest-stub.ts';

interface Sums {
  readonly received: number;
  readonly stored: number;
  readonly pending: number;
}

interface SentEvent {
  readonly $event_id?: string;
  readonly event_name: string;
  readonly timestamp?: string;
  readonly revenue?: number | string;
  readonly currency?: string;
}

function eventsOf(seed: number, now: number): SentEvent[] {
  return shopOf(seed, now).requests.flatMap(({ body }) =>
    (JSON.parse(body) as { users: { events: SentEvent[] }[] }).users.flatMap(({ events }) => events),
  );
}

suite('sluice demo', () => {
  test('the same seed is the same shop, and its events have the same ids at any time', () => {
    assert.deepEqual(shopOf(1, NOW), shopOf(1, NOW + 9 * MINUTE_MS));
    assert.notDeepEqual(eventsOf(1, NOW), eventsOf(2, NOW));
    const ids = (now: number): Set<string> => new Set(eventsOf(1, now).map(({ $event_id }) => $event_id ?? 'none'));
    assert.deepEqual(ids(NOW), ids(NOW + 5 * DAY_MS));
    for (const seed of [0, 1, 2, 4_294_967_295]) {
      const events = eventsOf(seed, NOW).filter(({ $event_id }) => $event_id !== undefined);
      assert.equal(new Set(events.map(({ $event_id }) => $event_id)).size, events.length);
      const times = events.flatMap(({ timestamp }) => (timestamp === undefined ? [] : [Date.parse(timestamp)]));
      assert.ok(Math.min(...times) > NOW - 31 * DAY_MS && Math.max(...times) <= NOW, `seed ${seed}`);
      assert.ok(new Set(times.map((time) => Math.floor(time / DAY_MS))).size >= 28, `seed ${seed}`);
      const paid = events.filter(({ revenue }) => typeof revenue === 'number');
      assert.deepEqual(new Set(paid.map(({ currency }) => currency)), new Set(['EUR', 'USD']));
      assert.ok(paid.some(({ event_name, revenue }) => event_name === 'order_refunded' && Number(revenue) < 0));
    }
  });

  test('the shop has merges, a refused link and rejections; sent again, nothing is stored twice', async (context) => {
    const dataFolder = temporaryFolder();
    context.after(() => removeFolder(dataFolder));
    const server = await startServer({ dataFolder });
    context.after(() => server.stop());
    const read = async <T>(path: string): Promise<T> => {
      const response = await fetch(server.baseUrl + path, { headers: { authorization: `Bearer ${server.key}` } });
      assert.equal(response.status, 200, path);
      return (await response.json()) as T;
    };
    const processed = (): Promise<Sums> =>
      eventually('all is processed', async () => {
        const { totals } = await read<{ totals: { events: Sums } }>('/ledger');
        return totals.events.received > 0 && totals.events.pending === 0 ? totals.events : undefined;
      });
    const startedAt = Date.now();
    const shellAt = (now: number): TestShell =>
      testShell({ env: { SLUICE_DATA: dataFolder, SLUICE_KEY: server.key }, now: () => now });

    const { code, out } = await run(runDemo, [], shellAt(startedAt));
    assert.equal(code, 0);
    assert.match(out, /^Sent \d+ events of 36 customers.*; 5 users rejected, on purpose\.\n/);
    assert.ok(out.includes(`\n  ${server.baseUrl}/dashboard/development?range=30d\n`), out);
    const first = await processed();
    assert.equal(first.stored, shopOf(1, startedAt).events);

    const ada = await read<{ merged_ids: string[] }>('/profiles?user_id=ada');
    assert.ok(ada.merged_ids.length > 0);
    const { id } = await read<{ id: string }>('/profiles?user_id=grace');
    const { refusals } = await read<{ refusals: { type: string; reason: string }[] }>(`/profiles/${id}/identity`);
    assert.deepEqual(
      refusals.map(({ type, reason }) => [type, reason]),
      [['anon_id', 'other_user_id']],
    );
    const rejections = async (): Promise<unknown[]> =>
      (await read<{ rejections: unknown[] }>('/rejections?limit=500')).rejections;
    assert.equal((await rejections()).length, 5);

    assert.match(await refusal(runDemo, [], shellAt(startedAt)), /has data already .*sluice demo --yes/s);
    // At another time of day the requests are others; the events are not.
    assert.equal((await run(runDemo, ['--yes'], shellAt(startedAt + 25 * MINUTE_MS))).code, 0);
    const second = await processed();
    assert.equal(second.received, 2 * first.received);
    assert.equal(second.stored, first.stored);
    assert.equal((await rejections()).length, 5);
  });

  test('a server that is not Sluice is reported as that', async (context) => {
    for (const body of [{}, { totals: null }, { totals: { users: {} } }]) {
      const { url } = await startIngestStub(context, () => ({ status: 200, body }));
      const words = await refusal(runDemo, ['--url', url, '--key', 'sk_dev_x'], testShell({}));
      assert.equal(words, `${url} does not respond like Sluice (200). Is --url right?`);
    }
  });

  test('keys that cannot ask, or that are for production, are refused before anything is sent', async () => {
    const shell = (key: string): TestShell =>
      testShell({ env: { SLUICE_URL: 'http://127.0.0.1:1', ...(key === '' ? {} : { SLUICE_KEY: key }) } });
    assert.match(await refusal(runDemo, [], shell('pk_x')), /publishable one; expected a secret one/);
    assert.match(await refusal(runDemo, [], shell('sk_prod_x')), /for production; .*--yes/);
    const words = await refusal(runDemo, ['now', '--seed', '-3'], shell(''));
    assert.match(words, /unexpected argument "now"/);
    assert.match(words, /--seed is "-3"; expected a whole number/);
    assert.match(words, /no API key given/);
    assert.match(await refusal(runDemo, [], shell('sk_dev_x')), /http:\/\/127\.0\.0\.1:1 cannot be reached/);
  });
});
