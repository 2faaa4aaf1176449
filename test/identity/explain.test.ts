/** Rules 15 and 16 by example: the one chain between two identifiers, and what is left when a merge is taken away. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { cannotLinkAfter, chainBetween, type Edge, replay } from '../../src/identity/explain.ts';
import { key, originAt } from './histories.ts';

const edge = (a: number, b: number): Edge => ({ nodes: [a, b] });
const [E12, E32, E34, E56] = [edge(1, 2), edge(3, 2), edge(3, 4), edge(5, 6)];
const MERGES = [E34, E56, E12, E32];
const byNode = ([a, b]: readonly [number, number], [c, d]: readonly [number, number]): number => a - c || b - d;
const identifiers = [1, 2, 3, 4, 5, 6].map((node) => ({
  key: key('anon_id', `a${node}`),
  node,
  origin: originAt(node),
}));

suite('The chain between two identifiers (rule 15)', () => {
  const chain = (a: string, b: string): ReturnType<typeof chainBetween> =>
    chainBetween({ type: 'anon_id', value: a }, { type: 'anon_id', value: b }, identifiers, MERGES);

  test('reads from the one to the other', () => {
    assert.deepEqual(chain('a1', 'a4'), { from: identifiers[0], merges: [E12, E32, E34], to: identifiers[3] });
    assert.deepEqual(chain('a4', 'a1'), { from: identifiers[3], merges: [E34, E32, E12], to: identifiers[0] });
  });

  test('has no merges on one node', () => {
    assert.deepEqual(chain('a2', 'a2')?.merges, []);
  });

  test('is not there between two people, nor for a stranger', () => {
    assert.equal(chain('a1', 'a5'), undefined);
    assert.equal(chain('a1', 'a7'), undefined);
    assert.equal(
      chainBetween({ type: 'email', value: 'a1' }, { type: 'anon_id', value: 'a1' }, identifiers, MERGES),
      undefined,
    );
  });
});

suite('Taking merges away (rule 16)', () => {
  const nodes = identifiers.map(({ node }) => ({ node, origin: originAt(20 - node) }));

  test('the oldest node of each part survives (rule 9)', () => {
    assert.deepEqual(
      [...replay(nodes, MERGES).roots].sort(byNode),
      [1, 2, 3, 4].map((node) => [node, 4]).concat([5, 6].map((node) => [node, 6])),
    );
    assert.deepEqual([...replay(nodes, [E12]).roots].sort(byNode), [
      [1, 2],
      [2, 2],
      [3, 3],
      [4, 4],
      [5, 5],
      [6, 6],
    ]);
  });

  test('any two of the parts are kept apart, each pair once', () => {
    assert.deepEqual(cannotLinkAfter([E32], replay(nodes, [E12, E34]).roots), [[2, 3]]);
    const pairs = cannotLinkAfter([E12, E32], replay(nodes, [E34]).roots);
    assert.deepEqual(pairs.sort(byNode), [
      [1, 2],
      [1, 3],
      [2, 3],
    ]);
    assert.deepEqual(cannotLinkAfter([], replay(nodes, MERGES).roots), []);
  });
});
