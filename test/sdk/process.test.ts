/** How a program with the SDK ends: the SDK does not keep it alive, and sends what waits only where it was asked to. */

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { useServer } from '../edge/fixture.ts';
import { eventually, PROGRAM_ENV } from '../server.ts';
import { openGate } from './gate.ts';
import { storedNumbers } from './stored.ts';

const PROGRAM = fileURLToPath(new URL('program.ts', import.meta.url));
/** Nothing listens there. */
const NOWHERE = 'http://127.0.0.1:9';

interface Program {
  readonly child: ChildProcess;
  readonly stdout: () => string;
  /** The exit code, or the name of the signal. */
  readonly ended: Promise<number | string>;
}

function start(url: string, key: string, what: string): Program {
  const child = spawn(process.execPath, [PROGRAM, url, key, what], {
    env: PROGRAM_ENV,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let stdout = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  const ended = once(child, 'close').then(([code, signal]) => (code ?? signal) as number | string);
  return { child, stdout: () => stdout, ended };
}

suite('A program with the SDK', () => {
  const server = useServer();

  test('ends at once with calls that wait, and sends nothing', async () => {
    const { ended, stdout } = start(server().baseUrl, server().key, 'forgotten');
    assert.equal(await ended, 0);
    assert.equal(stdout(), '');
    assert.deepEqual(await storedNumbers(server(), 'forgotten'), []);
  });

  test('stays alive while flush() waits, also between attempts', async () => {
    const { ended, stdout } = start(server().baseUrl, server().key, 'flushed');
    assert.equal(await ended, 0);
    assert.deepEqual(JSON.parse(stdout()), { delivered: 3, rejected: [], dropped: 0, pending: 0 });
  });

  test('with flushOnExit, sends what waits when it has nothing left to do', async () => {
    const { ended } = start(server().baseUrl, server().key, 'on exit');
    assert.equal(await ended, 0);
    assert.deepEqual(await storedNumbers(server(), 'on%20exit'), [0, 1, 2]);
  });

  test('with flushOnExit, sends what waits at SIGTERM and ends by that signal', async () => {
    const { child, ended, stdout } = start(server().baseUrl, server().key, 'on exit by signal');
    await eventually('it is ready', () => stdout().includes('ready'), 30_000);
    child.kill('SIGTERM');
    assert.equal(await ended, 'SIGTERM');
    assert.deepEqual(await storedNumbers(server(), 'on%20exit%20by%20signal'), [0, 1, 2]);
  });

  test('with flushOnExit, waits for the response of a request in flight for longer than its time', async (context) => {
    const gate = await openGate(() => server().baseUrl);
    context.after(() => gate.close());
    gate.faults.push({ responseDelayMs: 1_500 });
    const { ended, stdout } = start(gate.url, server().key, 'on exit in flight');
    assert.equal(await ended, 0);
    assert.equal(stdout(), '');
    assert.deepEqual(await storedNumbers(server(), 'on%20exit%20in%20flight'), [0, 1, 2]);
  });

  test('with flushOnExit and no server, ends after its time and says what it dropped', async () => {
    const { ended, stdout } = start(NOWHERE, server().key, 'on exit in vain');
    assert.equal(await ended, 0);
    assert.equal(stdout(), 'dropped 3\n');
  });
});
