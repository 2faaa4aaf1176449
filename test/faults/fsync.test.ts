/**
 * A disk that fails, and a disk that is slow: errors and delays put into fsync of a running server by strace. After a
 * failed fsync it is unknown what the disk holds, and the next one succeeds whatever became of the data. So there must
 * be no next one: the process ends, and the next start recovers from what is really there.
 */

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { eventually, sleep, type TestServer } from '../server.ts';
import { skipWithout } from './devices.ts';
import { assertLedger, Ledger, startLoad } from './ledger.ts';
import { folderIn, launch } from './scope.ts';
import { attachStrace, straceHindrance } from './strace.ts';

const MB = 1_024 * 1_024;
/** The least that can be set. */
const IN_FLIGHT_MB = 28;
const FAIL_ONCE = 'fsync,fdatasync:error=EIO:when=1';
const TWO_SECONDS_EACH = 'fsync,fdatasync:delay_enter=2000000';

async function restartAndCheck(dataFolder: string, ledger: Ledger): Promise<void> {
  await using scope = new AsyncDisposableStack();
  const server = await launch(scope, { dataFolder });
  await assertLedger(dataFolder, ledger);
  assert.equal(await server.stop(), 0);
}

async function endsByItself(server: TestServer): Promise<void> {
  const { process: child } = server;
  await eventually('it ends by itself', () => child.exitCode !== null || child.signalCode !== null, 60_000);
  assert.notEqual(await server.ended, 0);
  assert.match(server.stderr(), /"level":"fatal".*restart to recover/);
}

suite('A failing disk', () => {
  for (const edges of ['1', '2']) {
    test(`ends the process after the first failed fsync, without a 202 and without a second fsync (${edges} edges)`, async (t) => {
      if (skipWithout(t, straceHindrance())) return;
      await using scope = new AsyncDisposableStack();
      const dataFolder = folderIn(scope);
      const server = await launch(scope, { dataFolder, args: ['--edges', edges] });
      const ledger = new Ledger();
      const warmUp = startLoad(scope, server, server.key, ledger);
      await eventually('some are acknowledged', () => ledger.acknowledged.size > 100);
      await warmUp.stop();

      const strace = await attachStrace(server.pid, FAIL_ONCE, join(folderIn(scope), 'trace'));
      const before = ledger.acknowledged.size;
      const load = startLoad(scope, server, server.key, ledger);
      await endsByItself(server);
      await load.stop();

      const { counts } = load;
      assert.ok((counts.get(503) ?? 0) > 0, 'no client got 503');
      if (edges === '1') assert.equal(ledger.acknowledged.size, before, '202 after a failed fsync');
      assertNoSecondSync(strace.lines().filter((line) => line.includes(join(dataFolder, 'log'))));
      await restartAndCheck(dataFolder, ledger);
    });
  }

  test('while the store is checkpointed ends the process too, without closing the store', async (t) => {
    if (skipWithout(t, straceHindrance())) return;
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    const server = await launch(scope, { dataFolder });
    const store = join(dataFolder, 'store.db');
    await attachStrace(server.pid, FAIL_ONCE, join(folderIn(scope), 'trace'), store);
    const ledger = new Ledger(20_000);
    const load = startLoad(scope, server, server.key, ledger);
    await endsByItself(server);
    await load.stop();
    assert.equal(await server.ended, 'SIGKILL', 'an orderly end syncs the file again');
    assert.ok(existsSync(`${store}-wal`), 'the write-ahead log was removed after a failed fsync');
    await restartAndCheck(dataFolder, ledger);
  });

  test('during a shutdown is not mistaken for an orderly end', async (t) => {
    if (skipWithout(t, straceHindrance())) return;
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    const server = await launch(scope, { dataFolder });
    const ledger = new Ledger();
    const load = startLoad(scope, server, server.key, ledger);
    await eventually('some are acknowledged', () => ledger.acknowledged.size > 100);
    // Slow, so that requests are under way when the signal comes, and failing.
    await attachStrace(server.pid, `${FAIL_ONCE}:delay_enter=2000000`, join(folderIn(scope), 'trace'));
    await sleep(100);
    void server.kill('SIGTERM');
    await endsByItself(server);
    await load.stop();
    await restartAndCheck(dataFolder, ledger);
  });
});

/** strace prints `fsync(37</path>) = -1 EIO (…)`; what follows on the same file must not be a success. */
function assertNoSecondSync(lines: readonly string[]): void {
  const failedAt = lines.findIndex((line) => line.includes('EIO'));
  assert.notEqual(failedAt, -1, 'no fsync failed: the fault did not happen');
  const path = /<([^>]+)>/.exec(lines[failedAt] ?? '')?.[1] ?? '';
  const after = lines.slice(failedAt + 1).filter((line) => line.includes(path));
  assert.deepEqual(after, [], 'the file was touched after its fsync had failed');
}

suite('A slow disk', () => {
  test('keeps what is in flight bounded: 503 beyond it, and /livez responds meanwhile', async (t) => {
    if (skipWithout(t, straceHindrance())) return;
    await using scope = new AsyncDisposableStack();
    const server = await launch(scope, {
      env: { SLUICE_IN_FLIGHT_BYTES: `${IN_FLIGHT_MB}MB` },
      dataFolder: folderIn(scope),
    });
    const strace = await attachStrace(server.pid, TWO_SECONDS_EACH, join(folderIn(scope), 'trace'));
    const ledger = new Ledger(100_000);
    const load = startLoad(scope, server, server.key, ledger, 160);
    await eventually('some are refused', () => (load.counts.get(503) ?? 0) > 100, 60_000);
    assert.match(load.heads.get(503) ?? '', /^Retry-After: \d+/im);

    let inFlightMax = 0;
    let responsesWhileWaiting = 0;
    // Three looks, or as many as a busy machine needs to make one between two syncs.
    for (let second = 0; second < 3 || (responsesWhileWaiting === 0 && second < 15); second++) {
      const acknowledged = ledger.acknowledged.size;
      assert.equal((await fetch(`${server.baseUrl}/livez`)).status, 200);
      if (ledger.acknowledged.size === acknowledged) responsesWhileWaiting += 1;
      const metrics = await (await fetch(`${server.baseUrl}/metrics`)).text();
      const inFlight = Number(/^sluice_in_flight_bytes\S* (\d+)/m.exec(metrics)?.[1]);
      inFlightMax = Math.max(inFlightMax, inFlight);
      await sleep(1_000);
    }
    assert.ok(responsesWhileWaiting > 0, '/livez answered only when the disk did');
    t.diagnostic(`at most ${(inFlightMax / MB).toFixed(1)} MB in flight; ${load.counts.get(503)} refused`);
    assert.ok(inFlightMax > 0, 'nothing was in flight');
    assert.ok(inFlightMax <= IN_FLIGHT_MB * MB, `${inFlightMax} bytes in flight`);
    await strace.detach();
    await eventually('it is quick again', () => (load.counts.get(202) ?? 0) > 100, 30_000);
    await load.stop();
    await assertLedger(server.dataFolder, ledger);
  });
});
