/**
 * Text on a terminal: alignment, wrapping, colour only where it is wanted, and nothing that drives the terminal.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from 'fast-check';
import { bold, dim, renderTable, wrap } from '../../src/cli/table.ts';
import { withStdout } from './terminal.ts';

test('columns are as wide as their widest cell, and lines have no blanks at their end', () => {
  const table = renderTable(['id', 'name'], [['key_1', 'a'], ['k', 'longer name'], ['x']]);
  assert.equal(table, 'id     name\nkey_1  a\nk      longer name\nx');
});

test('what strangers sent cannot drive the terminal or turn the text around', () => {
  const table = renderTable(['origin'], [['\u001b[2Jhttps://x\u0007\n\u202eevil\u009b1m']]);
  assert.equal(table, 'origin\n\u{fffd}[2Jhttps://x\u{fffd}\u{fffd}\u{fffd}evil\u{fffd}1m');
});

test('colour is for terminals alone, unless NO_COLOR is set or the terminal is dumb', () => {
  const words = (): string => bold('x') + dim('y');
  const coloured = '\u001b[1mx\u001b[22m\u001b[2my\u001b[22m';
  assert.equal(withStdout(true, {}, words), coloured);
  assert.equal(withStdout(true, { NO_COLOR: '', TERM: 'xterm' }, words), coloured);
  assert.equal(withStdout(true, { NO_COLOR: '1' }, words), 'xy');
  assert.equal(withStdout(true, { TERM: 'dumb' }, words), 'xy');
  assert.equal(withStdout(false, { FORCE_COLOR: '1' }, words), 'xy');
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
