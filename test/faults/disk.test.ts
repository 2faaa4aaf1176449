/**
 * A disk that is full, or nearly: a small tmpfs as data folder, a file that takes the rest of it, load all the while.
 * There is no 202 for what is not stored, everything else continues, and it heals by itself once there is space.
 */

import assert from 'node:assert/strict';
import { closeSync, openSync, readdirSync, rmSync, statfsSync, statSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { lockFolder } from '../../src/backends/embedded/folder-lock.ts';
import { openSqliteKeyStore } from '../../src/backends/embedded/keys.ts';
import { tieDataFolder } from '../../src/backends/embedded/installation.ts';
import { readResponse, eventually, type TestServer } from '../server.ts';
import { Connection } from './connection.ts';
import { type Disk, hindrance, mountSmallDisk, skipWithout } from './devices.ts';
import { assertLedger, Ledger, type Load, sendNext, startLoad } from './ledger.ts';
import { folderIn, launch, refusedStart } from './scope.ts';

const KB = 1_024;
const MB = 1_024 * KB;
const CHUNK_BYTES = 16 * KB;
const ARGS = ['--log-segment', '1MB'];

/** Takes all space but so much, and gives it back when called. */
function fill(disk: Disk, bytesLeft: number): () => void {
  const file = join(disk.folder, 'filler');
  const descriptor = openSync(file, 'a');
  try {
    const { bavail, bsize } = statfsSync(disk.folder);
    for (let bytes = bavail * bsize - bytesLeft; bytes > 0; ) {
      bytes -= writeSync(descriptor, Buffer.alloc(Math.min(bytes, CHUNK_BYTES)));
    }
  } catch (error) {
    // The server was quicker and took what was left.
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
  } finally {
    closeSync(descriptor);
  }
  return () => rmSync(file);
}

function statusCount(load: Load, status: number): number {
  return load.counts.get(status) ?? 0;
}

/** Responses of this status keep coming from now on. */
async function comes(load: Load, status: number, more = 30): Promise<void> {
  const before = statusCount(load, status);
  await eventually(`answers with ${status}`, () => statusCount(load, status) >= before + more, 60_000);
}

async function operatorSees(server: TestServer, path: string): Promise<{ status: number; text: string }> {
  return readResponse(await fetch(server.baseUrl + path));
}

suite('A full disk', () => {
  for (const { left, edges } of [
    { left: 0, edges: '1' },
    { left: 40 * KB, edges: '2' },
    { left: 900 * KB, edges: '1' },
  ]) {
    const name = `with ${left / KB} kB left for ${edges} edge(s) is answered 503 until there is space again, and nothing is lost`;
    test(name, async (t) => {
      if (skipWithout(t, hindrance('tmpfs'))) return;
      await using scope = new AsyncDisposableStack();
      const disk = mountSmallDisk(scope, 'size=96m');
      const dataFolder = join(disk.folder, 'data');
      const server = await launch(scope, { dataFolder, args: [...ARGS, '--edges', edges] });
      const ledger = new Ledger(400);
      const load = startLoad(scope, server, server.key, ledger);
      await comes(load, 202);

      const giveSpaceBack = fill(disk, left);
      await comes(load, 503, 100);
      assert.match(load.heads.get(503) ?? '', /^Retry-After: \d+/im);
      const readiness = await eventually('it is not ready', async () => {
        const seen = await operatorSees(server, '/readyz');
        return seen.status === 503 ? seen : undefined;
      });
      assert.match(readiness.text, /the log cannot be written: the disk is full/);
      assert.equal((await operatorSees(server, '/livez')).status, 200);
      await eventually('it is in the log', () =>
        /"reason":"the disk is full".*responding with 503/.test(server.stderr()),
      );
      await assertLedger(dataFolder, ledger);

      giveSpaceBack();
      await comes(load, 202, 200);
      await eventually('it is ready', async () => (await operatorSees(server, '/readyz')).status === 200);
      await eventually('that is in the log too', () => /the log can be written again/.test(server.stderr()));
      await load.stop();
      assert.deepEqual(
        [...load.counts.keys()].filter((what) => what !== 202 && what !== 503),
        [],
      );
      await assertLedger(dataFolder, ledger);
      assert.equal(await server.stop(), 0);

      await launch(scope, { dataFolder, args: ARGS });
      await assertLedger(dataFolder, ledger);
    });
  }

  test('on which the server is killed is reported in plain words to the next start, which works once there is space', async (t) => {
    if (skipWithout(t, hindrance('tmpfs'))) return;
    await using scope = new AsyncDisposableStack();
    const disk = mountSmallDisk(scope, 'size=96m');
    const dataFolder = join(disk.folder, 'data');
    const server = await launch(scope, { dataFolder, args: ARGS });
    const ledger = new Ledger(400);
    const load = startLoad(scope, server, server.key, ledger);
    await comes(load, 202);
    fill(disk, 0);
    await comes(load, 503);
    await server.kill('SIGKILL');
    await load.stop();

    const giveSpaceBack = fill(disk, 0);
    const words = await refusedStart({ dataFolder, args: ARGS });
    assert.match(words, /^sluice: The disk that holds \S+ is full\. Free some space/m);
    assert.doesNotMatch(words, /damaged/);

    giveSpaceBack();
    await launch(scope, { dataFolder, args: ARGS });
    await assertLedger(dataFolder, ledger);
  });

  for (const what of ['with its log', 'without log/']) {
    test(`that was filled after a clean stop refuses the start in words, ${what}`, async (t) => {
      if (skipWithout(t, hindrance('tmpfs'))) return;
      await using scope = new AsyncDisposableStack();
      const disk = mountSmallDisk(scope, 'size=96m');
      const dataFolder = join(disk.folder, 'data');
      lockFolder(dataFolder).release();
      tieDataFolder(dataFolder);
      if (what === 'without log/') rmSync(join(dataFolder, 'log'), { recursive: true });
      fill(disk, 0);
      assert.match(await refusedStart({ dataFolder, args: ARGS }), /The disk that holds \S+ is full\. Free some space/);
    });
  }

  test('on which a database file is created is reported in the same words, wherever its space ends', async (t) => {
    if (skipWithout(t, hindrance('tmpfs'))) return;
    for (let size = 4; size <= 128; size += 4) {
      await using scope = new AsyncDisposableStack();
      const { folder } = mountSmallDisk(scope, `size=${size}k`);
      const open = () => openSqliteKeyStore(join(folder, 'keys.db'));
      assert.throws(open, /^OperatorError: The disk that holds \S+ is full\. Free some space/, `${size} kB`);
    }
  });

  test('that has space but no room for another file lets the log continue in the files it has', async (t) => {
    if (skipWithout(t, hindrance('tmpfs'))) return;
    await using scope = new AsyncDisposableStack();
    const disk = mountSmallDisk(scope, 'size=256m,nr_inodes=100');
    const dataFolder = join(disk.folder, 'data');
    const server = await launch(scope, { dataFolder, args: ARGS });
    const fillers = takeAllFiles(disk);
    const segments = (): number =>
      readdirSync(join(dataFolder, 'log')).filter((name) => /^\d{16}\.log$/.test(name)).length;
    assert.equal(segments(), 1);

    const ledger = new Ledger(2_000);
    const load = startLoad(scope, server, server.key, ledger, 4);
    await comes(load, 202, 500);
    assert.equal(segments(), 1, 'a file was made although there was no room for one');
    for (const file of fillers) rmSync(file);
    await eventually('a new segment is begun', () => segments() > 1).catch((error: unknown) => {
      const seen = JSON.stringify([...load.counts]);
      throw new Error(`answers ${seen}, the server said:\n${server.stderr()}`, { cause: error });
    });
    await load.stop();
    assert.deepEqual([...load.counts.keys()], [202]);
    await assertLedger(dataFolder, ledger);
  });

  test('is not brought about by small requests that each write a whole page', async () => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    const server = await launch(scope, { dataFolder, args: ARGS });
    const ledger = new Ledger(0);
    const connection = await Connection.open(server.port);
    for (let n = 0; n < 600; n++) await sendNext(connection, ledger, server.key);
    const folder = join(dataFolder, 'log');
    const sizes = readdirSync(folder).map((name) => statSync(join(folder, name), { throwIfNoEntry: false })?.size ?? 0);
    assert.ok(Math.max(...sizes) < 5 * MB, `a segment of 1 MB has grown to ${Math.max(...sizes)} bytes`);
    await assertLedger(dataFolder, ledger);
  });

  test('is kept at a distance by the watermark: 503 while there is space left, and 202 again above it', async (t) => {
    if (skipWithout(t, hindrance('tmpfs'))) return;
    await using scope = new AsyncDisposableStack();
    const disk = mountSmallDisk(scope, 'size=48m');
    const dataFolder = join(disk.folder, 'data');
    const server = await launch(scope, { dataFolder, args: ARGS, env: { SLUICE_DISK_FREE_MIN: '24MB' } });
    const ledger = new Ledger();
    const load = startLoad(scope, server, server.key, ledger, 4);
    await comes(load, 202);

    const giveSpaceBack = fill(disk, 23 * MB);
    await comes(load, 503);
    const { bavail, bsize } = statfsSync(disk.folder);
    assert.ok(bavail * bsize > 10 * MB, 'the watermark came too late');
    assert.match(load.heads.get(503) ?? '', /^Retry-After: \d+/im);
    const readiness = await operatorSees(server, '/readyz');
    assert.equal(readiness.status, 503);
    assert.match(readiness.text, /SLUICE_DISK_FREE_MIN/);
    assert.equal((await operatorSees(server, '/livez')).status, 200);

    giveSpaceBack();
    await comes(load, 202);
    assert.equal((await operatorSees(server, '/readyz')).status, 200);
    await load.stop();
    await assertLedger(dataFolder, ledger);
  });
});

function takeAllFiles(disk: Disk): string[] {
  const files: string[] = [];
  for (;;) {
    const file = join(disk.folder, `file-${files.length}`);
    try {
      closeSync(openSync(file, 'w'));
    } catch (error) {
      assert.equal((error as NodeJS.ErrnoException).code, 'ENOSPC');
      return files;
    }
    files.push(file);
  }
}
