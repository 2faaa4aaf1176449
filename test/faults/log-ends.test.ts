/**
 * `log-ends`, which says up to where the log is acknowledged, is removed, emptied, overwritten, outdated or another
 * installation's. What can be made again is made again, and what cannot be known is said.
 */

import assert from 'node:assert/strict';
import { cpSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { openEmbeddedLogAppender } from '../../src/backends/embedded/log/appender.ts';
import { LogEnds, readAcknowledgedEnd } from '../../src/backends/embedded/log/ends.ts';
import { isEndUnknown, rewriteLogEnds } from '../../src/backends/embedded/log/recovery.ts';
import { findLogName, localLogName } from '../../src/backends/embedded/log/name.ts';
import { OperatorError } from '../../src/errors.ts';
import type { LogEntry } from '../../src/log.ts';
import { backup, restore } from '../cli/backing-up.ts';
import { doctorHere as doctor } from '../cli/doctor-shell.ts';
import { appendAll } from '../processor/processing.ts';
import { eventually } from '../server.ts';
import { folderIn } from './scope.ts';
import { entries, newlyUsedFolder, prepare, receive, usedFolder } from './used-folder.ts';

suite('log-ends', () => {
  const damages: Readonly<Record<string, (file: string) => void>> = {
    removed: (file) => rmSync(file),
    emptied: (file) => writeFileSync(file, ''),
    overwritten: (file) => writeFileSync(file, 'x'.repeat(51)),
  };
  for (const [how, damage] of Object.entries(damages)) {
    test(`that was ${how} is reported once by the doctor and by the next start, which recreates it`, async () => {
      await using scope = new AsyncDisposableStack();
      const folder = await usedFolder(scope, 4);
      assert.deepEqual(await prepare(folder), []);
      damage(join(folder, 'log-ends'));
      if (how === 'removed') {
        const { code, words } = await doctor(folder);
        assert.equal(code, 2, words);
        assert.match(words, /! log log-ends is missing, cannot be read or is older than the log/);
      }
      const [warning] = await prepare(folder);
      assert.match(warning ?? '', /^log-ends is missing, cannot be read or is older than the log/);
      assert.equal(readAcknowledgedEnd(join(folder, 'log')), 5);
      assert.deepEqual(await prepare(folder), []);
    });
  }

  test('that is outdated does not prove that the log is complete: it is reported like a missing one', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = await usedFolder(scope, 2);
    const earlier = readFileSync(join(folder, 'log-ends'));
    await receive(folder, 2);
    await appendAll(folder, entries(3));
    // Three requests that were acknowledged, and that only a newer log-ends knows of.
    rmSync(join(folder, 'log', '0000000000000005.log'));
    writeFileSync(join(folder, 'log-ends'), earlier);
    const { code, words } = await doctor(folder);
    assert.equal(code, 2, words);
    const [warning = ''] = await prepare(folder);
    assert.match(warning, /older than the log: whether requests were acknowledged beyond .* is not known/);
    assert.ok(words.includes(warning.split(';')[0] ?? ''), words);
    assert.equal(readAcknowledgedEnd(join(folder, 'log')), 5);
    assert.deepEqual(await prepare(folder), []);
  });

  test('beside a log/name that was changed: the start names that file, and starts again without it', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = await usedFolder(scope, 2);
    const name = findLogName(join(folder, 'log')) ?? '';
    writeFileSync(join(folder, 'log', 'name'), `${name.slice(0, -1)}${name.endsWith('0') ? '1' : '0'}\n`);
    await assert.rejects(
      prepare(folder),
      /log\/name does not belong there: .* or remove it: the next start recreates it/,
    );
    rmSync(join(folder, 'log', 'name'));
    assert.deepEqual(await prepare(folder), []);
    assert.equal(localLogName(join(folder, 'log')), name);
  });

  test('of another installation is refused at start and named, and no segment is blamed for it', async () => {
    await using scope = new AsyncDisposableStack();
    const [folder, other] = [await usedFolder(scope, 2), await newlyUsedFolder(scope, 2)];
    const own = readFileSync(join(folder, 'log-ends'));
    cpSync(join(other, 'log-ends'), join(folder, 'log-ends'));
    const refused =
      /log-ends does not belong there: it is of the log local:\S+, and \S+ is the log local:.* move this one away/;
    await assert.rejects(prepare(folder), (error: Error) => {
      assert.ok(error instanceof OperatorError);
      assert.match(error.message, refused);
      return true;
    });
    const { code, words } = await doctor(folder);
    assert.equal(code, 1, words);
    assert.match(words, refused);
    assert.doesNotMatch(words, /\.lost/);
    writeFileSync(join(folder, 'log-ends'), own);
    assert.deepEqual(await prepare(folder), []);
  });

  test('causes no warning after kill -9 before a commit, or between the commit and its entry', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = await usedFolder(scope, 2);
    const log = join(folder, 'log');
    const ends = new LogEnds(log, localLogName(log), 1);
    ends.beforeCommit(5);
    ends.close();
    assert.deepEqual(await prepare(folder), []);
    const announced = readFileSync(join(folder, 'log-ends'));
    await appendAll(folder, entries(2));
    writeFileSync(join(folder, 'log-ends'), announced);
    assert.deepEqual(await prepare(folder), []);
    await appendAll(folder, entries(1));
    writeFileSync(join(folder, 'log-ends'), announced);
    assert.equal((await prepare(folder)).length, 1);
  });

  test('exists before the first commit, which kill -9 may follow', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = folderIn(scope);
    await appendAll(folder, []);
    const empty = readFileSync(join(folder, 'log-ends'), 'latin1');
    await appendAll(folder, entries(1));
    writeFileSync(join(folder, 'log-ends'), empty);
    const ends = new LogEnds(join(folder, 'log'), localLogName(join(folder, 'log')), 1);
    ends.beforeCommit(2);
    ends.close();
    assert.ok(!isEndUnknown(join(folder, 'log')));
  });

  test('is recreated by a running server, with the next request or without one', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = join(folderIn(scope), 'log');
    mkdirSync(folder);
    const setup = { folder, segmentBytes: 1_000_000, metrics: null, onFatal: assert.fail };
    const appender = await openEmbeddedLogAppender(setup);
    const [one, two, three] = entries(3) as [LogEntry, LogEntry, LogEntry];
    await appender.append(one);
    rmSync(`${folder}-ends`);
    await appender.append(two);
    assert.equal(readAcknowledgedEnd(folder), 3);
    writeFileSync(`${folder}-other`, '');
    renameSync(`${folder}-other`, `${folder}-ends`);
    await appender.append(three);
    assert.equal(readAcknowledgedEnd(folder), 4);
    rmSync(`${folder}-ends`);
    await eventually('it is there again', () => existsSync(`${folder}-ends`) && readAcknowledgedEnd(folder) === 4);
    await appender.close();
  });

  for (const how of ['by the next request', 'without one']) {
    test(`that cannot be recreated, ${how}, ends the server with a message that names it, and nothing else is written in its place`, async () => {
      await using scope = new AsyncDisposableStack();
      const folder = join(folderIn(scope), 'log');
      mkdirSync(folder);
      const fatal = Promise.withResolvers<string>();
      const setup = { folder, segmentBytes: 1_000_000, metrics: null };
      const appender = await openEmbeddedLogAppender({ ...setup, onFatal: fatal.resolve });
      await appender.append(...(entries(1) as [LogEntry]));
      rmSync(`${folder}-ends`);
      mkdirSync(`${folder}-ends`);
      if (how === 'by the next request') {
        await assert.rejects(appender.append(...(entries(1) as [LogEntry])), /log-ends cannot be written/);
      }
      assert.match(await fatal.promise, /\/log-ends cannot be written: EISDIR.* move it elsewhere.* start again/s);
    });
  }

  test('is written by a restore, so that the first start after it gives no warning', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = await usedFolder(scope, 2);
    const [to, restored] = [join(folderIn(scope), 'backup'), join(folderIn(scope), 'restored')];
    const made = await backup(['--data', folder, '--to', to]);
    assert.equal(made.code, 0, made.err);
    const done = await restore(['--from', to, '--data', restored]);
    assert.equal(done.code, 0, done.err);
    assert.equal(readAcknowledgedEnd(join(restored, 'log')), 3);
    assert.ok(!isEndUnknown(join(restored, 'log')));
  });

  test('is written by a restore of a log whose only segment is empty, too', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = await usedFolder(scope, 2);
    await appendAll(folder, []);
    // As retention does.
    rmSync(join(folder, 'log', '0000000000000001.log'));
    rmSync(join(folder, 'log-ends'));
    rewriteLogEnds(join(folder, 'log'));
    assert.equal(readAcknowledgedEnd(join(folder, 'log')), 3);
    assert.deepEqual(await prepare(folder), []);
    await appendAll(folder, entries(1));
    assert.equal(readAcknowledgedEnd(join(folder, 'log')), 4);
  });
});
