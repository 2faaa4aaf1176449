/** The format of a segment: what is written is read back, and nothing else is ever taken for a record. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { assert as assertProperty, integer, property, string, tuple, uint8Array } from 'fast-check';
import {
  encodeFrame,
  frameAt,
  headerIn,
  isIntact,
  nextLine,
  seedOf,
} from '../../../src/backends/embedded/log/frames.ts';

const SEED = seedOf('0123456789abcdef');

function framesOf(parts: readonly (readonly [string, Uint8Array])[], seed = SEED): Buffer {
  return Buffer.concat(parts.flatMap(([text, body]) => encodeFrame(JSON.stringify([text]), body, seed)));
}

function textIn(header: string): string {
  return (JSON.parse(header) as [string])[0];
}

/** What a reader finds, from an offset on. */
function framesIn(bytes: Buffer, seed = SEED): [string, Buffer][] {
  const found: [string, Buffer][] = [];
  for (let at = 0; at < bytes.length; ) {
    const frame = frameAt(bytes, at, seed);
    if (frame === null || frame.end > bytes.length || !isIntact(bytes, frame, seed)) break;
    found.push([textIn(headerIn(bytes, frame)), bytes.subarray(frame.bodyStart, frame.bodyEnd)]);
    at = frame.end;
  }
  return found;
}

const PARTS = tuple(string({ unit: 'grapheme', maxLength: 40 }), uint8Array({ maxLength: 200 }));

suite('Frames of a log segment', () => {
  test('are read back with their headers and bodies, whatever these contain', () => {
    assertProperty(
      property(tuple(PARTS, PARTS, PARTS), (parts) => {
        assert.deepEqual(
          framesIn(framesOf(parts)),
          parts.map(([text, body]) => [text, Buffer.from(body)]),
        );
      }),
    );
  });

  test('are not accepted if any byte of them has changed, or the end is missing', () => {
    assertProperty(
      property(PARTS, integer({ min: 0 }), integer({ min: 1, max: 255 }), (part, place, change) => {
        const bytes = framesOf([part]);
        const at = place % bytes.length;
        const changed = Buffer.from(bytes);
        changed[at] = (bytes[at] as number) ^ change;
        assert.deepEqual(framesIn(changed), []);
        assert.deepEqual(framesIn(bytes.subarray(0, at)), []);
      }),
    );
  });

  test('of one segment are none in another', () => {
    const bytes = framesOf([['one', Buffer.from('{}')]]);
    assert.equal(framesIn(bytes).length, 1);
    assert.deepEqual(framesIn(bytes, seedOf('fedcba9876543210')), []);
  });

  test('in a body that a client has sent are no records, where a damaged segment is searched line by line', () => {
    const forged = framesOf([['forged', Buffer.from('{"users":[]}')]], seedOf('a guess'));
    const bytes = framesOf([
      ['first', Buffer.from('x')],
      ['second', Buffer.concat([Buffer.from('\n'), forged])],
      ['third', Buffer.from('y')],
    ]);
    const found: string[] = [];
    for (let line = 0; line >= 0; line = nextLine(bytes, line)) {
      const frame = frameAt(bytes, line, SEED);
      if (frame === null || frame.end > bytes.length || !isIntact(bytes, frame, SEED)) continue;
      found.push(textIn(headerIn(bytes, frame)));
    }
    assert.deepEqual(found, ['first', 'second', 'third']);
  });

  test('in a body are not even looked at: a client that guesses no seed cannot make a search slow', () => {
    const bytes = Buffer.from('00000000 03ffffff 03ffffff 00000000 []\n'.repeat(1_000));
    for (let line = 0; line >= 0; line = nextLine(bytes, line)) assert.equal(frameAt(bytes, line, SEED), null);
  });
});
