/**
 * A disk that is full while the processor writes the store: it waits, says so once, and continues when there is space.
 * What was acknowledged before is stored exactly once; what could not be accepted got 503.
 */

import assert from 'node:assert/strict';
import { closeSync, openSync, rmSync, statfsSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { storeFileOf } from '../../src/data-folder/files.ts';
import { eventually, read, type TestServer } from '../server.ts';
import { Connection } from './connection.ts';
import { type Disk, hindrance, mountSmallDisk, skipWithout } from './devices.ts';
import { assertLedger, Ledger, sendNext } from './ledger.ts';
import { allEvents, settled } from './processor-load.ts';
import { launch } from './scope.ts';

const CHUNK_BYTES = 16 * 1_024;
const BACKLOG_REQUESTS = 700;

/** Takes all space, and gives it back when called. */
function fill(disk: Disk): () => void {
  const file = join(disk.folder, 'filler');
  const descriptor = openSync(file, 'a');
  try {
    for (;;) {
      const { bavail, bsize } = statfsSync(disk.folder);
      if (bavail === 0) break;
      writeSync(descriptor, Buffer.alloc(Math.min(bavail * bsize, CHUNK_BYTES)));
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
  } finally {
    closeSync(descriptor);
  }
  return () => rmSync(file);
}

function said(server: TestServer, words: string): number {
  return server.stderr().split(words).length - 1;
}

for (const how of ['gets space again', 'is killed and started again when there is space'] as const) {
  test(`a processor on a full disk that ${how} stores everything once`, async (t) => {
    if (skipWithout(t, hindrance('tmpfs'))) return;
    await using scope = new AsyncDisposableStack();
    const disk = mountSmallDisk(scope, 'size=32m');
    const dataFolder = join(disk.folder, 'data');
    let server = await launch(scope, { dataFolder });
    const { key } = server;
    const ledger = new Ledger(1_500);
    const connection = await Connection.open(server.port);
    await sendNext(connection, ledger, key);
    await settled(server, key);

    // The lock makes a backlog, which the processor comes to when the disk is full.
    const holder = new DatabaseSync(storeFileOf(dataFolder), { timeout: 5_000 });
    scope.defer(() => {
      if (holder.isOpen) holder.close();
    });
    holder.exec('BEGIN IMMEDIATE');
    for (let n = 0; n < BACKLOG_REQUESTS; n++) assert.equal((await sendNext(connection, ledger, key)).status, 202);
    const giveSpaceBack = fill(disk);
    holder.exec('ROLLBACK');
    await eventually('the processor waits for space', () => /"reason":"[^"]*full[^"]*"/.test(server.stderr()), 30_000);
    // Reads continue, and nothing is half stored.
    assert.equal((await read<{ event_count: number }>(server, key, '/profiles?user_id=user-1-0')).event_count, 1);
    assert.equal((await allEvents(server, key)).length, ledger.sent.get('request-1')?.users);

    if (how === 'gets space again') {
      // After the lock, too, if a checkpoint of the log had made room for one more transaction.
      const before = said(server, 'the processor continues');
      giveSpaceBack();
      await eventually('it goes on', () => said(server, 'the processor continues') > before, 30_000).catch((error) =>
        assert.fail(`${error}\n${server.stderr()}`),
      );
      // The lock was one reason to wait, the disk the other.
      assert.ok(said(server, 'the processor waits') <= 2, server.stderr());
    } else {
      await server.kill('SIGKILL');
      giveSpaceBack();
      holder.close();
      server = await launch(scope, { dataFolder });
    }
    const { totals } = await settled(server, key);
    let users = 0;
    for (const idempotencyKey of ledger.acknowledged.values()) users += ledger.sent.get(idempotencyKey)?.users ?? 0;
    assert.equal(totals.users['stored'], users);
    assert.equal((await allEvents(server, key)).length, users);
    await assertLedger(dataFolder, ledger);
    assert.equal(await server.stop(), 0);
  });
}
