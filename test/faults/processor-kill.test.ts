/**
 * A server that is stopped, end to end: kill -9 at random moments and SIGTERM, under load, with one and two edges. Whatever was
 * acknowledged can be read back exactly once, and every event is accounted for at any time. The seed is printed.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { eventually, sleep } from '../server.ts';
import { seededRandom } from './ledger.ts';
import { assertReadable, EndToEndLedger, startEndToEndLoad, type Target } from './processor-load.ts';
import { folderIn, launch } from './scope.ts';

const CLIENTS = 6;
const ARGS = ['--log-segment', '1MB'];
const EXIT_MS_MAX = 30_000;

suite('End to end, under load', () => {
  for (const { signal, rounds, responsesMax } of [
    { signal: 'SIGKILL', rounds: 4, responsesMax: 160 },
    { signal: 'SIGTERM', rounds: 2, responsesMax: 200 },
  ] as const) {
    test(`${rounds} times ${signal} loses nothing that was acknowledged and doubles nothing`, async (t) => {
      const random = seededRandom((line) => t.diagnostic(line));
      await using scope = new AsyncDisposableStack();
      const dataFolder = folderIn(scope);
      const ledger = new EndToEndLedger(random);
      let server = await launch(scope, { dataFolder, args: ARGS });
      const { key } = server;
      const target: Target = { port: server.port, baseUrl: server.baseUrl };
      const load = startEndToEndLoad(target, key, ledger, random, CLIENTS);
      for (let round = 1; round <= rounds; round++) {
        const before = { responses: ledger.responses, looks: ledger.looks };
        const responses = 20 + Math.floor(random() * responsesMax);
        const isEnough = (): boolean => ledger.responses >= before.responses + responses && ledger.looks > before.looks;
        await eventually(`${responses} responses and a look at the ledger`, isEnough, 60_000);
        await sleep(random() * 30);
        assert.equal(server.process.exitCode, null, `the server ended by itself:\n${server.stderr()}`);
        const startedAt = performance.now();
        assert.equal(await server.kill(signal), signal === 'SIGTERM' ? 0 : signal);
        assert.ok(performance.now() - startedAt < EXIT_MS_MAX);
        const edges = round % 3 === 1 ? '2' : '1';
        server = await launch(scope, { dataFolder, args: [...ARGS, '--edges', edges] });
        Object.assign(target, { port: server.port, baseUrl: server.baseUrl });
      }
      await load.stop();
      const events = await assertReadable(server, key, ledger);
      t.diagnostic(`${ledger.responses} answers, ${ledger.looks} looks, ${events} events`);
      assert.equal(await server.stop(), 0);
      assert.doesNotMatch(server.stderr(), /not every event is accounted for|dead letter/);
    });
  }
});
