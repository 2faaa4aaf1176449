/**
 * Files of the data folder that the user of the server may not use, or that are not what they should be: the start and
 * `sluice doctor` name the file, its owner and what to do, and nothing is called damaged. Root may use everything, so where the
 * tests run as root the server runs as another user.
 */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import {
  chmodSync,
  chownSync,
  cpSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { suite, test, type TestContext } from 'node:test';
import { lockFolder, lockHolderOf } from '../../src/backends/embedded/folder-lock.ts';
import { recoverSegment } from '../../src/backends/embedded/log/recovery.ts';
import { listSegments } from '../../src/backends/embedded/log/segments.ts';
import { accessProblemsOf, ownerProblemsOf } from '../../src/data-folder/access.ts';
import { keyFileOf, logFolderOf, retentionTimeFileOf, storeFileOf } from '../../src/data-folder/files.ts';
import { OperatorError } from '../../src/errors.ts';
import { LogUnavailableError } from '../../src/log.ts';
import { openDataFolder } from '../cli/data-shell.ts';
import { eventually, post, readResponse, runSluice, user } from '../server.ts';
import { hindrance, mountSmallDisk, skipWithout } from './devices.ts';
import { launch, refusedStart } from './scope.ts';

const NOBODY = 65_534;
const isRoot = process.getuid?.() === 0;
/** Whom the server runs as, where that can be chosen. */
const as = isRoot ? { uid: NOBODY, gid: NOBODY } : {};

const FILES: readonly ((dataFolder: string) => string)[] = [
  newestSegment,
  retentionTimeFileOf,
  storeFileOf,
  keyFileOf,
  (folder) => join(logFolderOf(folder), 'name'),
  (folder) => `${logFolderOf(folder)}-ends`,
  (folder) => join(folder, 'lock.db'),
];

function newestSegment(dataFolder: string): string {
  return listSegments(logFolderOf(dataFolder)).at(-1)?.file ?? '';
}

/** With each of `FILES` in it, of the user that the server runs as. */
async function usedFolder(t: TestContext): Promise<string> {
  const { data, send } = openDataFolder(t);
  await send([{ users: [user('ada')] }]);
  lockFolder(data).release();
  for (const fileOf of FILES) writeFileSync(fileOf(data), '', { flag: 'a', mode: 0o600 });
  giveFolderAway(data);
  return data;
}

/** To the user that the server runs as. */
function giveFolderAway(dataFolder: string): void {
  if (!isRoot) return;
  for (const path of ['', ...readdirSync(dataFolder, { recursive: true, encoding: 'utf8' })])
    chownSync(join(dataFolder, path), NOBODY, NOBODY);
}

/** As after a start as root, or `sudo`; an ordinary user can only close a file to himself. */
function giveToAnother(path: string): void {
  chmodSync(path, isRoot ? 0o600 : 0);
  if (isRoot) chownSync(path, 0, 0);
}

function giveBack(path: string): void {
  chmodSync(path, 0o600);
  if (isRoot) chownSync(path, NOBODY, NOBODY);
}

/** The error for that user. */
function problemsIn(dataFolder: string): { readonly path: string; readonly what: string }[] {
  const module = new URL('../../src/data-folder/access.ts', import.meta.url).href;
  const program = `console.log(JSON.stringify((await import('${module}')).accessProblemsOf('${dataFolder}')))`;
  const args = ['--input-type=module', '-e', program];
  return JSON.parse(execFileSync(process.execPath, args, { encoding: 'utf8', env: {}, ...as })) as never;
}

suite('A file that the user of the server may not use', () => {
  test('is named with its owner by the start and by doctor, and called damaged by neither', async (t) => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = await usedFolder(t);
    const files = FILES.map((fileOf) => fileOf(dataFolder));
    assert.deepEqual(problemsIn(dataFolder), []);
    for (const file of files) giveToAnother(file);
    assert.deepEqual(
      problemsIn(dataFolder)
        .map(({ path }) => path)
        .sort(),
      files.toSorted(),
    );

    const words = await refusedStart({ dataFolder, ...as });
    assert.match(
      words,
      /\.(db|log) may not be read or written by this user \(uid \d+, gid \d+\): its owner is uid \d+, gid \d+, its mode 0[06]00/,
    );
    assert.match(words, /and 2 more/);
    assert.match(words, /This is not damage: .*chown -R \d+:\d+ /s);
    assert.doesNotMatch(words, /is damaged|\.lost|restart to recover/);
    const { code, stdout } = await runSluice(['doctor', '--data', dataFolder], {}, as);
    assert.equal(code, 1, stdout);
    assert.match(stdout.replace(/\s+/g, ' '), /✗ data folder .*\.(db|log) may not be read or written .*chown -R/);

    for (const file of files) giveBack(file);
    const server = await launch(scope, { dataFolder, ...as });
    assert.equal((await fetch(`${server.baseUrl}/livez`)).status, 200, 'given back, they are used');
  });

  test('gets advice for its cause, also where it is not among those that are shown', async (t) => {
    const dataFolder = await usedFolder(t);
    const name = join(logFolderOf(dataFolder), 'name');
    for (const fileOf of FILES) giveToAnother(fileOf(dataFolder));
    rmSync(name);
    mkdirSync(name);
    const words = await refusedStart({ dataFolder, ...as });
    assert.match(words, /and 2 more/);
    assert.doesNotMatch(words, /should be a file/);
    assert.match(words, /This is not damage: .*chown -R/s);
    assert.ok(words.includes(`Move ${name} elsewhere`), words);
  });

  test('is the whole folder: every command says whose it is, and what to do', async (t) => {
    const dataFolder = await usedFolder(t);
    giveToAnother(dataFolder);
    chmodSync(dataFolder, isRoot ? 0o700 : 0);
    using scope = new DisposableStack();
    scope.defer(() => chmodSync(dataFolder, 0o700));
    for (const command of [
      ['keys', 'list'],
      ['keys', 'create', '--name', 'x', '--kind', 'secret', '--env', 'development'],
      ['invite', '--email', 'ada@example.com'],
      ['export', '--format', 'csv'],
      ['trace', '019e807a-ec00-7000-8000-000000000001'],
      ['backup', '--to', join(dataFolder, '..', 'never.tar.zst')],
    ]) {
      const { code, stderr } = await runSluice([...command, '--data', dataFolder], {}, as);
      assert.equal(code, 1, stderr);
      assert.match(
        stderr,
        isRoot
          ? /may not be read or written by this user .*This is not damage: .*sudo -u '#0' sluice .*Only if no server runs as that user/s
          : /may not be read or written by this user .*This is not damage: .*chown -R/s,
        command.join(' '),
      );
      assert.doesNotMatch(stderr, /\n {4}at /);
    }
  });

  test('under a running server is a warning in words: log-ends, log-warnings and the folder of the log', async (t) => {
    await using scope = new AsyncDisposableStack();
    const { data: dataFolder } = openDataFolder(t);
    giveFolderAway(dataFolder);
    const server = await launch(scope, { dataFolder, args: ['--log-segment', '1MB'], ...as });
    const body = { users: [user('ada', [{ event_name: 'sent', text: 'x'.repeat(100_000) }])] };
    assert.equal((await post(server, server.key, body)).status, 202);
    const log = logFolderOf(dataFolder);
    writeFileSync(`${log}-warnings`, '');
    for (const name of ['ends', 'warnings']) giveToAnother(`${log}-${name}`);
    const headers = { authorization: `Bearer ${server.key}` };
    for (const path of ['/ledger', '/health']) {
      const { status, body: shown } = await fetch(server.baseUrl + path, { headers }).then(readResponse);
      assert.equal(status, 200, path);
      const warnings = (shown as { warnings: string[] }).warnings.join('\n');
      for (const name of ['log-ends', 'log-warnings']) {
        assert.match(
          warnings,
          new RegExp(`^${name} cannot be read: EACCES.* chown -R \\d+:\\d+ .* chmod -R`, 'm'),
          path,
        );
      }
    }
    chmodSync(log, 0o500);
    // A segment is full after ten of them.
    for (let sent = 0; sent < 10; sent++) assert.equal((await post(server, server.key, body)).status, 202);
    assert.equal(await server.ended, 'SIGKILL');
    assert.match(server.stderr(), /no new segment can be created in \S+\/log: EACCES.*The disk is not the cause/);
  });

  test('is the folder of the log: a running server ends without a crash, and the next start says what to do', async (t) => {
    await using scope = new AsyncDisposableStack();
    const { data: dataFolder } = openDataFolder(t);
    giveFolderAway(dataFolder);
    const server = await launch(scope, { dataFolder, ...as });
    assert.equal((await post(server, server.key, { users: [user('ada')] })).status, 202);
    const log = logFolderOf(dataFolder);
    giveToAnother(log);
    scope.defer(async () => chmodSync(log, 0o700));
    assert.equal((await post(server, server.key, { users: [user('grace')] })).status, 503);
    await server.ended;
    assert.match(server.stderr(), /the log cannot be written any more: EACCES/);
    assert.doesNotMatch(server.stderr(), /thread crashed/);
    assert.match(await refusedStart({ dataFolder, ...as }), /log may not be read or written by this user .*chown -R/s);
    giveBack(log);
    chmodSync(log, 0o700);
    const again = await launch(scope, { dataFolder, ...as });
    const headers = { authorization: `Bearer ${server.key}` };
    await eventually('what was acknowledged is stored', async () => {
      const { status } = await fetch(`${again.baseUrl}/profiles?user_id=ada`, { headers });
      return status === 200;
    });
  });

  test('because it may only be read is named, too, and so is a folder', async (t) => {
    const dataFolder = await usedFolder(t);
    const [segment, log] = [newestSegment(dataFolder), logFolderOf(dataFolder)];
    chmodSync(segment, 0o400);
    assert.match(problemsIn(dataFolder)[0]?.what ?? '', /^may not be written by this user .*its mode 0400$/);
    chmodSync(segment, 0o600);
    chmodSync(log, 0o500);
    assert.deepEqual(
      problemsIn(dataFolder).map(({ path }) => path),
      [log],
    );
    chmodSync(log, 0o600);
    assert.match(problemsIn(dataFolder)[0]?.what ?? '', /^may not be read by this user/);
    chmodSync(log, 0o700);
  });
});

test('a waiting segment that the user of the server may not read hides its own requests only', async (t) => {
  const folder = openDataFolder(t);
  const [processed = '', ...waiting] = Array.from({ length: 5 }, () => randomUUID());
  await folder.send([{ traceId: processed, users: [user('ada')] }]);
  // Each is a segment of its own, but for the second and third, which share one.
  for (const ids of [waiting.slice(0, 1), waiting.slice(1, 3), waiting.slice(3)])
    await folder.append(ids.map((traceId) => ({ traceId, users: [user('ada')] })));
  giveFolderAway(folder.data);
  giveToAnother(listSegments(logFolderOf(folder.data)).at(-2)?.file ?? '');

  const source = (path: string): string => new URL(`../../src/${path}`, import.meta.url).href;
  const program = `
    const { openSqliteStore } = await import('${source('backends/embedded/store/store.ts')}');
    const { openEmbeddedLogReader } = await import('${source('backends/embedded/log/reader.ts')}');
    const { withPendingRecords } = await import('${source('views/reading.ts')}');
    const log = openEmbeddedLogReader({ folder: '${logFolderOf(folder.data)}', retentionMs: 0, now: Date.now });
    const reading = withPendingRecords(openSqliteStore('${storeFileOf(folder.data)}'), log);
    const statuses = [];
    for (const id of ${JSON.stringify([processed, ...waiting])})
      statuses.push(await reading.trace(null, id).then((trace) => trace?.status, ({ name, message }) => name + ': ' + message));
    const [tenant] = await reading.tenants();
    const traces = await reading.traces(tenant, { limit: 10, cursor: null, status: null });
    const ledger = await reading.ledger(null, { from: null, to: null });
    console.log(JSON.stringify({ statuses, listed: traces.rows.length, missing: ledger.missingRecords }));
    await reading.close();`;
  const args = ['--input-type=module', '-e', program];
  const found = JSON.parse(execFileSync(process.execPath, args, { encoding: 'utf8', env: {}, ...as })) as {
    readonly statuses: readonly string[];
  };
  const hidden = found.statuses[2] ?? '';
  assert.match(
    hidden,
    /^LogCorruptError: .*\.log cannot be read by this user: .*It is not damaged; sluice doctor says/,
  );
  const statuses = ['processed', 'pending', hidden, hidden, 'pending'];
  assert.deepEqual(found, { statuses, listed: 3, missing: 2 });
});

suite('A data folder of another user', () => {
  test('is looked at by root, too: a file that its owner may not use is a warning', async (t) => {
    const dataFolder = await usedFolder(t);
    assert.deepEqual(ownerProblemsOf(dataFolder), []);
    if (!isRoot) return;
    giveToAnother(join(logFolderOf(dataFolder), 'name'));
    const { code, stdout } = await runSluice(['doctor', '--data', dataFolder], { SLUICE_DISK_FREE_MIN: '0' });
    assert.equal(code, 2, stdout);
    assert.match(
      stdout.replace(/\s+/g, ' '),
      /! data folder \S+name belongs to uid 0, and the data folder to uid 65534 → .* chown -R 65534:65534/,
    );
  });
});

test('a disk that is mounted read-only is named, and nothing is to be moved', async (t) => {
  if (skipWithout(t, hindrance('tmpfs'))) return;
  await using scope = new AsyncDisposableStack();
  const { folder } = mountSmallDisk(scope, 'size=20m');
  const dataFolder = join(folder, 'data');
  cpSync(await usedFolder(t), dataFolder, { recursive: true });
  execFileSync('mount', ['-o', 'remount,ro', folder]);
  const words = await refusedStart({ dataFolder });
  assert.match(words, /is on a disk that is mounted read-only/);
  assert.match(words, /Mount the disk for writing/);
  assert.doesNotMatch(words, /Move |chown/);
  const { code, stderr } = await runSluice(['backup', '--data', dataFolder, '--to', '/dev/shm/never-made.tar']);
  assert.equal(code, 1);
  assert.match(stderr, /is mounted read-only.*copy the folder to another disk/);
});

suite('A file of the data folder', () => {
  test('that is a folder, or a link to nowhere, is named before anything is opened', async (t) => {
    const dataFolder = await usedFolder(t);
    const before = readdirSync(dataFolder, { recursive: true }).length;
    for (const fileOf of FILES) {
      const path = fileOf(dataFolder);
      renameSync(path, `${path}.kept`);
      mkdirSync(path);
      assert.deepEqual(
        accessProblemsOf(dataFolder).map(({ what }) => what),
        ['is a folder, and should be a file'],
      );
      rmSync(path, { recursive: true });
      symlinkSync('/not-there', path);
      assert.match(accessProblemsOf(dataFolder)[0]?.what ?? '', /is a link to \/not-there, and nothing is there/);
      rmSync(path);
      renameSync(`${path}.kept`, path);
    }
    const log = logFolderOf(dataFolder);
    renameSync(log, `${dataFolder}/kept`);
    writeFileSync(log, '');
    assert.throws(
      () => lockFolder(dataFolder),
      (error) => error instanceof OperatorError && /log is a file, and should be a folder/.test(error.message),
    );
    rmSync(log);
    renameSync(`${dataFolder}/kept`, log);
    assert.equal(readdirSync(dataFolder, { recursive: true }).length, before, 'nothing was made or removed');
    lockFolder(dataFolder).release();
  });

  test('under the name of the lock that is something else is named, with what to do', async (t) => {
    const { data } = openDataFolder(t);
    writeFileSync(join(data, 'lock.db'), 'not a database'.repeat(100));
    const words = /lock\.db is not the file that Sluice made.* remove it/;
    assert.throws(() => lockFolder(data), { name: 'OperatorError', message: words });
    assert.throws(() => lockHolderOf(data), { name: 'OperatorError', message: words });
  });
});

test('a segment that cannot be opened is not called damaged, whatever the reason', async (t) => {
  const folder = openDataFolder(t);
  await folder.append([{ users: [user('ada')] }]);
  const file = newestSegment(folder.data);
  // A folder in its place: an error of the system that says nothing about the segment.
  const segment = listSegments(logFolderOf(folder.data)).at(-1);
  assert.ok(segment);
  rmSync(file);
  mkdirSync(file);
  assert.throws(
    () => recoverSegment(segment),
    (error) => error instanceof LogUnavailableError && !/damaged|\.lost/.test(error.message),
  );
});
