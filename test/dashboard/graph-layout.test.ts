/** The picture of an identity graph: where things stand, that nothing overlaps, and that nothing is lost. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { FOLD_LIMITS, shownGraph } from '../../dashboard/src/graph-fold.ts';
import { type Box, type GraphLayout, layoutGraph } from '../../dashboard/src/graph-layout.ts';
import { linkKey, mergeKey, REFUSAL_WORDS } from '../../dashboard/src/identity-names.ts';
import { IDENTIFIER_TYPES, type IdentifierType } from '../../dashboard/src/api-constants.ts';
import type { Identity } from '../../dashboard/src/api-types.ts';

const ROOT = 'node-0';
/** In pixels, of the widest fonts that the page may get. */
const REASON_CHARACTER_WIDTH = 8;

function timeOf(step: number): string {
  return new Date(Date.UTC(2026, 10, 15) + step * 1_000).toISOString();
}

interface Recipe {
  /** Types of the identifiers of each node; there is one node for each entry. */
  readonly nodes: readonly (readonly IdentifierType[])[];
  /** For each node after the first: which of those before it the merge joined it to. */
  readonly parents: readonly number[];
  readonly refusals: number;
}

/** A tree of nodes, as the server makes them: every merge joins a node to one that is there already. */
function graphOf({ nodes, parents, refusals }: Recipe): Identity {
  let step = 0;
  const identifiers = nodes.flatMap((types, node) =>
    types.map((type) => {
      step += 1;
      return {
        type,
        value: `${type}-${step}`,
        node: `node-${node}`,
        first_trace_id: `trace-${step}`,
        userIndex: 0,
        first_seen: timeOf(step),
      };
    }),
  );
  const merges = nodes.slice(1).map((_, index) => {
    const child = index + 1;
    const parent = (parents[index] ?? 0) % child;
    return {
      from: `node-${child}`,
      into: ROOT,
      via: { type: 'anon_id' as const, value: 'a' },
      nodes: [`node-${child}`, `node-${parent}`] as const,
      trace_id: `merge-${child}`,
      userIndex: 0,
      at: timeOf(1_000 + child),
    };
  });
  return { identifiers, merges, refusals: Array.from({ length: refusals }, (_, index) => refusalOf(index)) };
}

function refusalOf(index: number): Identity['refusals'][number] {
  const trace_id = `refusal-${index}`;
  return { type: 'anon_id', value: `r-${index}`, reason: 'limit', trace_id, userIndex: 0, at: timeOf(index), count: 1 };
}

const RECIPES = fc.record({
  nodes: fc.array(fc.array(fc.constantFrom(...IDENTIFIER_TYPES), { maxLength: 12 }), { minLength: 1, maxLength: 50 }),
  parents: fc.array(fc.nat(60), { minLength: 50, maxLength: 50 }),
  refusals: fc.nat(15),
});

function boxesOf({ identifiers, folds, nodes, merges, refusals, hiddenNodes }: GraphLayout): Box[] {
  return [
    ...identifiers.map(({ box }) => box),
    ...folds.map(({ box }) => box),
    ...nodes.map(({ box }) => box),
    ...merges.flatMap(({ sign, label }) => [sign, label]),
    ...refusals.flatMap(({ box, sign, label }) => [box, sign, label]),
    ...(hiddenNodes === null ? [] : [hiddenNodes]),
  ];
}

function doOverlap(a: Box, b: Box): boolean {
  return a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
}

/** The upright part of each merge: which lane, from where to where. */
function lanesOf({ merges }: GraphLayout): { parent: string; x: number; top: number; bottom: number }[] {
  return merges.map(({ parent, path }) => {
    const [, x, from, to] = /Q(\S+) \S+ \S+ (\S+)V([^Q]+)Q/.exec(path) ?? [];
    const ends = [Number(from), Number(to)];
    return { parent, x: Number(x), top: Math.min(...ends), bottom: Math.max(...ends) };
  });
}

function shuffled(identity: Identity): Identity {
  const { identifiers, merges, refusals } = identity;
  return { identifiers: identifiers.toReversed(), merges: merges.toReversed(), refusals };
}

suite('The picture of an identity graph', () => {
  test('is the same for the same graph, in whatever order its parts come', () => {
    fc.assert(
      fc.property(RECIPES, fc.boolean(), (recipe, isFolded) => {
        const identity = graphOf(recipe);
        const layout = layoutGraph(ROOT, identity, { isFolded });
        assert.deepEqual(layoutGraph(ROOT, shuffled(identity), { isFolded }), layout);
      }),
    );
  });

  test('has room for the reason of a refusal, also beside a person without merges', () => {
    const longest = Math.max(...Object.values(REFUSAL_WORDS).map(({ short }) => short.length));
    for (const nodes of [[['user_id']], [['user_id'], ['anon_id']]] as const) {
      const { refusals, width } = layoutGraph(ROOT, graphOf({ nodes, parents: [0], refusals: 1 }), {
        isFolded: true,
      });
      const label = refusals[0]?.label;
      assert.ok(label !== undefined && label.x + label.width <= width);
      assert.ok(label.width >= longest * REASON_CHARACTER_WIDTH, `${label.width} for ${longest} characters`);
    }
  });

  test('has nothing on top of anything else, and all of it inside', () => {
    fc.assert(
      fc.property(RECIPES, fc.boolean(), (recipe, isFolded) => {
        const layout = layoutGraph(ROOT, graphOf(recipe), { isFolded });
        const boxes = boxesOf(layout);
        for (const [index, box] of boxes.entries()) {
          assert.ok(box.x >= 0 && box.y >= 0, 'inside, at the top left');
          assert.ok(
            box.x + box.width <= layout.width && box.y + box.height <= layout.height,
            'inside, at the bottom right',
          );
          for (const other of boxes.slice(index + 1)) {
            assert.ok(!doOverlap(box, other), `${JSON.stringify(box)} and ${JSON.stringify(other)}`);
          }
        }
      }),
    );
  });

  test('has merges on the same line only where they lead to the same node', () => {
    fc.assert(
      fc.property(RECIPES, (recipe) => {
        const lanes = lanesOf(layoutGraph(ROOT, graphOf(recipe), { isFolded: false }));
        for (const [index, a] of lanes.entries()) {
          assert.ok([a.x, a.top, a.bottom].every(Number.isFinite));
          for (const b of lanes.slice(index + 1)) {
            const isApart = a.x !== b.x || a.bottom < b.top || b.bottom < a.top;
            assert.ok(isApart || a.parent === b.parent, 'two merges in one lane pass one another');
          }
        }
      }),
    );
  });

  test('unfolded, shows every identifier, node, merge and refusal once', () => {
    fc.assert(
      fc.property(RECIPES, (recipe) => {
        const identity = graphOf(recipe);
        const layout = layoutGraph(ROOT, identity, { isFolded: false });
        assert.deepEqual(
          layout.identifiers.map(({ key }) => key).toSorted(),
          identity.identifiers.map(linkKey).toSorted(),
        );
        assert.deepEqual(layout.merges.map(({ key }) => key).toSorted(), identity.merges.map(mergeKey).toSorted());
        assert.equal(layout.nodes.length, recipe.nodes.length);
        assert.equal(layout.refusals.length, recipe.refusals);
        assert.deepEqual(layout.folds, []);
      }),
    );
  });

  test('folded, counts whatever it leaves out', () => {
    fc.assert(
      fc.property(RECIPES, (recipe) => {
        const identity = graphOf(recipe);
        const { nodes, identifiers, folds, merges, refusals, hidden } = layoutGraph(ROOT, identity, {
          isFolded: true,
        });
        const inFolds = folds.reduce((sum, { count }) => sum + count, 0);
        assert.equal(inFolds, hidden.identifiers);
        assert.equal(identifiers.length + inFolds + hidden.identifiersOfNodes, identity.identifiers.length);
        assert.equal(nodes.length + hidden.nodes, recipe.nodes.length);
        assert.equal(merges.length + hidden.merges, identity.merges.length);
        assert.equal(refusals.length + hidden.refusals, identity.refusals.length);
        assert.ok(nodes.length <= FOLD_LIMITS.nodesMax);
        // Every node that is shown may show one more than it was dealt.
        assert.ok(identifiers.length <= FOLD_LIMITS.identifiersMax + nodes.length);
      }),
    );
  });

  test('folds a node with hundreds of identifiers without hiding the others', () => {
    const many = Array.from({ length: 400 }, () => 'anon_id' as const);
    const identity = graphOf({ nodes: [many, ['email'], ['user_id', 'email']], parents: [0, 1], refusals: 0 });
    const { nodes, hidden } = shownGraph(ROOT, identity, { isFolded: true });
    assert.deepEqual(
      nodes.map(({ identifiers, hiddenIdentifiers }) => [identifiers.length, hiddenIdentifiers]),
      [
        [27, 373],
        [1, 0],
        [2, 0],
      ],
    );
    assert.equal(hidden.identifiers, 373);
  });

  test('folded, still shows what is selected, with its way to the root', () => {
    const nodes = Array.from({ length: 60 }, () => ['anon_id' as const]);
    // A chain: each node was merged with the one before.
    const identity = graphOf({ nodes, parents: nodes.map((_, index) => index), refusals: 0 });
    const last = identity.identifiers.at(-1);
    assert.ok(last !== undefined);
    const keep = new Set([linkKey(last)]);
    const shown = shownGraph(ROOT, identity, { isFolded: true, keep });
    assert.ok(shown.nodes.some(({ id }) => id === last.node));
    assert.equal(shown.merges.length, shown.nodes.length - 1);
    assert.ok(!shownGraph(ROOT, identity, { isFolded: true }).nodes.some(({ id }) => id === last.node));
  });

  test('begins with the root, then the oldest, and has the strongest identifiers first', () => {
    const identity = graphOf({ nodes: [['anon_id', 'user_id'], ['email'], ['anon_id']], parents: [0, 0], refusals: 1 });
    const layout = layoutGraph(ROOT, identity, { isFolded: true });
    assert.deepEqual(
      layout.nodes.map(({ node }) => node.id),
      ['node-0', 'node-1', 'node-2'],
    );
    assert.deepEqual(
      layout.identifiers.map(({ link }) => link.type),
      ['user_id', 'anon_id', 'email', 'anon_id'],
    );
    const [refusal] = layout.refusals;
    assert.ok(refusal !== undefined && refusal.box.y > layout.frame.y + layout.frame.height, 'outside of the person');
  });
});
