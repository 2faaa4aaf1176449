/**
 * `sluice backup` where it cannot be made, or not as a whole: that is refused in words and leaves nothing behind, or it
 * is made and says what is missing.
 */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { suite, test } from 'node:test';
import { copyDataFolder } from '../../src/backends/embedded/backup/backup.ts';
import { openEmbeddedLogAppender } from '../../src/backends/embedded/log/appender.ts';
import { findLogName } from '../../src/backends/embedded/log/name.ts';
import { SegmentWriter } from '../../src/backends/embedded/log/segments.ts';
import { logFolderOf, storeFileOf } from '../../src/data-folder/files.ts';
import { entry } from '../contract/log-entries.ts';
import { hindrance, mountSmallDisk, skipWithout } from '../faults/devices.ts';
import { runSluice } from '../server.ts';
import { backedUp, filledFolder, flipByte, folderFor, FORMS, manifestOf } from './backed-up-folder.ts';
import { backup, restore } from './backing-up.ts';

/** A process of its own, killed while it holds the copy of the store. */
async function killedBackup(data: string, target: string): Promise<void> {
  const program = `
    import { backup } from ${JSON.stringify(import.meta.resolve('./backing-up.ts'))};
    import { copyDataFolder } from ${JSON.stringify(import.meta.resolve('../../src/backends/embedded/backup/backup.ts'))};
    const onFile = async (path) => { if (path === 'store.db') process.kill(process.pid, 'SIGKILL'); };
    await backup(${JSON.stringify(['--to', target, '--data', data])}, { copyDataFolder: (setup) => copyDataFolder({ ...setup, onFile }) });`;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', program], { stdio: 'ignore' });
  assert.deepEqual(await once(child, 'exit'), [null, 'SIGKILL']);
}

suite('A backup that cannot be made', () => {
  test('of a log with a damaged record, or a gap, is refused and names the segment', async (t) => {
    const { data } = filledFolder(t);
    const place = folderFor(t);
    const segment = join(logFolderOf(data), '0000000000000003.log');
    writeFileSync(segment, readFileSync(segment, 'latin1').replace('"secret",null,2,', '"secret",null,7,'), 'latin1');
    const { code, err } = await backup(['--to', join(place, 'b'), '--data', data]);
    assert.equal(code, -1);
    assert.ok(err.startsWith(`The record at position 3 of the log segment ${segment} is damaged.`), err);
    assert.match(err, /Nothing was backed up/);
    rmSync(segment);
    const gap = (await backup(['--to', join(place, 'b.tar'), '--data', data])).err;
    assert.ok(
      gap.startsWith(`The log has lost the record at position 3. With the server stopped, put ${segment} back`),
      gap,
    );
    assert.ok(gap.includes(`To continue without these records, make an empty file ${segment}.lost.`), gap);
    assert.deepEqual(readdirSync(place), []);
    assert.ok(!existsSync(join(data, 'backup.json')));
  });

  test('of a log whose end is gone is refused: the store has processed more', async (t) => {
    const folder = filledFolder(t);
    await folder.process();
    rmSync(join(logFolderOf(folder.data), '0000000000000004.log'));
    const place = folderFor(t);
    const lost = await backup(['--to', join(place, 'b'), '--data', folder.data]);
    assert.match(lost.err, /has lost its end: it ends at position 4, and requests up to 5 were acknowledged/);
    // Without the file that knows better, the store still does.
    rmSync(`${logFolderOf(folder.data)}-ends`, { force: true });
    const { err } = await backup(['--to', join(place, 'b'), '--data', folder.data]);
    assert.match(err, /has processed the log up to position 5, and its log holds positions 1 to 4/);
    assert.deepEqual(readdirSync(place), []);
  });

  test('of a log with segments that were given up or are missing carries their marks along', async (t) => {
    const { data } = filledFolder(t);
    const names = ['0000000000000001.log.lost', '0000000000000003.log.missing'];
    const within = logFolderOf(data);
    for (const name of names) {
      renameSync(join(within, name.slice(0, 20)), join(within, name));
      truncateSync(join(within, name), 0);
    }
    const target = join(folderFor(t), 'b.tar');
    const { code, out, err } = await backup(['--to', target, '--data', data, '--verify']);
    assert.equal(code, 0, err);
    const gaps = [
      'a log of 1 request, of which 1 waits to be processed',
      'The log has a known gap of 2 requests (positions 1 to 2); all of them are in the store.',
      'The log has a known gap of 1 request (position 3); all of them are in the store.',
    ];
    const checked = await backup(['--verify', target]);
    for (const words of gaps) for (const text of [out, checked.out]) assert.ok(text.includes(words), text);
    const copy = join(folderFor(t), 'data');
    assert.equal((await restore(['--from', target, '--data', copy, '--verify'])).code, 0);
    const marks = readdirSync(logFolderOf(copy)).filter((name) => /^\d{16}/.test(name));
    assert.deepEqual(marks.sort(), [...names, '0000000000000004.log']);
  });

  test('of a log that has lost requests before they were processed says how many, and that they do not wait', async (t) => {
    const { data } = filledFolder(t);
    const within = logFolderOf(data);
    rmSync(join(within, '0000000000000004.log'));
    const logName = findLogName(within) ?? '';
    const header = { firstPosition: 9, id: '0123456789abcdef', logName, previous: null };
    new SegmentWriter(within, header).close();
    writeFileSync(join(within, '0000000000000004.log.missing'), '');
    const target = join(folderFor(t), 'b');
    const made = await backup(['--to', target, '--data', data]);
    assert.equal(made.code, 0, made.err);
    const { out } = await backup(['--verify', target]);
    assert.match(out, /a log of 3 requests\.\nThe log has a known gap of 5 requests \(positions 4 to 8\); /);
    assert.match(out, /; 5 of them are in neither the log nor the store\.\n/);
  });

  test('says what the store has passed without having it: given up, or gone before the store was made', async (t) => {
    const { data } = filledFolder(t);
    const within = logFolderOf(data);
    renameSync(join(within, '0000000000000001.log'), join(within, '0000000000000001.log.lost'));
    const store = new DatabaseSync(storeFileOf(data));
    // Of the gap in the log the store has one request; the others are of an earlier log.
    store.exec("INSERT INTO lost_records VALUES ('', 0, 2, 3, 1, 0), ('', 0, 101, 121, 20, 0)");
    store.close();
    const target = join(folderFor(t), 'b');
    const made = await backup(['--to', target, '--data', data]);
    const checked = await backup(['--verify', target]);
    const restored = await restore(['--from', target, '--data', join(folderFor(t), 'data')]);
    for (const { code, out, err } of [made, checked, restored]) {
      assert.equal(code, 0, err);
      assert.match(out, /gap of 2 requests .*; 1 of them is in neither the log nor the store\.\n/);
      assert.match(out, /The store lacks 20 requests that were given up or no longer in the log/);
    }
  });

  test('of a segment of a killed server with damage in it is refused', async (t) => {
    const folder = filledFolder(t);
    const appender = await openEmbeddedLogAppender({
      folder: logFolderOf(folder.data),
      segmentBytes: 1e9,
      metrics: null,
      onFatal: (message) => assert.fail(message),
    });
    for (let n = 0; n < 20; n++) await appender.append(entry({ tenantId: await folder.tenantId() }));
    // As a process that was killed leaves it.
    const crashed = join(folderFor(t), 'data');
    cpSync(folder.data, crashed, { recursive: true });
    await appender.close();
    const target = join(folderFor(t), 'b');
    const whole = await backup(['--to', target, '--data', crashed]);
    assert.equal(whole.code, 0, whole.err);
    assert.equal(manifestOf(target).log.next_position, 25);
    const segment = join(logFolderOf(crashed), '0000000000000005.log');
    flipByte(segment, statSync(segment).size >> 1);
    const { err } = await backup(['--to', join(folderFor(t), 'b'), '--data', crashed]);
    assert.match(err, /0000000000000005\.log is damaged: at position 1\d, which was acknowledged/);
    assert.match(err, /Nothing was backed up; .*"sluice doctor" says what to do\./);
  });

  test('with a piece missing, or of no data folder at all, is refused', async (t) => {
    for (const path of ['store.db', 'keys.db', 'log']) {
      const { data } = filledFolder(t);
      renameSync(join(data, path), join(folderFor(t), 'away'));
      const { err } = await backup(['--to', join(folderFor(t), 'b'), '--data', data]);
      assert.match(err, new RegExp(`Nothing was backed up: .*/${path} is missing`));
    }
    const place = folderFor(t);
    const { err } = await backup(['--to', join(place, 'b'), '--data', join(place, 'nothing')]);
    assert.match(err, /are missing\. Is this the data folder of a server/);
    assert.deepEqual(readdirSync(place), []);
  });

  test('of another backup is refused, which stays as it is', async (t) => {
    const { data } = filledFolder(t);
    const first = join(folderFor(t), 'first');
    assert.equal((await backup(['--to', first, '--data', data])).code, 0);
    const again = await backup(['--to', join(folderFor(t), 'second'), '--data', first]);
    assert.match(again.err, /is a backup and not a data folder\. Copy it as it is/);
    assert.equal((await backup(['--verify', first])).code, 0);
  });

  test('on a disk that becomes full, or has too little space, says so and leaves nothing', async (t) => {
    if (skipWithout(t, hindrance('tmpfs'))) return;
    await using scope = new AsyncDisposableStack();
    const { data } = filledFolder(t);
    const disk = mountSmallDisk(scope, 'size=200k');
    for (const form of FORMS) {
      const target = join(disk.folder, form);
      const early = await backup(['--to', target, '--data', data]);
      assert.match(early.err, /There is too little space on the disk of .*: [\d.]+ kB are free, and about/);
      const late = await backup(['--to', target, '--data', data], { freeBytesOf: () => Number.MAX_SAFE_INTEGER });
      assert.equal(late.code, -1, form);
      assert.match(late.err, /full|ENOSPC/);
      assert.deepEqual(readdirSync(disk.folder), []);
    }
    const target = join(folderFor(t), 'b.tar.gz');
    assert.equal((await backup(['--to', target, '--data', data])).code, 0);
    const restored = await restore(['--from', target, '--data', disk.folder], { freeBytesOf: () => 1e12 });
    assert.equal(restored.code, -1);
    assert.match(restored.err, /full|ENOSPC/);
    assert.deepEqual(readdirSync(disk.folder), []);
  });

  test('when it is stopped leaves nothing that looks finished, and what a kill leaves is not mistaken for one', async (t) => {
    const { data } = filledFolder(t);
    const place = folderFor(t);
    for (const form of FORMS) {
      const stopping = new AbortController();
      const { err } = await backup(['--to', join(place, form), '--data', data], {
        stop: stopping.signal,
        copyDataFolder: (setup) =>
          copyDataFolder({
            ...setup,
            onFile: async (path) => {
              await setup.onFile(path);
              if (path === 'store.db') stopping.abort();
            },
          }),
      });
      assert.equal(err, 'Stopped. Nothing was kept.');
      assert.deepEqual(readdirSync(place), []);
    }
    mkdirSync(join(place, 'b.part'));
    assert.match(
      (await backup(['--to', join(place, 'b'), '--data', data])).err,
      /b\.part exists already: a backup of another data folder/,
    );
    assert.match(
      (await restore(['--from', join(place, 'b.part'), '--data', join(place, 'd')])).err,
      /was left by a backup that was killed/,
    );
    assert.match((await backup(['--to', join(place, 'c.part'), '--data', data])).err, /Choose a name without \.part/);
  });

  test('that cannot be noted in the data folder is made all the same, and says so', async (t) => {
    const { data } = filledFolder(t);
    for (const name of ['backup.json', 'backup-unfinished.json']) mkdirSync(join(data, `${name}.draft`));
    const { code, out, err } = await backup(['--to', join(folderFor(t), 'b'), '--data', data, '--verify']);
    assert.equal(code, 0, err);
    assert.match(out, /the backup is intact/);
    assert.equal(err.match(/could not be noted in the data folder/g)?.length, 2);
  });

  test('that was killed is named by doctor, and the next one removes what it left, whatever its name', async (t) => {
    const { data } = filledFolder(t);
    const place = folderFor(t);
    const killed = join(place, 'monday.tar.zst');
    await killedBackup(data, killed);
    assert.deepEqual(readdirSync(place).sort(), ['monday.tar.zst.part', 'monday.tar.zst.part.files']);
    const doctor = await runSluice(['doctor', '--data', data, '--json']);
    assert.match(doctor.stdout, /the one to .*monday\.tar\.zst that began .* ago was killed/);
    assert.match(doctor.stdout, /It left .*monday\.tar\.zst\.part and .*\.part\.files/);
    const next = await backup(['--to', join(place, 'tuesday.tar.zst'), '--data', data]);
    assert.equal(next.code, 0, next.err);
    assert.match(next.err, /Removed .*monday\.tar\.zst\.part, which a backup that was killed had left/);
    assert.deepEqual(readdirSync(place), ['tuesday.tar.zst']);
    assert.doesNotMatch((await runSluice(['doctor', '--data', data])).stdout, /was killed/);

    await killedBackup(data, killed);
    assert.equal((await backup(['--to', killed, '--data', data])).code, 0, 'the same name');
    assert.deepEqual(readdirSync(place).sort(), ['monday.tar.zst', 'tuesday.tar.zst']);
  });

  test('that was killed before it got its name is not restored, though it looks whole', async (t) => {
    for (const form of ['folder', 'b.tar.zst']) {
      const { target, place } = await backedUp(t, form);
      renameSync(target, `${target}.part`);
      symlinkSync(`${target}.part`, target);
      for (const source of [`${target}.part`, target]) {
        const { code, err } = await restore(['--from', source, '--data', join(place, 'd')]);
        assert.equal(code, -1);
        assert.match(err, /\.part was left by a backup that was killed, .*sluice backup --verify NAME$/);
        assert.match((await backup(['--verify', source])).err, /was left by a backup that was killed/);
      }
      assert.equal(existsSync(join(place, 'd')), false);
    }
  });

  test('that is stopped by a full disk says which one it is', async (t) => {
    const { data, target, place } = await backedUp(t, 'b.tar');
    const full = async (): Promise<never> => {
      writeFileSync('/dev/full', 'something');
      return assert.fail('there is space in /dev/full');
    };
    const words = `The disk of ${place} is full. Free some space there, or use another disk; then run it again.`;
    assert.equal((await backup(['--verify', target], { checkDataFolder: full })).err, words);
    assert.equal((await backup(['--to', join(place, 'c'), '--data', data], { copyDataFolder: full })).err, words);
    const fullDatabase = (): never => {
      using database = new DatabaseSync(':memory:');
      database.exec('PRAGMA max_page_count = 1; CREATE TABLE one (id INTEGER)');
      return assert.fail('there is space in the database');
    };
    const ofData = await backup(['--to', join(place, 'c'), '--data', data], { lockDataFolder: fullDatabase });
    assert.equal(ofData.err, words);
    assert.deepEqual(
      readdirSync(place).filter((name) => name.startsWith('c')),
      [],
    );
    const into = join(place, 'd');
    const { err } = await restore(['--from', target, '--data', into, '--verify'], { checkDataFolder: full });
    assert.match(err, /^The disk of .*\/d is full\./);
    assert.equal(existsSync(into), false);
  });

  test('where its name is taken, in the data folder, or in no folder, is refused', async (t) => {
    const { data, target, place } = await backedUp(t, 'b.tar');
    const taken = await backup(['--to', target, '--data', data]);
    assert.match(taken.err, /b\.tar exists already\. Give every backup a new name/);
    assert.match((await backup(['--to', join(data, 'b'), '--data', data])).err, /is in the data folder/);
    symlinkSync(data, join(place, 'link'));
    assert.match((await backup(['--to', join(place, 'link/b'), '--data', data])).err, /is in the data folder/);
    assert.match((await backup(['--to', join(data, 'b'), '--data', join(place, 'link')])).err, /is in the data folder/);
    renameSync(logFolderOf(data), join(place, 'log'));
    symlinkSync(join(place, 'log'), logFolderOf(data));
    assert.match((await backup(['--to', join(place, 'log/b'), '--data', data])).err, /is in the data folder/);
    symlinkSync(join(place, 'nowhere'), join(place, 'dangling'));
    const onDangling = await backup(['--to', join(place, 'dangling'), '--data', data]);
    assert.match(onDangling.err, /dangling is a link to .*nowhere, and nothing is there\. Is a disk not mounted\?/);
    const dangling = await restore(['--from', target, '--data', join(place, 'dangling')]);
    assert.match(dangling.err, /dangling is a link to .*nowhere, and nothing is there\. Is a disk not mounted\?/);
    assert.match((await backup(['--to', join(place, 'no/b'), '--data', data])).err, /There is no folder .*mkdir -p/);
    for (const [args, words] of [
      [[], /no backup given; expected --to FOLDER\|FILE/],
      [['--verify'], /no backup given; .* or --verify FOLDER\|FILE/],
      [['b'], /to write it: --to b, to check it: --verify b/],
      [['--verify', join(place, 'nowhere')], /There is no /],
    ] as const) {
      assert.match((await backup(args)).err, words);
    }
  });

  test('beside another one of the same folder is refused', async (t) => {
    const { data } = filledFolder(t);
    const place = folderFor(t);
    let second: string | undefined;
    const first = await backup(['--to', join(place, 'one'), '--data', data], {
      copyDataFolder: (setup) =>
        copyDataFolder({
          ...setup,
          onFile: async (path) => {
            await setup.onFile(path);
            second ??= (await backup(['--to', join(place, 'two'), '--data', data])).err;
          },
        }),
    });
    assert.equal(first.code, 0);
    assert.match(second ?? '', /Another backup of .* is running/);
    assert.deepEqual(readdirSync(place), ['one']);
  });
});
