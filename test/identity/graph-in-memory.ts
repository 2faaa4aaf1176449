/**
 * A store of the identity graph that lives in memory, as harness for `resolve`: gives snapshots, applies changes, keeps
 * updates, unmerges. Its snapshots are strict: what `graph.ts` does not promise is refused with a throw.
 */

import assert from 'node:assert/strict';
import { cannotLinkAfter, chainBetween, replay } from '../../src/identity/explain.ts';
import {
  type Changes,
  type IdentityClaim,
  type Merge,
  type NewIdentifier,
  PROFILE_LIMITS,
  type ProfileState,
  type Refusal,
  type Snapshot,
} from '../../src/identity/graph.ts';
import { type ProfileLimits, resolve } from '../../src/identity/resolve.ts';
import { applyUpdates, type Group, type Values, viewOf } from '../../src/identity/property-updates.ts';
import type { MatchKey, NodeNumber, Origin } from '../../src/model.ts';

/** One accepted user: who it claims to be, and what it says. */
export interface Entry extends IdentityClaim {
  readonly fields: Values;
  readonly properties: Values;
}

export function nameOf(key: Pick<MatchKey, 'type' | 'value'>): string {
  return `${key.type}:${key.value}`;
}

/** Whether `resolve` may ask for the profiles of this user: it has a key without a node, or keys of several profiles. */
function needsProfile(snapshot: Snapshot, user: IdentityClaim): boolean {
  let root: NodeNumber | undefined;
  for (const key of user.keys) {
    const node = snapshot.nodeOf(key);
    if (node === undefined) return true;
    const found = snapshot.rootOf(node);
    if (root !== undefined && found !== root) return true;
    root = found;
  }
  return false;
}

export class GraphInMemory {
  readonly identifiers = new Map<string, NewIdentifier>();
  readonly nodes = new Map<NodeNumber, Origin>();
  readonly aliases = new Map<NodeNumber, NodeNumber>();
  merges: Merge[] = [];
  readonly refusals: Refusal[] = [];
  readonly cannotLink: (readonly [NodeNumber, NodeNumber])[] = [];
  readonly updates = new Map<NodeNumber, readonly Group[]>();
  readonly #limits: ProfileLimits;

  constructor(limits: ProfileLimits = PROFILE_LIMITS) {
    this.#limits = limits;
  }

  /** Resolves the users in one call, or in several of the given sizes. */
  add(entries: readonly Entry[], batchSizes: readonly number[] = [entries.length]): this {
    let start = 0;
    for (let batch = 0; start < entries.length; batch++) {
      const size = Math.max(1, batchSizes[batch % batchSizes.length] ?? 1);
      this.#addBatch(entries.slice(start, start + size));
      start += size;
    }
    return this;
  }

  #addBatch(entries: readonly Entry[]): void {
    const changes = resolve(this.snapshotFor(entries), entries, this.#limits);
    assert.equal(changes.outcomes.length, entries.length);
    this.#apply(changes);
    for (const [index, { node }] of changes.outcomes.entries()) {
      const entry = entries[index];
      if (node === null || entry === undefined) continue;
      const said = applyUpdates(this.updates.get(node) ?? [], [entry]);
      this.updates.set(node, said);
    }
  }

  #apply(changes: Changes): void {
    for (const { node, origin } of changes.nodes) {
      assert.ok(!this.nodes.has(node), 'a node number is used once');
      this.nodes.set(node, origin);
    }
    for (const identifier of changes.identifiers) {
      assert.ok(!this.identifiers.has(nameOf(identifier.key)), 'a key that has a node keeps it');
      assert.ok(this.nodes.has(identifier.node), 'a key points to a node that is there');
      this.identifiers.set(nameOf(identifier.key), identifier);
    }
    for (const [node, root] of changes.aliases) this.aliases.set(node, root);
    this.merges.push(...changes.merges);
    this.refusals.push(...changes.refusals);
    assert.deepEqual(
      changes.outcomes.flatMap((outcome) => outcome.merges),
      changes.merges,
    );
    assert.deepEqual(
      changes.outcomes.flatMap((outcome) => outcome.refusals),
      changes.refusals,
    );
  }

  snapshotFor(users: readonly IdentityClaim[]): Snapshot {
    const keys = new Set(users.flatMap((user) => user.keys.map(nameOf)));
    const roots = new Set<NodeNumber>();
    const snapshot: Snapshot = {
      nextNode: this.nodes.size + 1,
      nodeOf: (key) => {
        assert.ok(keys.has(nameOf(key)), 'nodeOf answers for keys of the users only');
        return this.identifiers.get(nameOf(key))?.node;
      },
      rootOf: (node) => this.rootOf(node),
      profileOf: (root) => {
        assert.ok(roots.has(root), 'profileOf answers only where a profile can change');
        return this.profileOf(root);
      },
    };
    for (const user of users.filter((candidate) => needsProfile(snapshot, candidate))) {
      for (const key of user.keys) {
        const node = snapshot.nodeOf(key);
        if (node !== undefined) roots.add(this.rootOf(node));
      }
    }
    return snapshot;
  }

  rootOf(node: NodeNumber): NodeNumber {
    assert.ok(this.nodes.has(node), 'rootOf is asked for nodes that are there');
    return this.aliases.get(node) ?? node;
  }

  profileOf(root: NodeNumber): ProfileState {
    const origin = this.nodes.get(root);
    assert.ok(origin !== undefined && !this.aliases.has(root), 'only a root has a profile');
    const nodes = this.nodesOf(root);
    const keys = this.keysOf(root);
    const count = (type: string): number => keys.filter((key) => key.type === type).length;
    return {
      root,
      origin,
      nodes,
      userId: keys.find(({ type }) => type === 'user_id')?.value ?? null,
      emails: count('email'),
      phoneNumbers: count('phone_number'),
      anonIds: count('anon_id'),
      cannotLink: this.cannotLink.flatMap(([a, b]) => [
        ...(nodes.includes(a) ? [b] : []),
        ...(nodes.includes(b) ? [a] : []),
      ]),
    };
  }

  roots(): NodeNumber[] {
    return [...this.nodes.keys()].filter((node) => !this.aliases.has(node));
  }

  nodesOf(root: NodeNumber): NodeNumber[] {
    return [...this.nodes.keys()].filter((node) => this.rootOf(node) === root);
  }

  keysOf(root: NodeNumber): MatchKey[] {
    return [...this.identifiers.values()].filter(({ node }) => this.rootOf(node) === root).map(({ key }) => key);
  }

  /** The names of the keys of each profile, in an order of its own. */
  partition(): string[][] {
    const parts = this.roots().map((root) => this.keysOf(root).map(nameOf).sort());
    return parts.sort((a, b) => (String(a[0]) < String(b[0]) ? -1 : 1));
  }

  /** What each profile knows, by the first name of its keys. */
  views(): Map<string, unknown> {
    return new Map(
      this.roots().map((root) => {
        const reported = viewOf(this.nodesOf(root).map((node) => this.updates.get(node) ?? []));
        return [String(this.keysOf(root).map(nameOf).sort()[0]), reported];
      }),
    );
  }

  isExplained(a: MatchKey, b: MatchKey): boolean {
    return chainBetween(a, b, [...this.identifiers.values()], this.merges) !== undefined;
  }

  isOneProfile(a: MatchKey, b: MatchKey): boolean {
    const first = this.identifiers.get(nameOf(a));
    const second = this.identifiers.get(nameOf(b));
    return first !== undefined && second !== undefined && this.rootOf(first.node) === this.rootOf(second.node);
  }

  /** Rule 16, for all profiles that the request merged. */
  unmerge(traceId: string): void {
    const removed = this.merges.filter(({ origin }) => origin.traceId === traceId);
    this.merges = this.merges.filter((merge) => !removed.includes(merge));
    const nodes = [...this.nodes].map(([node, origin]) => ({ node, origin }));
    const { roots } = replay(nodes, this.merges);
    this.aliases.clear();
    for (const [node, root] of roots) if (node !== root) this.aliases.set(node, root);
    this.cannotLink.push(...cannotLinkAfter(removed, roots));
  }
}
