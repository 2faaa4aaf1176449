/**
 * `sluice backup` and `sluice restore` on real files: what comes back is what was there, whatever form the backup has;
 * what was changed, cut or removed since is named; what cannot be done is refused in words and leaves nothing behind.
 */

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chownSync,
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
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, before, suite, test, type TestContext } from 'node:test';
import { gzipSync, zstdCompressSync, zstdDecompressSync } from 'node:zlib';
import { copyDataFolder } from '../../src/backends/sqlite/backup/backup.ts';
import { openSqliteKeyStore } from '../../src/backends/sqlite/keys.ts';
import { openSqliteLogAppender } from '../../src/backends/sqlite/log/appender.ts';
import { openSqliteLogReader } from '../../src/backends/sqlite/log/reader.ts';
import { openSqliteStore } from '../../src/backends/sqlite/store/store.ts';
import { hashFile } from '../../src/backup/files.ts';
import { MANIFEST_FILE, type Manifest } from '../../src/backup/manifest.ts';
import { writeRestoreMarker } from '../../src/backup/restore-marker.ts';
import { keyFileOf, logFolderOf, storeFileOf } from '../../src/data-folder/files.ts';
import { createKey, newAccount } from '../../src/keys/create.ts';
import { tenantOf } from '../../src/model.ts';
import { entry, readAll } from '../contract/log-entries.ts';
import { hindrance, mountSmallDisk, skipWithout } from '../faults/devices.ts';
import { refusedStart } from '../faults/scope.ts';
import { assertSame } from '../processor/store-dump.ts';
import { removeFolder, runSluice, temporaryFolder, user } from '../server.ts';
import { backup, restore } from './backing-up.ts';
import { type DataFolder, NOW, openDataFolder, type Ran, traceId } from './data-shell.ts';

const KEY = {
  name: 'shop',
  kind: 'secret',
  environment: 'development',
  origins: [],
  expiresAt: null,
  now: NOW,
} as const;
const FORMS = ['folder', 'plain.tar', 'gzip.tar.gz', 'zstd.tar.zst'] as const;
const INSTALLATIONS = ['00000000-0000-4000-8000-000000000000', '11111111-0000-4000-8000-000000000000'];
const FAR_FUTURE = NOW + 1_000 * 86_400_000;

/** Three segments of the log, of which the last is not processed; a key. */
async function filledFolder(t: TestContext): Promise<DataFolder> {
  const folder = openDataFolder(t);
  cpSync(original, folder.data, { recursive: true });
  return folder;
}

/** Filled once; every test has a copy. */
const original = temporaryFolder();
after(() => removeFolder(original));
before(async (t) => {
  const folder = openDataFolder(t as TestContext);
  await folder.send([{ users: [user('ada')] }, { users: [user('bob')] }]);
  await folder.send([{ users: [user('cleo'), user('dora')] }]);
  await folder.append([{ users: [user('emil')] }]);
  const keyStore = openSqliteKeyStore(keyFileOf(folder.data));
  const { id } = await keyStore.ensureAccount(newAccount('default', NOW));
  await createKey(keyStore, { ...KEY, accountId: id });
  await keyStore.close();
  cpSync(folder.data, original, { recursive: true });
});

function folderFor(t: TestContext): string {
  const folder = temporaryFolder();
  t.after(() => removeFolder(folder));
  return folder;
}

async function backedUp(t: TestContext, form: string): Promise<{ data: string; target: string; place: string }> {
  const { data } = await filledFolder(t);
  const place = folderFor(t);
  const target = join(place, form);
  const { code, err } = await backup(['--to', target, '--data', data]);
  assert.equal(code, 0, err);
  return { data, target, place };
}

function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((path) => statSync(join(folder, path)).isFile())
    .sort();
}

function manifestOf(folder: string): Manifest {
  return JSON.parse(readFileSync(join(folder, MANIFEST_FILE), 'utf8')) as Manifest;
}

/** As if it had been written like that: hashes and sizes are those of the files as they are now. */
async function rewriteManifest(folder: string, changes: Partial<Manifest> = {}): Promise<void> {
  const options = { stop: new AbortController().signal, onBytes: () => undefined };
  const files = [];
  for (const path of filesIn(folder)) {
    if (path !== MANIFEST_FILE) files.push(await hashFile(folder, path, options));
  }
  writeFileSync(join(folder, MANIFEST_FILE), JSON.stringify({ ...manifestOf(folder), ...changes, files }));
}

/** As a server leaves it that ran on the folder. */
function withInstallation(data: string, id: string): void {
  writeFileSync(join(logFolderOf(data), 'installation'), `${id}\n`);
  for (const file of [storeFileOf(data), keyFileOf(data)]) {
    const database = new DatabaseSync(file);
    database.exec(`DELETE FROM belongs_to; INSERT INTO belongs_to VALUES ('${id}')`);
    database.close();
  }
}

function flipByte(file: string, at: number): void {
  const bytes = readFileSync(file);
  bytes[at] = (bytes[at] ?? 0) ^ 0x40;
  writeFileSync(file, bytes);
}

/** A process of its own, killed while it holds the copy of the store. */
async function killedBackup(data: string, target: string): Promise<void> {
  const program = `
    import { backup } from ${JSON.stringify(import.meta.resolve('./backing-up.ts'))};
    import { copyDataFolder } from ${JSON.stringify(import.meta.resolve('../../src/backends/sqlite/backup/backup.ts'))};
    const onFile = async (path) => { if (path === 'store.db') process.kill(process.pid, 'SIGKILL'); };
    await backup(${JSON.stringify(['--to', target, '--data', data])}, { copyDataFolder: (setup) => copyDataFolder({ ...setup, onFile }) });`;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', program], { stdio: 'ignore' });
  assert.deepEqual(await once(child, 'exit'), [null, 'SIGKILL']);
}

suite('sluice backup and sluice restore', () => {
  for (const form of FORMS) {
    test(`what was backed up as ${form} comes back the same, private to its owner`, async (t) => {
      const { data, target, place } = await backedUp(t, form);
      assert.deepEqual(readdirSync(place), [form]);
      const checked = await backup(['--verify', target]);
      assert.equal(checked.code, 0, checked.err);
      assert.match(
        checked.out,
        /is whole: 4 events, 1 key, 0 members, a log of 4 requests, of which 1 waits to be processed/,
      );
      assert.deepEqual(readdirSync(place), [form], 'the check left something');

      const copy = join(folderFor(t), 'data');
      const restored = await restore(['--from', target, '--data', copy, '--verify']);
      assert.equal(restored.code, 0, restored.err);
      assert.match(restored.out, /People erased after/);
      for (const path of ['.', 'store.db', 'keys.db', 'log', 'log/0', ...filesIn(target === copy ? '' : copy)]) {
        if (path !== 'lock.db') assert.equal(statSync(join(copy, path)).mode & 0o077, 0, path);
      }
      if (form === 'folder')
        for (const path of filesIn(target)) assert.equal(statSync(join(target, path)).mode & 0o777, 0o600);
      else assert.equal(statSync(target).mode & 0o777, 0o600);
      const [before, after] = [openSqliteStore(storeFileOf(data)), openSqliteStore(storeFileOf(copy))];
      assert.ok((await assertSame(before, after, [])) > 0);
      await before.close();
      await after.close();
      const keyStore = openSqliteKeyStore(keyFileOf(copy));
      assert.equal((await keyStore.list()).length, 1);
      await keyStore.close();
    });
  }

  test('an archive opens with tar alone, and what it unpacks is a backup too', async (t) => {
    const { target, place } = await backedUp(t, 'plain.tar');
    const folder = join(place, 'unpacked');
    mkdirSync(folder);
    execFileSync('tar', ['-xf', target, '-C', folder]);
    assert.equal((await backup(['--verify', folder])).code, 0);
    // And back, by a hand that knows nothing of Sluice: in another order, with folders among the files.
    execFileSync('tar', ['-czf', join(place, 'again.tar.gz'), '-C', folder, '.']);
    const again = await backup(['--verify', join(place, 'again.tar.gz')]);
    assert.equal(again.code, 0, again.err);
  });

  test('progress is shown, and --json says what the backup holds', async (t) => {
    const { data } = await filledFolder(t);
    const target = join(folderFor(t), 'b.tar');
    let now = NOW;
    const changes = { now: () => (now += 200), errTerminal: { isTty: true, columns: 100 } };
    const { out, err, code } = await backup(['--to', target, '--data', data, '--json', '--verify'], changes);
    assert.equal(code, 0, err);
    assert.match(err, /backup {2}█+░* +\d+% {2}\d files? {2}[\d.]+ \w?B {2}[\d.]+ \w?B\/s/);
    const result = JSON.parse(out) as Manifest & { verified: boolean; files_left_out: string[] };
    assert.deepEqual([result.verified, result.scope, result.files_left_out], [true, 'all', []]);
    assert.deepEqual(result.store?.positions, [{ partition: 0, position: 4 }]);
    assert.deepEqual(result.log, [{ partition: 0, first_position: 1, next_position: 5, records: 4 }]);
  });
});

suite('A backup that was damaged', () => {
  test('is refused, and each file that was changed, cut or removed is named', async (t) => {
    const { target } = await backedUp(t, 'folder');
    const original = join(folderFor(t), 'original');
    cpSync(target, original, { recursive: true });
    const damages: Record<string, (file: string) => void> = {
      changed: (file) => flipByte(file, statSync(file).size >> 1),
      cut: (file) => truncateSync(file, statSync(file).size - 1),
      removed: (file) => rmSync(file),
    };
    for (const path of manifestOf(original).files.map((file) => file.path)) {
      for (const [what, damage] of Object.entries(damages)) {
        rmSync(target, { recursive: true });
        cpSync(original, target, { recursive: true });
        damage(join(target, path));
        for (const { code, err } of [
          await backup(['--verify', target]),
          await restore(['--from', target, '--data', join(folderFor(t), 'data')]),
        ]) {
          assert.equal(code, -1, `${path} was ${what}`);
          assert.ok(err.includes(path), `${path} was ${what}: ${err}`);
        }
      }
    }
    rmSync(join(target, MANIFEST_FILE), { force: true });
    assert.match((await backup(['--verify', target])).err, /is not a finished backup: it has no backup-manifest\.json/);
  });

  for (const form of FORMS.slice(1)) {
    test(`is refused as ${form} wherever a byte was changed or the end is missing`, async (t) => {
      const { target, place } = await backedUp(t, form);
      const whole = readFileSync(target);
      const damaged = join(place, `damaged-${form}`);
      // In the middle of contents, of which an archive nearly is; then its last kilobytes, with the manifest.
      for (const at of [0.1, 0.3, 0.5, 0.7, 0.9].map((share) => Math.floor(whole.byteLength * share))) {
        writeFileSync(damaged, whole);
        flipByte(damaged, at);
        const { code, err } = await backup(['--verify', damaged]);
        // Some bits of zstd mean nothing: the same comes out.
        if (code === 0) assert.deepEqual(zstdDecompressSync(readFileSync(damaged)), zstdDecompressSync(whole));
        else assert.match(err, /damaged|is not part of it|not a finished backup/, `byte ${at} of ${whole.byteLength}`);
        writeFileSync(damaged, whole.subarray(0, at));
        const data = join(folderFor(t), 'data');
        const cut = await restore(['--from', damaged, '--data', data]);
        assert.match(cut.err, /damaged or cut short|not a finished backup/);
        assert.ok(!existsSync(data), 'something was left');
      }
      if (form === 'plain.tar') {
        writeFileSync(damaged, whole.subarray(0, -512));
        assert.match((await backup(['--verify', damaged])).err, /its end is missing\. Copy it again/);
      }
      assert.deepEqual(readdirSync(place).sort(), [form, `damaged-${form}`].sort());
    });
  }

  test('is refused when something was appended to the archive', async (t) => {
    for (const form of FORMS.slice(1)) {
      const { target } = await backedUp(t, form);
      const whole = readFileSync(target);
      const junk = [
        Buffer.from('x'),
        Buffer.alloc(3_000_000, 'junk'),
        whole,
        zstdCompressSync('junk'),
        gzipSync('junk'),
      ];
      for (const [index, more] of junk.entries()) {
        writeFileSync(target, Buffer.concat([whole, more]));
        const { code, err } = await backup(['--verify', target]);
        assert.deepEqual([code, /is damaged or cut short/.test(err)], [-1, true], `${form} ${index}: ${err}`);
        const restored = await restore(['--from', target, '--data', join(folderFor(t), 'data')]);
        assert.equal(restored.code, -1);
      }
    }
  });

  test('is refused when its files were damaged before they were copied: records, pages, ledger, positions', async (t) => {
    const { target } = await backedUp(t, 'folder');
    const original = join(folderFor(t), 'original');
    cpSync(target, original, { recursive: true });
    const segment = 'log/0/0000000000000003.db';
    const newest = 'log/0/0000000000000004.db';
    const cases: [words: RegExp, damage: () => void][] = [
      [
        /position 3 of the log segment .*0000000000000003\.db is damaged/,
        () => change(segment, 'UPDATE records SET user_count = 7'),
      ],
      [/0000000000000003\.db is damaged: it has no position 3/, () => change(segment, 'DELETE FROM records')],
      [
        /0000000000000003\.db/,
        () => flipByte(join(target, segment), readFileSync(join(target, segment)).indexOf('identifiers')),
      ],
      [
        /ledger in .*store\.db does not account for all events/,
        () => change('store.db', 'UPDATE ledger SET events_stored = events_stored - 1'),
      ],
      [
        /ledger in .*store\.db says/,
        () =>
          change(
            'store.db',
            'UPDATE ledger SET events_received = events_received + 1, events_stored = events_stored + 1',
          ),
      ],
      [
        /store\.db is damaged: event 1 in events_1 is not one of its record 1/,
        () => change('store.db', 'UPDATE records_1 SET no = 9 WHERE no = 1'),
      ],
      [
        /store\.db is damaged: event 2 in events_1 is not one of its record 2/,
        () => change('store.db', 'UPDATE records_1 SET first_event = 3 WHERE no = 2'),
      ],
      [
        /store\.db is damaged: event 1 in events_1 is of node 1, which is not there/,
        () => change('store.db', 'DELETE FROM nodes WHERE no = 1'),
      ],
      [
        /store\.db is damaged: event 4 is stored, and the next event would get the number 3/,
        () => change('store.db', "UPDATE sequences SET next = 3 WHERE name = 'event'"),
      ],
      [
        /do not belong together: at position 2 of partition 0 the log has the request .*, and the store has processed/,
        () => change('store.db', 'UPDATE positions SET position = 3'),
      ],
      [/"keys" in backup-manifest\.json says/, () => change('keys.db', 'DELETE FROM keys')],
      [
        /keys\.db cannot be read by this version of Sluice: no such table: members/,
        () => change('keys.db', 'PRAGMA foreign_keys = OFF; DROP TABLE members'),
      ],
      [/store\.db is damaged/, () => flipByte(join(target, 'store.db'), 8_192 * 3 + 3)],
      [
        /store\.db is of the installation 00000000-.*, and the log beside it of 11111111-/,
        () => {
          change('store.db', `DELETE FROM belongs_to; INSERT INTO belongs_to VALUES ('${INSTALLATIONS[0]}')`);
          writeFileSync(join(target, 'log/installation'), `${INSTALLATIONS[1]}\n`);
        },
      ],
      [/"log" in backup-manifest\.json/, () => rmSync(join(target, newest))],
      [
        /do not belong together: the store has processed partition 0 up to position 4, and its log holds positions 1 to 3/,
        () => [segment, newest].forEach((path) => rmSync(join(target, path))),
      ],
      [/do not belong together/, () => rmSync(join(target, 'log/0'), { recursive: true })],
    ];
    const change = (path: string, sql: string): void => {
      const database = new DatabaseSync(join(target, path));
      database.exec(`PRAGMA journal_mode = DELETE; ${sql}; PRAGMA journal_mode = WAL`);
      database.close();
    };
    for (const [words, damage] of cases) {
      rmSync(target, { recursive: true });
      cpSync(original, target, { recursive: true });
      damage();
      await rewriteManifest(target);
      const { code, err } = await backup(['--verify', target]);
      assert.deepEqual([code, words.test(err)], [-1, true], `${words}: ${err}`);
    }
  });

  test('never writes outside the data folder, whatever names it has', async (t) => {
    const place = folderFor(t);
    mkdirSync(join(place, 'evil'));
    writeFileSync(join(place, 'outside'), 'x');
    execFileSync('tar', ['-cPf', join(place, 'evil.tar'), '-C', join(place, 'evil'), '../outside']);
    rmSync(join(place, 'outside'));
    const { err } = await restore(['--from', join(place, 'evil.tar'), '--data', join(place, 'data')]);
    assert.match(err, /holds \.\.\/outside, which is not part of it/);
    assert.deepEqual(readdirSync(place).sort(), ['evil', 'evil.tar']);
  });
});

suite('A backup that cannot be made', () => {
  test('of a log with a damaged record, or a gap, is refused and names the segment', async (t) => {
    const { data } = await filledFolder(t);
    const place = folderFor(t);
    const segment = join(logFolderOf(data), '0', '0000000000000003.db');
    const database = new DatabaseSync(segment);
    database.exec("UPDATE records SET trace_id = 'another'");
    database.close();
    const { code, err } = await backup(['--to', join(place, 'b'), '--data', data]);
    assert.equal(code, -1);
    assert.ok(err.startsWith(`The record at position 3 of the log segment ${segment} is damaged.`), err);
    assert.match(err, /Nothing was backed up/);
    rmSync(segment);
    assert.match((await backup(['--to', join(place, 'b.tar'), '--data', data])).err, /0000000000000001\.db is damaged/);
    assert.deepEqual(readdirSync(place), []);
    assert.ok(!existsSync(join(data, 'backup.json')));
  });

  test('of a log whose end is gone is refused: the store has processed more', async (t) => {
    const folder = await filledFolder(t);
    await folder.process();
    rmSync(join(logFolderOf(folder.data), '0', '0000000000000004.db'));
    const place = folderFor(t);
    const lost = await backup(['--to', join(place, 'b'), '--data', folder.data]);
    assert.match(lost.err, /has lost its end: partition 0 ends at position 4, and requests up to 5 were acknowledged/);
    // Without the files that know better, the store still does.
    rmSync(`${logFolderOf(folder.data)}-ends`, { force: true });
    rmSync(join(logFolderOf(folder.data), 'positions.db'), { force: true });
    const { err } = await backup(['--to', join(place, 'b'), '--data', folder.data]);
    assert.match(err, /has processed partition 0 up to position 5, and its log holds positions 1 to 4/);
    assert.deepEqual(readdirSync(place), []);
  });

  test('of a log with segments that were given up or are missing carries their marks along', async (t) => {
    const { data } = await filledFolder(t);
    const names = ['0000000000000001.db.lost', '0000000000000003.db.missing'];
    const within = join(logFolderOf(data), '0');
    for (const name of names) {
      renameSync(join(within, name.slice(0, 19)), join(within, name));
      truncateSync(join(within, name), 0);
    }
    const target = join(folderFor(t), 'b.tar');
    const { code, out, err } = await backup(['--to', target, '--data', data, '--verify']);
    assert.equal(code, 0, err);
    const gaps = [
      'a log of 1 request, of which 1 waits to be processed',
      'The log has a known gap of 2 requests (positions 1 to 2 of partition 0); all of them are in the store.',
      'The log has a known gap of 1 request (position 3 of partition 0); all of them are in the store.',
    ];
    const checked = await backup(['--verify', target]);
    for (const words of gaps) for (const text of [out, checked.out]) assert.ok(text.includes(words), text);
    const copy = join(folderFor(t), 'data');
    assert.equal((await restore(['--from', target, '--data', copy, '--verify'])).code, 0);
    assert.deepEqual(readdirSync(join(logFolderOf(copy), '0')).sort(), [...names, '0000000000000004.db']);
  });

  test('of a log that has lost requests before they were processed says how many, and that they do not wait', async (t) => {
    const { data } = await filledFolder(t);
    const within = join(logFolderOf(data), '0');
    renameSync(join(within, '0000000000000004.db'), join(within, '0000000000000009.db'));
    const segment = new DatabaseSync(join(within, '0000000000000009.db'));
    segment.exec('DELETE FROM records; UPDATE segment SET first_position = 9');
    segment.close();
    writeFileSync(join(within, '0000000000000004.db.missing'), '');
    const target = join(folderFor(t), 'b');
    const made = await backup(['--to', target, '--data', data]);
    assert.equal(made.code, 0, made.err);
    const { out } = await backup(['--verify', target]);
    assert.match(
      out,
      /a log of 3 requests\.\nThe log has a known gap of 5 requests \(positions 4 to 8 of partition 0\); /,
    );
    assert.match(out, /; 5 of them are in neither the log nor the store\.\n/);
  });

  test('says what the store has passed without having it: given up, or gone before the store was made', async (t) => {
    const { data } = await filledFolder(t);
    const within = join(logFolderOf(data), '0');
    renameSync(join(within, '0000000000000001.db'), join(within, '0000000000000001.db.lost'));
    const store = new DatabaseSync(storeFileOf(data));
    // Of the gap in the log the store has one request; of partition 7 there is no log any more.
    store.exec('INSERT INTO lost_records VALUES (0, 2, 3, 1, 0), (7, 1, 21, 20, 0)');
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

  test('of a write-ahead log with damage in it, which SQLite passes over, is refused', async (t) => {
    const folder = await filledFolder(t);
    const appender = await openSqliteLogAppender({
      folder: logFolderOf(folder.data),
      partition: 0,
      partitions: 1,
      segmentBytes: 1e9,
      metrics: null,
      onFatal: (message) => assert.fail(message),
    });
    for (let n = 0; n < 20; n++) await appender.append(entry({ tenantId: await folder.tenantId() }));
    // As a process that was killed leaves it.
    const crashed = join(folderFor(t), 'data');
    cpSync(folder.data, crashed, { recursive: true, filter: (path) => !path.endsWith('-shm') });
    await appender.close();
    const target = join(folderFor(t), 'b');
    const whole = await backup(['--to', target, '--data', crashed]);
    assert.equal(whole.code, 0, whole.err);
    assert.equal(manifestOf(target).log[0]?.next_position, 25);
    const wal = join(logFolderOf(crashed), '0', '0000000000000005.db-wal');
    rmSync(wal.replace('-wal', '-shm'), { force: true });
    flipByte(wal, statSync(wal).size >> 1);
    const { err } = await backup(['--to', join(folderFor(t), 'b'), '--data', crashed]);
    assert.match(err, /0000000000000005\.db is damaged: commits \(\d+ or more\) lie behind a damaged part/);
    assert.match(err, /Nothing was backed up; .*"sluice doctor" says what to do\./);
  });

  test('with a piece missing, or of no data folder at all, is refused', async (t) => {
    for (const path of ['store.db', 'keys.db', 'log']) {
      const { data } = await filledFolder(t);
      renameSync(join(data, path), join(folderFor(t), 'away'));
      const { err } = await backup(['--to', join(folderFor(t), 'b'), '--data', data]);
      assert.match(err, new RegExp(`Nothing was backed up: .*/${path} is missing`));
    }
    const place = folderFor(t);
    const { err } = await backup(['--to', join(place, 'b'), '--data', join(place, 'nothing')]);
    assert.match(err, /are missing\. Is this the data folder of a server/);
    assert.deepEqual(readdirSync(place), []);
  });

  test('on a disk that becomes full, or has too little space, says so and leaves nothing', async (t) => {
    if (skipWithout(t, hindrance('tmpfs'))) return;
    await using scope = new AsyncDisposableStack();
    const { data } = await filledFolder(t);
    const disk = mountSmallDisk(scope, 'size=200k');
    for (const form of FORMS) {
      const target = join(disk.folder, form);
      const early = await backup(['--to', target, '--data', data]);
      assert.match(early.err, /There is too little space on the disk of .*: [\d.]+ kB are free, and about/);
      const late = await backup(['--to', target, '--data', data], { freeBytes: () => Number.MAX_SAFE_INTEGER });
      assert.equal(late.code, -1, form);
      assert.match(late.err, /full|ENOSPC/);
      assert.deepEqual(readdirSync(disk.folder), []);
    }
    const target = join(folderFor(t), 'b.tar.gz');
    assert.equal((await backup(['--to', target, '--data', data])).code, 0);
    const restored = await restore(['--from', target, '--data', disk.folder], { freeBytes: () => 1e12 });
    assert.equal(restored.code, -1);
    assert.match(restored.err, /full|ENOSPC/);
    assert.deepEqual(readdirSync(disk.folder), []);
  });

  test('when it is stopped leaves nothing that looks finished, and what a kill leaves is not mistaken for one', async (t) => {
    const { data } = await filledFolder(t);
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
      /b\.part is there: a backup of another data folder/,
    );
    assert.match(
      (await restore(['--from', join(place, 'b.part'), '--data', join(place, 'd')])).err,
      /was left by a backup that was killed/,
    );
    assert.match((await backup(['--to', join(place, 'c.part'), '--data', data])).err, /Choose a name without \.part/);
  });

  test('that cannot be noted in the data folder is made all the same, and says so', async (t) => {
    const { data } = await filledFolder(t);
    for (const name of ['backup.json', 'backup-unfinished.json']) mkdirSync(join(data, `${name}.draft`));
    const { code, out, err } = await backup(['--to', join(folderFor(t), 'b'), '--data', data, '--verify']);
    assert.equal(code, 0, err);
    assert.match(out, /read again, and is whole/);
    assert.equal(err.match(/could not be noted in the data folder/g)?.length, 2);
  });

  test('that was killed is named by doctor, and the next one removes what it left, whatever its name', async (t) => {
    const { data } = await filledFolder(t);
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
    assert.equal((await backup(['--verify', target], { checkFolder: full })).err, words);
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
    const { err } = await restore(['--from', target, '--data', into, '--verify'], { checkFolder: full });
    assert.match(err, /^The disk of .*\/d is full\./);
    assert.equal(existsSync(into), false);
  });

  test('where its name is taken, in the data folder, or in no folder, is refused', async (t) => {
    const { data, target, place } = await backedUp(t, 'b.tar');
    const taken = await backup(['--to', target, '--data', data]);
    assert.match(taken.err, /b\.tar is there already\. Every backup gets a name of its own, such as .*b-\$\(date/);
    assert.match((await backup(['--to', join(data, 'b'), '--data', data])).err, /is in the data folder/);
    symlinkSync(data, join(place, 'link'));
    assert.match((await backup(['--to', join(place, 'link/b'), '--data', data])).err, /is in the data folder/);
    assert.match((await backup(['--to', join(data, 'b'), '--data', join(place, 'link')])).err, /is in the data folder/);
    renameSync(logFolderOf(data), join(place, 'log'));
    symlinkSync(join(place, 'log'), logFolderOf(data));
    assert.match((await backup(['--to', join(place, 'log/b'), '--data', data])).err, /is in the data folder/);
    symlinkSync(join(place, 'nowhere'), join(place, 'dangling'));
    const dangling = await restore(['--from', target, '--data', join(place, 'dangling')]);
    assert.match(dangling.err, /dangling is a link to .*nowhere, and nothing is there\. Is a disk not mounted\?/);
    assert.match((await backup(['--to', join(place, 'no/b'), '--data', data])).err, /There is no folder .*mkdir -p/);
    for (const [args, words] of [
      [[], /where to\? --to FOLDER\|FILE/],
      [['--verify'], /the backup to check is missing/],
      [['b'], /to write it: --to b, to check it: --verify b/],
      [['--verify', join(place, 'nowhere')], /There is no /],
    ] as const) {
      assert.match((await backup(args)).err, words);
    }
  });

  test('beside another one of the same folder is refused', async (t) => {
    const { data } = await filledFolder(t);
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

test('retention removes no segment while a backup runs, because its copy of the store may need it', async (t) => {
  const folder = await filledFolder(t);
  const { data } = folder;
  const target = join(folderFor(t), 'b');
  /** What a server does that has processed everything, with a retention of nothing. */
  const expireAll = async (): Promise<string[]> => {
    const reader = openSqliteLogReader({ folder: logFolderOf(data), retentionMs: 0, now: () => FAR_FUTURE });
    await reader.commit(0, 5);
    await reader.close();
    return readdirSync(join(logFolderOf(data), '0')).filter((name) => name.endsWith('.db'));
  };
  await folder.append([{ users: [user('fred')] }]);
  const { code, err } = await backup(['--to', target, '--data', data, '--verify'], {
    copyDataFolder: (setup) =>
      copyDataFolder({
        ...setup,
        onFile: async (path) => {
          await setup.onFile(path);
          if (path !== 'store.db') return;
          await folder.process();
          assert.equal((await expireAll()).length, 4);
        },
      }),
  });
  assert.equal(code, 0, err);
  assert.deepEqual((await expireAll()).length, 1, 'and afterwards it does');
  const copy = join(folderFor(t), 'data');
  assert.equal((await restore(['--from', target, '--data', copy, '--verify'])).code, 0);
  assert.deepEqual(manifestOf(target).store?.positions, [{ partition: 0, position: 4 }]);
});

test('what root leaves in the data folder belongs to the user of the server, who goes on', async (t) => {
  if (skipWithout(t, process.getuid?.() === 0 ? undefined : 'needs root')) return;
  const { data } = await filledFolder(t);
  const [uid, gid] = [65_534, 65_534];
  for (const path of ['', ...readdirSync(data, { recursive: true, encoding: 'utf8' })])
    chownSync(join(data, path), uid, gid);
  const { code, err } = await backup(['--to', join(folderFor(t), 'b'), '--data', data]);
  assert.equal(code, 0, err);
  for (const path of readdirSync(data, { recursive: true, encoding: 'utf8' })) {
    assert.deepEqual([statSync(join(data, path)).uid, statSync(join(data, path)).gid], [uid, gid], path);
  }
});

test('beside a server that goes on, the log reaches as far as the store, and the keys know every tenant in it', async (t) => {
  const folder = await filledFolder(t);
  const target = join(folderFor(t), 'b');
  let rounds = 0;
  const { code, err } = await backup(['--to', target, '--data', folder.data, '--verify'], {
    copyDataFolder: (setup) =>
      copyDataFolder({
        ...setup,
        onFile: async (path) => {
          await setup.onFile(path);
          rounds += 1;
          await folder.send([{ account: `account ${rounds}`, users: [user(`someone ${rounds}`)] }]);
        },
      }),
  });
  assert.equal(code, 0, err);
  assert.ok(rounds >= 5);
  const { log, store } = manifestOf(target);
  assert.ok((log[0]?.next_position ?? 0) > (store?.positions[0]?.position ?? 0));
  const copy = join(folderFor(t), 'data');
  assert.equal((await restore(['--from', target, '--data', copy, '--verify'])).code, 0);
  const keyStore = openSqliteKeyStore(keyFileOf(copy));
  const known = new Set((await keyStore.accounts()).map(({ id }) => tenantOf(id, 'development')));
  await keyStore.close();
  const reader = openSqliteLogReader({ folder: logFolderOf(copy), retentionMs: 1e12, now: () => NOW });
  const tenants = new Set((await readAll(reader, 0)).map(({ tenantId }) => tenantId));
  await reader.close();
  assert.ok(tenants.size > 1);
  assert.deepEqual(
    Array.from(tenants).filter((tenantId) => !known.has(tenantId)),
    [],
  );
});

suite('A restore', () => {
  test('into a folder that is not empty is refused, and changes nothing', async (t) => {
    const { target, data } = await backedUp(t, 'b.tar');
    const before = filesIn(data);
    const { code, err } = await restore(['--from', target, '--data', data]);
    assert.equal(code, -1);
    assert.match(err, /is not empty \(it has .*\), and a restore overwrites nothing/);
    assert.deepEqual(filesIn(data), before);
    const other = folderFor(t);
    writeFileSync(join(other, 'notes.txt'), 'mine');
    assert.match((await restore(['--from', target, '--data', other])).err, /is not empty \(it has notes\.txt\)/);
    assert.deepEqual(readdirSync(other), ['notes.txt']);
  });

  test('goes into an empty folder that is there, such as a disk of its own', async (t) => {
    const { target } = await backedUp(t, 'b');
    const data = folderFor(t);
    mkdirSync(join(data, 'lost+found'));
    const { code, err } = await restore(['--from', target, '--data', data]);
    assert.equal(code, 0, err);
    assert.deepEqual(readdirSync(data).sort(), ['keys.db', 'lock.db', 'log', 'log-ends', 'lost+found', 'store.db']);
  });

  test('that was killed keeps servers away, and begins anew when it is run again', async (t) => {
    const { target } = await backedUp(t, 'b.tar.gz');
    const data = folderFor(t);
    writeRestoreMarker(data, target, NOW);
    mkdirSync(join(data, 'log/0'), { recursive: true });
    writeFileSync(join(data, 'store.db'), 'half of it');
    assert.match(await refusedStart({ dataFolder: data }), /A restore into .* was interrupted/);
    const doctor = (await runSluice(['doctor', '--data', data, '--json'])).stdout;
    assert.match(doctor, /a restore into it is running or was interrupted/);
    assert.doesNotMatch(doctor, /damaged/, 'the advice for damage would be wrong');
    assert.match((await runSluice(['keys', 'list', '--data', data])).stderr, /A restore into .* was interrupted/);
    const { code, err } = await restore(['--from', target, '--data', data, '--verify']);
    assert.equal(code, 0, err);
    assert.ok(!existsSync(join(data, 'restoring.json')));
  });

  test('names who was erased and which keys were revoked since, where the folder from before can be read', async (t) => {
    const folder = await filledFolder(t);
    const { data } = folder;
    const target = join(folderFor(t), 'b.tar');
    const since = NOW + 1_000;
    assert.equal((await backup(['--to', target, '--data', data], { now: () => since })).code, 0);
    const restored = (...more: string[]): Promise<Ran> =>
      restore(['--from', target, '--data', join(folderFor(t), 'data'), '--old-data', data, ...more]);
    assert.match((await restored()).out, /Since the backup began no person was erased and no key was revoked\./);

    const tenantId = await folder.tenantId();
    const profileId = await folder.withStore(async (store) => {
      const { rows } = await store.profiles(tenantId, { limit: 10, cursor: null });
      const [before, after] = rows.map(({ id }) => id);
      await store.erase(tenantId, before ?? '', { traceId: traceId(900), at: since - 500 });
      await store.erase(tenantId, after ?? '', { traceId: traceId(901), at: since + 500 });
      return after;
    });
    const keyStore = openSqliteKeyStore(keyFileOf(data));
    const [key] = await keyStore.list();
    await keyStore.revoke(key?.id ?? '', since + 500);
    await keyStore.close();
    const { out } = await restored();
    assert.deepEqual(out.match(/DELETE \/profiles\/\S+/g), [`DELETE /profiles/${profileId}`]);
    assert.ok(out.includes(`revoke again  sluice keys revoke ${key?.id}  (shop)`), out);
    const { erased_since } = JSON.parse((await restored('--json')).out) as { erased_since: object[] };
    assert.deepEqual(erased_since, [
      { tenant: tenantId, profile_id: profileId, at: new Date(since + 500).toISOString() },
    ]);
    // And it can be done: the erased profile is in the restored store under the same id.
    const copy = join(folderFor(t), 'data');
    assert.equal((await restore(['--from', target, '--data', copy])).code, 0);
    const store = openSqliteStore(storeFileOf(copy));
    assert.ok(await store.erase(tenantId, profileId ?? '', { traceId: traceId(902), at: since + 900 }));
    await store.close();

    withInstallation(data, INSTALLATIONS[0] ?? '');
    const tied = join(folderFor(t), 'tied');
    assert.equal((await backup(['--to', tied, '--data', data])).code, 0);
    withInstallation(data, INSTALLATIONS[1] ?? '');
    const copyOfOther = join(folderFor(t), 'data');
    const other = await restore(['--from', tied, '--data', copyOfOther, '--old-data', data]);
    assert.match(other.err, /is of the installation 11111111-.* and the backup .* of 00000000-.*leave --old-data out/);
    assert.ok(!existsSync(copyOfOther), 'something was restored');

    writeFileSync(storeFileOf(data), 'no database '.repeat(1_000));
    const unreadable = await restored();
    assert.match(unreadable.err, /store\.db cannot be read: .*Restore without --old-data/);
  });

  test('of a log alone needs STORE_URL, of an embedded installation needs it to be unset, and of neither LOG_URL', async (t) => {
    const { data, target, place } = await backedUp(t, 'b');
    const env = { STORE_URL: 'postgres://sluice@127.0.0.1:1/sluice' };
    const copy = join(folderFor(t), 'data');
    const embedded = await restore(['--from', target, '--data', copy], { env });
    assert.match(embedded.err, /is a backup of an embedded installation, and STORE_URL is set/);
    const made = await backup(['--to', join(place, 'log.tar'), '--data', data, '--verify'], { env });
    assert.equal(made.code, 0, made.err);
    assert.match(made.out, /PostgreSQL is not part of it: dump the database BEFORE/);
    const alone = await restore(['--from', join(place, 'log.tar'), '--data', copy]);
    assert.match(alone.err, /is a backup of the event log alone/);
    const both = await restore(['--from', join(place, 'log.tar'), '--data', copy], { env });
    assert.equal(both.code, 0, both.err);
    assert.deepEqual(readdirSync(copy).sort(), ['lock.db', 'log', 'log-ends']);
    const shared = { env: { ...env, LOG_URL: 'kafka://127.0.0.1:1/topic' } };
    assert.match((await backup(['--to', join(place, 'c'), '--data', data], shared)).err, /LOG_URL is set/);
    assert.match((await restore(['--from', target, '--data', dirname(copy)], shared)).err, /LOG_URL is set/);
  });

  test('says what is wrong with its arguments, and with a format of a later version', async (t) => {
    assert.match((await restore([])).err, /the backup is missing: --from FOLDER\|FILE/);
    assert.match((await restore(['--from', '/nowhere/b.tar'])).err, /There is no backup/);
    const { target } = await backedUp(t, 'b');
    await rewriteManifest(target, { format: 2 });
    const { err } = await restore(['--from', target, '--data', join(folderFor(t), 'data')]);
    assert.match(err, /has the format 2, and this version of Sluice knows 1 only/);
    writeFileSync(join(target, MANIFEST_FILE), '{}');
    const empty = await restore(['--from', target, '--data', join(folderFor(t), 'data')]);
    assert.match(empty.err, /cannot be used, "format" is missing\. Use another backup\./);
  });
});
