/** What waits for the end of a transaction comes out in order, added up, and with all that was said. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { NO_NAMES } from '../../../src/backends/sqlite/told-chunks.ts';
import { type Said, WaitingNodes } from '../../../src/backends/sqlite/waiting-nodes.ts';

interface Taken {
  readonly node: number;
  readonly events: number;
  readonly first: number;
  readonly last: number;
  readonly known: string | undefined;
  readonly names: number;
  readonly saidAt: number;
}

function allOf(waiting: WaitingNodes): Taken[] {
  const all: Taken[] = [];
  waiting.takeAll((node, events, first, last, bytes, names, saidAt) => {
    all.push({ node, events, first, last, known: bytes && Buffer.from(bytes).toString(), names, saidAt });
  });
  return all;
}

const NAMES = 2 ** 53 - 1;

/** One group of those names, or anything. */
function said(text: string, names = NO_NAMES): Said {
  return { text, names, saidAt: Number(/\d+/.exec(text)?.[0]) };
}

const ONCE = { events: 1, first: 1, last: 1 };
const OLD = '[[1,"a",0,{},{"x":"é","y":1}]]';
const NEW = '[[2,"a",0,{},{"x":"ü","y":2}]]';
const OTHER = '[[3,"a",0,{},{"z":null}]]';

suite('Nodes that wait for the commit', () => {
  test('come in the order of their numbers, each once', () => {
    const waiting = new WaitingNodes();
    waiting.add(30, { events: 1, first: 10, last: 10 }, said(OLD, NAMES));
    waiting.add(7, { events: 2, first: 5, last: 6 }, null);
    waiting.add(30, { events: 3, first: 4, last: 40 }, null);
    waiting.add(2 ** 50, ONCE, said(NEW));
    assert.deepEqual([waiting.count, waiting.highest], [3, 2 ** 50]);
    const [first, ...others] = allOf(waiting);
    assert.deepEqual([first?.node, first?.events, first?.first, first?.last, first?.known], [7, 2, 5, 6, undefined]);
    assert.deepEqual(others, [
      { node: 30, events: 4, first: 4, last: 40, known: OLD, names: NAMES, saidAt: 1 },
      { node: 2 ** 50, ...ONCE, known: NEW, names: NO_NAMES, saidAt: 2 },
    ]);
    assert.equal(waiting.count, 0);
    assert.deepEqual(allOf(waiting), []);
  });

  test('know the newer of two groups of the same names, in whatever order they come', () => {
    const waiting = new WaitingNodes();
    for (const [node, texts] of [
      [1, [OLD, NEW]],
      [2, [NEW, OLD]],
    ] as const) {
      for (const text of texts) {
        waiting.add(node, ONCE, said(text, NAMES));
        const { saidAt } = said(text);
        waiting.addTold(node + 10, 1, 1, 1, Buffer.from(text), NAMES, saidAt);
      }
    }
    const known = allOf(waiting).map(({ node, known: text, names, saidAt }) => ({ node, text, names, saidAt }));
    const expected = [1, 2, 11, 12].map((node) => ({ node, text: NEW, names: NAMES, saidAt: 2 }));
    assert.deepEqual(known, expected);
  });

  test('know the one with the later origin of two groups that were received at the same time', () => {
    const waiting = new WaitingNodes();
    const later = NEW.replace('"a",0', '"a",1');
    for (const [node, texts] of [
      [1, [NEW, later]],
      [2, [later, NEW]],
    ] as const) {
      for (const text of texts) waiting.add(node, ONCE, said(text, NAMES));
    }
    const known = allOf(waiting).map(({ known: text, names, saidAt }) => ({ text, names, saidAt }));
    assert.deepEqual(known, [
      { text: later, names: NAMES, saidAt: 2 },
      { text: later, names: NAMES, saidAt: 2 },
    ]);
  });

  test('know all that was said of them, where names differ or are not known', () => {
    const waiting = new WaitingNodes();
    waiting.add(1, ONCE, said(NEW));
    waiting.add(1, ONCE, said(OLD, NAMES));
    waiting.add(2, ONCE, said(NEW, NAMES));
    waiting.add(2, ONCE, said(OTHER, NAMES - 1));
    // It has several groups by now, so that its names say nothing.
    waiting.add(2, ONCE, said(NEW.replace('2', '4'), NAMES));
    const known = allOf(waiting).map(({ known: text, names }) => ({ text, names }));
    const both = '[[4,"a",0,{},{"x":"ü","y":2}],[3,"a",0,{},{"z":null}]]';
    assert.deepEqual(known, [
      { text: NEW, names: NO_NAMES },
      { text: both, names: NO_NAMES },
    ]);
  });

  test('know what was told before, and what was said before is forgotten with the rest', () => {
    const waiting = new WaitingNodes();
    waiting.addTold(1, 2, 3, 4, Buffer.from(OLD), NO_NAMES, 4);
    waiting.addTold(1, 1, 1, 9, undefined, NO_NAMES, 9);
    waiting.addTold(1, 1, 2, 2, Buffer.from(NEW), NO_NAMES, 2);
    assert.deepEqual(
      allOf(waiting).map(({ node, events, first, last, known, names }) => [node, events, first, last, known, names]),
      [[1, 4, 1, 9, NEW, NO_NAMES]],
    );
    waiting.add(1, ONCE, said(OLD, NAMES));
    waiting.clear();
    waiting.add(1, ONCE, null);
    assert.deepEqual(
      allOf(waiting).map(({ events, known, names }) => [events, known, names]),
      [[1, undefined, NO_NAMES]],
    );
  });

  test('may be more, and know more, than there was room for at first', () => {
    const waiting = new WaitingNodes();
    const long = 'ü'.repeat(3_000_000);
    const bytes = Buffer.from(long);
    waiting.add(70_001, ONCE, said(long));
    for (let node = 70_000; node > 0; node--) waiting.add(node, ONCE, said(`${node}`, node));
    waiting.add(70_002, ONCE, said(long));
    waiting.addTold(70_003, 1, 1, 1, bytes, NO_NAMES, 1);
    waiting.addTold(70_004, 1, 1, 1, bytes, NO_NAMES, 1);
    const taken = allOf(waiting);
    assert.equal(taken.length, 70_004);
    assert.ok(
      taken.every(({ node, known, names }, at) => {
        if (node !== at + 1) return false;
        return node > 70_000 ? known === long && names === NO_NAMES : known === `${node}` && names === node;
      }),
    );
  });
});
