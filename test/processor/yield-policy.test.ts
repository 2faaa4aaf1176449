/** The processor rests while requests wait for their responses, within bounds, and never for nothing. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { shouldYield, type LoadSample, yieldPolicy } from '../../src/processor/yield-policy.ts';
import { type LedgerResponse, settled } from '../faults/processor-load.ts';
import { folderIn, launch } from '../faults/scope.ts';
import { post, read } from '../server.ts';

const FLOODED: LoadSample = { waiting: 20, lagMs: 100, waitedMs: 100, bytes: 1_000, idleMs: 0 };

suite('Giving way', () => {
  test('while many wait for a response, and what is left lying is neither old nor much, the processor rests', () => {
    assert.equal(shouldYield(FLOODED), true);
    assert.equal(shouldYield({ ...FLOODED, lagMs: 900, waitedMs: 900 }), true);
  });

  test('without waiting requests it never rests, however little there is to do', () => {
    assert.equal(shouldYield({ waiting: 0, lagMs: 0, waitedMs: 0, bytes: 0, idleMs: 0 }), false);
    assert.equal(shouldYield({ ...FLOODED, waiting: 0.9 }), false);
  });

  test('load that never ends does not starve it: what is old, or much, is processed', () => {
    assert.equal(shouldYield({ ...FLOODED, lagMs: 1_000 }), false);
    assert.equal(shouldYield({ ...FLOODED, bytes: 64 * 1024 * 1024 }), false);
  });

  test('with a few waiting it rests for a much shorter time', () => {
    assert.equal(shouldYield({ ...FLOODED, waiting: 2 }), true);
    assert.equal(shouldYield({ ...FLOODED, waiting: 2, lagMs: 300 }), false);
  });

  test('it continues as soon as nothing more comes in', () => {
    assert.equal(shouldYield({ ...FLOODED, idleMs: 100 }), false);
  });

  test('a clock that is set back does not make it rest for longer', () => {
    assert.equal(shouldYield({ ...FLOODED, lagMs: -3_600_000 }), true);
    assert.equal(shouldYield({ ...FLOODED, lagMs: -3_600_000, waitedMs: 1_000 }), false);
  });

  test('a turn comes when the flood ends, and at once when the server stops', async () => {
    let entries = 0;
    let looks = 0;
    let isStopping = false;
    const takeTurn = yieldPolicy({
      now: () => 0,
      waiting: () => (++looks < 5 ? 20 : 0),
      entries: () => ++entries,
      bytes: () => 0,
      isStopping: () => isStopping,
    });
    await takeTurn(0);
    assert.equal(looks, 5);
    looks = 0;
    isStopping = true;
    await takeTurn(0);
    assert.equal(looks, 1);
  });

  test('a server under a flood says how many wait, and afterwards everything can be read', async () => {
    await using scope = new AsyncDisposableStack();
    const server = await launch(scope, { dataFolder: folderIn(scope) });
    const { key } = server;
    const waiting = async (): Promise<number> => {
      const text = await (await fetch(`${server.baseUrl}/metrics`)).text();
      return Number(/^sluice_requests_waiting (.*)$/m.exec(text)?.[1]);
    };
    let most = 0;
    const over = new AbortController();
    const watching = (async () => {
      while (!over.signal.aborted) most = Math.max(most, await waiting());
    })();
    const senders = 32;
    const requestsEach = 60;
    await Promise.all(
      Array.from({ length: senders }, async (_, sender) => {
        for (let n = 0; n < requestsEach; n++) {
          const user = { identifiers: { user_id: `u_${sender}` }, events: [{ event_name: 'seen' }] };
          assert.equal((await post(server, key, { users: [user] })).status, 202);
        }
      }),
    );
    over.abort();
    await watching;
    assert.ok(most >= 1, `at most ${most} waited`);
    await settled(server, key);
    const { totals } = await read<LedgerResponse>(server, key, '/ledger');
    assert.equal(totals.events['stored'], senders * requestsEach);
    while ((await waiting()) >= 1);
  });
});
