/** `sluice restore`: where it may go, and what is refused. */

import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { suite, test } from 'node:test';
import { lockFolder } from '../../src/backends/embedded/folder-lock.ts';
import { MANIFEST_FILE } from '../../src/backup/manifest.ts';
import { writeRestoreMarker } from '../../src/backup/notes.ts';
import { openRetentionClock, writeRetentionTime } from '../../src/clock/retention-clock.ts';
import { retentionTimeFileOf } from '../../src/data-folder/files.ts';
import { refusedStart } from '../faults/scope.ts';
import { runSluice } from '../server.ts';
import { backedUp, filesIn, filledFolder, folderFor, rewriteManifest } from './backed-up-folder.ts';
import { backup, restore } from './backing-up.ts';
import { NOW } from './data-shell.ts';

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
    assert.deepEqual(readdirSync(data).sort(), [
      'keys.db',
      'lock.db',
      'log',
      'log-ends',
      'lost+found',
      'retention-time',
      'store.db',
    ]);
  });

  test('that was killed keeps servers away, and starts over when it is run again', async (t) => {
    const { target } = await backedUp(t, 'b.tar.gz');
    const data = folderFor(t);
    writeRestoreMarker(data, target, NOW);
    mkdirSync(join(data, 'log'), { recursive: true });
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

  test('continues retention where it was, whatever the clock of the first start says', async (t) => {
    const DAY_MS = 86_400_000;
    const { data } = filledFolder(t);
    const timeAfter = async (name: string): Promise<number> => {
      const target = join(folderFor(t), name);
      assert.equal((await backup(['--to', target, '--data', data])).code, 0);
      const copy = join(folderFor(t), 'data');
      assert.equal((await restore(['--from', target, '--data', copy])).code, 0);
      const setup = { time: () => NOW + 6 * DAY_MS, monotonic: () => 0 };
      return openRetentionClock({ file: retentionTimeFileOf(copy), ...setup })();
    };
    assert.equal(await timeAfter('never.tar'), NOW, 'retention has never run: the time of the backup');
    writeRetentionTime(retentionTimeFileOf(data), NOW - DAY_MS);
    assert.equal(await timeAfter('behind.tar'), NOW - DAY_MS);
    writeRetentionTime(retentionTimeFileOf(data), NOW + DAY_MS);
    assert.equal(await timeAfter('ahead.tar'), NOW);
  });

  test('that was killed before it wrote its marker can be run again', async (t) => {
    const { target } = await backedUp(t, 'b.tar');
    const data = folderFor(t);
    lockFolder(data).release();
    assert.deepEqual(readdirSync(data).sort(), ['lock.db', 'server.pid']);
    const { code, err } = await restore(['--from', target, '--data', data]);
    assert.equal(code, 0, err);
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
    await rewriteManifest(target, { format: 3 });
    const { err } = await restore(['--from', target, '--data', join(folderFor(t), 'data')]);
    assert.match(err, /has the format 3, and this version of Sluice knows 2 only/);
    writeFileSync(join(target, MANIFEST_FILE), '{}');
    const empty = await restore(['--from', target, '--data', join(folderFor(t), 'data')]);
    assert.match(empty.err, /cannot be used, "format" is missing\. Use another backup\./);
  });
});
