/** `sluice plan infer` and `sluice plan types`, on a running server: what was received becomes a plan, and the plan types. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { runPlan } from '../../src/cli/plan.ts';
import type { Plan } from '../../src/plans/plan.ts';
import { ask, useServer } from '../edge/fixture.ts';
import { folderIn } from '../faults/scope.ts';
import { eventually, post } from '../server.ts';
import { refusal, run, testShell } from './data-shell.ts';

const server = useServer();

test('a plan is inferred from what was received, pushed, and inferred again with what came since', async () => {
  await using scope = new AsyncDisposableStack();
  const file = join(folderIn(scope), 'sluice-plan.json');
  const { baseUrl, key } = server();
  const plan = (...args: string[]) =>
    run(runPlan, args, testShell({ env: { SLUICE_URL: baseUrl, SLUICE_KEY: key }, now: Date.now }));
  const receive = async (name: string): Promise<void> => {
    const events = Array.from({ length: 25 }, (_, total) => ({ event_name: name, total }));
    await post(server(), key, { users: [{ identifiers: { user_id: 'u' }, user_properties: { plan: 'pro' }, events }] });
    await eventually('it is in the catalogue', async () => {
      const headers = { authorization: `Bearer ${key}` };
      return (await ask(server(), `/catalogue/_?event_name=${encodeURIComponent(name)}`, { headers })).status === 200;
    });
  };
  await receive('order / placed');
  const inferred = await plan('infer', '--out', file);
  assert.deepEqual([inferred.code, inferred.out], [0, '']);
  assert.match(inferred.err, /^Wrote a plan with 1 new event to /);
  const schema = { type: 'object', properties: { total: { type: 'number' } }, required: ['total'] };
  const written = JSON.parse(readFileSync(file, 'utf8')) as Plan;
  assert.deepEqual(written.events, { 'order / placed': { mode: 'warn', schema } });
  assert.equal((await plan('push', file)).code, 0);

  // A URL cannot have the first two in its path.
  for (const name of ['.', '..', 'gift sent', '__proto__']) await receive(name);
  const again = JSON.parse((await plan('infer')).out) as Plan;
  assert.equal(again.version, 1);
  assert.deepEqual(Object.keys(again.events), ['.', '..', 'gift sent', 'order / placed']);

  const types = await plan('types', file);
  assert.equal(types.code, 0);
  assert.match(types.out, /"order \/ placed": \{\n {4}readonly total: number;\n {2}\};/);
});

test('a key that may not read the catalogue, and words that mean nothing, are refused', async () => {
  const shell = testShell({ env: { SLUICE_URL: server().baseUrl, SLUICE_KEY: server().key }, now: Date.now });
  assert.match(await refusal(runPlan, ['infer', 'file.json'], shell), /unexpected argument "file\.json"/);
  assert.match(await refusal(runPlan, ['types', '/no/such/file.json'], shell), /cannot be read/);
});
