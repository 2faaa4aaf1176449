/**
 * Text on a terminal: alignment, wrapping, colour only where it is wanted, and nothing that drives the terminal.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from 'fast-check';
import { inkFor, renderTable, wrap } from '../../src/cli/table.ts';

const PLAIN = inkFor(false, {});

test('columns are as wide as their widest cell, and lines have no blanks at their end', () => {
  const table = renderTable(['id', 'name'], [['key_1', 'a'], ['k', 'longer name'], ['x']], PLAIN);
  assert.equal(table, 'id     name\nkey_1  a\nk      longer name\nx');
});

test('what strangers sent cannot drive the terminal or turn the text around', () => {
  const table = renderTable(['origin'], [['\u001b[2Jhttps://x\u0007\n\u202eevil\u009b1m']], PLAIN);
  assert.equal(table, 'origin\n\u{fffd}[2Jhttps://x\u{fffd}\u{fffd}\u{fffd}evil\u{fffd}1m');
});

test('colour is for terminals, unless NO_COLOR is set or the terminal is a dumb one', () => {
  assert.notEqual(inkFor(true, {}).bold('x'), 'x');
  assert.notEqual(inkFor(true, { NO_COLOR: '' }).dim('x'), 'x');
  for (const [isTty, env] of [
    [false, {}],
    [true, { NO_COLOR: '1' }],
    [true, { TERM: 'dumb' }],
  ] as const) {
    const ink = inkFor(isTty, env);
    assert.equal(ink.bold('x') + ink.dim('y'), 'xy');
  }
});

test('a wrapped text keeps all its words in order, in lines that fit', () => {
  const word = fc.string({ minLength: 1, maxLength: 12 }).filter((text) => !text.includes(' '));
  fc.assert(
    fc.property(fc.array(word, { minLength: 1 }), (words) => {
      const lines = wrap(words.join(' '), 20);
      assert.equal(lines.join(' '), words.join(' '));
      assert.ok(lines.every((line) => line.length <= 20));
    }),
  );
});
