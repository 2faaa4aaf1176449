/**
 * A processor that cannot keep up: the test holds the write lock of the store, so that nothing is processed. The edges
 * take in until the backlog has reached its bound, then respond with 503 and say why; what is stored can be read all the
 * while; when the lock is released it heals by itself, and nothing that was acknowledged is lost.
 */

import assert from 'node:assert/strict';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { storeFileOf } from '../../src/data-folder/files.ts';
import { eventually, read, readResponse } from '../server.ts';
import { Connection } from './connection.ts';
import { assertLedger, Ledger, sendNext, startLoad } from './ledger.ts';
import { allEvents, assertBalanced, type LedgerResponse, settled } from './processor-load.ts';
import { folderIn, launch } from './scope.ts';

/** SQLite waits 5 s for a lock, and the backlog is looked at between two tries. */
const PATIENCE_MS = 60_000;

test('a backlog over its bound gets 503 until it is processed, and reads continue', async () => {
  await using scope = new AsyncDisposableStack();
  const dataFolder = folderIn(scope);
  const server = await launch(scope, { dataFolder, env: { SLUICE_BACKLOG_MAX: '1MB' } });
  const { key } = server;
  const ledger = new Ledger(4_000);
  const connection = await Connection.open(server.port);
  await sendNext(connection, ledger, key);
  connection.close();
  const before = (await settled(server, key)).totals.users['stored'] ?? 0;
  assert.ok(before > 0);

  const holder = new DatabaseSync(storeFileOf(dataFolder), { timeout: 5_000 });
  scope.defer(() => {
    if (holder.isOpen) holder.close();
  });
  holder.exec('BEGIN IMMEDIATE');
  const load = startLoad(scope, server, key, ledger, 2);
  await eventually('answers with 503', () => (load.counts.get(503) ?? 0) > 5, PATIENCE_MS);
  assert.match(load.heads.get(503) ?? '', /^Retry-After: \d+/im);
  const readiness = await readResponse(await fetch(`${server.baseUrl}/readyz`));
  assert.equal(readiness.status, 503);
  assert.match(readiness.text, /SLUICE_BACKLOG_MAX/);
  assert.match(await (await fetch(`${server.baseUrl}/metrics`)).text(), /unavailable_total\{reason="backlog"\} [1-9]/);
  assert.equal((await fetch(`${server.baseUrl}/livez`)).status, 200);

  // Everything that was stored before can be read, and what waits is reported as pending.
  assert.equal((await read<{ event_count: number }>(server, key, '/profiles?user_id=user-1-0')).event_count, 1);
  assert.equal((await allEvents(server, key)).length, before);
  const stored = await read<LedgerResponse>(server, key, '/ledger');
  assertBalanced(stored);
  assert.ok((stored.totals.users['pending'] ?? 0) > 0);
  assert.equal(stored.totals.users['stored'], before);
  const waiting = [...ledger.acknowledged.keys()].at(-1) ?? '';
  assert.equal((await read<{ status: string }>(server, key, `/traces/${waiting}`)).status, 'pending');
  await eventually('that is in the log', () => server.stderr().includes('the backlog is full'));
  assert.equal(server.stderr().split('the backlog is full').length - 1, 1);
  await eventually('it says why', () => server.stderr().includes('the processor waits'), PATIENCE_MS);
  assert.equal(server.stderr().split('the processor waits').length - 1, 1, server.stderr());

  const taken = load.counts.get(202) ?? 0;
  holder.exec('ROLLBACK');
  holder.close();
  await eventually('it takes in again', () => (load.counts.get(202) ?? 0) > taken + 20, PATIENCE_MS);
  await load.stop();
  await eventually('it is ready', async () => (await fetch(`${server.baseUrl}/readyz`)).status === 200);
  await eventually('that is in the log', () => server.stderr().includes('the backlog has room again'));
  const { totals } = await settled(server, key);
  await assertLedger(dataFolder, ledger);
  let users = 0;
  for (const idempotencyKey of ledger.acknowledged.values()) users += ledger.sent.get(idempotencyKey)?.users ?? 0;
  assert.equal(totals.users['stored'], users);
  assert.equal((await allEvents(server, key)).length, users);
  assert.equal((await read<{ status: string }>(server, key, `/traces/${waiting}`)).status, 'processed');
});
