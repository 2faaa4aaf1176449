/**
 * `sluice config`: what is set, where that came from, for people and for programs.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runConfig } from '../../src/cli/config.ts';
import { type Env, SETTING_NAMES } from '../../src/config/config.ts';
import { OperatorError } from '../../src/errors.ts';

async function run(args: string[], env: Env = {}): Promise<string> {
  let output = '';
  const out = (text: string): void => {
    output += text;
  };
  assert.equal(await runConfig(args, { out, env }), 0);
  return output;
}

test('each setting is shown with its value, where that came from, and what it does', async () => {
  const output = await run(['--port', '9000'], { SLUICE_LOG_RETENTION: '36h' });
  assert.match(output, /^flag +variable +value +from\n/);
  assert.match(output, /^--port +PORT +9000 +flag\n {4}The port to listen on/m);
  assert.match(output, /^--log-retention +SLUICE_LOG_RETENTION +36h +environment$/m);
  assert.match(output, /^--in-flight-bytes +SLUICE_IN_FLIGHT_BYTES +64MB +default$/m);
});

test('for programs it is JSON, wherever --json stands', async () => {
  for (const args of [
    ['--json', '--port', '9000'],
    ['--port', '9000', '--json'],
  ]) {
    const rows = JSON.parse(await run(args)) as { setting: string; value: string; source: string }[];
    assert.deepEqual(
      rows.map((row) => row.setting),
      SETTING_NAMES,
    );
    assert.deepEqual([rows[0]?.value, rows[0]?.source], ['9000', 'flag']);
  }
});

test('mistakes are reported as by serve', async () => {
  await assert.rejects(run(['--prot', '1'], { PORT: 'x' }), (error) => {
    assert.ok(error instanceof OperatorError);
    assert.match(error.message, /did you mean --port\?\n.*PORT is "x"/);
    return true;
  });
});
