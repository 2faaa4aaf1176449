/** What must hold for the identity graph after any history, against oracles that know nothing of aliases and batches. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { compareOrigins } from '../../src/identity/origin.ts';
import type { ProfileLimits } from '../../src/identity/resolve.ts';
import { viewOf } from '../../src/identity/property-updates.ts';
import { type Entry, GraphInMemory, nameOf } from './graph-in-memory.ts';
import { batchSizes, crowded, messy, peaceful, SMALL_LIMITS } from './histories.ts';
import { components, judge } from './oracle.ts';

const RUNS = 200;
const ROOMY_LIMITS: ProfileLimits = { emails: 100, phoneNumbers: 100, anonIds: 100, nodes: 100 };
const any = fc.oneof(messy, crowded);

function check(property: fc.IRawProperty<unknown>): void {
  fc.assert(property as fc.IProperty<unknown>, { numRuns: RUNS });
}

function assertSound(graph: GraphInMemory, limits: ProfileLimits): void {
  for (const [node, root] of graph.aliases) {
    assert.ok(!graph.aliases.has(root), 'aliases are one deep');
    const [young, old] = [graph.nodes.get(node), graph.nodes.get(root)];
    assert.ok(young !== undefined && old !== undefined && compareOrigins(old, young) < 0, 'rule 9: the older survives');
  }
  for (const root of graph.roots()) {
    const profile = graph.profileOf(root);
    const userIds = graph.keysOf(root).filter(({ type }) => type === 'user_id');
    assert.ok(userIds.length <= 1, 'rule 6');
    assert.ok(profile.emails <= limits.emails && profile.phoneNumbers <= limits.phoneNumbers, 'rule 7');
    assert.ok(profile.anonIds <= limits.anonIds && profile.nodes.length <= limits.nodes, 'rule 7');
  }
  assert.equal(graph.merges.length, graph.aliases.size, 'edges never close a circle');
}

/** Everything that a store would hold. */
function contentsOf(graph: GraphInMemory): unknown {
  const { identifiers, nodes, aliases, merges, refusals, updates } = graph;
  return { identifiers, nodes, aliases, merges, refusals, updates };
}

/** Last write wins, said naively: all users of a person, oldest first, each writing over what was there. */
function naiveViews(entries: readonly Entry[]): Map<string, unknown> {
  const sorted = entries.toSorted((a, b) => compareOrigins(a.origin, b.origin));
  return new Map(
    components(entries).map((names) => {
      const said = sorted.filter(({ keys }) => keys.some((key) => names.includes(nameOf(key))));
      const fields = new Map<string, unknown>();
      const properties = new Map<string, unknown>();
      for (const { origin, ...entry } of said) {
        for (const [name, value] of Object.entries(entry.fields)) {
          if (value !== null) fields.set(name, { value, origin });
        }
        for (const [name, value] of Object.entries(entry.properties)) properties.set(name, { value, origin });
      }
      for (const [name, reported] of properties) {
        if ((reported as { value: unknown }).value === null) properties.delete(name);
      }
      return [String(names[0]), { fields, properties }];
    }),
  );
}

suite('The identity graph, after any history', () => {
  test('aliases are one deep without loops, profiles have one user_id and keep their limits (rules 6, 7, 9)', () => {
    check(
      fc.property(any, batchSizes, (entries, sizes) => {
        assertSound(new GraphInMemory(SMALL_LIMITS).add(entries, sizes), SMALL_LIMITS);
      }),
    );
  });

  test('profiles and refusals are those of the breadth-first oracle (rules 5 to 8)', () => {
    const reasons = new Set<string>();
    check(
      fc.property(any, fc.boolean(), (entries, isSmall) => {
        const limits = isSmall ? SMALL_LIMITS : undefined;
        const graph = new GraphInMemory(limits).add(entries);
        const judgement = judge(entries, limits);
        assert.deepEqual(graph.partition(), judgement.partition);
        const refusals = graph.refusals.map(
          ({ key, reason, origin }) => `${origin.traceId}/${origin.userIndex} ${nameOf(key)} ${reason}`,
        );
        assert.deepEqual(refusals, judgement.refusals);
        for (const { reason } of graph.refusals) reasons.add(reason);
      }),
    );
    assert.deepEqual([...reasons].sort(), ['limit', 'other_user_id', 'publishable_key']);
  });

  test('every key of a user is of its profile, or refused on record (rules 5 and 7)', () => {
    check(
      fc.property(any, (entries) => {
        const graph = new GraphInMemory(SMALL_LIMITS);
        for (const entry of entries) {
          const before = graph.refusals.length;
          graph.add([entry]);
          const refused = graph.refusals.slice(before).map(({ key }) => nameOf(key));
          const left = entry.keys.filter((key) => !refused.includes(nameOf(key)));
          const [first] = left;
          assert.ok(first !== undefined, 'no user has all of its identifiers refused');
          for (const key of left) assert.ok(graph.isOneProfile(first, key));
          for (const name of refused) {
            const key = entry.keys.find((candidate) => nameOf(candidate) === name);
            assert.ok(key !== undefined && !graph.isOneProfile(first, key));
          }
        }
      }),
    );
  });

  test('a batch gives what its users give one by one', () => {
    check(
      fc.property(any, batchSizes, (entries, sizes) => {
        const oneByOne = new GraphInMemory(SMALL_LIMITS).add(entries, [1]);
        assert.deepEqual(contentsOf(new GraphInMemory(SMALL_LIMITS).add(entries, sizes)), contentsOf(oneByOne));
      }),
    );
  });

  test('a history once more changes no key, node, alias or merge, as long as no limit is hit', () => {
    check(
      fc.property(any, batchSizes, (entries, sizes) => {
        const graph = new GraphInMemory(ROOMY_LIMITS).add(entries, sizes);
        const before = structuredClone([graph.identifiers, graph.nodes, graph.aliases, graph.merges]);
        graph.add(entries, sizes);
        assert.deepEqual([graph.identifiers, graph.nodes, graph.aliases, graph.merges], before);
      }),
    );
  });

  test('two identifiers have a chain of causes exactly when they are one person (rule 15)', () => {
    check(
      fc.property(any, (entries) => {
        const graph = new GraphInMemory(SMALL_LIMITS).add(entries);
        const keys = [...graph.identifiers.values()].map(({ key }) => key);
        for (const a of keys) for (const b of keys) assert.equal(graph.isExplained(a, b), graph.isOneProfile(a, b));
      }),
    );
  });
});

suite('The identity graph, after a history without conflicts', () => {
  test('people are the connected parts, in any order, batching and duplication', () => {
    const history = peaceful.chain((entries) =>
      fc.record({
        entries: fc.constant(entries),
        again: fc.shuffledSubarray(entries),
        shuffled: fc.shuffledSubarray(entries, { minLength: entries.length }),
        sizes: batchSizes,
      }),
    );
    check(
      fc.property(history, ({ entries, again, shuffled, sizes }) => {
        const graph = new GraphInMemory().add([...shuffled, ...again], sizes);
        assert.deepEqual(graph.refusals, []);
        assert.deepEqual(graph.partition(), components(entries));
        assert.deepEqual(graph.views(), naiveViews(entries));
      }),
    );
  });

  test('a history once more changes nothing at all', () => {
    check(
      fc.property(peaceful, batchSizes, (entries, sizes) => {
        const graph = new GraphInMemory().add(entries, sizes);
        const before = structuredClone(contentsOf(graph));
        assert.deepEqual(contentsOf(graph.add(entries, sizes)), before);
      }),
    );
  });

  test('the same updates are returned whichever way the nodes come (rule 13)', () => {
    check(
      fc.property(peaceful, (entries) => {
        const graph = new GraphInMemory().add(entries);
        for (const root of graph.roots()) {
          const nodes = graph.nodesOf(root).map((node) => graph.updates.get(node) ?? []);
          assert.deepEqual([...viewOf(nodes.toReversed()).properties], [...viewOf(nodes).properties]);
        }
      }),
    );
  });
});

suite('Unmerge (rule 16), after any history', () => {
  const unmerging = any.chain((entries) => fc.tuple(fc.constant(entries), fc.nat(1_000), batchSizes));

  test('equals a history in which those were never allowed to merge', () => {
    let unmerged = 0;
    const history = peaceful.chain((entries) => fc.tuple(fc.constant(entries), fc.nat(1_000)));
    check(
      fc.property(history, ([entries, pick]) => {
        const graph = new GraphInMemory().add(entries);
        const merge = graph.merges[pick % Math.max(1, graph.merges.length)];
        if (merge === undefined) return;
        unmerged++;
        graph.unmerge(merge.origin.traceId);
        const never = new GraphInMemory();
        never.cannotLink.push(...graph.cannotLink);
        // One by one, since a batch cannot know of pairs among the nodes that it makes.
        never.add(entries, [1]);
        assert.deepEqual(graph.identifiers, never.identifiers);
        assert.deepEqual(graph.aliases, never.aliases);
        assert.deepEqual(graph.partition(), never.partition());
        assert.deepEqual(graph.views(), never.views());
      }),
    );
    assert.ok(unmerged > RUNS / 4);
  });

  test('traffic does not merge them again, and every chain that is left has its cause', () => {
    check(
      fc.property(unmerging, ([entries, pick, sizes]) => {
        const graph = new GraphInMemory(ROOMY_LIMITS).add(entries, sizes);
        const merge = graph.merges[pick % Math.max(1, graph.merges.length)];
        if (merge === undefined) return;
        graph.unmerge(merge.origin.traceId);
        assertSound(graph, ROOMY_LIMITS);
        assert.notEqual(graph.rootOf(merge.nodes[0]), graph.rootOf(merge.nodes[1]));
        graph.add(entries, sizes).add(entries.toReversed(), sizes);
        assertSound(graph, ROOMY_LIMITS);
        for (const [a, b] of graph.cannotLink) assert.notEqual(graph.rootOf(a), graph.rootOf(b));
        const keys = [...graph.identifiers.values()].map(({ key }) => key);
        for (const a of keys) for (const b of keys) assert.equal(graph.isExplained(a, b), graph.isOneProfile(a, b));
      }),
    );
  });
});
