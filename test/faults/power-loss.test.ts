/**
 * Power loss: the data folder is on a disk of its own (ext4 on a loop device) that stops taking anything from one moment
 * to the next, the journal included; what was not synced is gone. The second test takes fsync away from the server and
 * must find loss, or the first one would prove nothing. Needs root and loop devices.
 */

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { eventually } from '../server.ts';
import { hindrance, type LoopDisk, mountLoopDisk, skipWithout } from './devices.ts';
import { assertLedger, audit, Ledger, seededRandom, startLoad } from './ledger.ts';
import { folderIn, launch, type Scope } from './scope.ts';
import { straceHindrance, underStrace } from './strace.ts';

const DISK_MEGABYTES = 192;
const ROUNDS = 6;
const ANSWERS_MAX = 2_000;
const ARGS = ['--log-segment', '1MB'];

interface Run {
  readonly dataFolder: string;
  readonly ledger: Ledger;
  /** The power goes after so many responses more. */
  readonly responses: number;
  /** Of an earlier start; the first start makes one. */
  readonly key: string;
  readonly under?: readonly string[];
}

/** A server under load on a disk whose power goes; returns its key. */
async function serveUntilPowerIsLost(scope: Scope, disk: LoopDisk, run: Run): Promise<string> {
  const { dataFolder, ledger, responses, under = [] } = run;
  const server = await launch(scope, { dataFolder, args: ARGS, under });
  const key = run.key || server.key;
  const load = startLoad(scope, server, key, ledger);
  const enough = ledger.acknowledged.size + responses;
  await eventually(`${responses} answers`, () => ledger.acknowledged.size >= enough, 120_000);
  await freeze(server.pid);
  disk.cutPower();
  await server.kill('SIGKILL');
  await load.stop();
  disk.restorePower();
  return key;
}

/**
 * Stops every thread where it is. Without power no program runs on, but here it would, and Linux lets an fsync that is
 * under way while the disk is shut down return success without having done its work.
 */
async function freeze(pid: number): Promise<void> {
  process.kill(pid, 'SIGSTOP');
  await eventually('every thread has stopped', () =>
    readdirSync(`/proc/${pid}/task`).every((thread) => {
      const stat = readFileSync(`/proc/${pid}/task/${thread}/stat`, 'utf8');
      // Stopped, stopped by strace, or in the kernel and stopped on the way out.
      return /^\d+ \(.*\) [TtD] /s.test(stat);
    }),
  );
}

test('after a power loss nothing acknowledged is missing or duplicated', async (t) => {
  if (skipWithout(t, hindrance('loop'))) return;
  await using scope = new AsyncDisposableStack();
  const random = seededRandom((line) => t.diagnostic(line));
  const disk = mountLoopDisk(scope, DISK_MEGABYTES);
  const dataFolder = join(disk.folder, 'data');
  const ledger = new Ledger(400);
  let key = '';
  for (let round = 1; round <= ROUNDS; round++) {
    const responses = Math.floor(random() * ANSWERS_MAX);
    key = await serveUntilPowerIsLost(scope, disk, { dataFolder, ledger, responses, key });
    const { records } = await assertLedger(dataFolder, ledger);
    t.diagnostic(
      `round ${round}: ${ledger.acknowledged.size} acknowledged, ${records} stored after the power came back`,
    );
  }
  await launch(scope, { dataFolder, args: ARGS });
  await assertLedger(dataFolder, ledger);
});

test('a server that is killed, started again and then loses power has lost nothing either', async (t) => {
  if (skipWithout(t, hindrance('loop'))) return;
  await using scope = new AsyncDisposableStack();
  const disk = mountLoopDisk(scope, DISK_MEGABYTES);
  const dataFolder = join(disk.folder, 'data');
  const ledger = new Ledger();
  const first = await launch(scope, { dataFolder, args: ARGS });
  const load = startLoad(scope, first, first.key, ledger);
  await eventually('some are acknowledged', () => ledger.acknowledged.size > 200, 30_000);
  await first.kill('SIGKILL');
  await load.stop();
  await serveUntilPowerIsLost(scope, disk, { dataFolder, ledger, responses: 0, key: first.key });
  await assertLedger(dataFolder, ledger);
});

test('with fsync taken away the same power loss does lose data, so these tests can see it', async (t) => {
  if (skipWithout(t, hindrance('loop') ?? straceHindrance())) return;
  await using scope = new AsyncDisposableStack();
  const under = underStrace('fsync,fdatasync:retval=0', join(folderIn(scope), 'trace'));
  for (let round = 1; round <= 4; round++) {
    const disk = mountLoopDisk(scope, DISK_MEGABYTES);
    const dataFolder = join(disk.folder, 'data');
    const ledger = new Ledger();
    await serveUntilPowerIsLost(scope, disk, { dataFolder, ledger, responses: 300, key: '', under });
    assert.ok(ledger.acknowledged.size > 0, 'nothing was acknowledged');
    const lost = await lostOf(dataFolder, ledger);
    t.diagnostic(`round ${round}: of ${ledger.acknowledged.size} acknowledged requests ${lost} are lost`);
    if (lost > 0) return;
  }
  assert.fail('nothing was lost without fsync: cutting the power does not do what it should');
});

/** A log that cannot even be read has lost all that was in it. */
async function lostOf(dataFolder: string, ledger: Ledger): Promise<number> {
  try {
    return (await audit(dataFolder, ledger)).missing.length;
  } catch {
    return ledger.acknowledged.size;
  }
}
