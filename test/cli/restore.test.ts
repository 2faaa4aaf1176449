/** `sluice restore`: where it may go, what it says about what is undone by it, and what is refused. */

import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { suite, test } from 'node:test';
import { lockFolder } from '../../src/backends/embedded/folder-lock.ts';
import { openSqliteKeyStore } from '../../src/backends/embedded/keys.ts';
import { MANIFEST_FILE } from '../../src/backup/manifest.ts';
import { writeRestoreMarker } from '../../src/backup/notes.ts';
import { openRetentionClock, writeRetentionTime } from '../../src/clock/retention-clock.ts';
import { keyFileOf, retentionTimeFileOf, storeFileOf } from '../../src/data-folder/files.ts';
import { createKey, rollKey } from '../../src/keys/manage.ts';
import type { Store } from '../../src/store.ts';
import { refusedStart } from '../faults/scope.ts';
import { runSluice } from '../server.ts';
import {
  backedUp,
  filesIn,
  filledFolder,
  folderFor,
  INSTALLATIONS,
  rewriteManifest,
  withInstallation,
} from './backed-up-folder.ts';
import { backup, restore } from './backing-up.ts';
import { NOW, openDataFolder, type Ran, traceId } from './data-shell.ts';

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

  test('names what was unmerged, erased, revoked, rolled and removed since, whatever the clock said', async (t) => {
    const folder = filledFolder(t);
    const { data } = folder;
    const accountId = (await folder.tenantId()).split('/')[0] ?? '';
    const keyStore = openSqliteKeyStore(keyFileOf(data));
    t.after(() => keyStore.close());
    const newKey = { accountId, kind: 'secret', environment: 'development', origins: [], expiresAt: null } as const;
    const [revoked, rolled] = [
      await createKey(keyStore, { ...newKey, name: 'revoked', now: NOW }),
      await createKey(keyStore, { ...newKey, name: 'rolled', now: NOW }),
    ];
    const keys = new DatabaseSync(keyFileOf(data));
    t.after(() => keys.close());
    keys.prepare("INSERT INTO members VALUES (1, 'mem_1', ?, 'a@b.c', 'a@b.c', '', 0, NULL)").run(accountId);
    const target = join(folderFor(t), 'b.tar');
    // The clock is ahead while the backup is made, and right again afterwards.
    assert.equal((await backup(['--to', target, '--data', data], { now: () => NOW + 18_000_000 })).code, 0);
    const restored = (...more: string[]): Promise<Ran> =>
      restore(['--from', target, '--data', join(folderFor(t), 'data'), '--old-data', data, ...more]);
    assert.match((await restored()).out, /nothing to do again: no one in the backup was unmerged or erased since/);

    const tenantId = await folder.tenantId();
    const profileId = await folder.withStore(async (store) => {
      const { rows } = await store.profiles(tenantId, { limit: 10, cursor: null });
      await store.erase(tenantId, rows[0]?.id ?? '', { traceId: traceId(901), at: NOW });
      return rows[0]?.id;
    });
    await keyStore.revoke(revoked.row.id, NOW);
    await rollKey(keyStore, { id: rolled.row.id, overlapMs: 0, now: NOW });
    keys.exec('DELETE FROM members');
    const { out } = await restored();
    assert.deepEqual(out.match(/DELETE \/profiles\/\S+/g), [`DELETE /profiles/${profileId}`]);
    assert.ok(out.includes(`revoke again   sluice keys revoke ${revoked.row.id}  (revoked)`), out);
    assert.ok(
      out.includes(`revoke again   sluice keys revoke ${rolled.row.id}  (rolled, rolled: it ended or ends`),
      out,
    );
    assert.ok(out.includes('remove again   DELETE /members/mem_1'), out);
    const at = new Date(NOW).toISOString();
    const json = JSON.parse((await restored('--json')).out) as Record<string, unknown>;
    assert.deepEqual(json['erased_since'], [{ tenant: tenantId, profile_id: profileId, at }]);
    assert.deepEqual(json['keys_ended_since'], [
      { id: revoked.row.id, name: 'revoked', at, by: 'revoke' },
      { id: rolled.row.id, name: 'rolled', at, by: 'roll' },
    ]);
    assert.deepEqual(json['members_removed_since'], ['mem_1']);
  });

  test('names whom to unmerge and erase so that those are gone who were erased, and no one else', async (t) => {
    const folder = openDataFolder(t);
    const { data } = folder;
    const person = (...identifiers: string[]) => ({
      identifiers: Object.fromEntries(identifiers.map((text) => text.split(':') as [string, string])),
      events: [{ event_name: 'seen' }],
    });
    const sent = (...identifiers: string[]) => ({ users: [person(...identifiers)] });
    const mergedBy = traceId(900);
    await folder.send([
      ...['a', 'b', 'c', 'd', 'f', 'g', 'h'].map((name) => sent(`anon_id:${name}`)),
      sent('anon_id:a', 'user_id:A'),
      sent('anon_id:b', 'email:b@example.com'),
      // c and d are one person, and so are f, g and h.
      sent('anon_id:c', 'user_id:C'),
      sent('anon_id:d', 'email:d@example.com'),
      { ...sent('user_id:C', 'email:d@example.com'), traceId: mergedBy },
      sent('anon_id:f', 'user_id:F'),
      sent('anon_id:g', 'email:g@example.com'),
      sent('anon_id:h', 'phone_number:+4915112345678'),
      sent('user_id:F', 'email:g@example.com'),
      sent('user_id:F', 'phone_number:+4915112345678'),
    ]);
    // Not processed when the backup is made.
    await folder.append([sent('anon_id:e')]);
    const target = join(folderFor(t), 'b');
    assert.equal((await backup(['--to', target, '--data', data])).code, 0);

    await folder.send([sent('user_id:A', 'email:b@example.com')]);
    const tenantId = await folder.tenantId();
    const named = (store: Store, name: string) => store.findProfile(tenantId, 'anon_id', name);
    await folder.withStore(async (store) => {
      let n = 950;
      const audit = () => ({ traceId: traceId((n += 1)), at: NOW });
      const erase = async (name: string) => store.erase(tenantId, (await named(store, name))?.id ?? '', audit());
      assert.equal((await store.unmerge(tenantId, (await named(store, 'c'))?.id ?? '', mergedBy, audit()))?.undone, 1);
      for (const name of ['a', 'd', 'e', 'f']) assert.ok(await erase(name), name);
      const left = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'].map(async (name) => (await named(store, name)) && name);
      assert.deepEqual((await Promise.all(left)).filter(Boolean), ['c']);
    });

    const copy = openDataFolder(t);
    rmSync(copy.data, { recursive: true });
    const { out } = await restore(['--from', target, '--data', copy.data, '--old-data', data, '--json']);
    const json = JSON.parse(out) as Record<'unmerged_since' | 'erased_since', Record<string, string>[]>;
    await copy.process();
    await copy.withStore(async (store) => {
      for (const { tenant, profile_id = '', trace_id = '' } of json.unmerged_since) {
        assert.ok(await store.unmerge(tenant ?? '', profile_id, trace_id, { traceId: traceId(990), at: NOW }));
      }
      // One for a, b and d each, and one for f, g and h.
      assert.equal(json.erased_since.length, 4);
      for (const { tenant, profile_id = '' } of json.erased_since) {
        assert.ok(await store.erase(tenant ?? '', profile_id, { traceId: traceId(991), at: NOW }));
      }
      const left = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'].map(async (name) => (await named(store, name)) && name);
      assert.deepEqual((await Promise.all(left)).filter(Boolean), ['c']);
    });
  });

  test('leaves a backup as it is that is given as the old data, and refuses what does not know what was done since', async (t) => {
    const folder = filledFolder(t);
    const { data } = folder;
    const [older, newer] = [join(folderFor(t), 'older'), join(folderFor(t), 'newer')];
    assert.equal((await backup(['--to', older, '--data', data])).code, 0);
    await folder.process();
    assert.equal((await backup(['--to', newer, '--data', data])).code, 0);
    const files = filesIn(newer);
    const copy = (): string => join(folderFor(t), 'data');
    assert.equal((await restore(['--from', older, '--data', copy(), '--old-data', newer])).code, 0);
    assert.deepEqual(filesIn(newer), files);
    assert.equal((await backup(['--verify', newer])).code, 0);
    const refused = copy();
    const { err } = await restore(['--from', newer, '--data', refused, '--old-data', older]);
    assert.match(err, /store\.db is older than the backup\. Restore without --old-data/);
    assert.ok(!existsSync(refused), 'something was restored');

    const store = new DatabaseSync(storeFileOf(data));
    store.exec("UPDATE identity SET id = 'another'");
    store.close();
    const rebuilt = await restore(['--from', newer, '--data', copy(), '--old-data', data]);
    assert.match(rebuilt.err, /store\.db is not the store that was backed up, but a new one\./);

    withInstallation(data, INSTALLATIONS[0] ?? '');
    const tied = join(folderFor(t), 'tied');
    assert.equal((await backup(['--to', tied, '--data', data])).code, 0);
    withInstallation(data, INSTALLATIONS[1] ?? '');
    const other = await restore(['--from', tied, '--data', refused, '--old-data', data]);
    assert.match(other.err, /is of the installation 11111111-.* and the backup .* of 00000000-.*leave --old-data out/);
    assert.ok(!existsSync(refused), 'something was restored');

    writeFileSync(storeFileOf(data), 'no database '.repeat(1_000));
    const unreadable = await restore(['--from', newer, '--data', copy(), '--old-data', data]);
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
    await rewriteManifest(target, { format: 3 });
    const { err } = await restore(['--from', target, '--data', join(folderFor(t), 'data')]);
    assert.match(err, /has the format 3, and this version of Sluice knows 2 only/);
    writeFileSync(join(target, MANIFEST_FILE), '{}');
    const empty = await restore(['--from', target, '--data', join(folderFor(t), 'data')]);
    assert.match(empty.err, /cannot be used, "format" is missing\. Use another backup\./);
  });
});
