/**
 * `sluice import`: every line goes in once or is reported with its reason, however often it is interrupted.
 */

import assert from 'node:assert/strict';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { suite, type TestContext, test } from 'node:test';
import { runImport } from '../../src/cli/import.ts';
import { loadConfig } from '../../src/config/config.ts';
import { openStore } from '../../src/wiring/opening.ts';
import { eventually, removeFolder, startServer, temporaryFolder, user } from '../server.ts';
import { refusal, run, testShell, type TestShell } from './data-shell.ts';
import { type IngestStub, startIngestStub, usersIn } from './ingest-stub.ts';

const KEY = 'sk_dev_this-is-not-to-be-seen';
const SLOW = { timeout: 60_000 };

function temporaryFile(context: TestContext, content: string | Buffer): string {
  const folder = temporaryFolder();
  context.after(() => removeFolder(folder));
  const file = join(folder, 'users.ndjson');
  writeFileSync(file, content);
  return file;
}

function lines(count: number): string {
  return Array.from({ length: count }, (_, n) => `${JSON.stringify({ n })}\n`).join('');
}

function shellFor(stub: Pick<IngestStub, 'url'>): TestShell {
  return testShell({ env: { SLUICE_URL: stub.url, SLUICE_KEY: KEY }, now: Date.now });
}

function rejectedIn(file: string): { line: number; reason: string }[] {
  const text = readFileSync(`${file}.rejected.ndjson`, 'utf8').trim();
  return text.split('\n').map((line) => JSON.parse(line) as { line: number; reason: string });
}

suite('sluice import', () => {
  test(
    'a real server takes all users of a file; those it rejects are reported, and the exit code is 2',
    SLOW,
    async (context) => {
      const server = await startServer();
      context.after(async () => {
        await server.kill();
        removeFolder(server.dataFolder);
      });
      const users = Array.from({ length: 1_200 }, (_, n) => JSON.stringify(n === 700 ? { events: [] } : user(`u${n}`)));
      const file = temporaryFile(context, `${users.join('\n')}\n`);
      const shell = testShell({ now: Date.now });
      const ran = await run(runImport, [file, '--url', server.baseUrl, '--key', server.key, '--json'], shell);
      assert.equal(ran.code, 2);
      const { users_accepted, users_rejected } = JSON.parse(ran.out) as Record<string, number>;
      assert.deepEqual([users_accepted, users_rejected], [1_199, 1]);
      const [rejected] = rejectedIn(file);
      assert.equal(rejected?.line, 701);
      assert.match(rejected?.reason ?? '', /at least one identifier is required/);
      assert.ok(!existsSync(`${file}.import`));

      // All over again: the server takes the requests, and stores nothing twice.
      await run(runImport, [file, '--url', server.baseUrl, '--key', server.key], testShell({ now: Date.now }));
      const { config } = loadConfig({ env: { SLUICE_DATA: server.dataFolder }, args: [] });
      const store = await openStore(config);
      assert.ok(store !== undefined);
      context.after(() => store.close());
      const events = await eventually('all is processed', async () => {
        const { hours } = await store.ledger(null, { from: null, to: null });
        const sum = (book: 'stored' | 'duplicates' | 'pending'): number =>
          hours.reduce((total, hour) => total + hour.events[book], 0);
        return sum('pending') === 0 && { stored: sum('stored'), duplicates: sum('duplicates') };
      });
      assert.deepEqual(events, { stored: 1_199, duplicates: 1_199 });
    },
  );

  test('lines are sent as the bytes that they are', async (context) => {
    const stub = await startIngestStub(context);
    const file = temporaryFile(context, '\ufeff{"n": 12345678901234567890.10}\r\n\n  {"é":1}');
    const { code, out } = await run(runImport, [file], shellFor(stub));
    assert.equal(code, 0);
    assert.equal(stub.received[0]?.body, '{"users":[{"n": 12345678901234567890.10}\r,  {"é":1}]}');
    assert.equal(stub.received[0]?.authorization, `Bearer ${KEY}`);
    assert.match(out, /^2 users accepted/);
    assert.ok(!existsSync(`${file}.rejected.ndjson`));
  });

  test('a line that is not JSON is reported with its number, and cannot smuggle users in', async (context) => {
    const stub = await startIngestStub(context);
    const bad = Buffer.concat([
      Buffer.from('{"n":0}\n{"n":1},{"n":2}\n{"n":\n'),
      Buffer.from([0x22, 0xff, 0x22, 0x0a]),
      Buffer.from('{"n":3}'),
    ]);
    const file = temporaryFile(context, bad);
    const { code } = await run(runImport, [file], shellFor(stub));
    assert.equal(code, 2);
    assert.deepEqual(
      usersIn(stub.stored).map(({ n }) => n),
      [0, 3],
    );
    const rejected = rejectedIn(file);
    assert.deepEqual(
      rejected.map(({ line }) => line),
      [2, 3, 4],
    );
    assert.match(rejected[0]?.reason ?? '', /not JSON: .* at column 8/);
    assert.match(rejected[2]?.reason ?? '', /not UTF-8/);
  });

  test('a line longer than a request can carry is reported, and does not fill the memory', async (context) => {
    const stub = await startIngestStub(context);
    const file = temporaryFile(context, `{"n":0}\n"${'x'.repeat(11 * 1_024 * 1_024)}"\n{"n":1}\n`);
    const { code } = await run(runImport, [file], shellFor(stub));
    assert.equal(code, 2);
    assert.equal(usersIn(stub.stored).length, 2);
    assert.match(rejectedIn(file)[0]?.reason ?? '', /longer than/);
    assert.ok(readFileSync(`${file}.rejected.ndjson`).length < 5_000);
  });

  test('503 is waited for, and a lost response does not store a batch twice', SLOW, async (context) => {
    const stub = await startIngestStub(context, (request, nth) => {
      if (nth === 2) return { status: 503, headers: { 'retry-after': '0' } };
      if (nth !== 3) return undefined;
      stub.stored.set(request.idempotencyKey, request.body);
      return { status: 500 };
    });
    const file = temporaryFile(context, lines(2_000));
    const { code } = await run(runImport, [file], shellFor(stub));
    assert.equal(code, 0);
    assert.equal(stub.received.length, 6);
    assert.deepEqual(
      usersIn(stub.stored).map(({ n }) => n),
      Array.from({ length: 2_000 }, (_, n) => n),
    );
  });

  test(
    'when the retry timeout is over it says so; started again it continues, and nothing is stored twice',
    SLOW,
    async (context) => {
      let isDown = true;
      // The second batch fails; those after it may get in before it is given up.
      const stub = await startIngestStub(context, ({ body }) =>
        isDown && body.startsWith('{"users":[{"n":500}') ? { status: 503 } : undefined,
      );
      const file = temporaryFile(context, `${lines(1_500)}not json\n${lines(1_000)}`);
      const words = await refusal(runImport, [file, '--retry-timeout', '1ms'], shellFor(stub));
      assert.match(words, /responds with 503; gave up after 1 ms/);
      assert.match(words, /Lines up to 500 were sent\. To continue from there, run the same command again/);
      assert.equal((JSON.parse(readFileSync(`${file}.import`, 'utf8')) as { lines: number }).lines, 500);

      isDown = false;
      const { code, err } = await run(runImport, [file], shellFor(stub));
      assert.equal(code, 2);
      assert.match(err, /Continuing after line 500/);
      assert.equal(usersIn(stub.stored).length, 2_500);
      assert.deepEqual(
        rejectedIn(file).map(({ line }) => line),
        [1_501],
      );
      assert.ok(!existsSync(`${file}.import`));
    },
  );

  test('Ctrl-C stops it where it can continue', SLOW, async (context) => {
    const shell: TestShell[] = [];
    const stub = await startIngestStub(context, (_, nth) => {
      if (nth === 5) shell[0]?.stopping.abort();
      return undefined;
    });
    const file = temporaryFile(context, lines(10_000));
    shell.push(shellFor(stub));
    const [first] = shell;
    assert.ok(first !== undefined);
    assert.match(await refusal(runImport, [file], first), /^Stopped\.\nLines up to \d+ were sent/);
    assert.ok(stub.received.length < 20);
    const { code } = await run(runImport, [file], shellFor(stub));
    assert.equal(code, 0);
    assert.equal(usersIn(stub.stored).length, 10_000);
  });

  test('a file that changed meanwhile is not continued, and --restart starts over', async (context) => {
    const stub = await startIngestStub(context, (_, nth) => (nth === 2 ? { status: 401 } : undefined));
    const file = temporaryFile(context, lines(1_000));
    await refusal(runImport, [file], shellFor(stub));
    writeFileSync(file, lines(999));
    assert.match(await refusal(runImport, [file], shellFor(stub)), /has changed since .*--restart/);
    const { code } = await run(runImport, [file, '--restart'], shellFor(stub));
    assert.equal(code, 0);
  });

  test('a damaged state is refused, with nothing sent or removed, until --restart', async (context) => {
    const stub = await startIngestStub(context);
    const file = temporaryFile(context, lines(3));
    const whole = { offset: 8, lines: 1, usersAccepted: 1, usersRejected: 0, rejectedBytes: 0 };
    const state = { ...whole, identity: 'x', server: stub.url };
    writeFileSync(`${file}.rejected.ndjson`, '{"line":1}\n');
    const damaged = [
      '',
      'null',
      '[]',
      '{"offset":',
      ...[{ identity: 1 }, { server: undefined }, { lines: '1' }, { offset: -1 }].map((wrong) =>
        JSON.stringify({ ...state, ...wrong }),
      ),
    ];
    for (const text of damaged) {
      writeFileSync(`${file}.import`, text);
      const words = await refusal(runImport, [file], shellFor(stub));
      assert.equal(words, `${file}.import is damaged. To import from the beginning: --restart`);
    }
    assert.equal(stub.received.length, 0);
    assert.ok(existsSync(`${file}.rejected.ndjson`));
    const { code } = await run(runImport, [file, '--restart'], shellFor(stub));
    assert.equal(code, 0);
  });

  test('401 stops at once with words, and the key is in none of them', async (context) => {
    const stub = await startIngestStub(context, () => ({ status: 401, body: { error: 'unauthorized' } }));
    const shell = shellFor(stub);
    const words = await refusal(runImport, [temporaryFile(context, lines(5_000))], shell);
    assert.match(words, /does not accept this key \(401\)/);
    assert.ok(stub.received.length <= 4);
    assert.ok(!(words + shell.out() + shell.err()).includes(KEY));
  });

  test('an import that sends nothing leaves the lines that an earlier one rejected', async (context) => {
    const file = temporaryFile(context, lines(3));
    writeFileSync(`${file}.rejected.ndjson`, 'fixed by hand\n');
    const refusing = await startIngestStub(context, () => ({ status: 401, body: { error: 'unauthorized' } }));
    await refusal(runImport, [file], shellFor(refusing));
    assert.equal(readFileSync(`${file}.rejected.ndjson`, 'utf8'), 'fixed by hand\n');
    const stub = await startIngestStub(context);
    assert.equal((await run(runImport, [file, '--restart'], shellFor(stub))).code, 0);
    assert.ok(!existsSync(`${file}.rejected.ndjson`));
  });

  test('what a proxy finds too large goes in halves', async (context) => {
    const stub = await startIngestStub(context, ({ body }) => (body.length > 2_000 ? { status: 413 } : undefined));
    const file = temporaryFile(context, `${lines(500)}${JSON.stringify({ n: 'x'.repeat(3_000) })}\n`);
    const { code } = await run(runImport, [file], shellFor(stub));
    assert.equal(code, 2);
    assert.equal(usersIn(stub.stored).length, 500);
    assert.match(rejectedIn(file)[0]?.reason ?? '', /too large/);
  });

  test('a file that was fixed in the middle is another file, even with the same size and beginning', async (context) => {
    const stub = await startIngestStub(context);
    const content = Array.from({ length: 3_000 }, (_, n) => `${JSON.stringify({ n, pad: 'p'.repeat(40) })}\n`).join('');
    const file = temporaryFile(context, content);
    await run(runImport, [file], shellFor(stub));
    const batches = stub.stored.size;
    await run(runImport, [file], shellFor(stub));
    assert.equal(stub.stored.size, batches);
    writeFileSync(file, content.replace('"n":2900', '"n":2901'));
    await run(runImport, [file], shellFor(stub));
    assert.equal(stub.stored.size, batches + 1);
  });

  test('stdin is read, too, and the same lines again are stored once', async (context) => {
    const stub = await startIngestStub(context);
    for (const chunks of [
      ['{"n":', '1}\n{"n":2}'],
      ['{"n":1}\n{"n"', ':2}'],
    ]) {
      const shell = testShell({
        env: { SLUICE_URL: `${stub.url}/`, SLUICE_KEY: KEY },
        now: Date.now,
        stdin: (async function* () {
          for (const chunk of chunks) yield Buffer.from(chunk);
        })(),
      });
      const { code, out } = await run(runImport, ['-'], shell);
      assert.equal(code, 0);
      assert.match(out, /^2 users accepted .*the same lines sent before, within 24 hours, are stored once/);
      assert.equal(usersIn(stub.stored).length, 2);
    }
  });

  test('a redirect is not followed: the key would go with it', async (context) => {
    const stub = await startIngestStub(context, () => ({
      status: 308,
      headers: { location: 'https://elsewhere.example/' },
    }));
    const words = await refusal(runImport, [temporaryFile(context, lines(1))], shellFor(stub));
    assert.match(words, /redirects to https:\/\/elsewhere\.example/);
    assert.equal(stub.received.length, 1);
  });

  test('all mistakes are reported at once', async () => {
    const words = await refusal(runImport, ['--retry-timeout', 'long', '--url', 'ftp://x'], testShell({}));
    assert.match(words, /no file given/);
    assert.match(words, /no API key given/);
    assert.match(words, /--retry-timeout is "long"/);
    assert.match(words, /--url is "ftp:\/\/x"/);
    const missing = await refusal(runImport, ['/nowhere/x.ndjson', '--restrat'], testShell({}));
    assert.match(
      missing,
      /^Invalid arguments:\n  - unknown flag --restrat; did you mean --restart\?\n  - there is no file \/nowhere\/x\.ndjson\n/,
    );
    assert.match(missing, /no API key given/);
  });
});
