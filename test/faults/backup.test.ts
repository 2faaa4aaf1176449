/**
 * Backups of a real server under load, taken with the command as a person would: each is restored elsewhere and started.
 * Every request acknowledged before the backup began is stored once, everything in the ledger is accounted for, keys
 * work, and members sign in. Also when the server is killed while a backup runs.
 */

import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { openEmbeddedLogReader } from '../../src/backends/embedded/log/reader.ts';
import { readLastBackup } from '../../src/backup/notes.ts';
import { readAll } from '../contract/log-entries.ts';
import { eventually, post, read, runSluice, sleep, type TestServer, user } from '../server.ts';
import { audit, Ledger, seededRandom, startLoad } from './ledger.ts';
import type { LedgerResponse } from './processor-load.ts';
import { folderIn, launch, type Scope } from './scope.ts';

const MEMBER = { email: 'ada@example.com', password: 'correct horse battery' };
const SLOW = { timeout: 180_000 };
const ARGS = ['--log-segment', '1MB'];

async function call(server: TestServer, path: string, body: object): Promise<number> {
  const headers = { 'content-type': 'application/json', origin: server.baseUrl };
  return (await fetch(server.baseUrl + path, { method: 'POST', headers, body: JSON.stringify(body) })).status;
}

async function becomeMember(server: TestServer): Promise<void> {
  const [, token = ''] = /welcome#([\w-]{43})/.exec(server.stdout()) ?? [];
  assert.equal(await call(server, '/invitations/accept', { token, ...MEMBER }), 200);
}

interface Taken {
  readonly backup: string;
  /** Acknowledged before it began. */
  readonly before: readonly string[];
}

async function backUp(
  dataFolder: string,
  backup: string,
  ledger: Ledger,
  more: readonly string[] = [],
): Promise<Taken> {
  const before = Array.from(ledger.acknowledged.keys());
  const { code, stdout, stderr } = await runSluice(['backup', '--to', backup, '--data', dataFolder, ...more]);
  assert.equal(code, 0, stderr);
  assert.doesNotMatch(stdout, /not part of it/, 'the server keeps a file that backups do not know');
  return { backup, before };
}

/** Restores it elsewhere, starts a server there, and asks it for everything. */
async function assertRestored(scope: Scope, { backup, before }: Taken, ledger: Ledger, key: string): Promise<void> {
  const data = join(folderIn(scope), 'data');
  const { code, stderr } = await runSluice(['restore', '--from', backup, '--data', data, '--verify']);
  assert.equal(code, 0, stderr);

  const found = await audit(data, ledger);
  assert.deepEqual([found.doubled, found.altered], [[], []]);
  const missing = new Set(found.missing);
  assert.deepEqual(
    before.filter((traceId) => missing.has(traceId)),
    [],
  );

  const server = await launch(scope, { dataFolder: data, args: ARGS });
  const ledgerOf = (): Promise<LedgerResponse> => read<LedgerResponse>(server, key, '/ledger');
  await eventually('all is processed', async () => (await ledgerOf()).totals.events['pending'] === 0, 60_000);
  const { balanced, totals } = await ledgerOf();
  assert.ok(balanced);
  assert.equal(totals.events['stored'], await eventsInLog(data), 'every event in the log is stored once');
  assert.equal(totals.events['duplicates'], 0);
  for (const traceId of sampleOf(before)) {
    const trace = await read<{ status: string; duplicate_of: string | null }>(server, key, `/traces/${traceId}`);
    assert.deepEqual([trace.status, trace.duplicate_of], ['processed', null]);
  }
  assert.equal(await call(server, '/session', MEMBER), 200);

  // It continues: what is accepted now gets a position of its own, and is stored.
  const response = await post(server, key, { users: [user('after the restore')] });
  assert.equal(response.status, 202, response.text);
  const { trace_id } = response.body as { trace_id: string };
  await eventually('the new request is processed', async () => {
    return (await read<{ status: string }>(server, key, `/traces/${trace_id}`)).status === 'processed';
  });
  assert.equal((await ledgerOf()).totals.events['stored'], (totals.events['stored'] ?? 0) + 1);
  await server.kill('SIGKILL');
}

async function eventsInLog(data: string): Promise<number> {
  const reader = openEmbeddedLogReader({ folder: join(data, 'log') });
  let events = 0;
  for (const partition of await reader.partitions()) {
    for (const { eventCount } of await readAll(reader, partition)) events += eventCount;
  }
  await reader.close();
  return events;
}

/** The first and the last ones, and some between. */
function sampleOf(traceIds: readonly string[]): readonly string[] {
  const step = Math.max(1, Math.floor(traceIds.length / 40));
  return traceIds.filter((_, index) => index % step === 0 || index >= traceIds.length - 10);
}

suite('Backups of a server under load', () => {
  test('hold everything acknowledged before, once, as a folder and as archives', SLOW, async () => {
    await using scope = new AsyncDisposableStack();
    const args = [...ARGS, '--edges', '2'];
    const server = await launch(scope, { dataFolder: join(folderIn(scope), 'data'), args });
    await becomeMember(server);
    const ledger = new Ledger(400);
    const load = startLoad(scope, server, server.key, ledger, 8);
    const backups = folderIn(scope);
    const taken: Taken[] = [];
    for (const [name, more] of [
      ['folder', ['--verify']],
      ['packed.tar.zst', ['--verify']],
    ] as const) {
      const before = ledger.acknowledged.size;
      await eventually('more is acknowledged', () => ledger.acknowledged.size > before + 300, 30_000);
      taken.push(await backUp(server.dataFolder, join(backups, name), ledger, more));
    }
    await load.stop();
    const beganAt = readLastBackup(server.dataFolder)?.began_at;
    await eventually('the server knows of the last backup', async () => {
      return (await read<{ last_backup_at: string | null }>(server, server.key, '/health')).last_backup_at === beganAt;
    });
    assert.deepEqual(readdirSync(backups).sort(), ['folder', 'packed.tar.zst']);
    for (const one of taken) await assertRestored(scope, one, ledger, server.key);
  });

  test(
    'need no server: after kill -9 while a backup runs, that one and the next are whole or refused',
    SLOW,
    async (t) => {
      const random = seededRandom((line) => t.diagnostic(line));
      await using scope = new AsyncDisposableStack();
      const server = await launch(scope, { dataFolder: join(folderIn(scope), 'data'), args: ARGS });
      await becomeMember(server);
      const ledger = new Ledger(400);
      startLoad(scope, server, server.key, ledger, 8);
      await eventually('some are acknowledged', () => ledger.acknowledged.size > 300, 30_000);
      const backups = folderIn(scope);
      const during = { backup: join(backups, 'during.tar.gz'), before: Array.from(ledger.acknowledged.keys()) };
      const running = runSluice(['backup', '--to', during.backup, '--data', server.dataFolder]);
      await sleep(200 + random() * 600);
      await server.kill('SIGKILL');
      const { code, stderr } = await running;
      assert.equal(code, 0, stderr);
      const after = await backUp(server.dataFolder, join(backups, 'after'), ledger);
      for (const one of [during, after]) await assertRestored(scope, one, ledger, server.key);
    },
  );
});
