/**
 * kill -9 at random moments, under load, again and again on one data folder: while it serves, while it rotates and
 * seals segments (they are small here), and while it starts and recovers. The seed is printed.
 */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { eventually, MAIN, PROGRAM_ENV, sleep, TEST_SETTINGS } from '../server.ts';
import { assertLedger, Ledger, seededRandom, startLoad } from './ledger.ts';
import { folderIn, launch } from './scope.ts';

const ROUNDS = 8;
/** A round ends after so many responses and a moment more, whatever the speed of the machine. */
const ANSWERS_MAX = 300;
const MOMENT_MS_MAX = 30;
const START_MS_MAX = 500;
/** Some rounds run with two edges, which share one log. */
const TWO_EDGES_EVERY = 3;
const KILL_WHILE_STARTING_EVERY = 4;
const AUDIT_EVERY = 8;

const ARGS = ['--log-segment', '1MB', '--log-level', 'info'];

async function killWhileStarting(dataFolder: string, afterMs: number): Promise<void> {
  const env = { ...PROGRAM_ENV, PORT: '0', SLUICE_DATA: dataFolder, ...TEST_SETTINGS };
  const child = spawn(process.execPath, [MAIN, 'serve', ...ARGS], { env, stdio: 'ignore' });
  const ended = once(child, 'close');
  await sleep(afterMs);
  child.kill('SIGKILL');
  await ended;
}

test('after kill -9 at random moments nothing acknowledged is missing or duplicated', async (t) => {
  const random = seededRandom((line) => t.diagnostic(line));
  await using scope = new AsyncDisposableStack();
  const dataFolder = folderIn(scope);
  // Bodies of some 10 kB: a few hundred of them fill several segments.
  const ledger = new Ledger(3_000);
  let key = '';
  for (let round = 1; round <= ROUNDS; round++) {
    const edges = round % TWO_EDGES_EVERY === 0 ? '2' : '1';
    const server = await launch(scope, { dataFolder, args: [...ARGS, '--edges', edges] });
    key ||= server.key;
    // Which kill -9 leaves behind the log by one commit, and no more.
    assert.doesNotMatch(server.stderr(), /log-ends/);
    const load = startLoad(scope, server, key, ledger);
    const before = ledger.acknowledged.size;
    const responses = Math.floor(random() * ANSWERS_MAX);
    await eventually(`${responses} answers`, () => ledger.acknowledged.size >= before + responses, 30_000);
    await sleep(random() * MOMENT_MS_MAX);
    assert.equal(server.process.exitCode, null, `the server ended by itself:\n${server.stderr()}`);
    assert.equal(await server.kill('SIGKILL'), 'SIGKILL');
    await load.stop();
    t.diagnostic(`round ${round}: ${edges} edge(s), killed after ${ledger.acknowledged.size - before} answers`);
    if (round % KILL_WHILE_STARTING_EVERY === 0) await killWhileStarting(dataFolder, random() * START_MS_MAX);
    if (round % AUDIT_EVERY === 0) await assertLedger(dataFolder, ledger);
  }
  await launch(scope, { dataFolder, args: ARGS });
  const { records } = await assertLedger(dataFolder, ledger);
  const segments = readdirSync(join(dataFolder, 'log')).filter((name) => /^\d{16}\.log$/.test(name)).length;
  t.diagnostic(`${ledger.acknowledged.size} acknowledged, ${records} stored, ${segments} segments`);
  assert.ok(ledger.acknowledged.size > 300, 'the load was too small to show anything');
  assert.ok(segments > ROUNDS, 'no segment was rotated during the rounds');
});
