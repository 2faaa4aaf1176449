/**
 * A crash between any two steps of the processor. A process that kills itself at a failpoint is started again
 * and again until the log is used up; the store is then the same, line by line, as after an undisturbed run.
 */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { after, before, suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { storeFileOf } from '../../src/data-folder/files.ts';
import type { LogEntry } from '../../src/log.ts';
import { FAILPOINTS, type FailpointName } from '../../src/processor/batch.ts';
import { copyIn, folderIn } from '../faults/scope.ts';
import { entriesOf, randomOf, TENANTS } from './history.ts';
import { appendAll, processAll, storeCopyOf, withStore } from './processing.ts';
import { assertSame } from './store-dump.ts';

const CHILD = fileURLToPath(new URL('./killed-processor.ts', import.meta.url));
const RECORDS = 160;
/** Which pass of a failpoint kills, one process after the other. */
const PASSES = [1, 3];
const RANDOM_KILLS = 5;

const shared = new AsyncDisposableStack();
/** With the log and the store of an undisturbed run; every test has a copy. */
const original = folderIn(shared);
let traceIds: readonly string[];

/** Two partitions that share no tenant, so that nothing depends on which of them is read first; one record is poison. */
async function fill(dataFolder: string): Promise<string[]> {
  const history = entriesOf(11, RECORDS, 20);
  const spoilt = history[RECORDS / 2];
  assert.ok(spoilt);
  const entries = history.with(RECORDS / 2, { ...spoilt, userCount: spoilt.userCount + 1 });
  const isFirst = ({ tenantId }: LogEntry): boolean => TENANTS.findIndex((id) => id === tenantId) < 2;
  await appendAll(dataFolder, entries.filter(isFirst), 0);
  await appendAll(
    dataFolder,
    entries.filter((entry) => !isFirst(entry)),
    1,
  );
  await processAll(dataFolder, { storeFile: storeCopyOf(dataFolder, 'undisturbed') });
  return entries.map(({ traceId }) => traceId);
}

/** The exit code, or the name of the signal. */
async function runChild(dataFolder: string, failpoint: FailpointName | 'none', pass = 1): Promise<number | string> {
  const child = spawn(process.execPath, [CHILD, dataFolder, failpoint, String(pass)], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const [code, signal] = (await once(child, 'close')) as [number | null, string | null];
  return code ?? signal ?? '';
}

async function assertUndisturbed(dataFolder: string): Promise<void> {
  await withStore(storeCopyOf(dataFolder, 'undisturbed'), (undisturbed) =>
    withStore(storeFileOf(dataFolder), async (killed) => {
      const lines = await assertSame(undisturbed, killed, traceIds);
      assert.ok(lines > RECORDS * 3, 'the dump is too small to show anything');
      assert.equal((await killed.deadLetters(10)).length, 1);
    }),
  );
}

suite('A processor that is killed', { concurrency: 2 }, () => {
  before(async () => {
    traceIds = await fill(original);
  });
  after(() => shared.disposeAsync());

  for (const failpoint of FAILPOINTS) {
    test(`at "${failpoint}" leaves each record exactly one effect`, async () => {
      await using scope = new AsyncDisposableStack();
      const dataFolder = copyIn(scope, original);
      let kills = 0;
      for (const pass of PASSES) {
        const how = await runChild(dataFolder, failpoint, pass);
        if (how === 'SIGKILL') kills += 1;
        else assert.equal(how, 0);
      }
      // Here the position is committed to the log only at the end, so there is one moment to be killed at.
      assert.ok(kills >= (failpoint === 'log_committed' ? 1 : PASSES.length), `it was killed ${kills} times`);
      assert.equal(await runChild(dataFolder, 'none'), 0);
      await assertUndisturbed(dataFolder);
    });
  }

  test('again and again, wherever it is, leaves each record exactly one effect', async () => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = copyIn(scope, original);
    const random = randomOf(5);
    for (let kill = 0; kill < RANDOM_KILLS; kill++) {
      const failpoint = FAILPOINTS[Math.floor(random() * FAILPOINTS.length)] ?? 'read';
      await runChild(dataFolder, failpoint, 1 + Math.floor(random() * 6));
    }
    assert.equal(await runChild(dataFolder, 'none'), 0);
    await assertUndisturbed(dataFolder);
  });
});
