/** What waits for the end of a transaction comes out in order, added up, and with all that was said. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { NO_MARK, type Said, type TakenNode, WaitingNodes } from '../../../src/backends/sqlite/waiting-nodes.ts';

type Taken = Omit<TakenNode, 'known'> & { readonly known: string | undefined };

function allOf(waiting: WaitingNodes): Taken[] {
  const all: Taken[] = [];
  for (const { known, ...rest } of waiting.taken()) {
    all.push({ ...rest, known: known && Buffer.from(known).toString() });
  }
  return all;
}

function said(text: string, isWhole = false, mark = NO_MARK): Said {
  return { text, isWhole, mark };
}

const ONCE = { events: 1, first: 1, last: 1 };
const OLD = '[[1,"a",0,{},{"x":"é","y":1}]]';
const NEW = '[[2,"a",0,{},{"x":"ü","y":2}]]';
const OTHER = '[[3,"a",0,{},{"z":null}]]';

suite('Nodes that wait for the commit', () => {
  test('come in the order of their numbers, each once', () => {
    const waiting = new WaitingNodes();
    waiting.add(30, { events: 1, first: 10, last: 10 }, said(OLD, true));
    waiting.add(7, { events: 2, first: 5, last: 6 }, null);
    waiting.add(30, { events: 3, first: 4, last: 40 }, null);
    waiting.add(2 ** 50, ONCE, said(NEW, false, 17));
    assert.deepEqual([waiting.count, waiting.highest], [3, 2 ** 50]);
    const [first, ...others] = allOf(waiting);
    assert.deepEqual([first?.node, first?.events, first?.first, first?.last, first?.known], [7, 2, 5, 6, undefined]);
    assert.deepEqual(others, [
      { node: 30, events: 4, first: 4, last: 40, known: OLD, isWhole: true, mark: NO_MARK },
      { node: 2 ** 50, ...ONCE, known: NEW, isWhole: false, mark: 17 },
    ]);
    assert.equal(waiting.count, 0);
    assert.deepEqual(allOf(waiting), []);
  });

  test('know all that was said of them, and forget what was said before they knew all', () => {
    const waiting = new WaitingNodes();
    waiting.add(1, ONCE, said(NEW, false, 5));
    waiting.add(1, ONCE, said(OLD, false, 5));
    waiting.add(2, ONCE, said(OTHER));
    waiting.add(2, ONCE, said(NEW, true));
    waiting.add(2, ONCE, said(OTHER));
    const known = allOf(waiting).map(({ known: text, isWhole, mark }) => ({ text, isWhole, mark }));
    const both = '[[3,"a",0,{},{"z":null}],[2,"a",0,{},{"x":"ü","y":2}]]';
    assert.deepEqual(known, [
      { text: NEW, isWhole: false, mark: NO_MARK },
      { text: both, isWhole: true, mark: NO_MARK },
    ]);
  });

  test('know what was told before, and what was said before is forgotten with the rest', () => {
    const waiting = new WaitingNodes();
    waiting.addTold({ node: 1, events: 2, first: 3, last: 4, known: Buffer.from(OLD) });
    waiting.addTold({ node: 1, events: 1, first: 1, last: 9, known: undefined });
    waiting.addTold({ node: 1, events: 1, first: 2, last: 2, known: Buffer.from(NEW) });
    assert.deepEqual(allOf(waiting), [
      { node: 1, events: 4, first: 1, last: 9, known: NEW, isWhole: false, mark: NO_MARK },
    ]);
    waiting.add(1, ONCE, said(OLD));
    waiting.clear();
    waiting.add(1, ONCE, null);
    assert.deepEqual(
      allOf(waiting).map(({ events, known }) => [events, known]),
      [[1, undefined]],
    );
  });

  test('may be more, and know more, than there was room for at first', () => {
    const waiting = new WaitingNodes();
    const long = 'ü'.repeat(3_000_000);
    const told = { ...ONCE, known: Buffer.from(long) };
    waiting.add(70_001, ONCE, said(long));
    for (let node = 70_000; node > 0; node--) waiting.add(node, ONCE, said(`${node}`));
    waiting.add(70_002, ONCE, said(long));
    waiting.addTold({ node: 70_003, ...told });
    waiting.addTold({ node: 70_004, ...told });
    const taken = allOf(waiting);
    assert.equal(taken.length, 70_004);
    assert.ok(taken.every(({ node, known }, at) => node === at + 1 && known === (node > 70_000 ? long : `${node}`)));
  });
});
