/** `sluice send`: one event from the terminal, as it was typed, with a result that says where to look. */

import assert from 'node:assert/strict';
import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { runSend } from '../../src/cli/send.ts';
import { eventually, removeFolder, runSluice, startServer, temporaryFolder } from '../server.ts';
import { refusal, run, testShell, type TestShell } from './data-shell.ts';
import { startIngestStub } from './ingest-stub.ts';

const KEY = 'sk_dev_this-is-not-to-be-seen';
const PERSON = ['--user-id', 'ada'];

function shellFor(url: string): TestShell {
  return testShell({ env: { SLUICE_URL: url, SLUICE_KEY: KEY }, now: Date.now });
}

suite('sluice send', () => {
  test('sends to the server on the data folder, and says where to look; a wrong field is named', async (context) => {
    const dataFolder = temporaryFolder();
    context.after(() => removeFolder(dataFolder));
    const server = await startServer({ dataFolder });
    context.after(() => server.stop());
    const shell = (): TestShell =>
      testShell({ env: { SLUICE_DATA: dataFolder, SLUICE_KEY: server.key }, now: Date.now });
    const order = ['order_placed', ...PERSON, 'revenue=42.5', 'currency=EUR', 'timestamp=20261101', '$event_id=17'];
    const { code, out } = await run(runSend, order, shell());
    assert.equal(code, 0);
    const [, traceId = ''] = /^202 accepted and durable\ntrace_id {2}(\S+)\n/.exec(out) ?? [];
    assert.ok(out.includes(`see it    ${server.baseUrl}/dashboard/development/traces/${traceId}\n`), out);
    assert.ok(out.includes(`or run    sluice trace ${traceId}\n`), out);

    // The same $event_id again: accepted, and stored once.
    assert.equal((await run(runSend, order, shell())).code, 0);
    assert.equal((await run(runSend, ['last', ...PERSON], shell())).code, 0);
    const events = await eventually('all are stored', async () => {
      const response = await fetch(`${server.baseUrl}/events`, { headers: { authorization: `Bearer ${server.key}` } });
      const page = (await response.json()) as { events: Record<string, unknown>[] };
      return page.events.some((event) => event['event_name'] === 'last') ? page.events : undefined;
    });
    const [placed, ...more] = events.filter((event) => event['event_name'] === 'order_placed');
    assert.deepEqual(more, []);
    assert.equal(placed?.['trace_id'], traceId);
    assert.equal(placed['revenue'], 42.5);
    assert.equal(placed['timestamp'], '2026-11-01T00:00:00.000Z');
    assert.deepEqual(placed['properties'], { currency: 'EUR', $event_id: '17' });

    const wrong = await run(runSend, ['order_placed', ...PERSON, 'revenue=a lot'], shell());
    assert.equal(wrong.code, 2);
    assert.match(wrong.out, /^400 rejected: events\[0\]\.revenue must be a number\ntrace_id {2}\S+\n/);
    const json = await run(runSend, ['order_placed', ...PERSON, 'timestamp=soon', '--json'], shell());
    assert.equal(json.code, 2);
    const result = JSON.parse(json.out) as Record<string, unknown>;
    assert.deepEqual([result['status'], typeof result['trace_id']], [400, 'string']);
    assert.match(String(result['message']), /events\[0\]\.timestamp/);
  });

  test('values are JSON where they are JSON, digit for digit, and text otherwise', async (context) => {
    const stub = await startIngestStub(context);
    const pairs = ['n=12345678901234567890.10', 'yes=true', 'none=null', 'o={"a":[1]}', 'zip=01234', 'plan=pro'];
    const odd = ['empty=', 'a=b=c', 'quoted="7"', '__proto__=1'];
    const people = ['--email', 'a@b.c', '--phone-number', '+4930', '--anon-id', 'x', ...PERSON];
    const { code } = await run(runSend, ['odd "name"', ...people, ...pairs, ...odd], shellFor(stub.url));
    assert.equal(code, 0);
    assert.equal(
      stub.received[0]?.body,
      '{"users":[{"identifiers":{"user_id":"ada","email":"a@b.c","phone_number":"+4930","anon_id":"x"},"events":[{' +
        '"event_name":"odd \\"name\\"","n":12345678901234567890.10,"yes":true,"none":null,"o":{"a":[1]},' +
        '"zip":"01234","plan":"pro","empty":"","a":"b=c","quoted":"7","__proto__":1}]}]}',
    );
  });

  test('all mistakes are reported at once, before anything is sent', async (context) => {
    const stub = await startIngestStub(context);
    const args = ['revenue=1', 'revenue=2', 'event_name=x', 'paid', '--usr-id', 'ada', '--url', stub.url];
    const words = await refusal(runSend, args, testShell({}));
    for (const mistake of [
      /no event name given/,
      /revenue is given twice/,
      /event_name is given twice/,
      /unexpected argument "paid"; expected name=value/,
      /unknown flag --usr-id; did you mean --user-id\?/,
      /no person given; expected --user-id/,
      /no API key given; expected --key KEY/,
    ]) {
      assert.match(words, mistake);
    }
    assert.equal(stub.received.length, 0);
    const nowhere = testShell({ env: { SLUICE_DATA: temporaryFolder(), SLUICE_KEY: KEY } });
    assert.match(await refusal(runSend, ['x', ...PERSON], nowhere), /no server is running on the data folder/);
  });

  test('a data folder that this user may not read is reported as that', async (context) => {
    const dataFolder = temporaryFolder();
    context.after(() => removeFolder(dataFolder));
    const lock = join(dataFolder, 'lock.db');
    writeFileSync(lock, '');
    // Root may read everything.
    const isRoot = process.getuid?.() === 0;
    const as = isRoot ? { uid: 65_534, gid: 65_534 } : {};
    const closed = isRoot ? 0o700 : 0;
    for (const [folderMode, lockMode] of [
      [0o755, closed],
      [closed, 0o644],
    ] as const) {
      chmodSync(lock, lockMode);
      chmodSync(dataFolder, folderMode);
      const env = { SLUICE_DATA: dataFolder, SLUICE_KEY: KEY };
      const { code, stderr } = await runSluice(['send', 'x', ...PERSON], env, as);
      assert.equal(code, 1);
      assert.match(stderr, /the data folder \S+ cannot be read by this user \(EACCES\).* run this as the owner/);
      assert.doesNotMatch(stderr, /no server is running/);
    }
    chmodSync(dataFolder, 0o700);
  });

  test('a lost response is retried with the same Idempotency-Key; a wrong key is not, and is in no message', async (context) => {
    const stub = await startIngestStub(context, (_, nth) => (nth === 1 ? { status: 503 } : undefined));
    assert.equal((await run(runSend, ['x', ...PERSON], shellFor(stub.url))).code, 0);
    assert.equal(stub.received.length, 2);
    assert.equal(stub.stored.size, 1);
    assert.equal(stub.received[0]?.idempotencyKey, stub.received[1]?.idempotencyKey);

    const closed = await startIngestStub(context, () => ({ status: 401 }));
    const shell = shellFor(closed.url);
    const words = await refusal(runSend, ['x', ...PERSON], shell);
    assert.match(words, /does not accept this key \(401\)/);
    assert.doesNotMatch(words, /unknown whether/);
    assert.equal(closed.received.length, 1);
    assert.ok(!(words + shell.out() + shell.err()).includes(KEY));
  });

  test('a refusal is in the words of the server, without what could drive the terminal', async (context) => {
    const words = async (status: number, body: unknown): Promise<string> => {
      const { url } = await startIngestStub(context, () => ({ status, body }));
      return (await refusal(runSend, ['x', ...PERSON], shellFor(url))).replaceAll(url, 'URL');
    };
    const message = 'this key may not be used from https://a.example\u001b[2J';
    assert.equal(
      await words(403, { error: 'forbidden', message }),
      'URL does not allow that with this key (403): this key may not be used from https://a.example\u{fffd}[2J.',
    );
    assert.equal(await words(403, {}), 'URL does not allow that with this key (403).');
    assert.equal(await words(404, { message: 'no route' }), 'URL responds with 404: no route. Is --url right?');
    assert.equal(await words(404, {}), 'URL does not respond like Sluice (404). Is --url right?');
  });

  test('what was stopped, or got no response, may have been stored: it says so', async (context) => {
    const down = await startIngestStub(context, () => ({ status: 503 }));
    const words = await refusal(runSend, ['x', ...PERSON, '--retry-timeout', '1ms'], shellFor(down.url));
    assert.match(words, /gave up after 1 ms \(--retry-timeout\)\. It is unknown whether the event was stored\.$/);
    const shell = shellFor((await startIngestStub(context, () => shell.stopping.abort() as undefined)).url);
    const stopped = await refusal(runSend, ['x', ...PERSON], shell);
    assert.equal(stopped, 'Stopped. It is unknown whether the event was stored.');
  });
});
