/**
 * What holds for every SDK of another maker, as it is published: all of them send at once to a real server, which is killed
 * meanwhile and started again, and what an SDK counts as sent is stored exactly once.
 */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { metric } from '../edge/fixture.ts';
import { eventually, removeFolder, startServer, temporaryFolder, type TestServer } from '../server.ts';
import { storedNumbers } from '../sdk/stored.ts';
import { type RunningClient, type SdkClient, startClient } from './clients.ts';
import { whyNot } from './registries.ts';

const COUNT = 400;
const PATIENCE_MS = 60_000;

export function testDeliveryOf(clients: readonly SdkClient[]): void {
  suite('What an SDK counts as sent is stored exactly once, although the server is killed while it sends:', () => {
    const runnable = clients.filter(({ tools }) => whyNot(...tools) === false);
    const running = new Map<string, RunningClient>();
    const folder = temporaryFolder();
    let server: TestServer;

    before(async () => {
      const first = await startServer();
      const { baseUrl: url, key, dataFolder, port } = first;
      const started = runnable.map(async ({ name, command }) => {
        running.set(
          name,
          await startClient(await command(join(folder, name)), { url, key, event: name, count: COUNT }),
        );
      });
      await Promise.all(started);
      for (const client of running.values()) client.start();
      await eventually(
        'some messages are accepted',
        async () => (await metric(first, 'sluice_events_accepted_total')) >= (runnable.length * COUNT) / 4,
        PATIENCE_MS,
      );
      await first.kill();
      server = { ...(await startServer({ dataFolder, env: { PORT: String(port) } })), key };
    });
    after(async () => {
      await server.kill();
      removeFolder(server.dataFolder);
      removeFolder(folder);
    });

    for (const { name, tools } of clients) {
      test(name, { skip: whyNot(...tools) }, async () => {
        const sent = (await running.get(name)?.sent) ?? [];
        const stored = await storedNumbers(server, name);
        assert.equal(new Set(stored).size, stored.length, 'none is stored twice');
        assert.deepEqual(
          sent.filter((n) => !stored.includes(n)),
          [],
          'all are stored',
        );
        console.log(`${name}: ${sent.length} of ${COUNT} counted as sent, ${stored.length} stored`);
        assert.ok(sent.length > COUNT / 2, `${sent.length} were sent`);
      });
    }
  });
}
