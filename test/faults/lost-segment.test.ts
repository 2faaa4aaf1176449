/**
 * A log that has lost records in its middle before they were processed: a segment is gone, a byte of one record is another. The server starts and accepts requests; it counts and names exactly what is missing, and
 * exactly that can be given up.
 */

import assert from 'node:assert/strict';
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { suite, test } from 'node:test';
import { listSegments } from '../../src/backends/embedded/log/segments.ts';
import { eventually, get, post, runSluice, type TestServer, user } from '../server.ts';
import { folderIn, launch } from './scope.ts';

const STORED = 2;
const WAITING = 36;
const ARGS = ['--log-segment', '1MB'];

interface Ledger {
  readonly balanced: boolean;
  readonly missing_records: number;
  readonly lost_records: number;
  readonly totals: { readonly users: { readonly received: number; readonly stored: number; readonly pending: number } };
}

async function ledgerOf(server: TestServer, key: string): Promise<Ledger> {
  return (await get(server, key, '/ledger')).body as Ledger;
}

async function send(server: TestServer, key: string, count: number, text = ''): Promise<void> {
  for (let n = 0; n < count; n++) {
    const body = { users: [user(`u${n}`, [{ event_name: 'tested', text }])] };
    assert.equal((await post(server, key, body)).status, 202);
  }
}

async function storedUsers(server: TestServer, key: string, users: number): Promise<void> {
  await eventually(`${users} users are stored`, async () => {
    return (await ledgerOf(server, key)).totals.users.stored === users;
  });
}

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
