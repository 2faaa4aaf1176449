/**
 * What `sluice import` says of lines that did not go in, and how they do after they were fixed.
 */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { suite, type TestContext, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { runImport } from '../../src/cli/import.ts';
import { removeFolder, temporaryFolder } from '../server.ts';
import { refusal, run, testShell, type TestShell } from './data-shell.ts';
import { startIngestStub, type StubResponse } from './ingest-stub.ts';

function temporaryFile(context: TestContext, content: string | Buffer): string {
  const folder = temporaryFolder();
  context.after(() => removeFolder(folder));
  const file = join(folder, 'users.ndjson');
  writeFileSync(file, content);
  return file;
}

function shellFor({ url }: { readonly url: string }): TestShell {
  return testShell({ env: { SLUICE_URL: url, SLUICE_KEY: 'sk_dev_x' }, now: Date.now });
}

function rejectedIn(file: string): Record<string, unknown>[] {
  const text = readFileSync(`${file}.rejected.ndjson`, 'utf8').trim();
  return text.split('\n').map((line) => JSON.parse(line) as Record<string, unknown>);
}

/** Takes no user that has `"bad":true`. */
function picky({ body }: { readonly body: string }): StubResponse | undefined {
  const { users } = JSON.parse(body) as { users: { bad?: boolean }[] };
  const errors = users.flatMap(({ bad }, userIndex) => (bad === true ? [{ userIndex, message: 'it is bad' }] : []));
  if (errors.length === 0) return undefined;
  return { status: errors.length === users.length ? 400 : 202, body: { trace_id: 'trace', errors } };
}

suite('Lines that an import rejected', () => {
  test('they are fixed in the rejected file and imported from there, and nothing else is sent again', async (context) => {
    const stub = await startIngestStub(context, picky);
    const long = '12345678901234567890123';
    const file = temporaryFile(context, `{"n":0}\n{"n":${long},"bad":true}\n{"n":2,"bad":true}\n{"n":3\n{"n":4\n`);
    const { code, out } = await run(runImport, [file], shellFor(stub));
    assert.equal(code, 2);
    const rejectedFile = `${file}.rejected.ndjson`;
    assert.match(out, /4 lines were rejected\. Line 2: it is bad\./);
    assert.ok(out.includes(`Fix them there and run: sluice import ${rejectedFile}\n`), out);

    const text = readFileSync(rejectedFile, 'utf8');
    const fixed = text
      .replace(`${long},"bad":true`, `${long},"__proto__":1.5`)
      .replace('"{\\"n\\":3"', '"{\\"n\\":3}"')
      .replace('"text":"{\\"n\\":4"', '"user":{"n":4}');
    assert.notEqual(fixed, text);
    writeFileSync(rejectedFile, fixed);
    stub.received.length = 0;
    const again = await run(runImport, [rejectedFile], shellFor(stub));
    assert.equal(again.code, 2);
    assert.deepEqual(
      stub.received.map(({ body }) => body),
      [`{"users":[{"n":${long},"__proto__":1.5},{"n":2,"bad":true},{"n":3},{"n":4}]}`],
    );
    assert.deepEqual(rejectedIn(rejectedFile), [{ line: 2, reason: 'it is bad', user: { n: 2, bad: true } }]);
  });

  test('what is still not JSON is rejected as the text that it was', async (context) => {
    const stub = await startIngestStub(context);
    const file = temporaryFile(context, 'no\n');
    await run(runImport, [file], shellFor(stub));
    await run(runImport, [`${file}.rejected.ndjson`], shellFor(stub));
    assert.deepEqual(rejectedIn(`${file}.rejected.ndjson`), rejectedIn(file));
    assert.equal(stub.received.length, 0);
  });

  test('a line with more members than a rejected one is a user like any other', async (context) => {
    const stub = await startIngestStub(context);
    const line = '{"line":1,"reason":"x","user":{},"n":1}';
    await run(runImport, [temporaryFile(context, line)], shellFor(stub));
    assert.equal(stub.received[0]?.body, `{"users":[${line}]}`);
  });
});

suite('What an import says', () => {
  test('of what went in it does not claim that all was new', async (context) => {
    const stub = await startIngestStub(context);
    const { out } = await run(runImport, [temporaryFile(context, '{}\n')], shellFor(stub));
    assert.match(
      out,
      /^1 user accepted \(.*\); users that this file sent before, within 24 hours, are stored once\.\n$/,
    );
  });

  for (const [line, words] of [
    ['[{"n":1}]', /the line is an array; expected one user object per line/],
    ['{"users":[{"n":1}]}', /the line is a whole request, .* expected one user object per line/],
    ['{"line":1,"reason":"x","user":[]}', /the line is an array; expected one user object per line/],
    [
      'user_id,email',
      /the line is not JSON: unexpected character at column 1, expected a value; expected one user object per line/,
    ],
    [
      'no',
      /Line 1: the line is not JSON: unexpected character at column 2, expected the word null; expected one user object per/,
    ],
    ['[', /Line 1: the line is the beginning of an array; expected one user object per line \(jq /],
    [
      '{"id":"é😀"},',
      /Line 1: the line is not JSON: unexpected character at column 12, expected nothing more after the end/,
    ],
    ['  {"n":1}{"n":2}', /not JSON: unexpected character at column 10, expected nothing more/],
    ["{'n':1}", /not JSON: unexpected character at column 2, expected a property name in double quotes/],
    ['{"n":1', /not JSON: ends too early at column 7, expected a comma or a closing brace/],
    ['{"n":01}', /not JSON: number with a leading zero at column 7\.\n/],
    ['\u{a0}{"n":1}', /not JSON: unexpected character at column 1, expected a value/],
  ] as const) {
    test(`${JSON.stringify(line)} is not sent, and reported with what is expected`, async (context) => {
      const stub = await startIngestStub(context);
      const { code, out } = await run(runImport, [temporaryFile(context, line)], shellFor(stub));
      assert.equal(code, 2);
      assert.match(out, words);
      assert.equal(stub.received.length, 0);
    });
  }

  test('a packed file is refused with how to unpack it', async (context) => {
    const stub = await startIngestStub(context);
    const file = temporaryFile(context, gzipSync('{"n":1}\n'.repeat(1_000)));
    assert.match(await refusal(runImport, [file], shellFor(stub)), /gzip; expected one user object per line.*zcat/);
    assert.ok(!existsSync(`${file}.rejected.ndjson`));
    assert.equal(stub.received.length, 0);
  });

  test('an empty file is reported as that', async (context) => {
    const stub = await startIngestStub(context);
    for (const content of ['', '\n \n']) {
      const file = temporaryFile(context, content);
      const { code, out } = await run(runImport, [file], shellFor(stub));
      assert.equal(code, 0);
      assert.equal(out, `${file} is empty: there are no users to send.\n`);
    }
  });

  test('a port that nothing listens on is reported with the cause, and so is one that is not for HTTP', async (context) => {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    server.close();
    await once(server, 'close');
    const file = temporaryFile(context, '{}\n');
    const closed = shellFor({ url: `http://127.0.0.1:${port}` });
    assert.match(
      await refusal(runImport, [file, '--retry-timeout', '1ms'], closed),
      /ECONNREFUSED: nothing listens there/,
    );
    const forbidden = shellFor({ url: 'http://127.0.0.1:1' });
    assert.match(await refusal(runImport, [file], forbidden), /bad port\)\. Is --url right\?/);
  });
});
