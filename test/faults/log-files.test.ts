/**
 * The small files that say which log it is and where it ended (`log/name`, `log-ends`) are lost, emptied or
 * overwritten, and a store is put beside a log that it was not made from. What can be made again is made again; where
 * requests would be passed over the start is refused; what cannot be known is said.
 */

import assert from 'node:assert/strict';
import { cpSync, existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { tieDataFolder } from '../../src/backends/embedded/installation.ts';
import { openEmbeddedLogAppender } from '../../src/backends/embedded/log/appender.ts';
import { findLogName, localLogName } from '../../src/backends/embedded/log/name.ts';
import { openEmbeddedLogReader } from '../../src/backends/embedded/log/reader.ts';
import { noteLogWarning, readLogWarnings } from '../../src/backends/embedded/log/warnings.ts';
import type { LogHeader } from '../../src/log.ts';
import { assertProcessed, missingRecordsText } from '../../src/log/continuity.ts';
import { doctorHere as doctor } from '../cli/doctor-shell.ts';
import { entry } from '../contract/log-entries.ts';
import { appendAll } from '../processor/processing.ts';
import { eventually, get, type TestServer } from '../server.ts';
import { testPostgres, whyNoPostgres } from '../servers/postgres.ts';
import { allStored, ledgerOf, send } from './ledger-of-server.ts';
import { folderIn, launch, refusedStart, type Scope } from './scope.ts';
import { entries, prepare, receive, usedFolder } from './used-folder.ts';

function putStore(from: string, into: string): void {
  for (const name of readdirSync(into)) if (name.startsWith('store.db')) rmSync(join(into, name));
  for (const name of readdirSync(from)) if (name.startsWith('store.db')) cpSync(join(from, name), join(into, name));
}

/** Why processing waits, as `GET /health` says it. */
async function problemOf(server: TestServer, key: string): Promise<string | null> {
  const { body } = await get(server, key, '/health');
  return (body as { readonly processing_problem: string | null }).processing_problem;
}

const OTHER_STORE =
  /do not belong together: the store has processed partition 0 up to position 1\d, but not the request \S+, which the log has at position [78]/;

suite('A store that was made from another copy of the log', () => {
  test('is refused at start and named, even if it is ahead of this log; with its own log the start succeeds', async () => {
    await using scope = new AsyncDisposableStack();
    const old = await usedFolder(scope, 5);
    const copy = join(folderIn(scope), 'data');
    cpSync(old, copy, { recursive: true });
    await receive(old, 10);
    await receive(copy, 3);
    const aside = folderIn(scope);
    putStore(copy, aside);
    putStore(old, copy);
    assert.match(await refusedStart({ dataFolder: copy }), OTHER_STORE);
    const { code, words } = await doctor(copy);
    assert.equal(code, 1, words);
    assert.match(words, OTHER_STORE);
    assert.doesNotMatch(words, /Nothing is lost by that/);
    putStore(aside, copy);
    await prepare(copy);
  });

  test('is reported by the doctor as the processor reports it, when that log reaches as far as the store', async () => {
    await using scope = new AsyncDisposableStack();
    const old = await usedFolder(scope, 5);
    const copy = join(folderIn(scope), 'data');
    cpSync(old, copy, { recursive: true });
    await receive(old, 4);
    await receive(copy, 4);
    for (const name of ['log', 'log-ends']) {
      rmSync(join(copy, name), { recursive: true });
      cpSync(join(old, name), join(copy, name), { recursive: true });
    }
    const { code, words } = await doctor(copy);
    assert.equal(code, 1, words);
    assert.match(words, /do not belong together: at position \d+ of partition 0 the log has the request/);
    assert.doesNotMatch(words, /a start would accept|missing from it|all accounted for/);
  });

  test('is refused in PostgreSQL beside a local log too', { skip: whyNoPostgres() }, async () => {
    await using scope = new AsyncDisposableStack();
    const postgres = await testPostgres();
    const [old, copy] = [folderIn(scope), join(folderIn(scope), 'data')];
    const env = { STORE_URL: await postgres.newDatabase() };
    const first = await launch(scope, { dataFolder: old, env });
    const { key } = first;
    await send(first, key, 5);
    await allStored(first, key, 5);
    await first.stop();
    cpSync(old, copy, { recursive: true });
    const second = await launch(scope, { dataFolder: old, env });
    await send(second, key, 10);
    await allStored(second, key, 15);
    await second.stop();
    await appendAll(copy, entries(3));
    assert.match(await refusedStart({ dataFolder: copy, env }), OTHER_STORE);
  });

  test('is distinguished from one that removed the request or could not process it', async () => {
    const newest: LogHeader = { ...entry(), partition: 0, position: 7, firstUserIndex: 0 };
    const deadLetters = { traceId: newest.traceId } as never;
    const store = { trace: async () => undefined, deadLetters: async () => [] };
    await assert.rejects(assertProcessed(store, newest, 40, newest.receivedAt), /do not belong together/);
    await assertProcessed(store, newest, 40, newest.receivedAt + 1);
    await assertProcessed({ ...store, deadLetters: async () => [deadLetters] }, newest, 40, 0);
  });
});

suite('The name of a log', () => {
  test('survives the loss of log/ beside PostgreSQL, so that counts stay right and the files can be put back', {
    skip: whyNoPostgres(),
  }, async () => {
    await using scope = new AsyncDisposableStack();
    const folder = folderIn(scope);
    const env = { STORE_URL: await (await testPostgres()).newDatabase() };
    const first = await launch(scope, { dataFolder: folder, env });
    const { key } = first;
    await send(first, key, 3);
    await allStored(first, key, 3);
    await first.stop();
    const log = join(folder, 'log');
    const reader = openEmbeddedLogReader({ folder: log });
    const tenantId = (await reader.headers(0, 0, 1)).headers[0]?.tenantId;
    await reader.close();
    await appendAll(folder, entries(10, tenantId));

    const away = folderIn(scope);
    cpSync(log, away, { recursive: true });
    rmSync(log, { recursive: true });
    const { code, words } = await doctor(folder, env);
    assert.equal(code, 1, words);
    const lost = /the log has lost its newest records, positions 1 to 13; .* from position 4 on were acknowledged/;
    assert.match(words, lost);
    assert.ok(!existsSync(log), 'the doctor made a log');
    const second = await launch(scope, { dataFolder: folder, env });
    assert.match(second.stderr(), lost);
    await send(second, key, 5);
    await eventually('what is missing is counted', async () => (await ledgerOf(second, key)).missing_records > 0);
    const waiting = await ledgerOf(second, key);
    assert.deepEqual([waiting.balanced, waiting.missing_records, waiting.lost_records], [false, 10, 0]);
    await eventually('the reason is in /health', async () => (await problemOf(second, key)) !== null);
    assert.match(
      (await problemOf(second, key)) ?? '',
      /has lost records that were acknowledged and not processed: positions 4 to 13/,
    );
    await second.stop();

    cpSync(away, log, { recursive: true, force: false });
    for (const name of readdirSync(log)) if (name.endsWith('.missing')) rmSync(join(log, name));
    const third = await launch(scope, { dataFolder: folder, env });
    await allStored(third, key, 18);
    const repaired = await ledgerOf(third, key);
    assert.deepEqual([repaired.missing_records, repaired.lost_records], [0, 0]);
    assert.equal(await problemOf(third, key), null);
  });

  test('is recreated if it cannot be read, and no segment is refused because of it', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = await usedFolder(scope, 3);
    const log = join(folder, 'log');
    const name = findLogName(log);
    writeFileSync(join(log, 'name'), '');
    const { code, words } = await doctor(folder);
    assert.notEqual(code, 1, words);
    assert.deepEqual(await prepare(folder), []);
    await receive(folder, 1);
    assert.equal(readFileSync(join(log, 'name'), 'utf8'), `${name}\n`);
  });

  test('is read from the segments if both copies of it are missing or unreadable', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = folderIn(scope);
    await appendAll(folder, entries(1));
    const log = join(folder, 'log');
    const name = findLogName(log);
    assert.match(name ?? '', /^local:/);
    for (const damage of [() => rmSync(join(log, 'name')), () => writeFileSync(join(log, 'name'), 'local:x')]) {
      damage();
      rmSync(`${log}-ends`, { force: true });
      assert.equal(localLogName(log), name);
    }
    rmSync(join(log, 'name'));
    const reader = openEmbeddedLogReader({ folder: log });
    scope.defer(() => reader.close());
    assert.equal(reader.name, name);
  });
});

interface DamagedLog {
  readonly processed: number;
  readonly waiting: number;
  readonly damage: (folder: string) => void | Promise<void>;
  readonly code: number;
  readonly says: RegExp;
}

const DAMAGED_LOGS: Readonly<Record<string, DamagedLog>> = {
  'log/ is gone and nothing was processed': {
    processed: 0,
    waiting: 3,
    damage: (folder) => rmSync(join(folder, 'log'), { recursive: true }),
    code: 1,
    says: /positions 1 to 3; those from position 1 on were acknowledged and are not processed/,
  },
  'log/ is gone, and the store has all of it': {
    processed: 3,
    waiting: 0,
    damage: (folder) => rmSync(join(folder, 'log'), { recursive: true }),
    code: 2,
    says: /positions 1 to 3; the store has all of these, but no segment is left that log-ends can be compared with, so it is not known whether more were acknowledged/,
  },
  'log/ is gone, and a log-ends was put back that ends where the store does': {
    processed: 3,
    waiting: 0,
    damage: async (folder) => {
      const earlier = readFileSync(join(folder, 'log-ends'));
      await appendAll(folder, entries(2));
      rmSync(join(folder, 'log'), { recursive: true });
      writeFileSync(join(folder, 'log-ends'), earlier);
    },
    code: 2,
    says: /the store has all of these, but no segment is left that log-ends can be compared with, so it is not known/,
  },
  'log/ and log-ends are gone, so that nothing is certain': {
    processed: 3,
    waiting: 2,
    damage: (folder) => {
      for (const name of ['log', 'log-ends']) rmSync(join(folder, name), { recursive: true });
    },
    code: 2,
    says: /log-ends is missing or older, so it is not known whether more were acknowledged/,
  },
};

suite('Before a start the doctor reports what the start would report', () => {
  for (const [what, { processed, waiting, damage, code, says }] of Object.entries(DAMAGED_LOGS)) {
    test(`when ${what}`, async () => {
      await using scope = new AsyncDisposableStack();
      const folder = await usedFolder(scope, processed);
      await appendAll(folder, entries(waiting));
      await damage(folder);
      const found = await doctor(folder);
      assert.equal(found.code, code, found.words);
      assert.match(found.words, says);
      const warnings = (await prepare(folder)).map((words) => words.split(';')[0] ?? '');
      const missing = await missingAtStart(folder, processed + 1);
      assert.ok(missing.length > 0);
      for (const words of [...warnings, ...missing]) assert.ok(found.words.includes(words), `${words}\n${found.words}`);
      // And once: the start has made good what it found, or left a mark.
      assert.deepEqual([await prepare(folder), await missingAtStart(folder, processed + 1)], [[], []]);
    });
  }
});

const UNKNOWN_LOSSES: Readonly<Record<string, (folder: string, earlier: string) => void>> = {
  'log/ and log-ends are both of an earlier time': (folder, earlier) => {
    rmSync(join(folder, 'log'), { recursive: true });
    for (const name of ['log', 'log-ends']) cpSync(join(earlier, name), join(folder, name), { recursive: true });
  },
  'log/ and log-ends are gone': (folder) => {
    for (const name of ['log', 'log-ends']) rmSync(join(folder, name), { recursive: true });
  },
  'the segments and log-ends are gone beside PostgreSQL': (folder) => {
    for (const name of segmentFilesIn(folder)) rmSync(join(folder, 'log', name));
    rmSync(join(folder, 'log-ends'));
  },
};

suite('The start, /health and the doctor report that more may have been acknowledged', () => {
  for (const [what, damage] of Object.entries(UNKNOWN_LOSSES)) {
    const isShared = what.endsWith('PostgreSQL');
    test(`if ${what}, until an operator removes the note`, {
      skip: isShared ? whyNoPostgres() : false,
    }, async () => {
      await using scope = new AsyncDisposableStack();
      const [folder, earlier] = [folderIn(scope), folderIn(scope)];
      const env: Record<string, string> = isShared ? { STORE_URL: await (await testPostgres()).newDatabase() } : {};
      const first = await launch(scope, { dataFolder: folder, env });
      const { key } = first;
      await send(first, key, 2);
      for (const name of ['log', 'log-ends']) cpSync(join(folder, name), join(earlier, name), { recursive: true });
      await send(first, key, 2);
      await allStored(first, key, 4);
      await first.kill();
      damage(folder, earlier);

      const second = await launch(scope, { dataFolder: folder, env });
      const said =
        /the log has lost its newest records, [^;]+; the store has all of these, [^:]*whether more were acknowledged/;
      const [words = ''] = said.exec(second.stderr()) ?? [];
      assert.ok(words, second.stderr());
      assert.ok((await warningsOf(second, key)).includes(words));
      const beside = await doctor(folder, env);
      assert.equal(beside.code, 2, beside.words);
      assert.ok(beside.words.includes(`${words} (found by the start at `), beside.words);
      await second.stop();

      const later = await doctor(folder, env);
      assert.ok(later.words.includes(`${words} (found by the start at `), later.words);
      rmSync(join(folder, 'log-warnings'));
      assert.doesNotMatch((await doctor(folder, env)).words, /whether more were acknowledged/);
    });
  }
});

async function warningsOf(server: TestServer, key: string): Promise<string[]> {
  const { body } = await get(server, key, '/health');
  return (body as { warnings: string[] }).warnings;
}

/** What the writer says. */
async function missingAtStart(folder: string, storePosition: number): Promise<string[]> {
  const said: string[] = [];
  const appender = await openEmbeddedLogAppender({
    folder: join(folder, 'log'),
    segmentBytes: 1_000_000,
    processed: storePosition,
    metrics: null,
    onFatal: assert.fail,
    onMissing: (missing) => said.push(missingRecordsText(missing)),
  });
  await appender.close();
  return said;
}

/** A folder of which everything is processed, with a copy of its log that was made while it was idle, and a restart since. */
async function restartedSince(scope: Scope): Promise<{ folder: string; idle: string }> {
  const folder = await usedFolder(scope, 4);
  // Every start leaves an empty segment, which the next one replaces by another of the same name.
  await appendAll(folder, []);
  const idle = folderIn(scope);
  for (const name of ['log', 'log-ends']) cpSync(join(folder, name), join(idle, name), { recursive: true });
  await receive(folder, 2);
  return { folder, idle };
}

function segmentsIn(folder: string): string[] {
  return segmentFilesIn(folder)
    .filter((name) => /\.log(\.\w+)?$/.test(name))
    .sort();
}

/** With their write-ahead logs. */
function segmentFilesIn(folder: string): string[] {
  return readdirSync(join(folder, 'log')).filter((name) => /^\d{16}\.log/.test(name));
}

suite('A copy of the log from an idle moment, put back after a restart', () => {
  test('is accepted, although its empty segment has the name of one that was written since', async () => {
    await using scope = new AsyncDisposableStack();
    const { folder, idle } = await restartedSince(scope);
    rmSync(join(folder, 'log'), { recursive: true });
    cpSync(join(idle, 'log'), join(folder, 'log'), { recursive: true });
    const before = await doctor(folder);
    assert.equal(before.code, 2, before.words);
    assert.match(before.words, /positions 5 to 6; the store has all of them, so nothing is lost/);
    assert.deepEqual(await prepare(folder), []);
    assert.equal((await missingAtStart(folder, 7)).length, 1);
    assert.deepEqual(segmentsIn(folder), [
      '0000000000000001.log',
      '0000000000000005.log.missing',
      '0000000000000007.log',
    ]);
    await receive(folder, 3);
    const after = await doctor(folder);
    assert.equal(after.code, 2, after.words);
    assert.match(after.words, /! log positions 5 to 6 are missing; the store has processed all of them/);
  });

  test('loses nothing with log-ends of that moment either: it is only uncertain whether more was acknowledged', async () => {
    await using scope = new AsyncDisposableStack();
    const { folder, idle } = await restartedSince(scope);
    rmSync(join(folder, 'log'), { recursive: true });
    for (const name of ['log', 'log-ends']) cpSync(join(idle, name), join(folder, name), { recursive: true });
    assert.deepEqual(await prepare(folder), []);
    assert.equal((await missingAtStart(folder, 7)).length, 1);
    await receive(folder, 3);
    assert.ok(!segmentsIn(folder).includes('0000000000000005.log'), 'an empty segment hides the mark');
    const { code, words } = await doctor(folder);
    assert.equal(code, 2, words);
    assert.match(words, /9 events received, and all accounted for/);
  });

  test('and copied over the current files leaves a mark where its empty segment replaced another', async () => {
    await using scope = new AsyncDisposableStack();
    const { folder, idle } = await restartedSince(scope);
    await receive(folder, 2);
    cpSync(join(idle, 'log'), join(folder, 'log'), { recursive: true });
    const before = await doctor(folder);
    assert.equal(before.code, 2, before.words);
    await prepare(folder);
    await receive(folder, 1);
    assert.ok(segmentsIn(folder).includes('0000000000000005.log.missing'));
    const { code, words } = await doctor(folder);
    assert.equal(code, 2, words);
  });
});

const UNREADABLE_WARNINGS: Readonly<Record<string, string | Buffer>> = {
  'is empty': '',
  'holds NUL bytes': Buffer.alloc(512),
  'holds garbage': 'x\ny\n',
  'has a line without its words': `2026-11-16T12:00:00.000Z ${'\0'.repeat(20)}\n`,
  'has a time that is none': '2026-99-99T12:00:00.000Z requests may be lost\n',
};
const UNREADABLE = /^log-warnings cannot be read: .*remove it once/;

suite('An unreadable log-warnings is itself a warning', () => {
  for (const [what, content] of Object.entries(UNREADABLE_WARNINGS)) {
    test(`if it ${what}, also after a start adds another`, async () => {
      await using scope = new AsyncDisposableStack();
      const folder = join(folderIn(scope), 'log');
      writeFileSync(`${folder}-warnings`, content);
      assert.match(readLogWarnings(folder).map(({ message }) => message)[0] ?? '', UNREADABLE);
      noteLogWarning(folder, 'more may be lost');
      const [first, second, ...more] = readLogWarnings(folder).map(({ message }) => message);
      assert.match(first ?? '', UNREADABLE);
      assert.deepEqual([second, more], ['more may be lost', []]);
    });
  }

  test('in health, ledger and doctor, beside the lines that can be read, until the file is removed', async () => {
    await using scope = new AsyncDisposableStack();
    const server = await launch(scope, { dataFolder: folderIn(scope) });
    const file = join(server.dataFolder, 'log-warnings');
    writeFileSync(file, '2026-11-16T12:00:00.000Z some may be lost\n\0\0\0\0');
    for (const warnings of [await warningsOf(server, server.key), (await ledgerOf(server, server.key)).warnings]) {
      assert.deepEqual([warnings.length, warnings[0]], [2, 'some may be lost']);
      assert.match(warnings[1] ?? '', UNREADABLE);
    }
    const { code, words } = await doctor(server.dataFolder);
    assert.equal(code, 2, words);
    assert.match(words, /log-warnings cannot be read: damaged lines: 1 of 2/);
    rmSync(file);
    assert.deepEqual(await warningsOf(server, server.key), []);
  });
});

const LOG_GONE =
  /a server has run on this data folder before, and the log is gone, with log-ends: whether requests were/;

suite('A log that is gone with log-ends before anything was processed', () => {
  test('is noticed by what remains, and reported by start, health, ledger and doctor, but never on a first start', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = join(folderIn(scope), 'data');
    assert.deepEqual(await prepare(folder), [], 'of a new folder there is nothing to say');
    const cutShort = join(folderIn(scope), 'data');
    tieDataFolder(cutShort);
    assert.deepEqual(await prepare(cutShort), [], 'nor after a first start that was cut short');
    await appendAll(folder, entries(3));
    for (const name of ['log', 'log-ends']) rmSync(join(folder, name), { recursive: true });
    const before = await doctor(folder);
    assert.equal(before.code, 2, before.words);
    assert.match(before.words, LOG_GONE);
    const server = await launch(scope, { dataFolder: folder });
    assert.match(server.stderr(), LOG_GONE);
    assert.match((await warningsOf(server, server.key)).join(), LOG_GONE);
    assert.match((await ledgerOf(server, server.key)).warnings.join(), LOG_GONE);
    const beside = await doctor(folder);
    assert.match(beside.words, LOG_GONE);
    await server.stop();
    assert.deepEqual(await prepare(folder), []);
  });

  test('is noticed beside PostgreSQL, where only the address of the last server is left', {
    skip: whyNoPostgres(),
  }, async () => {
    await using scope = new AsyncDisposableStack();
    const folder = folderIn(scope);
    const env = { STORE_URL: await (await testPostgres()).newDatabase() };
    const first = await launch(scope, { dataFolder: folder, env });
    const { key } = first;
    await send(first, key, 5);
    await allStored(first, key, 5);
    await first.kill();
    for (const name of ['log', 'log-ends']) rmSync(join(folder, name), { recursive: true });
    const before = await doctor(folder, env);
    assert.equal(before.code, 2, before.words);
    assert.match(before.words, LOG_GONE);
    assert.ok(!existsSync(join(folder, 'log')), 'the doctor made a log');
    const second = await launch(scope, { dataFolder: folder, env });
    assert.match((await warningsOf(second, key)).join(), LOG_GONE);
    await send(second, key, 3);
    await allStored(second, key, 8);
    const { warnings, missing_records: missing } = await ledgerOf(second, key);
    assert.match(warnings.join(), LOG_GONE);
    assert.equal(missing, 0);
    const beside = await doctor(folder, env);
    assert.equal(beside.code, 2, beside.words);
    assert.match(beside.words, LOG_GONE);
  });
});
