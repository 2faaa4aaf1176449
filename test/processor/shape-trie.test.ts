/** Lists of names are the same whenever their names are. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { StringInterner } from '../../src/json/string-interner.ts';
import { type Shape, ShapeTrie } from '../../src/processor/shape-trie.ts';
import { propertyShape } from '../../src/views/property-shape.ts';

const NAMES = ['a', 'b', 'c', '', 'plan'];

suite('Shapes', () => {
  test('are one for each list of names, and know their names', () => {
    const trie = new ShapeTrie(new StringInterner(NAMES));
    const shapes = new Map<string, Shape>();
    const shapeOf = (names: readonly number[]): Shape => {
      const shape = names.reduce((list: Shape, name) => trie.add(list, name), trie.empty);
      const text = names.map((name) => `${NAMES[name]}\0`).join('');
      assert.equal(shape.names, text);
      assert.equal(shapes.get(text) ?? shape, shape);
      shapes.set(text, shape);
      return shape;
    };
    const list = fc.array(fc.nat({ max: NAMES.length - 1 }), { maxLength: 4 });
    fc.assert(
      fc.property(list, list, (fields, properties) => {
        const [first, second] = [shapeOf(fields), shapeOf(properties)];
        assert.equal(trie.namesOf(first, second), propertyShape(first.names, second.names));
      }),
    );
    assert.equal(new Set(shapes.values()).size, shapes.size);
    assert.ok(trie.size > shapes.size);
    trie.clear();
    assert.equal(trie.size, 1);
    assert.equal(trie.add(trie.empty, 4).names, 'plan\0');
  });
});
