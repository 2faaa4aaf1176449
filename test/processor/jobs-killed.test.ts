/**
 * A crash between any two steps of a job. A process that kills itself at a failpoint is started again and again on one
 * data folder until its jobs are done; the store is then the same, line by line, as after an undisturbed run.
 */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { storeFileOf } from '../../src/data-folder/files.ts';
import { type FailpointName, JOB_FAILPOINTS } from '../../src/processor/batch.ts';
import { folderIn } from '../faults/scope.ts';
import { entryOf, traceIdOf } from './history.ts';
import { appendAll, processAll, storeCopyOf, withStore } from './processing.ts';
import { assertSame } from './store-dump.ts';

const CHILD = fileURLToPath(new URL('./killed-processor.ts', import.meta.url));
const TENANT = 'acct_jobs/production';
const AT = Date.UTC(2026, 3, 1, 9, 30);
const WITHIN_A_STEP: readonly FailpointName[] = ['prepared', 'looked_up', 'decided', 'written'];

async function killedAt(dataFolder: string, failpoint: FailpointName | 'none'): Promise<number | string> {
  const child = spawn(process.execPath, [CHILD, dataFolder, failpoint, '1'], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const [code, signal] = (await once(child, 'close')) as [number | null, string | null];
  return code ?? signal ?? '';
}

/** 240 rejected users in three requests, and one request that cannot be processed. */
function history() {
  return Array.from({ length: 4 }, (_, n) => {
    const rejected = Array.from({ length: 80 }, (_, k) => ({
      identifiers: { user_id: n * 80 + k, email: `${k % 7}@x.org` },
      user_properties: { n },
      events: [{ event_name: 'tested', revenue: k }],
    }));
    const fine = { identifiers: { user_id: `u${n}` }, events: [{ event_name: 'tested' }] };
    const entry = entryOf([fine, ...(n < 3 ? rejected : [])], {
      traceId: traceIdOf(AT, n),
      tenantId: TENANT,
      receivedAt: AT + n,
      keyKind: 'secret',
      idempotencyKey: null,
    });
    return n < 3 ? entry : { ...entry, userCount: 9 };
  });
}

test('A processor that is killed at every step of a job leaves each rejected user exactly one effect', async () => {
  await using scope = new AsyncDisposableStack();
  const dataFolder = folderIn(scope);
  const entries = history();
  await appendAll(dataFolder, entries);
  await processAll(dataFolder);
  await withStore(storeFileOf(dataFolder), async (store) => {
    const act = (n: number) => ({ traceId: traceIdOf(AT + 1_000, n), at: AT + 1_000 });
    const user = JSON.stringify({ identifiers: { user_id: 'by hand' }, events: [{ event_name: 'tested' }] });
    const one = { traceId: traceIdOf(AT, 0), userIndex: 80, user, steps: [] };
    assert.equal(typeof (await store.resubmitUser(TENANT, one, act(1))), 'object');
    const patch = JSON.stringify([{ op: 'remove', path: '/identifiers/user_id' }]);
    const filter = { reason: null, from: null, to: null };
    assert.equal((await store.resubmitAll(TENANT, { filter, patch }, act(2)))?.matched, 239);
    assert.equal((await store.retryDeadLetters(TENANT, { cause: null, from: null, to: null }, act(3)))?.matched, 1);
  });
  const undisturbed = storeCopyOf(dataFolder, 'undisturbed');
  cpSync(storeFileOf(dataFolder), undisturbed);
  await processAll(dataFolder, { storeFile: undisturbed });

  for (const failpoint of [...JOB_FAILPOINTS, ...WITHIN_A_STEP]) {
    assert.equal(await killedAt(dataFolder, failpoint), 'SIGKILL', failpoint);
  }
  assert.equal(await killedAt(dataFolder, 'none'), 0);
  const traceIds = entries.map(({ traceId }) => traceId);
  await withStore(undisturbed, (expected) =>
    withStore(storeFileOf(dataFolder), async (killed) => {
      // Three that were accepted at first, and 240 that were resubmitted.
      assert.equal((await expected.cataloguedEvent(TENANT, 'tested'))?.count, 243);
      const lines = await assertSame(expected, killed, traceIds);
      assert.ok(lines > 500, 'the dump is too small to show anything');
      const jobs = (await killed.jobs(TENANT, { limit: 5, cursor: null })).rows;
      assert.deepEqual(
        jobs.map(({ status, counts }) => [status, counts.resubmitted, counts.already, counts.failed]),
        [
          ['done', 0, 0, 1],
          ['done', 239, 0, 0],
          ['done', 1, 0, 0],
        ],
      );
    }),
  );
});
