/**
 * The types of `resolve`: what it reads of the store (a snapshot), and what it returns (changes). All of it concerns
 * one tenant. Node numbers of new nodes count up from `nextNode`, so that the same snapshot and the same
 * users always give the same changes. No other writer has these numbers, though others may have larger ones.
 */

import type { KeyKind, MatchKey, NodeNumber, Origin, RefusalReason } from '../model.ts';

/** One accepted user, as far as identity is concerned. */
export interface IdentityClaim {
  readonly origin: Origin;
  readonly keyKind: KeyKind;
  /** Without junk, at most one of a type, strongest first (rule 4). May be empty. */
  readonly keys: readonly MatchKey[];
}

/** A profile as far as merging and linking need it. */
export interface ProfileState {
  /** The oldest node: the one that survived every merge (rule 9). */
  readonly root: NodeNumber;
  /** The root's creation. */
  readonly origin: Origin;
  /** All nodes, the root among them. */
  readonly nodes: readonly NodeNumber[];
  /** Normalised; null for a profile that has none. */
  readonly userId: string | null;
  readonly emails: number;
  readonly phoneNumbers: number;
  readonly anonIds: number;
  /** Nodes that an unmerge separated from a node of this profile (rule 16). */
  readonly cannotLink: readonly NodeNumber[];
}

/**
 * What the store has on the users of a batch. `nodeOf` and `rootOf` cover every key of theirs. `profileOf` covers at
 * least the profiles of users that have a key without a node, or keys of more than one profile: only those can change
 * a profile.
 */
export interface Snapshot {
  readonly nextNode: NodeNumber;
  nodeOf(key: MatchKey): NodeNumber | undefined;
  /**
   * A shortcut: the node of the strongest of a user's keys, if all of them are already resolved to one profile. That
   * stays true whatever is merged meanwhile. Undefined means unknown.
   */
  resolvedNodeOf?(user: IdentityClaim): NodeNumber | undefined;
  /** The root of a node that `nodeOf` gave: itself, or what its alias says. */
  rootOf(node: NodeNumber): NodeNumber;
  profileOf(root: NodeNumber): ProfileState;
}

export interface NewNode {
  readonly node: NodeNumber;
  readonly origin: Origin;
}

export interface NewIdentifier {
  readonly key: MatchKey;
  readonly node: NodeNumber;
  readonly origin: Origin;
}

/** One edge of the graph of nodes. Edges never close a circle, so any two nodes are joined by one chain at most. */
export interface Merge {
  /** The node that `via` points to, and the node of the strongest key taken: the two ends of the edge. */
  readonly nodes: readonly [NodeNumber, NodeNumber];
  /** The roots at that moment: `from` was merged into `into`. */
  readonly from: NodeNumber;
  readonly into: NodeNumber;
  readonly via: MatchKey;
  readonly origin: Origin;
}

export interface Refusal {
  /** The node that the user went to. */
  readonly node: NodeNumber;
  readonly key: MatchKey;
  readonly reason: RefusalReason;
  readonly origin: Origin;
}

/** What became of one user; in the order of the users. */
export interface Outcome {
  /** Where events and property updates go; null when there was no key to match by. */
  readonly node: NodeNumber | null;
  readonly merges: readonly Merge[];
  readonly refusals: readonly Refusal[];
}

export interface Changes {
  readonly nodes: readonly NewNode[];
  readonly identifiers: readonly NewIdentifier[];
  readonly merges: readonly Merge[];
  readonly refusals: readonly Refusal[];
  /** Every node whose root has changed, and all nodes of profiles that were merged away. Never a node to itself. */
  readonly aliases: ReadonlyMap<NodeNumber, NodeNumber>;
  readonly outcomes: readonly Outcome[];
}

/**
 * How many profiles the changes add; may be negative. Every new node is a profile, and every merge turns two into one,
 * because edges never form a cycle.
 */
export function newProfilesIn({ nodes, merges }: Changes): number {
  return nodes.length - merges.length;
}

/** Rule 7. */
export const PROFILE_LIMITS = { emails: 10, phoneNumbers: 10, anonIds: 500, nodes: 100 } as const;
