/** A backup that was changed, cut, appended to or made from damaged files: it is refused, and what is damaged is named. */

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { suite, test } from 'node:test';
import { gunzipSync, gzipSync, zstdCompressSync, zstdDecompressSync } from 'node:zlib';
import { MANIFEST_FILE } from '../../src/backup/manifest.ts';
import { skipWithout } from '../faults/devices.ts';
import { straceHindrance, underStrace } from '../faults/strace.ts';
import { MAIN, PROGRAM_ENV } from '../server.ts';
import { backedUp, flipByte, folderFor, FORMS, manifestOf, rewriteManifest } from './backed-up-folder.ts';
import { backup, restore } from './backing-up.ts';

const INSTALLATIONS = ['00000000-0000-4000-8000-000000000000', '11111111-0000-4000-8000-000000000000'] as const;

const same = (bytes: Buffer): Buffer => bytes;

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

  test('is refused if an archive has a file twice', async (t) => {
    const { target, place } = await backedUp(t, 'plain.tar');
    execFileSync('tar', ['-xf', target, '-C', place]);
    for (const name of ['keys.db', MANIFEST_FILE]) {
      const again = join(place, 'again.tar');
      cpSync(target, again);
      execFileSync('tar', ['-rf', again, '-C', place, name]);
      assert.match((await backup(['--verify', again])).err, new RegExp(`again\\.tar is damaged: it has ${name} twice`));
    }
  });

  test('is refused if an archive has a link or a device in it', async (t) => {
    const { target, place } = await backedUp(t, 'plain.tar');
    const [folder, linked] = [join(place, 'more'), join(place, 'linked.tar')];
    mkdirSync(folder);
    writeFileSync(join(folder, 'log-warnings'), '');
    linkSync(join(folder, 'log-warnings'), join(folder, 'hard'));
    symlinkSync('log-warnings', join(folder, 'soft'));
    for (const name of ['hard', 'soft', '/dev/null']) {
      cpSync(target, linked);
      execFileSync('tar', ['-P', '-rf', linked, '-C', folder, 'log-warnings', name]);
      assert.match(
        (await backup(['--verify', linked])).err,
        new RegExp(`"${name}" is neither a file nor a folder\\. Copy`),
      );
    }
  });

  for (const form of FORMS.slice(1)) {
    test(`is refused as ${form} wherever a byte was changed or the end is missing`, async (t) => {
      const { target, place } = await backedUp(t, form);
      const whole = readFileSync(target);
      const damaged = join(place, `damaged-${form}`);
      const decompress = {
        folder: same,
        'plain.tar': same,
        'gzip.tar.gz': gunzipSync,
        'zstd.tar.zst': zstdDecompressSync,
      }[form];
      // In the middle of contents, of which an archive nearly is; then its last kilobytes, with the manifest.
      for (const at of [0.1, 0.3, 0.5, 0.7, 0.9].map((share) => Math.floor(whole.byteLength * share))) {
        writeFileSync(damaged, whole);
        flipByte(damaged, at);
        const { code, err } = await backup(['--verify', damaged]);
        // Some changes of compressed bytes have no effect, such as another distance within a run of zeros.
        if (code === 0) assert.deepEqual(decompress(readFileSync(damaged)), decompress(whole));
        else assert.match(err, /damaged|is not part of it|not a finished backup/, `byte ${at} of ${whole.byteLength}`);
        writeFileSync(damaged, whole.subarray(0, at));
        const data = join(folderFor(t), 'data');
        const cut = await restore(['--from', damaged, '--data', data]);
        assert.match(cut.err, /damaged or cut short|not a finished backup/);
        assert.ok(!existsSync(data), 'something was left');
      }
      if (form === 'plain.tar') {
        for (const bytes of [0, 100, 512, 700, 2_000, whole.byteLength - 1_024, whole.byteLength - 512]) {
          writeFileSync(damaged, whole.subarray(0, bytes));
          assert.match(
            (await backup(['--verify', damaged])).err,
            /cut short.*: Tar archive is truncated\. Copy it again/,
          );
        }
        // In the name, size, checksum, type and padding of the first header.
        for (const at of [0, 124, 148, 156, 300]) {
          writeFileSync(damaged, whole);
          flipByte(damaged, at);
          assert.match((await backup(['--verify', damaged])).err, /damaged or cut short: Invalid tar/, `byte ${at}`);
        }
        writeFileSync(damaged, 'no archive at all '.repeat(100));
        assert.match((await backup(['--verify', damaged])).err, /damaged or cut short: Invalid tar/);
      }
      assert.deepEqual(readdirSync(place).sort(), [form, `damaged-${form}`].sort());
    });
  }

  for (const form of FORMS) {
    test(`is not what ${form} is called on a disk that cannot be read`, async (t) => {
      if (skipWithout(t, straceHindrance())) return;
      const { target, place } = await backedUp(t, form);
      const file = form === 'folder' ? join(target, 'store.db') : target;
      // The first read fails, and the one that would find the end.
      for (const when of [1, 2]) {
        const strace = underStrace(`read:error=EIO:when=${when}`, join(place, 'trace'));
        const [program, ...args] = [...strace, '-P', file, process.execPath, MAIN, 'backup', '--verify', target];
        // Strace counts by thread, and all reads are to be of one.
        const env = { ...PROGRAM_ENV, UV_THREADPOOL_SIZE: '1' };
        const { status, stderr } = spawnSync(program, args, { env, encoding: 'utf8' });
        assert.equal(status, 1, stderr);
        assert.match(stderr, /Stopped by an error: EIO/);
        assert.doesNotMatch(stderr, /damaged/);
      }
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
      // Padding, with which tar fills its last record.
      for (const zeros of [1, 512, 10_000]) {
        writeFileSync(target, Buffer.concat([whole, Buffer.alloc(zeros)]));
        const { code, err } = await backup(['--verify', target]);
        assert.equal(code, form === 'plain.tar' ? 0 : -1, `${form} and ${zeros}: ${err}`);
      }
    }
  });

  test('is refused when its files were damaged before they were copied: records, pages, ledger, positions', async (t) => {
    const { target } = await backedUp(t, 'folder');
    const original = join(folderFor(t), 'original');
    cpSync(target, original, { recursive: true });
    const segment = 'log/0000000000000003.log';
    const newest = 'log/0000000000000004.log';
    const cases: [words: RegExp, damage: () => void][] = [
      [
        /position 3 of the log segment .*0000000000000003\.log is damaged/,
        () => rewrite(segment, (text) => text.replace('"secret",null,2,', '"secret",null,7,')),
      ],
      [
        /0000000000000003\.log is damaged: it has no position 3/,
        () => rewrite(segment, (text) => text.slice(0, text.indexOf('\n\n') + 2)),
      ],
      [
        /0000000000000003\.log/,
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
        /store\.db is damaged: event 1 is not one of its record 1/,
        () => change('store.db', 'UPDATE records SET no = 9 WHERE no = 1'),
      ],
      [
        /store\.db is damaged: event 2 is not one of its record 2/,
        () => change('store.db', 'UPDATE records SET first_event = 3 WHERE no = 2'),
      ],
      [
        /store\.db is damaged: event 1 is of node 1, which is not there/,
        () => change('store.db', 'DELETE FROM nodes WHERE no = 1'),
      ],
      [
        /store\.db is damaged: event 4 is stored, and the next event would get the number 3/,
        () => change('store.db', "UPDATE sequences SET next = 3 WHERE name = 'event'"),
      ],
      [
        /do not belong together: at position 2 the log has the request .*, and the store has processed/,
        () => change('store.db', 'UPDATE positions SET position = 3'),
      ],
      [/"keys" in backup-manifest\.json says/, () => change('keys.db', 'DELETE FROM keys')],
      [
        /keys\.db cannot be read by this version of Sluice: no such table: members/,
        () => change('keys.db', 'PRAGMA foreign_keys = OFF; DROP TABLE members'),
      ],
      [/store\.db is damaged/, () => flipByte(join(target, 'store.db'), 8_192 * 3 + 3)],
      [
        /store\.db is of the installation 00000000-.*, and the log next to it of 11111111-/,
        () => {
          change('store.db', `DELETE FROM belongs_to; INSERT INTO belongs_to VALUES ('${INSTALLATIONS[0]}')`);
          writeFileSync(join(target, 'log/installation'), `${INSTALLATIONS[1]}\n`);
        },
      ],
      [/"log" in backup-manifest\.json/, () => rmSync(join(target, newest))],
      [
        /do not belong together: the store has processed the log up to position 4, and its log holds positions 1 to 3/,
        () => [segment, newest].forEach((path) => rmSync(join(target, path))),
      ],
      [/do not belong together/, () => rmSync(join(target, 'log'), { recursive: true })],
    ];
    const change = (path: string, sql: string): void => {
      const database = new DatabaseSync(join(target, path));
      database.exec(`PRAGMA journal_mode = DELETE; ${sql}; PRAGMA journal_mode = WAL`);
      database.close();
    };
    const rewrite = (path: string, change: (text: string) => string): void =>
      writeFileSync(join(target, path), change(readFileSync(join(target, path), 'latin1')), 'latin1');
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
