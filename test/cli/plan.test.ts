/** `sluice plan push|pull|diff|check`: a plan file and the plan of a running server. */

import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { runPlan } from '../../src/cli/plan.ts';
import { diffPlans } from '../../src/plans/diff.ts';
import { type Plan, parsePlan } from '../../src/plans/plan.ts';
import { removeFolder, startServer, temporaryFolder, type TestServer } from '../server.ts';
import { type Ran, refusal, run, testShell, type TestShell } from './data-shell.ts';

const PLAN = {
  unplanned_events: 'warn',
  events: { order_placed: { mode: 'enforce', schema: { properties: { total: { type: 'number' } } } } },
};

suite('sluice plan', () => {
  let server: TestServer;
  const folder = temporaryFolder();
  before(async () => {
    server = await startServer();
  });
  after(async () => {
    await server.kill();
    removeFolder(server.dataFolder);
    removeFolder(folder);
  });

  const shell = (): TestShell =>
    testShell({ env: { SLUICE_URL: server.baseUrl, SLUICE_KEY: server.key }, now: Date.now });
  const plan = (...args: string[]): Promise<Ran> => run(runPlan, args, shell());
  const fileWith = (name: string, content: unknown): string => {
    const file = join(folder, name);
    writeFileSync(file, typeof content === 'string' ? content : JSON.stringify(content));
    return file;
  };

  test('a file is pushed, pulled again as it is, and compared', async () => {
    const file = fileWith('plan.json', PLAN);
    const before = await plan('diff', file);
    assert.equal(before.code, 2);
    assert.match(
      before.out,
      /differs from version 0:\n {2}~ unplanned_events: "allow" → "warn"\n {2}\+ events\.order_placed: /,
    );
    assert.deepEqual(await plan('push', file), {
      code: 0,
      out: `Pushed ${file} as version 1. Servers use it within 2 seconds.\n`,
      err: '',
    });
    assert.match((await plan('push', file)).out, /^Nothing to do: the plan is the same already \(version 1\)\.\n$/);
    assert.deepEqual(JSON.parse((await plan('push', file, '--json')).out), {
      ...(JSON.parse((await plan('push', file, '--json')).out) as object),
      version: 1,
      is_new: false,
    });
    assert.equal((await plan('diff', file)).out, `${file} is the same as version 1.\n`);
    const pulled = join(folder, 'pulled.json');
    assert.equal((await plan('pull', '--out', pulled)).code, 0);
    assert.deepEqual(JSON.parse(readFileSync(pulled, 'utf8')), PLAN);
    assert.deepEqual(JSON.parse((await plan('pull', '--version', '1')).out), PLAN);
    assert.match(await refusal(runPlan, ['pull', '--version', '9'], shell()), /no version 9/);
  });

  test('a file with mistakes is not sent: each is printed with its path', async () => {
    const file = fileWith('wrong.json', { events: { e: { mode: 'block', schema: { type: 'text' } } } });
    for (const command of ['push', 'diff', 'check']) {
      const { code, err } = await plan(command, file);
      assert.equal(code, 2);
      assert.match(
        err,
        /has mistakes:\nevents\.e\.mode must be one of off, warn, enforce\nevents\.e\.schema\.type must be/,
      );
    }
  });

  test('a file is checked without a server', async () => {
    const file = fileWith('valid.json', PLAN);
    const alone = testShell({ env: {}, now: Date.now });
    assert.deepEqual(await run(runPlan, ['check', file], alone), {
      code: 0,
      out: `${file} is a valid plan with 1 event.\n`,
      err: '',
    });
  });

  test('a push that was overtaken, a wrong key and a missing file are refused in words', async () => {
    const overtaken = await plan('push', fileWith('old.json', { version: 7, events: {} }));
    assert.equal(overtaken.code, 2);
    assert.match(overtaken.err, /based on version 7/);
    const wrong = testShell({ env: { SLUICE_URL: server.baseUrl, SLUICE_KEY: 'sk_dev_x' }, now: Date.now });
    assert.match(await refusal(runPlan, ['pull'], wrong), /does not accept this key/);
    assert.match(
      await refusal(runPlan, ['check', join(folder, 'none.json')], shell()),
      /cannot be read.*sluice plan pull/,
    );
    const away = testShell({ env: { SLUICE_URL: 'http://127.0.0.1:9', SLUICE_KEY: server.key }, now: Date.now });
    assert.match(await refusal(runPlan, ['pull'], away), /^http:\/\/127\.0\.0\.1:9 cannot be reached/);
    assert.match(await refusal(runPlan, ['fetch'], shell()), /plan fetch/);
  });
});

test('plans are compared member by member, in whatever order these are', () => {
  const read = (value: object): Plan => {
    const reading = parsePlan(JSON.stringify(value));
    assert.ok(reading.ok);
    return reading.plan;
  };
  const before = read({
    events: { a: { mode: 'warn', schema: { type: 'object', required: ['x'] } }, b: {} },
    version: 1,
  });
  const after = read({
    events: { c: {}, a: { mode: 'off', schema: { required: ['x', 'y'], type: 'object' } } },
    version: 2,
  });
  assert.deepEqual(
    diffPlans(before, after).map(({ kind, path }) => `${kind} ${path}`),
    ['changed events.a.mode', 'changed events.a.schema.required', 'removed events.b', 'added events.c'],
  );
  assert.deepEqual(diffPlans(before, before), []);
});
