/**
 * `lock.db` is removed under a running server, as one does with a lock that looks stale, and a second server starts on the
 * same folder. The first must end without another 202, and everything that either of them acknowledged is stored. The
 * same holds for the segment of the log that a server writes to: what it would acknowledge after that, no restart finds.
 */

import assert from 'node:assert/strict';
import {
  appendFileSync,
  copyFileSync,
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
} from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { lockFolder } from '../../src/backends/embedded/folder-lock.ts';
import { openEmbeddedLogAppender } from '../../src/backends/embedded/log/appender.ts';
import { PREFIX_BYTES } from '../../src/backends/embedded/log/frames.ts';
import { openEmbeddedLogReader } from '../../src/backends/embedded/log/reader.ts';
import { SegmentWriter } from '../../src/backends/embedded/log/segments.ts';
import { assertLockHeld, type HeldLock, LockLostError } from '../../src/data-folder/held-lock.ts';
import type { LogAppender } from '../../src/log.ts';
import { NO_HOURS } from '../../src/store.ts';
import { entry } from '../contract/log-entries.ts';
import { appendAll, processAll, withStore } from '../processor/processing.ts';
import { post, processed, type TestServer, user } from '../server.ts';
import { testPostgres, whyNoPostgres } from '../servers/postgres.ts';
import { folderIn, launch } from './scope.ts';

/** The trace ids of those that were acknowledged. */
async function send(server: TestServer, key: string, count: number): Promise<string[]> {
  const all = Array.from({ length: count }, async (_, n) => {
    const sent = await post(server, key, { users: [user(`person-${n}`)] }).catch(() => undefined);
    return sent?.status === 202 ? [(sent.body as { trace_id: string }).trace_id] : [];
  });
  return (await Promise.all(all)).flat();
}

async function allProcessed(server: TestServer, key: string, traceIds: readonly string[]): Promise<void> {
  for (const traceId of traceIds) await processed(server, key, traceId);
}

/** The first server sleeps while its lock is removed and a second one starts, and is sent requests before it wakes up. */
async function twoServers(env: Readonly<Record<string, string>>): Promise<void> {
  await using scope = new AsyncDisposableStack();
  const dataFolder = folderIn(scope);
  const first = await launch(scope, { dataFolder, env });
  const { key } = first;
  const before = await send(first, key, 5);
  assert.equal(before.length, 5);
  await allProcessed(first, key, before);
  process.kill(first.pid, 'SIGSTOP');
  rmSync(join(dataFolder, 'lock.db'));
  const second = await launch(scope, { dataFolder, env });
  const early = await send(second, key, 5);
  const late = send(first, key, 5);
  // By now they wait in its sockets, and are the first thing that it sees.
  const between = await send(second, key, 5);
  process.kill(first.pid, 'SIGCONT');
  assert.deepEqual(await late, [], 'no 202 without the lock');
  assert.equal(await first.ended, 'SIGKILL');
  assert.match(first.stderr(), /lock\.db was removed or replaced while this server was running/);
  const after = await send(second, key, 5);
  assert.deepEqual([early.length, between.length, after.length], [5, 5, 5]);
  await allProcessed(second, key, [...before, ...early, ...between, ...after]);
}

function openAppender(folder: string, lock: HeldLock | null, onFatal = assert.fail as (words: string) => void) {
  return openEmbeddedLogAppender({
    folder: join(folder, 'log'),
    segmentBytes: 1_000_000,
    lock,
    metrics: null,
    onFatal,
  });
}

async function append(appender: LogAppender, ...traceIds: string[]): Promise<void> {
  for (const traceId of traceIds) await appender.append(entry({ traceId }));
}

suite('A server whose lock.db was removed', () => {
  test('ends without another 202 once a second server runs, and nothing acknowledged is lost', () =>
    twoServers({ SLUICE_EDGES: '2' }));

  test('does so beside PostgreSQL too', { skip: whyNoPostgres() }, async () =>
    twoServers({ STORE_URL: await (await testPostgres()).newDatabase() }),
  );

  test('ends within a second or two also while no request comes', async () => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    const server = await launch(scope, { dataFolder });
    renameSync(join(dataFolder, 'lock.db'), join(dataFolder, 'elsewhere'));
    assert.equal(await server.ended, 'SIGKILL');
    assert.match(server.stderr(), /"msg":"exiting: the lock of the data folder is gone"/);
  });
});

suite('The log', () => {
  test('acknowledges nothing after its lock is gone', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = folderIn(scope);
    const lock = lockFolder(folder);
    scope.defer(() => lock.release());
    const { file, identity } = lock;
    const fatal: string[] = [];
    const appender = await openAppender(folder, { file, identity }, (words) => fatal.push(words));
    await append(appender, 'one');
    renameSync(file, `${file}.away`);
    await assert.rejects(append(appender, 'two'), /lock\.db was removed or replaced/);
    await assert.rejects(append(appender, 'three'), /lock\.db was removed or replaced/);
    assert.equal(fatal.length, 1);
  });

  test('passes over what a server wrote that had lost its lock, where a later segment has those positions', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = folderIn(scope);
    const first = await openAppender(folder, null);
    await append(first, 'a1', 'a2', 'a3');
    const second = await openAppender(folder, null);
    await append(second, 'b4', 'b5');
    await append(first, 'never acknowledged');
    await Promise.all([first.close(), second.close()]);
    const reader = openEmbeddedLogReader({ folder: join(folder, 'log') });
    scope.defer(() => reader.close());
    const { records, next } = await reader.read(0, 0, 1_000_000);
    assert.deepEqual(
      records.map(({ traceId }) => traceId),
      ['a1', 'a2', 'a3', 'b4', 'b5'],
    );
    assert.deepEqual([next, await reader.missing(0, 1)], [6, 0]);
    assert.deepEqual(await reader.find(0, 0, 'never acknowledged'), []);
  });

  test('never makes a segment in place of another', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = folderIn(scope);
    const header = {
      firstPosition: 7,
      id: '0123456789abcdef',
      logName: 'local:1',
      previous: null,
    };
    new SegmentWriter(folder, header).close();
    assert.throws(() => new SegmentWriter(folder, header), { code: 'EEXIST' });
  });
});

/** The file of the segment that is written to. */
function newestSegment(folder: string): string {
  const names = readdirSync(join(folder, 'log')).filter((name) => /^\d{16}\.log$/.test(name));
  return join(folder, 'log', names.sort().at(-1) ?? '');
}

const DISPLACED_SEGMENTS: Readonly<Record<string, (segment: string, folder: string) => void>> = {
  'is moved away': (segment, folder) => renameSync(segment, join(folder, 'elsewhere')),
  'is removed with its folder': (_, folder) => rmSync(join(folder, 'log'), { recursive: true }),
  'is replaced by a copy': (segment) => {
    copyFileSync(segment, `${segment}.copy`);
    renameSync(`${segment}.copy`, segment);
  },
};

suite('A segment that the log writes to', () => {
  for (const [what, displace] of Object.entries(DISPLACED_SEGMENTS)) {
    test(`and that ${what} ends the log: nothing more is acknowledged, and the words name the file`, async () => {
      await using scope = new AsyncDisposableStack();
      const folder = folderIn(scope);
      const fatal: string[] = [];
      const appender = await openAppender(folder, null, (words) => fatal.push(words));
      scope.defer(() => appender.close());
      await append(appender, 'one');
      displace(newestSegment(folder), folder);
      const words = /0000000000000001\.log was moved, removed or replaced .* Put the file, or the link, back/;
      await assert.rejects(append(appender, 'two'), words);
      await assert.rejects(append(appender, 'three'), words);
      assert.equal(fatal.length, 1);
    });
  }

  test('and that another program appends to, or cuts short, ends the log; a start has everything that is still there', async () => {
    for (const [change, kept] of [
      [(segment: string) => appendFileSync(segment, 'a line of another program\n'), ['one', 'two']],
      [(segment: string) => truncateSync(segment, readFileSync(segment).lastIndexOf('[2,') - PREFIX_BYTES), ['one']],
      [(segment: string) => truncateSync(segment, 0), []],
    ] as const) {
      await using scope = new AsyncDisposableStack();
      const folder = folderIn(scope);
      const fatal: string[] = [];
      const appender = await openAppender(folder, null, (words) => fatal.push(words));
      scope.defer(() => appender.close());
      await append(appender, 'one');
      await append(appender, 'two');
      change(newestSegment(folder));
      await assert.rejects(
        append(appender, 'three'),
        /0000000000000001\.log was changed by another program .* logrotate/,
      );
      assert.equal(fatal.length, 1);
      const second = await openAppender(folder, null, assert.fail);
      await append(second, 'four');
      await second.close();
      const reader = openEmbeddedLogReader({ folder: join(folder, 'log') });
      const { headers } = await reader.headers(0, 0, 10);
      assert.deepEqual(
        headers.map(({ traceId }) => traceId),
        [...kept, 'four'],
      );
      assert.equal(await reader.missing(0, 0), 2 - kept.length);
      if (kept.length < 2) await assert.rejects(reader.find(0, 0, 'two'), /has lost records/);
    }
  });

  test('ends the log when log/ is a link that is pointed at a copy: no restart would look behind the old one', async () => {
    await using scope = new AsyncDisposableStack();
    const [folder, disks] = [folderIn(scope), folderIn(scope)];
    const [link, before, copy] = [join(folder, 'log'), join(disks, 'before'), join(disks, 'copy')];
    mkdirSync(before);
    symlinkSync(before, link);
    const fatal: string[] = [];
    const appender = await openAppender(folder, null, (words) => fatal.push(words));
    scope.defer(() => appender.close());
    await append(appender, 'one', 'two');
    cpSync(before, copy, { recursive: true });
    symlinkSync(copy, `${link}.new`);
    renameSync(`${link}.new`, link);
    await assert.rejects(append(appender, 'three'), /0000000000000001\.log was moved, .* or a link on the way/);
    assert.equal(fatal.length, 1);
  });

  test('and that is moved away under a server ends it without another 202; put back, everything acknowledged is stored', async () => {
    await using scope = new AsyncDisposableStack();
    const dataFolder = folderIn(scope);
    const first = await launch(scope, { dataFolder, env: { SLUICE_EDGES: '2' } });
    const { key } = first;
    const before = await send(first, key, 5);
    assert.equal(before.length, 5);
    const segment = newestSegment(dataFolder);
    renameSync(segment, join(dataFolder, 'elsewhere'));
    assert.deepEqual(await send(first, key, 8), [], 'no 202 into a file that is not there');
    assert.equal(await first.ended, 'SIGKILL');
    assert.match(first.stderr(), /\.log was moved, removed or replaced while this server was writing to it/);
    renameSync(join(dataFolder, 'elsewhere'), segment);
    const second = await launch(scope, { dataFolder });
    const after = await send(second, key, 1);
    await allProcessed(second, key, [...before, ...after]);
  });
});

test('The processor commits nothing after the lock is gone', async () => {
  await using scope = new AsyncDisposableStack();
  const folder = folderIn(scope);
  await appendAll(folder, [entry()]);
  const lock = { file: join(folder, 'lock.db'), identity: 'of a file that was removed' };
  await assert.rejects(processAll(folder, { assertLockHeld: () => assertLockHeld(lock) }), LockLostError);
  await withStore(join(folder, 'store.db'), async (store) => {
    assert.equal((await store.ledger(null, NO_HOURS)).positions.size, 0);
  });
});
