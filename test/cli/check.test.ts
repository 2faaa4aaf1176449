/** `sluice check`: sample requests in a file, validated with and without a plan, with and without a server. */

import assert from 'node:assert/strict';
import { truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { runCheck } from '../../src/cli/check.ts';
import { eventually, post, removeFolder, startServer, temporaryFolder, type TestServer } from '../server.ts';
import { makeKey } from '../edge/fixture.ts';
import { refusal, run, testShell, type Ran } from './data-shell.ts';
import { startIngestStub } from './ingest-stub.ts';

const ORDER = { type: 'object', properties: { total: { type: 'number' } }, required: ['total'] };
const PLAN = {
  unplanned_events: 'warn',
  events: { order_placed: { mode: 'enforce', schema: ORDER }, cart_seen: { mode: 'warn', schema: ORDER } },
};

const user = (event: object, id = 'ada'): object => ({ identifiers: { user_id: id }, events: [event] });
const GOOD = user({ event_name: 'order_placed', total: 1 });

suite('sluice check', () => {
  const folder = temporaryFolder();
  after(() => removeFolder(folder));
  const write = (name: string, content: unknown): string => {
    const file = join(folder, name);
    writeFileSync(file, typeof content === 'string' ? content : JSON.stringify(content));
    return file;
  };
  const lines = (...values: unknown[]): string => values.map((value) => `${JSON.stringify(value)}\n`).join('');
  const check = (args: readonly string[], changes = {}): Promise<Ran> => run(runCheck, args, testShell(changes));

  test('a file that cannot be read is named', async () => {
    for (const args of [['/nowhere/users.json'], [folder], [write('one.json', GOOD), '--plan', '/nowhere/plan.json']]) {
      const words = await refusal(runCheck, args, testShell({}));
      assert.ok(words.includes(`${args.at(-1)} cannot be read: `), words);
    }
  });

  test('users and requests that are valid pass, in every form of file', async () => {
    const files = [
      write('users.ndjson', `\uFEFF${lines(GOOD, { users: [GOOD, GOOD] })}\n${lines(GOOD)}`),
      write('request.json', `${JSON.stringify({ users: [GOOD] }, null, 2)}\n`),
      write('user.json', GOOD),
      write('several.json', [{ users: [GOOD, GOOD] }, GOOD]),
    ];
    const counts = [4, 1, 1, 3];
    for (const [index, file] of files.entries()) {
      const { code, out } = await check([file]);
      assert.equal(out, `${counts[index]} user${counts[index] === 1 ? '' : 's'} checked: no problems.\n`);
      assert.equal(code, 0);
    }
    const stdin = (async function* () {
      yield Buffer.from(lines(GOOD));
    })();
    assert.equal((await check(['-'], { stdin })).code, 0);
  });

  test('a user that no request has room for is named', async () => {
    const { code, out } = await check([
      write('big.ndjson', lines(GOOD, user({ event_name: 'x', text: 'y'.repeat(11e6) }))),
    ]);
    assert.equal(code, 2);
    assert.match(out, /line 2.*payload too large: a request may have 10 MB/s);
  });

  test('what would be rejected is named with its location and the reason of the server', async () => {
    const file = write(
      'bad.ndjson',
      `${lines(GOOD, user({}), { users: [GOOD, { identifiers: {} }] })}{"users":[}\n${lines({ users: [] })}`,
    );
    const { code, out } = await check([file]);
    assert.equal(code, 2);
    assert.deepEqual(out.split('\n'), [
      'line 4: unusable: is not valid JSON: unexpected character at column 11, expected a value or a closing bracket',
      'line 5: unusable: users must not be empty',
      'line 2: rejected: events[0].event_name is required and must be a non-empty string',
      'line 3, users[1]: rejected: at least one identifier is required (user_id, email, phone_number, or anon_id)',
      '4 users checked: 2 unusable, 2 rejected.',
      '',
    ]);
    const json = await check([write('bad.json', [{ users: [7] }, user({})]), '--json']);
    assert.equal(json.code, 2);
    const { ok, users } = JSON.parse(json.out) as { ok: boolean; users: Record<string, unknown>[] };
    assert.equal(ok, false);
    assert.deepEqual(
      users.map(({ location, status }) => [location, status]),
      [
        ['[0].users[0]', 'rejected'],
        ['[1]', 'rejected'],
      ],
    );
  });

  test('JSON names the file or the request where nothing smaller can be named', async () => {
    const unusable = async (name: string, content: unknown): Promise<unknown> => {
      const { out } = await check([write(name, content), '--json']);
      return (JSON.parse(out) as { unusable: { location: string }[] }).unusable.map(({ location }) => location);
    };
    assert.deepEqual(await unusable('broken.json', '{'), ['the file']);
    assert.deepEqual(await unusable('no-users.json', { users: [] }), ['the request']);
    assert.deepEqual(await unusable('two.json', [GOOD, { users: [] }]), ['[1]']);
  });

  test('what is larger than 64 MB is refused before it is read', async () => {
    const file = write('large.json', '');
    truncateSync(file, 64 * 1_024 * 1_024 + 1);
    assert.equal(await refusal(runCheck, [file], testShell({})), `${file} is larger than 64 MB; check a part of it.`);
    let megabytes = 0;
    const stdin = (async function* () {
      for (; ; megabytes++) yield Buffer.alloc(1_024 * 1_024);
    })();
    const words = await refusal(runCheck, ['-'], testShell({ stdin }));
    assert.equal(words, 'stdin is larger than 64 MB; check a part of it.');
    assert.equal(megabytes, 64);
  });

  test('the users of an array are checked each by itself', async (context) => {
    const { url, received } = await startIngestStub(context, () => ({
      status: 200,
      body: { would_respond: { status: 202, body: { errors: [] } } },
    }));
    const server = ['--url', url, '--key', 'sk_dev_x'];
    assert.equal((await check([write('array.json', [GOOD, GOOD]), ...server])).code, 0);
    assert.deepEqual(
      received.map(({ body }) => body),
      [JSON.stringify({ users: [GOOD] }), JSON.stringify({ users: [GOOD] })],
    );
  });

  test('a tracking plan is checked without a server, in every mode', async () => {
    const plan = write('plan.json', PLAN);
    const file = write(
      'planned.ndjson',
      lines(
        GOOD,
        user({ event_name: 'order_placed', total: '1' }),
        user({ event_name: 'cart_seen' }),
        user({ event_name: 'x' }),
      ),
    );
    const { code, out } = await check([file, '--plan', plan]);
    assert.equal(code, 2);
    assert.deepEqual(out.split('\n'), [
      'line 2: rejected: events[0].total must be a number (order_placed)',
      'line 3: violation: events[0].total is required (cart_seen)',
      'line 4: violation: events[0].event_name is not in the tracking plan (x)',
      '4 users checked: 1 rejected, 2 accepted in spite of violations.',
      '',
    ]);
    assert.equal((await check([write('good.ndjson', lines(GOOD)), '--plan', plan])).code, 0);
  });

  test('what cannot be checked is reported with what to do, and fails', async () => {
    const good = write('fine.ndjson', lines(GOOD));
    assert.match(await refusal(runCheck, [], testShell({})), /no file given; expected a file with requests or users/);
    assert.match(await refusal(runCheck, [join(folder, 'none.json')], testShell({})), /none\.json/);
    assert.match(await refusal(runCheck, [write('empty.ndjson', '\n')], testShell({})), /nothing in the file/);
    const broken = write('broken-plan.json', { events: { a: { mode: 'sometimes', schema: {} } } });
    assert.match(
      await refusal(runCheck, [good, '--plan', broken], testShell({})),
      /not a valid tracking plan:\nevents/,
    );
    const both = [good, '--plan', broken, '--key', 'sk_dev_x', '--url', 'http://127.0.0.1:1'];
    assert.match(await refusal(runCheck, both, testShell({})), /--plan is for a check without a server/);
    const away = [good, '--key', 'sk_dev_x', '--url', 'http://127.0.0.1:9'];
    assert.match(await refusal(runCheck, away, testShell({})), /cannot be reached/);
  });

  test('a server that is not Sluice is reported as that', async (context) => {
    const file = write('asked.ndjson', lines(GOOD));
    for (const body of [{}, { would_respond: null }, { would_respond: {} }]) {
      const { url } = await startIngestStub(context, () => ({ status: 200, body }));
      const words = await refusal(runCheck, [file, '--url', url, '--key', 'sk_dev_x'], testShell({}));
      assert.equal(words, `${url} does not respond like Sluice (200). Is --url right?`);
    }
  });

  suite('with a server', () => {
    let server: TestServer;
    before(async () => {
      server = await startServer({ dataFolder: join(folder, 'data') });
    });
    after(() => server.stop());
    const withKey = (key = server.key): string[] => ['--url', server.baseUrl, '--key', key];

    test('says what would happen to profiles, and nothing does', async () => {
      await post(server, server.key, { users: [{ ...GOOD, user_properties: { plan: 'free' } }] });
      const file = write(
        'there.ndjson',
        lines({ ...GOOD, user_properties: { plan: 'pro' } }, user({ event_name: 'a' }, 'eve'), user({})),
      );
      const { code, out } = await eventually('the person is known', async () => {
        const ran = await check([file, ...withKey()]);
        return ran.out.includes('goes to profile') ? ran : undefined;
      });
      assert.equal(code, 2);
      assert.match(
        out,
        /^line 1: goes to profile [0-9a-f-]{36}\nline 1: sets plan: "free" → "pro"\nline 2: goes to a new profile\nline 3: rejected: events\[0\]/,
      );
      const json = await check([file, ...withKey(), '--json']);
      const { users } = JSON.parse(json.out) as { users: { location: string; is_new: boolean; status: string }[] };
      assert.deepEqual(
        users.map(({ is_new, status }) => [is_new, status]),
        [
          [false, 'accepted'],
          [true, 'accepted'],
          [false, 'rejected'],
        ],
      );
    });

    test('with a publishable key the validation alone; a wrong key is reported', async () => {
      const { key } = await makeKey(server.dataFolder, { kind: 'publishable' });
      const file = write('public.ndjson', lines(GOOD, user({})));
      const { code, out } = await check([file, ...withKey(key)]);
      assert.equal(code, 2);
      assert.match(out, /^line 2: rejected: events\[0\]\.event_name .*\n2 users checked: 1 rejected, 0 accepted/);
      assert.match(
        await refusal(runCheck, [file, ...withKey('sk_dev_wrong')], testShell({})),
        /does not accept this key/,
      );
    });
  });
});
