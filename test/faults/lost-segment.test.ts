/**
 * A log that has lost records in its middle before they were processed: a segment is gone, a byte of one record is
 * another. The server starts and accepts requests; it counts and names exactly what is missing, and exactly that can be
 * given up. What was given up can be put back until processing has continued without it.
 */

import assert from 'node:assert/strict';
import { readdirSync, readFileSync, renameSync, truncateSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { suite, test } from 'node:test';
import { tieDataFolder } from '../../src/backends/embedded/installation.ts';
import { listSegments } from '../../src/backends/embedded/log/segments.ts';
import { loadConfig } from '../../src/config/config.ts';
import { logFolderOf, storeFileOf } from '../../src/data-folder/files.ts';
import { prepareDataFolder } from '../../src/wiring/start-checks.ts';
import { doctorHere } from '../cli/doctor-shell.ts';
import { entry } from '../contract/log-entries.ts';
import { appendAll, processAll, withStore } from '../processor/processing.ts';
import { eventually, get, runSluice, type TestServer } from '../server.ts';
import { ledgerOf, send, storedUsers } from './ledger-of-server.ts';
import { folderIn, launch, type Scope } from './scope.ts';

const STORED = 2;
const WAITING = 36;
const ARGS = ['--log-segment', '1MB'];

/** As the ledger and health have it at once, and metrics a little later. */
async function showsMissing(server: TestServer, key: string, records: number, received: number): Promise<void> {
  const { balanced, missing_records: missing, totals } = await ledgerOf(server, key);
  assert.deepEqual([balanced, missing, totals.users.received], [false, records, received]);
  const { log_missing_records: shown } = (await get(server, key, '/health')).body as { log_missing_records: number };
  assert.equal(shown, records);
  await eventually(
    'metrics count them',
    async () => {
      const metrics = await fetch(`${server.baseUrl}/metrics`).then((response) => response.text());
      return metrics.includes(`\nsluice_log_missing_records ${records}\n`);
    },
    20_000,
  );
}

suite('A log that lost records in its middle before they were processed', () => {
  test('counts and names them, stores all before them, and continues when exactly they are given up', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = folderIn(scope);
    const first = await launch(scope, { dataFolder: folder, args: ARGS });
    const { key } = first;
    await send(first, key, STORED);
    await storedUsers(first, key, STORED);
    const holder = new DatabaseSync(join(folder, 'store.db'), { timeout: 5_000 });
    holder.exec('BEGIN IMMEDIATE');
    await send(first, key, WAITING, 'x'.repeat(100_000));
    const segments = () => listSegments(join(folder, 'log'));
    assert.ok(segments().length >= 4);
    await first.kill('SIGKILL');
    holder.close();
    const [, gone, altered, fourth] = segments();
    assert.ok(gone && altered && fourth);
    const missing = altered.firstPosition - gone.firstPosition;
    const total = STORED + WAITING - missing;

    renameSync(gone.file, join(folder, 'elsewhere'));
    const bytes = readFileSync(altered.file);
    bytes.write('T', bytes.lastIndexOf('"tested"') + 1);
    writeFileSync(altered.file, bytes);
    const doctor = async (...args: string[]): Promise<string> => {
      const { code, stdout } = await runSluice(['doctor', ...args], { SLUICE_DATA: folder, SLUICE_DISK_FREE_MIN: '0' });
      assert.equal(code, 1, stdout);
      return stdout.replaceAll(/\s+/g, ' ');
    };
    const found = await doctor();
    const range = `positions ${gone.firstPosition} to ${altered.firstPosition - 1}`;
    assert.ok(found.includes(range) && found.includes(gone.file), found);

    const server = await launch(scope, { dataFolder: folder, args: ARGS });
    const words = (pattern: RegExp) => eventually(`the server says ${pattern}`, () => pattern.test(server.stderr()));
    await storedUsers(server, key, gone.firstPosition - 1);
    await words(
      new RegExp(`${range}\\. .*put ${gone.file} back, .*rename ${gone.file}\\.missing to ${gone.file}\\.lost`),
    );
    await showsMissing(server, key, missing, total);
    renameSync(`${gone.file}.missing`, `${gone.file}.lost`);

    await words(/The record at position \d+ of/);
    const position = Number(/The record at position (\d+) of/.exec(server.stderr())?.[1]);
    assert.ok(position >= altered.firstPosition && position < fourth.firstPosition);
    await storedUsers(server, key, position - 1 - missing);
    await words(
      new RegExp(`put ${altered.file} back from a backup\\. .*rename ${altered.file} to ${altered.file}\\.lost`),
    );
    assert.doesNotMatch(server.stderr(), /safe in the log/);
    const waiting = await ledgerOf(server, key);
    assert.deepEqual([waiting.balanced, waiting.missing_records, waiting.lost_records], [false, 1, missing]);
    assert.ok(
      (await doctor('--deep')).includes(`The record at position ${position} of the log segment ${altered.file}`),
    );
    renameSync(altered.file, `${altered.file}.lost`);
    const given = fourth.firstPosition - position;
    await storedUsers(server, key, total - given);
    const decided = await ledgerOf(server, key);
    assert.deepEqual([decided.balanced, decided.missing_records, decided.lost_records], [true, 0, missing + given]);
  });
});

const PAD = 'x'.repeat(1_000);
let made = 0;

/** A log of segments with so many requests each, none of which is processed. */
async function unprocessedLog(scope: Scope, ...requests: readonly number[]): Promise<string> {
  const folder = folderIn(scope);
  tieDataFolder(folder);
  for (const count of requests) await append(folder, count);
  return folder;
}

async function append(folder: string, count: number): Promise<void> {
  const users = [{ identifiers: { user_id: 'ada' }, events: [{ event_name: 'tested', pad: PAD }] }];
  const entries = Array.from({ length: count }, () => {
    made += 1;
    return entry({ traceId: `0190a000-0000-7000-8000-${String(made).padStart(12, '0')}`, users });
  });
  await appendAll(folder, entries);
}

/** What a start does before it opens the log. Returns its warnings. */
async function prepare(folder: string): Promise<string> {
  const { config } = loadConfig({ env: { SLUICE_DATA: folder }, args: [] });
  return (await prepareDataFolder(config)).startWarnings.join('\n');
}

/** How many users are stored, and how many records were lost. */
async function processed(folder: string): Promise<[stored: number, lost: number]> {
  await processAll(folder);
  return withStore(storeFileOf(folder), async (store) => {
    const { hours, lost } = await store.ledger(null, { from: null, to: null });
    const users = hours.reduce((sum, { users: { stored } }) => sum + stored, 0);
    return [users, lost.reduce((sum, { records }) => sum + records, 0)];
  });
}

function segmentFile(folder: string, position: number): string {
  return join(logFolderOf(folder), `${String(position).padStart(16, '0')}.log`);
}

function markersIn(folder: string): string[] {
  return readdirSync(logFolderOf(folder)).filter((name) => /\.(lost|missing)$/.test(name));
}

suite('Records that were given up', () => {
  test('are processed if their segment is put back before processing has continued', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = await unprocessedLog(scope, 3, 3, 3);
    const gone = segmentFile(folder, 4);
    renameSync(gone, join(folder, 'elsewhere'));
    writeFileSync(`${gone}.lost`, '');
    renameSync(join(folder, 'elsewhere'), gone);
    const words = /has the records from position 4 on again, in 0{15}4\.log, so 0{15}4\.log\.lost no longer applies/;
    const { words: found } = await doctorHere(folder);
    assert.match(found, words);
    assert.doesNotMatch(found, /given up/);
    assert.match(await prepare(folder), words);
    assert.deepEqual(markersIn(folder), []);
    assert.deepEqual(await processed(folder), [9, 0]);
  });

  for (const state of ['lost', 'missing'] as const) {
    test(`of a segment that was cut short are processed if the whole one is put back beside ….${state}`, async () => {
      await using scope = new AsyncDisposableStack();
      const folder = await unprocessedLog(scope, 4);
      const cut = segmentFile(folder, 1);
      const whole = readFileSync(cut);
      truncateSync(cut, Math.floor(whole.length / 2));
      await append(folder, 2);
      const [marker = ''] = markersIn(folder);
      assert.match(marker, /0{15}[23]\.log\.missing/);
      const file = join(logFolderOf(folder), marker);
      if (state === 'lost') renameSync(file, file.replace('.missing', '.lost'));
      writeFileSync(cut, whole);
      const { words } = await doctorHere(folder);
      assert.match(words, /has the records from position [23] on again, in 0{15}1\.log/);
      assert.doesNotMatch(words, /given up|are missing/);
      await prepare(folder);
      assert.deepEqual(markersIn(folder), []);
      assert.deepEqual(await processed(folder), [6, 0]);
    });
  }

  test('stay given up as far as the segment that is put back does not have them', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = await unprocessedLog(scope, 4);
    const cut = segmentFile(folder, 1);
    const whole = readFileSync(cut);
    truncateSync(cut, Math.floor(whole.length / 4));
    await append(folder, 2);
    const [marker = ''] = markersIn(folder);
    const file = join(logFolderOf(folder), marker);
    renameSync(file, file.replace('.missing', '.lost'));
    writeFileSync(cut, whole.subarray(0, -10));
    await prepare(folder);
    assert.deepEqual(markersIn(folder), [basename(`${segmentFile(folder, 4)}.lost`)]);
    assert.deepEqual(await processed(folder), [5, 1]);
  });

  test('are not processed if processing has continued before they are put back, and start and doctor say so', async () => {
    await using scope = new AsyncDisposableStack();
    const folder = await unprocessedLog(scope, 3, 3, 3);
    const gone = segmentFile(folder, 4);
    renameSync(gone, join(folder, 'elsewhere'));
    writeFileSync(`${gone}.lost`, '');
    assert.deepEqual(await processed(folder), [6, 3]);
    assert.equal(await prepare(folder), '');
    const given = await doctorHere(folder);
    assert.match(given.words, /3 records \(positions 4 to 6 of partition 0\) were given up; processing continued at/);
    renameSync(join(folder, 'elsewhere'), gone);
    const words = /has records from position 4 on again that were given up, and processing has continued without them/;
    assert.match((await doctorHere(folder)).words, words);
    for (const _start of [1, 2]) {
      assert.match(await prepare(folder), words);
      assert.match((await doctorHere(folder)).words, words);
      assert.deepEqual(await processed(folder), [6, 3]);
    }
  });
});
