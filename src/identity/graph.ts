/**
 * The words that `resolve` speaks: what it is given of the store (a snapshot), and what it gives back (changes). All of
 * it concerns one tenant. Node numbers of new nodes count up from `nextNode`, so that the same snapshot and the same
 * users always give the same changes; nobody else has these, though others may have larger ones.
 */

import type { KeyKind, MatchKey, NodeNumber, Origin, RefusalReason } from '../model.ts';

/** One accepted user, as far as identity is concerned. */
export interface Claimant {
  readonly origin: Origin;
  readonly keyKind: KeyKind;
  /** Without junk, at most one of a type, strongest first (rule 4). May be empty. */
  readonly keys: readonly MatchKey[];
}

/** A profile as far as merging and linking need it. */
export interface ProfileState {
  /** The surviving node. */
  readonly root: NodeNumber;
  /** The survivor's creation (rule 9). */
  readonly origin: Origin;
  /** All nodes, the survivor among them. */
  readonly nodes: readonly NodeNumber[];
  /** Normalised; null for a profile that has none. */
  readonly userId: string | null;
  readonly emails: number;
  readonly phoneNumbers: number;
  readonly anonIds: number;
  /** Nodes that an unmerge separated from a node of this profile (rule 16). */
  readonly apart: readonly NodeNumber[];
}

/**
 * What the store knows of the users at hand. `nodeOf` and `rootOf` answer for every key of theirs. `profileOf` answers
 * at least for the profiles of users that have a key without a node, or keys of more than one profile: nobody else
 * can change a profile.
 */
export interface Snapshot {
  readonly nextNode: NodeNumber;
  nodeOf(key: MatchKey): NodeNumber | undefined;
  /**
   * A shortcut: the node of the strongest of a user's keys, when it is known already that all of them have nodes of one
   * profile. That stays true whatever is merged meanwhile. Undefined says nothing.
   */
  settledNodeOf?(user: Claimant): NodeNumber | undefined;
  /** The survivor of a node that `nodeOf` gave: itself, or what its alias says. */
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
  /** The survivors at that moment: `from` was merged away, `into` lives on. */
  readonly from: NodeNumber;
  readonly into: NodeNumber;
  readonly via: MatchKey;
  readonly origin: Origin;
}

export interface Refusal {
  /** The node that the record went to. */
  readonly node: NodeNumber;
  readonly key: MatchKey;
  readonly reason: RefusalReason;
  readonly origin: Origin;
}

/** What became of one user; in the order of the users. */
export interface Outcome {
  /** Where events and statements go; null when there was no key to match by. */
  readonly node: NodeNumber | null;
  readonly merges: readonly Merge[];
  readonly refusals: readonly Refusal[];
}

export interface Changes {
  readonly nodes: readonly NewNode[];
  readonly identifiers: readonly NewIdentifier[];
  readonly merges: readonly Merge[];
  readonly refusals: readonly Refusal[];
  /** Every node whose survivor has changed, and all nodes of profiles that were merged away. Never a node to itself. */
  readonly aliases: ReadonlyMap<NodeNumber, NodeNumber>;
  readonly outcomes: readonly Outcome[];
}

/**
 * How many more profiles there are after the changes; may be below 0. Every new node is a profile, and every merge makes
 * one of two, because edges never close a circle.
 */
export function newProfilesIn({ nodes, merges }: Changes): number {
  return nodes.length - merges.length;
}

/** Rule 7. */
export const PROFILE_LIMITS = { emails: 10, phoneNumbers: 10, anonIds: 500, nodes: 100 } as const;
