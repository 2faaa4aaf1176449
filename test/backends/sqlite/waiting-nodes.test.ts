/** What waits for the end of a transaction comes out in order, added up, and with the newest text. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { WaitingNodes } from '../../../src/backends/sqlite/waiting-nodes.ts';

function allOf(waiting: WaitingNodes): unknown[] {
  const all = [];
  for (const { known, ...rest } of waiting.taken()) {
    all.push({ ...rest, known: known instanceof Uint8Array ? Buffer.from(known).toString() : known });
  }
  return all;
}

suite('Nodes that wait for the commit', () => {
  test('come in the order of their numbers, each once', () => {
    const waiting = new WaitingNodes();
    waiting.add(30, { events: 1, first: 10, last: 10, known: '[["é"]]' });
    waiting.add(7, { events: 2, first: 5, last: 6, known: undefined });
    waiting.add(30, { events: 3, first: 4, last: 40, known: undefined });
    waiting.add(2 ** 50, { events: 1, first: 1, last: 1, known: null });
    assert.equal(waiting.count, 3);
    assert.equal(waiting.knownOf(30), '[["é"]]');
    assert.equal(waiting.knownOf(7), undefined);
    assert.equal(waiting.knownOf(8), undefined);
    assert.equal(waiting.knownOf(2 ** 50), null);
    assert.deepEqual(allOf(waiting), [
      { node: 7, events: 2, first: 5, last: 6, known: undefined },
      { node: 30, events: 4, first: 4, last: 40, known: '[["é"]]' },
      { node: 2 ** 50, events: 1, first: 1, last: 1, known: null },
    ]);
    assert.equal(waiting.count, 0);
    assert.deepEqual(allOf(waiting), []);
  });

  test('know what they were told last', () => {
    const waiting = new WaitingNodes();
    for (const known of ['a', null, 'bcd', '']) waiting.add(1, { events: 0, first: 0, last: 0, known });
    assert.equal(waiting.knownOf(1), '');
    waiting.clear();
    waiting.add(1, { events: 1, first: 3, last: 3, known: undefined });
    assert.deepEqual(allOf(waiting), [{ node: 1, events: 1, first: 3, last: 3, known: undefined }]);
  });

  test('may be more, and know more, than there was room for at first', () => {
    const waiting = new WaitingNodes();
    const long = 'ü'.repeat(3_000_000);
    waiting.add(70_001, { events: 1, first: 1, last: 1, known: long });
    for (let node = 70_000; node > 0; node--)
      waiting.add(node, { events: 1, first: node, last: node, known: `${node}` });
    waiting.add(70_002, { events: 1, first: 1, last: 1, known: long });
    const taken = allOf(waiting) as { node: number; known: string }[];
    assert.equal(taken.length, 70_002);
    assert.ok(taken.every(({ node, known }, at) => node === at + 1 && known === (node > 70_000 ? long : `${node}`)));
  });
});
