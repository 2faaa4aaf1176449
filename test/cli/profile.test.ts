/**
 * `sluice profile`: who someone is, and why that is one person.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { runProfile } from '../../src/cli/profile.ts';
import { openDataFolder, refusal, run, testShell, traceId } from './data-shell.ts';

const event = { event_name: 'seen', page: '/' };
const VISITOR = { identifiers: { anon_id: 'visitor-1' }, events: [event], user_properties: { plan: 'free' } };
const SIGNED_IN = {
  identifiers: { user_id: 'ada', email: 'Ada@Example.com', first_name: 'Ada' },
  events: [event],
  user_properties: { plan: 'pro', score: 1 },
};
const JOINED = { identifiers: { user_id: 'ada', anon_id: 'visitor-1' }, events: [event] };

suite('sluice profile', () => {
  test('an identifier finds the person as the processor matches it, with properties and the request that set each', async (context) => {
    const folder = openDataFolder(context);
    await folder.send([{ users: [SIGNED_IN] }]);
    const { code, out } = await run(runProfile, ['email= ADA@example.com '], folder.shell());
    assert.equal(code, 0);
    assert.match(out, /account "default", development/);
    assert.match(out, /user_id +ada/);
    assert.match(out, new RegExp(`plan +"pro" .*${traceId(1)}`));
    assert.match(out, new RegExp(`first_name +"Ada" .*${traceId(1)}`));
    assert.match(out, /seen +.*"page":"\/"/);
  });

  test('the tree leads from the root to every identifier by the request that joined it', async (context) => {
    const folder = openDataFolder(context);
    await folder.send([{ users: [VISITOR] }, { users: [SIGNED_IN] }, { users: [JOINED] }]);
    const { out } = await run(runProfile, ['user_id=ada'], folder.shell());
    const tree = out.slice(out.indexOf('Why this is one person'));
    assert.match(tree, new RegExp(`├─ anon_id "visitor-1" since .* by ${traceId(1)}`));
    assert.match(tree, new RegExp(`└─ merged with [0-9a-f-]{36} through .* by ${traceId(3)}`));
    assert.match(tree, new RegExp(` {5}├─ user_id "ada" since .* by ${traceId(2)}`));
    assert.match(tree, /└─ email "Ada@Example.com"/);
  });

  test('a refused link is shown with its reason (rule 6)', async (context) => {
    const folder = openDataFolder(context);
    const other = { identifiers: { user_id: 'bob', anon_id: 'visitor-1' }, events: [event] };
    await folder.send([{ users: [JOINED] }, { users: [other] }]);
    const { out } = await run(runProfile, ['user_id=bob'], folder.shell());
    assert.match(out, /anon_id "visitor-1" was not joined: it belongs to a profile with another user_id \(1 time/);
  });

  test('the id of a profile that was merged away finds the surviving one', async (context) => {
    const folder = openDataFolder(context);
    await folder.send([{ users: [VISITOR] }, { users: [SIGNED_IN] }, { users: [JOINED] }]);
    const { out } = await run(runProfile, ['user_id=ada', '--json'], folder.shell());
    const { profile } = JSON.parse(out) as { profile: { id: string; merged_ids: string[] } };
    const [merged = ''] = profile.merged_ids;
    const { out: again } = await run(runProfile, [merged, '--json'], folder.shell());
    assert.equal(again, out);
  });

  test('--json carries profile, provenance, identity and events, digit for digit', async (context) => {
    const folder = openDataFolder(context);
    const body = Buffer.from(
      '{"users":[{"identifiers":{"user_id":"ada"},"user_properties":{"n":12345678901234567890,"__proto__":1},"events":[{"event_name":"e"}]}]}',
    );
    await folder.send([{ body, userCount: 1, eventCount: 1 }]);
    const { out } = await run(runProfile, ['user_id=ada', '--json'], folder.shell());
    assert.match(out, /"n":12345678901234567890/);
    assert.match(out, /"__proto__":1/);
    const response = JSON.parse(out) as Record<string, unknown>;
    assert.deepEqual(Object.keys(response), ['profile', 'identity', 'events']);
  });

  test('an unknown person: exit code 1, and why that may be', async (context) => {
    const folder = openDataFolder(context);
    await folder.send([{ users: [SIGNED_IN] }]);
    const { code, out } = await run(runProfile, ['user_id=null'], folder.shell());
    assert.equal(code, 1);
    assert.match(out, /junk value/);
  });

  test('several tenants: it says which there are, and takes the one that is named', async (context) => {
    const folder = openDataFolder(context);
    await folder.send([
      { users: [SIGNED_IN], account: 'shop' },
      { users: [SIGNED_IN], account: 'blog', environment: 'production' },
    ]);
    const words = await refusal(runProfile, ['user_id=ada'], folder.shell());
    assert.match(words, /--account "shop" --env development/);
    assert.match(words, /--account "blog" --env production/);
    assert.match(await refusal(runProfile, ['user_id=ada', '--account', 'shp'], folder.shell()), /did you mean shop/);
    const { out } = await run(runProfile, ['user_id=ada', '--account', 'blog'], folder.shell());
    assert.match(out, /account "blog", production/);
    const { out: byEnvironment } = await run(runProfile, ['user_id=ada', '--env', 'development'], folder.shell());
    assert.match(byEnvironment, /account "shop", development/);
    assert.equal((await run(runProfile, ['user_id=ada', '--env', 'dev'], folder.shell())).out, byEnvironment);
    const misspelt = await refusal(runProfile, ['user_id=ada', '--env', 'pord'], folder.shell());
    assert.match(misspelt, /--env is "pord"; expected production or development, .* did you mean prod\?/);
  });

  test('what is not an identifier is reported with what was meant', async () => {
    assert.match(await refusal(runProfile, ['usr_id=1'], testShell({})), /did you mean user_id\?/);
    assert.match(await refusal(runProfile, ['email='], testShell({})), /email has no value/);
    assert.match(await refusal(runProfile, [], testShell({})), /no person given; expected one of user_id=/);
  });

  test('what clients sent cannot drive the terminal', async (context) => {
    const folder = openDataFolder(context);
    const hostile = { identifiers: { user_id: 'a\u001b[2Jb' }, events: [{ event_name: 'e\u001b]0;x\u0007' }] };
    await folder.send([{ users: [hostile] }]);
    const { out } = await run(runProfile, ['user_id=a\u001b[2Jb'], folder.shell());
    assert.ok(!out.includes('\u001b'), JSON.stringify(out));
  });
});
