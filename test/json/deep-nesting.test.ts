/** Very deep nesting is left out of a body before anything parses it, and nothing else changes. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { withoutDeepNesting } from '../../src/json/deep-nesting.ts';

function kept(text: string): string {
  return Buffer.from(withoutDeepNesting(Buffer.from(text))).toString();
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

  test('stays broken, where the text is', () => {
    for (const text of ['[', '"', '{"a":"\\', `${'['.repeat(3_000)}`, ']]]', '[1]]']) {
      assert.throws(() => JSON.parse(kept(text)), SyntaxError);
    }
  });
});
