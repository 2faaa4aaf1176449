/**
 * Payloads that are unusable as a whole, over HTTP: 400 with no per-user errors and a message that says what is wrong
 * and where. And the forms in which a usable payload may come: content types, encodings, compressions.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import {
  brotliCompressSync,
  constants,
  createZstdCompress,
  deflateRawSync,
  deflateSync,
  gzipSync,
  zstdCompressSync,
} from 'node:zlib';
import { type HttpResponse, post, user } from '../server.ts';
import { bodyText, logOf, recordOf, useServer } from './fixture.ts';

const NOT_UTF8 = 'body is not valid UTF-8; if it is compressed, say how in Content-Encoding';

const GOOD = JSON.stringify({ users: [user('ada')] });
const ENCODING_MESSAGE = 'Content-Encoding must be one of gzip, deflate, br, zstd, or absent';
const CORRUPT_MESSAGE = 'body cannot be decompressed with the given Content-Encoding';

function assertUnusable(response: HttpResponse, message: string): void {
  assert.equal(response.status, 400);
  const trace_id = response.headers.get('x-trace-id');
  assert.deepEqual(response.body, { error: 'validation failed', trace_id, errors: [], message });
}

/** A frame that asks the decoder for a window of 128 MB, whatever it holds. */
async function withHugeWindow(text: string): Promise<Buffer> {
  const stream = createZstdCompress({ params: { [constants.ZSTD_c_windowLog]: 27 } });
  // Flushed in the middle, so that the encoder cannot know the size and shrink the window.
  stream.write(text.slice(0, 5));
  stream.flush(() => stream.end(text.slice(5)));
  return Buffer.concat(await stream.toArray());
}

suite('The payload of POST /ingest/events', () => {
  const server = useServer();
  const send = (body: unknown, headers?: Record<string, string>): Promise<HttpResponse> =>
    post(server(), server().key, body, headers);

  const unusable: [what: string, body: string | Buffer, message: string][] = [
    ['being empty', '', 'body is empty, expected a JSON object'],
    ['being white space', ' \n', 'body is not valid JSON: ends too early at line 2, column 1, expected a value'],
    [
      'JSON that ends too early',
      '{"users":\n [{"identifiers"',
      'body is not valid JSON: ends too early at line 2, column 17, expected a colon',
    ],
    [
      'JSON with a comma too much',
      '{"users":[1,]}',
      'body is not valid JSON: unexpected character at line 1, column 13, expected a value',
    ],
    [
      'JSON with a byte order mark',
      `\ufeff${GOOD}`,
      'body is not valid JSON: byte order mark at line 1, column 1, expected JSON to start without one',
    ],
    ['bytes that are not UTF-8', Buffer.from([...Buffer.from('{"users":["'), 0xc3, 0x28]), NOT_UTF8],
    [
      'UTF-16',
      Buffer.from(GOOD, 'utf16le'),
      'body is not valid JSON: unexpected character at line 1, column 2, expected a property name in double quotes or a closing brace',
    ],
    ['an overlong UTF-8 form', Buffer.from([0xc0, 0xaf]), NOT_UTF8],
    ['a surrogate encoded as UTF-8', Buffer.from([0x22, 0xed, 0xa0, 0x80, 0x22]), NOT_UTF8],
    ['being an array', '[]', 'body must be a JSON object, not an array'],
    ['being a string', '"users"', 'body must be a JSON object, not a string'],
    ['being null', 'null', 'body must be a JSON object, not null'],
    ['having no member users', '{}', 'users is required and must be an array'],
    ['users that are null', '{"users":null}', 'users is required and must be an array'],
    ['users that are an object', '{"users":{}}', 'users must be an array, not an object'],
    ['users that are a text', '{"users":"ada"}', 'users must be an array, not a string'],
    ['an empty users array', '{"users":[]}', 'users must not be empty'],
    [
      'a thousand and one users',
      JSON.stringify({ users: Array.from({ length: 1_001 }, () => user('x')) }),
      'users must hold at most 1000 users, not 1001',
    ],
  ];
  for (const [what, body, message] of unusable) {
    test(`a payload that is unusable for ${what} gets 400 with a message and no per-user errors`, async () => {
      assertUnusable(await send(body), message);
    });
  }

  test('a payload that was refused as a whole is not in the log', async () => {
    const responses = await Promise.all(unusable.map(([, body]) => send(body)));
    const refused = new Set(responses.map(({ headers }) => headers.get('x-trace-id')));
    assert.equal(refused.size, unusable.length);
    assert.deepEqual(
      (await logOf(server())).filter(({ traceId }) => refused.has(traceId)),
      [],
    );
  });

  test('the content type application/json is taken in any case and with any parameters', async () => {
    for (const type of [
      'application/json',
      'Application/JSON',
      'application/json; charset=utf-8',
      'application/json ;charset="UTF-8"; profile=x',
      'application/json;',
    ]) {
      assert.equal((await send(GOOD, { 'content-type': type })).status, 202, type);
    }
  });

  test('any other content type gets 400, before the body is looked at', async () => {
    for (const type of [
      'text/plain',
      'text/json',
      'application/jsonp',
      'application/json-seq',
      'application/x-www-form-urlencoded',
      'multipart/form-data; boundary=application/json',
      'x-application/json',
      '',
    ]) {
      assertUnusable(await send('{', { 'content-type': type }), 'Content-Type must be application/json');
    }
  });

  const compressions: [name: string, encoding: string, compress: (body: string) => Buffer][] = [
    ['gzip', 'gzip', gzipSync],
    ['deflate in the zlib format', 'deflate', deflateSync],
    ['deflate without a header', 'deflate', deflateRawSync],
    ['brotli', 'br', brotliCompressSync],
    ['zstd', 'zstd', zstdCompressSync],
  ];
  for (const [name, encoding, compress] of compressions) {
    test(`a body compressed with ${name} is accepted and kept as it was before`, async () => {
      const text = JSON.stringify({ users: [user('ü'.repeat(100)), user('b')] });
      const response = await send(compress(text), { 'content-encoding': encoding });
      assert.equal(response.status, 202);
      assert.equal(bodyText(await recordOf(server(), response)), text);
    });

    test(`a body that is corrupt or cut short under ${name} gets 400, wherever the cut is`, async () => {
      const whole = compress(JSON.stringify({ users: [user('a'.repeat(50)), user('b')] }));
      for (let bytes = 0; bytes < whole.length; bytes++) {
        assertUnusable(await send(whole.subarray(0, bytes), { 'content-encoding': encoding }), CORRUPT_MESSAGE);
      }
      assertUnusable(await send(GOOD, { 'content-encoding': encoding }), CORRUPT_MESSAGE);
    });

    test(`bytes behind a body compressed with ${name} get 400`, async () => {
      for (const more of ['x', '\0\0', GOOD]) {
        const packed = Buffer.concat([compress(GOOD), Buffer.from(more)]);
        assertUnusable(await send(packed, { 'content-encoding': encoding }), CORRUPT_MESSAGE);
      }
    });

    test(`broken JSON within ${name} is reported by line and column`, async () => {
      const response = await send(compress('{"users":[\n}'), { 'content-encoding': encoding });
      assertUnusable(
        response,
        'body is not valid JSON: unexpected character at line 2, column 1, expected a value or a closing bracket',
      );
    });
  }

  test('the name of an encoding is taken in any case, and identity means none', async () => {
    assert.equal((await send(gzipSync(GOOD), { 'content-encoding': 'GZip' })).status, 202);
    assert.equal((await send(GOOD, { 'content-encoding': 'identity' })).status, 202);
  });

  test('an encoding that is not known, or more than one, gets 400', async () => {
    for (const encoding of ['compress', 'x-gzip', 'gzip, gzip', 'gzip, br', 'aws-chunked', '*', 'utf-8']) {
      assertUnusable(await send(gzipSync(GOOD), { 'content-encoding': encoding }), ENCODING_MESSAGE);
    }
  });

  test('compressed bytes without the header get 400, not guessed at', async () => {
    assertUnusable(await send(gzipSync(GOOD)), NOT_UTF8);
  });

  test('one encoding sent under the name of another gets 400', async () => {
    assertUnusable(await send(gzipSync(GOOD), { 'content-encoding': 'br' }), CORRUPT_MESSAGE);
    assertUnusable(await send(brotliCompressSync(GOOD), { 'content-encoding': 'zstd' }), CORRUPT_MESSAGE);
    assertUnusable(await send(zstdCompressSync(GOOD), { 'content-encoding': 'gzip' }), CORRUPT_MESSAGE);
  });

  test('a zstd frame that asks for a window of 128 MB gets 400, however small it is', async () => {
    const small = await withHugeWindow(GOOD);
    assert.ok(small.length < 200);
    assertUnusable(await send(small, { 'content-encoding': 'zstd' }), CORRUPT_MESSAGE);
  });

  test('ten megabytes packed by zstd at its best level are taken, window and all', async () => {
    const text = JSON.stringify({ users: [{ ...user('z'), pad: 'pad '.repeat(2_600_000) }] });
    const packed = zstdCompressSync(text, { params: { [constants.ZSTD_c_compressionLevel]: 22 } });
    assert.equal((await send(packed, { 'content-encoding': 'zstd' })).status, 202);
  });
});
