/**
 * `sluice backup` and `sluice restore` on real files: what comes back is what was there, whatever form the backup has,
 * and also where a server continues meanwhile.
 */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chownSync, mkdirSync, readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { copyDataFolder } from '../../src/backends/embedded/backup/backup.ts';
import { openSqliteKeyStore } from '../../src/backends/embedded/keys.ts';
import { openEmbeddedLogReader } from '../../src/backends/embedded/log/reader.ts';
import { noteLogWarning, readLogWarnings } from '../../src/backends/embedded/log/warnings.ts';
import { openSqliteStore } from '../../src/backends/embedded/store/store.ts';
import type { Manifest } from '../../src/backup/manifest.ts';
import { keyFileOf, logFolderOf, storeFileOf } from '../../src/data-folder/files.ts';
import { tenantOf } from '../../src/model.ts';
import { readAll } from '../contract/log-entries.ts';
import { skipWithout } from '../faults/devices.ts';
import { assertSame } from '../processor/store-dump.ts';
import { user } from '../server.ts';
import { backedUp, filesIn, filledFolder, folderFor, FORMS, manifestOf } from './backed-up-folder.ts';
import { backup, restore } from './backing-up.ts';
import { NOW } from './data-shell.ts';

const FAR_FUTURE = NOW + 1_000 * 86_400_000;

suite('sluice backup and sluice restore', () => {
  for (const form of FORMS) {
    test(`what was backed up as ${form} comes back the same, private to its owner`, async (t) => {
      const { data, target, place } = await backedUp(t, form);
      assert.deepEqual(readdirSync(place), [form]);
      const checked = await backup(['--verify', target]);
      assert.equal(checked.code, 0, checked.err);
      assert.match(
        checked.out,
        /is intact: 4 events, 1 key, 0 members, a log of 4 requests, of which 1 waits to be processed/,
      );
      assert.deepEqual(readdirSync(place), [form], 'the check left something');

      const copy = join(folderFor(t), 'data');
      const restored = await restore(['--from', target, '--data', copy, '--verify']);
      assert.equal(restored.code, 0, restored.err);
      assert.match(restored.out, /The restore undoes unmerges, erasures/);
      for (const path of ['.', 'store.db', 'keys.db', 'log', ...filesIn(target === copy ? '' : copy)]) {
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

  for (const form of ['folder', 'plain.tar']) {
    test(`warnings about lost requests come back from ${form}, and a later start adds to them`, async (t) => {
      const { data } = filledFolder(t);
      noteLogWarning(logFolderOf(data), 'requests may be lost', NOW);
      const [target, copy] = [join(folderFor(t), form), join(folderFor(t), 'data')];
      const made = await backup(['--to', target, '--data', data, '--verify', '--json']);
      assert.equal(made.code, 0, made.err);
      assert.deepEqual((JSON.parse(made.out) as { files_left_out: string[] }).files_left_out, []);
      const restored = await restore(['--from', target, '--data', copy, '--verify']);
      assert.equal(restored.code, 0, restored.err);
      noteLogWarning(logFolderOf(copy), 'more may be lost', NOW + 1);
      assert.deepEqual(readLogWarnings(logFolderOf(copy)), [
        { at: NOW, message: 'requests may be lost' },
        { at: NOW + 1, message: 'more may be lost' },
      ]);
      assert.equal(statSync(join(copy, 'log-warnings')).mode & 0o777, 0o600);
    });
  }

  test('if the end of the log is not known, the backup says so, and so does what is restored from it', async (t) => {
    const { data } = filledFolder(t);
    const place = folderFor(t);
    const whole = await backup(['--to', join(place, 'whole'), '--data', data]);
    assert.doesNotMatch(whole.out, /log-warnings/);
    rmSync(join(data, 'log-ends'));
    const { code, out } = await backup(['--to', join(place, 'b.tar'), '--data', data, '--verify']);
    assert.equal(code, 0);
    assert.match(out, /Warnings of earlier starts are in log-warnings/);
    assert.deepEqual(readLogWarnings(logFolderOf(data)), [], 'a backup changes nothing');
    const copy = join(folderFor(t), 'data');
    const restored = await restore(['--from', join(place, 'b.tar'), '--data', copy]);
    assert.match(restored.out, /Warnings of earlier starts are in log-warnings/);
    const [warning] = readLogWarnings(logFolderOf(copy));
    assert.match(warning?.message ?? '', /^log-ends is missing.* is not known/);
  });

  test('an archive opens with tar alone, and what it unpacks is a backup too', async (t) => {
    const { target, place } = await backedUp(t, 'plain.tar');
    const folder = join(place, 'unpacked');
    mkdirSync(folder);
    execFileSync('tar', ['-xf', target, '-C', folder]);
    assert.equal((await backup(['--verify', folder])).code, 0);
    // And back, by a hand that knows nothing of Sluice: in another order, with folders among the files.
    for (const format of ['gnu', 'ustar', 'posix']) {
      execFileSync('tar', [`--format=${format}`, '-czf', join(place, `${format}.tar.gz`), '-C', folder, '.']);
      const again = await backup(['--verify', join(place, `${format}.tar.gz`)]);
      assert.equal(again.code, 0, again.err);
    }
  });

  test('progress is shown, and --json says what the backup holds', async (t) => {
    const { data } = filledFolder(t);
    const target = join(folderFor(t), 'b.tar');
    let now = NOW;
    const changes = { now: () => (now += 200), errTerminal: { isTty: true, columns: 100 } };
    const { out, err, code } = await backup(['--to', target, '--data', data, '--json', '--verify'], changes);
    assert.equal(code, 0, err);
    assert.match(err, /backup {2}█+░* +\d+% {2}\d files? {2}[\d.]+ \w?B {2}[\d.]+ \w?B\/s/);
    const result = JSON.parse(out) as Manifest & { verified: boolean; files_left_out: string[] };
    assert.deepEqual([result.verified, result.scope, result.files_left_out], [true, 'all', []]);
    assert.equal(result.store?.position, 4);
    assert.deepEqual(result.log, { first_position: 1, next_position: 5, records: 4 });
  });
});

test('retention removes no segment while a backup runs, because its copy of the store may need it', async (t) => {
  const folder = filledFolder(t);
  const { data } = folder;
  const target = join(folderFor(t), 'b');
  /** What a server does that has processed everything, with a retention of nothing. */
  const expireAll = async (): Promise<string[]> => {
    const reader = openEmbeddedLogReader({ folder: logFolderOf(data), retentionMs: 0, now: () => FAR_FUTURE });
    await reader.commit(0, 5);
    await reader.close();
    return readdirSync(logFolderOf(data)).filter((name) => /^\d{16}\.log$/.test(name));
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
  assert.equal(manifestOf(target).store?.position, 4);
});

test('what root leaves in the data folder belongs to the user of the server, which continues', async (t) => {
  if (skipWithout(t, process.getuid?.() === 0 ? undefined : 'needs root')) return;
  const { data } = filledFolder(t);
  const [uid, gid] = [65_534, 65_534];
  for (const path of ['', ...readdirSync(data, { recursive: true, encoding: 'utf8' })])
    chownSync(join(data, path), uid, gid);
  const { code, err } = await backup(['--to', join(folderFor(t), 'b'), '--data', data]);
  assert.equal(code, 0, err);
  for (const path of readdirSync(data, { recursive: true, encoding: 'utf8' })) {
    assert.deepEqual([statSync(join(data, path)).uid, statSync(join(data, path)).gid], [uid, gid], path);
  }
});

test('beside a server that continues, the log reaches as far as the store, and the keys know every tenant in it', async (t) => {
  const folder = filledFolder(t);
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
  assert.ok(log.next_position > (store?.position ?? 0));
  const copy = join(folderFor(t), 'data');
  assert.equal((await restore(['--from', target, '--data', copy, '--verify'])).code, 0);
  const keyStore = openSqliteKeyStore(keyFileOf(copy));
  const known = new Set((await keyStore.accounts()).map(({ id }) => tenantOf(id, 'development')));
  await keyStore.close();
  const reader = openEmbeddedLogReader({ folder: logFolderOf(copy), retentionMs: 1e12, now: () => NOW });
  const tenants = new Set((await readAll(reader, 0)).map(({ tenantId }) => tenantId));
  await reader.close();
  assert.ok(tenants.size > 1);
  assert.deepEqual(
    Array.from(tenants).filter((tenantId) => !known.has(tenantId)),
    [],
  );
});
