/**
 * `sluice trace`: what became of a request, and where to look for an unknown one.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { runTrace } from '../../src/cli/trace.ts';
import { openDataFolder, refusal, run, testShell, traceId } from './data-shell.ts';

const ADA = { identifiers: { user_id: 'ada' }, events: [{ event_name: 'signed_up' }] };

suite('sluice trace', () => {
  test('a processed request shows its status, times, users, profiles and what was rejected', async (context) => {
    const folder = openDataFolder(context);
    const rejections = [{ userIndex: 1, message: 'user must be an object' }];
    await folder.send([{ users: [ADA, 7], rejections }]);
    const { code, out } = await run(runTrace, [traceId(1)], folder.shell());
    assert.equal(code, 0);
    assert.match(out, new RegExp(`Request ${traceId(1)}: processed`));
    assert.match(out, /users {6}1 accepted, 1 rejected/);
    assert.match(out, /0 {5}accepted {2}[0-9a-f-]{36} {2}1 /);
    assert.match(out, /1 {5}rejected .* user must be an object/);
    assert.match(out, /can be read for 7 days, .*GET \/rejections/);
  });

  test('--json has the shape of the API, with times in UTC', async (context) => {
    const folder = openDataFolder(context);
    await folder.send([{ users: [ADA] }]);
    const { out } = await run(runTrace, [traceId(1), '--json'], folder.shell());
    const trace = JSON.parse(out) as Record<string, unknown>;
    assert.equal(trace['trace_id'], traceId(1));
    assert.equal(trace['status'], 'processed');
    assert.match(String(trace['received_at']), /Z$/);
    assert.equal((trace['users'] as unknown[]).length, 1);
  });

  test('a repeat with the same Idempotency-Key names the request it repeats, and says what to do', async (context) => {
    const folder = openDataFolder(context);
    await folder.send([
      { users: [ADA], idempotencyKey: 'once' },
      { users: [ADA], idempotencyKey: 'once' },
    ]);
    const { out } = await run(runTrace, [traceId(2)], folder.shell());
    assert.match(out, new RegExp(`duplicate  of ${traceId(1)}`));
    assert.match(out, new RegExp(`sluice trace ${traceId(1)}`));
  });

  test('a dead letter does not read as if it waited', async (context) => {
    const folder = openDataFolder(context);
    await folder.send([{ body: Buffer.from('{"users":'), userCount: 1, eventCount: 1 }]);
    const { out } = await run(runTrace, [traceId(1)], folder.shell());
    assert.match(out, /processed {2}failed .*: it is a dead letter; cause and retry: sluice dead-letters/);
    assert.doesNotMatch(out, /waiting to be processed|long wait/);
    const { out: json } = await run(runTrace, [traceId(1), '--json'], folder.shell());
    assert.match(String((JSON.parse(json) as Record<string, unknown>)['failed_at']), /Z$/);
  });

  test('the tenant does not matter, and the id of an event will do', async (context) => {
    const folder = openDataFolder(context);
    await folder.send([
      { users: [ADA], account: 'one' },
      { users: [ADA], account: 'two', environment: 'production' },
    ]);
    const { code } = await run(runTrace, [`${traceId(2)}.0.0`], folder.shell());
    assert.equal(code, 0);
  });

  test('for an unknown id it says where else to look, and exit code 1', async (context) => {
    const folder = openDataFolder(context);
    await folder.send([{ users: [ADA] }]);
    const { code, out } = await run(runTrace, [traceId(99)], folder.shell());
    assert.equal(code, 1);
    assert.match(out, /401, 413/);
    assert.match(out, /400 because no\s+user was valid is kept/);
    assert.match(out, /Traces are kept as long as events: see SLUICE_EVENT_RETENTION/);
    assert.match(out, /--data FOLDER/);
  });

  test('all mistakes are reported at once', async () => {
    const words = await refusal(runTrace, ['not-an-id', '--jsn', 'another'], testShell({}));
    assert.match(
      words,
      /"not-an-id" is neither a trace_id nor the id of a stored event; expected a UUID, or a UUID and two numbers \(UUID\.0\.0\)/,
    );
    assert.match(words, /unknown flag --jsn; did you mean --json\?/);
  });

  test('a folder where no server ran is reported as that, and stays as it is', async (context) => {
    const folder = openDataFolder(context);
    assert.match(await refusal(runTrace, [traceId(1)], folder.shell()), /no server has run there yet/);
  });
});
