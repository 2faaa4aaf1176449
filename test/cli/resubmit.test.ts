/** `sluice rejections`, `sluice resubmit` and `sluice dead-letters`, against a real server. */

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { runDeadLetters } from '../../src/cli/dead-letters.ts';
import { runPlan } from '../../src/cli/plan.ts';
import { runRejections } from '../../src/cli/rejections.ts';
import { runResubmit } from '../../src/cli/resubmit.ts';
import { useServer } from '../edge/fixture.ts';
import { eventually, post } from '../server.ts';
import { refusal, run, testShell, type TestShell } from './data-shell.ts';
import { startIngestStub } from './ingest-stub.ts';

suite('sluice resubmit', () => {
  const server = useServer();
  const shell = (): TestShell =>
    testShell({ env: { SLUICE_DATA: server().dataFolder, SLUICE_KEY: server().key }, now: Date.now });
  const reason = 'identifiers.user_id must be a string';

  test('shows the reasons and the users, what a patch would do, does it, and says what is left', async () => {
    assert.match((await run(runRejections, [], shell())).out, /^No user was rejected\./);
    const users = [...[1, 2, 3].map((id) => ({ identifiers: { user_id: id }, events: [{ event_name: 'x' }] }))];
    const fine = { identifiers: { user_id: 'fine' }, events: [{ event_name: 'x' }] };
    const { headers } = await post(server(), server().key, { users: [fine, ...users] });
    const trace = headers.get('x-trace-id') ?? '';
    await eventually('it is processed', async () => {
      const { out } = await run(runRejections, [], shell());
      return out.includes(reason) || undefined;
    });
    assert.match((await run(runRejections, [], shell())).out, /to fix {2}rejected {2}last .*\n3 {7}3 /);
    const listed = await run(runRejections, ['--reason', reason], shell());
    assert.ok(listed.out.includes(`${trace}.3`), listed.out);
    const lines = (await run(runRejections, ['--list', '--from', '1h', '--json'], shell())).out.trim().split('\n');
    assert.equal(lines.length, 3);

    const file = (name: string, json: unknown): string => {
      const path = join(server().dataFolder, name);
      writeFileSync(path, JSON.stringify(json));
      return path;
    };
    const patch = file('patch.json', [{ op: 'replace', path: '/identifiers/user_id', value: 'patched' }]);
    const empty = file('empty.json', [{ op: 'remove', path: '/identifiers/user_id' }]);
    const dry = await run(runResubmit, ['--reason', reason, '--patch', empty, '--dry-run'], shell());
    assert.equal(dry.code, 2);
    assert.match(dry.out, /^3 rejected users match\..*\n {2}0 would be accepted\n {2}3 would still be rejected\n/);
    assert.match(dry.out, /Nothing was changed/);

    const user = file('user.json', { identifiers: { user_id: 'by hand' }, events: [{ event_name: 'x' }] });
    const forOne = [`${trace}.1`, '--user', user];
    for (const flags of [['--dry-run'], ['--reason', reason], ['--from', '1h']]) {
      assert.match(await refusal(runResubmit, [...forOne, ...flags], shell()), /is for all that match a filter/);
    }
    const invalid = file('invalid.json', { identifiers: { user_id: 5 }, events: [{ event_name: 'x' }] });
    const still = await run(runResubmit, [`${trace}.1`, '--user', invalid], shell());
    assert.equal(still.code, 2);
    assert.match(still.err, /^Still rejected: .*user_id must be a string/);
    const one = await run(runResubmit, forOne, shell());
    assert.equal(one.code, 0);
    assert.match(one.out, /^Job \S+: done\n {2}1 accepted and stored\n$/);
    assert.match(
      await refusal(runResubmit, [`${trace}.1`, '--user', user], shell()),
      /resubmitted before, or accepted in a retry \(409\)/,
    );
    const all = await run(runResubmit, ['--reason', reason, '--patch', patch, '--json'], shell());
    const job = JSON.parse(all.out) as Record<string, unknown>;
    assert.deepEqual([all.code, job['resubmitted'], job['already']], [0, 2, 0]);
    assert.match((await run(runRejections, ['--list'], shell())).out, /^No rejected user matches\./);
    assert.match((await run(runRejections, ['--list', '--all'], shell())).out, /resubmitted/);
    assert.match((await run(runDeadLetters, [], shell())).out, /^There are no dead letters/);
    assert.match(await refusal(runDeadLetters, ['--retry', 'all'], shell()), /no dead letter matches/);

    // Of one that is too large only a part is kept, which cannot be patched: the exit code says so.
    const large = { identifiers: { user_id: 4 }, events: [{ event_name: 'large', pad: 'x'.repeat(20_000) }] };
    await post(server(), server().key, { users: [fine, users[0], large] });
    await eventually('it is processed', async () => {
      const { out } = await run(runRejections, [], shell());
      return /^2 {7}5 /m.test(out) || undefined;
    });
    const some = await run(runResubmit, ['--reason', reason, '--patch', patch, '--dry-run'], shell());
    assert.equal(some.code, 2, some.out);
    assert.match(
      some.out,
      /\n {2}1 would be accepted\n {2}0 would still be rejected\n {2}1 was too large to be kept whole/,
    );
    assert.match(some.out, /\nWhat the accepted ones would do:\n {2}1 event would be stored\n/);
    assert.match(some.out, /\nCareful: the patch gives every user the same/);
  });

  test('a 400 that is not of Sluice is reported as that, and what a publishable key may do', async (context) => {
    const user = join(server().dataFolder, 'user.json');
    writeFileSync(user, '{}');
    const id = '01930000-0000-7000-8000-000000000001.0';
    const called = async (status: number, body: unknown): Promise<string> => {
      const { url } = await startIngestStub(context, () => ({ status, body }));
      const words = await refusal(runResubmit, [id, '--user', user, '--url', url, '--key', 'pk_x'], shell());
      return words.replaceAll(url, 'URL');
    };
    assert.equal(await called(400, '<html>'), 'URL does not respond like Sluice (400). Is --url right?');
    assert.equal(
      await called(403, { error: 'forbidden' }),
      'URL does not allow that with this key (403): a publishable key can only send events.',
    );
  });

  test('Ctrl-C ends a command whose server does not respond', async (context) => {
    const user = join(server().dataFolder, 'user.json');
    writeFileSync(user, '{}');
    const plan = join(server().dataFolder, 'plan.json');
    writeFileSync(plan, '{"events":{}}');
    for (const [command, ...args] of [
      [runRejections],
      [runRejections, '--list'],
      [runDeadLetters],
      [runDeadLetters, '--retry', 'all'],
      [runResubmit, '01930000-0000-7000-8000-000000000001.0', '--user', user],
      [runResubmit, '--patch', user],
      [runPlan, 'pull'],
      [runPlan, 'infer'],
      [runPlan, 'push', plan],
      [runPlan, 'diff', plan],
    ] as const) {
      const stopped = shell();
      const { url } = await startIngestStub(context, () => {
        stopped.stopping.abort();
        return new Promise(() => undefined);
      });
      assert.equal(await refusal(command, [...args, '--url', url, '--key', 'sk_dev_x'], stopped), 'Stopped.');
    }
  });

  test('says all that is wrong with a command at once', async () => {
    const words = await refusal(runResubmit, ['x', '--patch', '/nowhere/patch.json', '--from', 'soon'], shell());
    assert.match(words, /"x" is not the id of a rejected user/);
    assert.match(words, /--user FILE/);
    assert.match(words, /\/nowhere\/patch\.json cannot be read/);
    assert.match(words, /--from is "soon"/);
    const file = join(server().dataFolder, 'patch.json');
    writeFileSync(file, '[{"op":"remove","path":"/events"}],"filter":{"reason":"another"}');
    assert.match(await refusal(runResubmit, ['--patch', file], shell()), /patch\.json is not valid JSON: .* at line 1/);
    assert.match(await refusal(runDeadLetters, ['--retry', 'x'], shell()), /expected the id of a dead letter, or all/);
    const wrongKey = testShell({ env: { SLUICE_URL: server().baseUrl, SLUICE_KEY: 'sk_dev_wrong' }, now: Date.now });
    assert.match(await refusal(runRejections, [], wrongKey), /does not accept this key/);
  });
});
