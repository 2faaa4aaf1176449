/**
 * The shell of a real process: a command that runs on and on ends cleanly on Ctrl-C and when its reader has gone.
 */

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { suite, type TestContext, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { MAIN, PROGRAM_ENV, user } from '../server.ts';
import { openDataFolder } from './data-shell.ts';

const PROGRAM = fileURLToPath(new URL('./shell-program.ts', import.meta.url));
const SLOW = { timeout: 60_000 };

/** Follows the events of a folder that has one of now; resolves when it has shown it. */
async function follow(
  context: TestContext,
): Promise<{ child: ChildProcess; stderr: () => string; send: () => Promise<void> }> {
  const folder = openDataFolder(context);
  const send = (): Promise<void> => folder.send([{ users: [user('ada')], receivedAt: Date.now() }]);
  await send();
  const child = spawn(process.execPath, [PROGRAM, folder.data], { stdio: ['ignore', 'pipe', 'pipe'] });
  context.after(() => child.kill('SIGKILL'));
  let stderr = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  await once(child.stdout, 'data');
  return { child, stderr: () => stderr, send };
}

suite('The shell of a process', () => {
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    test(`${signal} ends a command that would run forever, with exit code 0 and no words`, SLOW, async (context) => {
      const { child, stderr } = await follow(context);
      child.kill(signal);
      const [code] = (await once(child, 'close')) as [number | null];
      assert.equal(code, 0);
      assert.equal(stderr(), '');
    });
  }

  test('a signal ends a command that waits for a database', SLOW, async (context) => {
    const silent = createServer();
    silent.listen(0, '127.0.0.1');
    await once(silent, 'listening');
    const connected = once(silent, 'connection');
    const env = { ...PROGRAM_ENV, STORE_URL: `postgres://x@127.0.0.1:${(silent.address() as AddressInfo).port}/x` };
    const child = spawn(process.execPath, [MAIN, 'keys', 'list'], { env, stdio: 'ignore' });
    context.after(() => {
      child.kill('SIGKILL');
      silent.close();
    });
    const [socket] = (await connected) as [Socket];
    context.after(() => socket.destroy());
    child.kill('SIGTERM');
    const [, signal] = (await once(child, 'exit')) as [number | null, string | null];
    assert.equal(signal, 'SIGTERM');
  });

  test('a pipe that is closed ends it with the next event, without an error', SLOW, async (context) => {
    const { child, stderr, send } = await follow(context);
    const closed = once(child, 'exit');
    child.stdout?.destroy();
    await send();
    const [code] = (await closed) as [number | null];
    assert.equal(code, 0);
    assert.equal(stderr(), '');
  });
});
