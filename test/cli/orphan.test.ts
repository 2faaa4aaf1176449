/**
 * `bin/sluice.js` runs the server as a child when its own Node is too old. Killing the command must not leave the
 * server behind: it would hold the port and the data folder.
 */

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { eventually, MAIN, PROGRAM_ENV, removeFolder, temporaryFolder, TEST_SETTINGS } from '../server.ts';

/** Starts the program as the command does: with a channel, and nothing else of note. */
const PARENT = `
  const { spawn } = require('node:child_process');
  spawn(process.execPath, process.argv.slice(1), { stdio: ['inherit', 'inherit', 'inherit', 'ipc'] });`;

test('a server whose command was killed with -9 ends by itself, in order', async () => {
  const dataFolder = temporaryFolder();
  const parent = spawn(process.execPath, ['-e', PARENT, '--', MAIN, 'serve'], {
    env: { ...PROGRAM_ENV, PORT: '0', SLUICE_DATA: dataFolder, ...TEST_SETTINGS },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const lines: string[] = [];
  createInterface({ input: parent.stderr }).on('line', (line) => lines.push(line));
  try {
    const listening = await eventually('it listens', () => lines.find((line) => line.includes('"listening"')));
    const { pid } = JSON.parse(listening) as { pid: number };
    assert.notEqual(pid, parent.pid);
    parent.kill('SIGKILL');
    await once(parent, 'exit');
    await eventually('it says that it stops', () => lines.some((line) => line.includes('"stopped"')));
    await eventually('it is gone', () => {
      try {
        return !process.kill(pid, 0);
      } catch {
        return true;
      }
    });
  } finally {
    removeFolder(dataFolder);
  }
});
