/** Very deep nesting is left out of a body before anything parses it, and nothing else changes. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { convertBody, validateBody } from '../../src/edge/validate-body.ts';
import { scanLargeBody } from '../../src/json/large-body.ts';
import { NO_KEYS } from '../../src/json/scanner.ts';

/** Smaller texts are left as they are. */
const PAD = ' '.repeat(262_144);

function kept(text: string): string {
  const { kept: bytes } = scanLargeBody(Buffer.from(text + PAD), NO_KEYS);
  assert.ok(bytes !== null);
  return Buffer.from(bytes).toString().slice(0, -PAD.length);
}

function nested(levels: number, core = ''): string {
  return '['.repeat(levels) + core + ']'.repeat(levels);
}

suite('What is nested very deeply', () => {
  test('is left out from level 1,000 on, and the text is still JSON', () => {
    assert.ok(kept(nested(1_001, '1')) === nested(1_001));
    assert.ok(kept(nested(1_000, '1')) === nested(1_000, '1'));
    assert.ok(kept(nested(5_000)) === nested(1_001));
    assert.equal(JSON.parse(kept(`{"a":${nested(3_000, '"\\"]"')},"b":2}`)).b, 2);
  });

  test('is all that is left out', () => {
    fc.assert(
      fc.property(fc.json({ maxDepth: 6 }), fc.nat({ max: 990 }), (json, levels) => {
        const text = nested(levels, json);
        assert.equal(kept(text), text);
      }),
      { numRuns: 200 },
    );
    fc.assert(
      fc.property(fc.json({ maxDepth: 4 }), fc.json({ maxDepth: 4 }), (inner, outer) => {
        const text = `[${outer},${nested(1_000, inner)},${outer}]`;
        assert.equal(kept(text), `[${outer},${nested(1_000)},${outer}]`);
      }),
      { numRuns: 200 },
    );
  });

  test('is not JSON, where something is not closed', () => {
    for (const text of ['['.repeat(3_000), nested(3_000, '"'), `${nested(3_000)}]`, `${nested(3_000)}"\\"`]) {
      assert.equal(scanLargeBody(Buffer.from(text + PAD), NO_KEYS).kept, null);
    }
    for (const text of ['[', '"', '{"a":"\\', ']]]', '[1]]']) assert.equal(kept(text), text);
  });

  test('is left out of what is validated and kept, in our own form and in that of Segment', () => {
    const deep = nested(300_000);
    const own = Buffer.from(
      `{"users":[{"identifiers":{"user_id":"a"},"events":[{"event_name":"x","event_properties":{"p":${deep}}}]}]}`,
    );
    const { validation, body } = validateBody(own);
    assert.deepEqual(validation, {
      ok: true,
      userCount: 1,
      eventCount: 0,
      rejections: [{ userIndex: 0, message: 'events[0].event_properties is nested too deeply' }],
    });
    assert.ok(body.length < 3_000);
    const ignored = validateBody(
      Buffer.from(`{"else":${deep},"users":[{"identifiers":{"user_id":"a"},"events":[{"event_name":"x"}]}]}`),
    );
    assert.deepEqual(ignored.validation, { ok: true, userCount: 1, eventCount: 1, rejections: [] });
    assert.ok(ignored.body.length < 3_000);
    const options = {
      type: null,
      receivedAt: 1,
      matchOptions: { defaultCountry: null, junkValues: new Set<string>() },
    };
    const segment = Buffer.from(`{"batch":[{"type":"track","event":"x","userId":"a","properties":{"p":${deep}}}]}`);
    const converted = convertBody(segment, options);
    assert.ok(converted.ok && converted.rejections.length === 1 && converted.body.length < 3_000);
  });
});
