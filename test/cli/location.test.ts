/**
 * Commands and the database that servers share: where they look, what they say when that cannot be, and that no password
 * gets out. The commands on a real database are in test/e2e/postgres.test.ts.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { checkDatabase, type DatabaseFacts, type DoctorParts } from '../../src/cli/doctor-checks.ts';
import { runTrace } from '../../src/cli/trace.ts';
import { loadConfig } from '../../src/config/config.ts';
import { openShell, SECRET } from './keys-shell.ts';
import { refusal, testShell } from './data-shell.ts';

const TRACE_ID = '01930000-0000-7000-8000-000000000001';
/** Nothing listens there. */
const NOBODY = 'postgres://sluice:hidden@127.0.0.1:1/sluice';

suite('Commands with STORE_URL', () => {
  test('an address that cannot be is reported with its setting or flag, and not repeated', async (context) => {
    const { refusal: refusalOf } = await openShell(context);
    const wrong = 'mysql://u:hidden@db/x';
    for (const words of [
      await refusalOf(['list'], { STORE_URL: wrong }),
      await refusalOf([...SECRET, '--store-url', wrong]),
      await refusal(runTrace, [TRACE_ID, `--store-url=${wrong}`], testShell({})),
    ]) {
      assert.match(words, /(STORE_URL|--store-url) cannot be used; expected the address of a database/);
      assert.doesNotMatch(words, /hidden/);
    }
  });

  test('a log without a store is refused by commands as by servers', async () => {
    const shell = testShell({ env: { LOG_URL: 'kafka://k:9092/sluice' } });
    assert.match(await refusal(runTrace, [TRACE_ID], shell), /LOG_URL is set, but STORE_URL is not/);
  });

  test('a database that is away is reported with its address, without the password', async (context) => {
    const { refusal: refusalOf } = await openShell(context);
    for (const words of [
      await refusalOf(['list'], { STORE_URL: NOBODY }),
      await refusalOf(SECRET, { STORE_URL: NOBODY }),
      await refusal(runTrace, [TRACE_ID], testShell({ env: { STORE_URL: NOBODY } })),
    ]) {
      assert.match(words, /postgres:\/\/sluice:…@127\.0\.0\.1:1\/sluice cannot be reached/);
      assert.doesNotMatch(words, /hidden/);
    }
  });
});

suite('The doctor at a database', () => {
  const FACTS: DatabaseFacts = {
    version: '17.6',
    hasTables: true,
    problemOfIndexes: null,
    days: 9,
    bytes: 1_048_576,
    connections: 20,
    connectionsMax: 100,
    oldestTransactionMs: 12,
    problemOfMigration: null,
    problemOfLog: null,
    isStandby: false,
    isReadOnly: false,
    clockAheadMs: 0,
  };

  async function look(facts: Partial<DatabaseFacts>): Promise<string> {
    const { config } = loadConfig({ env: { STORE_URL: NOBODY }, args: [] });
    const parts = { config, lookAtDatabase: async () => ({ ...FACTS, ...facts }) } as unknown as DoctorParts;
    const findings = await checkDatabase(parts);
    return findings.map(({ state, message }) => `${state}: ${message}`).join('\n');
  }

  test('says which one it is, and that it is well', async () => {
    assert.equal(
      await look({}),
      `ok: postgres://sluice:…@127.0.0.1:1/sluice responds: PostgreSQL 17.6
ok: its tables exist: 1.0 MB in total, events and records in 9 tables of one day each`,
    );
  });

  test('says what is not', async () => {
    assert.match(await look({ isStandby: true }), /^error: .*is a standby$/);
    assert.match(await look({ isReadOnly: true }), /^error: .*is read-only$/);
    assert.match(await look({ hasTables: false }), /^warning: it has no Sluice tables yet$/m);
    assert.match(await look({ problemOfIndexes: 'No index.' }), /^error: No index\.$/m);
    assert.match(await look({ connections: 95 }), /^warning: 95 of 100 connections are in use$/m);
    assert.match(await look({ oldestTransactionMs: 600_000 }), /^warning: a transaction .* has been open for 10m$/m);
  });
});
