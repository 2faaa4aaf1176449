/**
 * Identity resolution: takes accepted users in their order and returns the changes of the graph (rules 5 to 9). Works
 * on a snapshot and never writes; later users of a call see what earlier ones changed, so a batch has the same result
 * as its users one by one.
 *
 * Invariants: a key that has a node keeps it; an alias points at a root, never at another alias; a profile has at
 * most one user_id (rule 6) and stays within its limits (rule 7); every refusal is recorded. A user whose
 * keys are all known and of one profile costs a lookup per key and nothing else.
 */

import type { IdentifierType, MatchKey, NodeNumber, Origin, RefusalReason } from '../model.ts';
import {
  type Changes,
  type IdentityClaim,
  type Merge,
  type NewIdentifier,
  type NewNode,
  type Outcome,
  PROFILE_LIMITS,
  type ProfileState,
  type Refusal,
  type Snapshot,
} from './graph.ts';
import { compareOrigins } from './origin.ts';

export type ProfileLimits = { readonly [limit in keyof typeof PROFILE_LIMITS]: number };

/** A profile while users are being resolved. */
interface Profile {
  readonly root: NodeNumber;
  readonly origin: Origin;
  readonly nodes: NodeNumber[];
  userId: string | null;
  emails: number;
  phoneNumbers: number;
  anonIds: number;
  readonly cannotLink: Set<NodeNumber>;
}

/** A key that was not taken, and why. */
interface Refused {
  readonly key: MatchKey;
  readonly reason: RefusalReason;
}

const NO_MERGES: readonly Merge[] = [];
const NO_REFUSALS: readonly Refusal[] = [];
const NO_KEY: Outcome = { node: null, merges: NO_MERGES, refusals: NO_REFUSALS };

/** The node of the strongest key, if all keys have nodes of one profile: then there is nothing to decide. */
export function resolvedNodeOf(
  keys: readonly MatchKey[],
  nodeOf: (key: MatchKey) => NodeNumber | undefined,
  rootOf: (node: NodeNumber) => NodeNumber,
): NodeNumber | undefined {
  let strongest: NodeNumber | undefined;
  let root: NodeNumber | undefined;
  for (const key of keys) {
    const node = nodeOf(key);
    if (node === undefined) return undefined;
    const found = rootOf(node);
    if (root !== undefined && found !== root) return undefined;
    strongest ??= node;
    root = found;
  }
  return strongest;
}

/** Other limits than those of rule 7 are for tests. */
export function resolve(
  snapshot: Snapshot,
  users: readonly IdentityClaim[],
  limits: ProfileLimits = PROFILE_LIMITS,
): Changes {
  const resolution = new Resolution(snapshot, limits);
  for (const user of users) resolution.add(user);
  return resolution.changes;
}

class Resolution {
  readonly #snapshot: Snapshot;
  readonly #limits: ProfileLimits;
  readonly #nodes: NewNode[] = [];
  readonly #identifiers: NewIdentifier[] = [];
  readonly #merges: Merge[] = [];
  readonly #refusals: Refusal[] = [];
  readonly #aliases = new Map<NodeNumber, NodeNumber>();
  readonly #outcomes: Outcome[] = [];
  /** Nodes of the keys that this call has added. */
  readonly #added: Readonly<Record<IdentifierType, Map<string, NodeNumber>>> = {
    user_id: new Map(),
    email: new Map(),
    phone_number: new Map(),
    anon_id: new Map(),
  };
  /** By root; what this call has changed, and what it had to look at. */
  readonly #profiles = new Map<NodeNumber, Profile>();

  constructor(snapshot: Snapshot, limits: ProfileLimits) {
    this.#snapshot = snapshot;
    this.#limits = limits;
  }

  get changes(): Changes {
    return {
      nodes: this.#nodes,
      identifiers: this.#identifiers,
      merges: this.#merges,
      refusals: this.#refusals,
      aliases: this.#aliases,
      outcomes: this.#outcomes,
    };
  }

  add(user: IdentityClaim): void {
    const node =
      this.#snapshot.resolvedNodeOf?.(user) ??
      resolvedNodeOf(
        user.keys,
        (key) => this.#nodeOf(key),
        (known) => this.#rootOf(known),
      );
    if (node !== undefined) this.#outcomes.push({ node, merges: NO_MERGES, refusals: NO_REFUSALS });
    else if (user.keys.length === 0) this.#outcomes.push(NO_KEY);
    else this.#outcomes.push(this.#resolve(user));
  }

  /** Rule 5: known keys first, strongest first, each taken or refused; then new keys go where the strongest is. */
  #resolve(user: IdentityClaim): Outcome {
    const unknown: MatchKey[] = [];
    const merges: Merge[] = [];
    const refused: Refused[] = [];
    // The user's own user_id counts from the start, even if no profile has it yet.
    const claimed = user.keys.find((key) => key.type === 'user_id')?.value ?? null;
    let node: NodeNumber | undefined;
    for (const key of user.keys) {
      const known = this.#nodeOf(key);
      if (known === undefined) {
        unknown.push(key);
        continue;
      }
      const other = this.#profileOf(this.#rootOf(known));
      if (node === undefined) {
        if (differ(claimed, other.userId)) refused.push({ key, reason: 'other_user_id' });
        // Rule 8: a known person may not be given a new identifier that is stronger than this one.
        else if (user.keyKind === 'publishable' && unknown.length > 0 && !isAnonymous(other)) {
          refused.push({ key, reason: 'publishable_key' });
        } else node = known;
        continue;
      }
      const own = this.#profileOf(this.#rootOf(node));
      if (own === other) continue;
      const reason = this.#reasonAgainst(user, claimed, own, other);
      if (reason !== null) refused.push({ key, reason });
      else merges.push(this.#merge(own, other, { nodes: [known, node], via: key, origin: user.origin }));
    }
    const mayNotIdentify = node !== undefined && !this.#mayAddIdentifiers(user, this.#profileOf(this.#rootOf(node)));
    node ??= this.#create(user.origin);
    for (const key of unknown) {
      if (mayNotIdentify && key.type !== 'anon_id') refused.push({ key, reason: 'publishable_key' });
      else if (!this.#link(key, node, user.origin)) refused.push({ key, reason: 'limit' });
    }
    return { node, merges, refusals: this.#refuse(refused, node, user.origin) };
  }

  /** Rule 8: with a publishable key, only a request that names a known person by user_id may add identifiers to them. */
  #mayAddIdentifiers({ keyKind, keys }: IdentityClaim, profile: Profile): boolean {
    if (keyKind === 'secret' || isAnonymous(profile)) return true;
    const [strongest] = keys;
    return strongest?.type === 'user_id' && this.#nodeOf(strongest) !== undefined;
  }

  #reasonAgainst(user: IdentityClaim, claimed: string | null, own: Profile, other: Profile): RefusalReason | null {
    // Rule 6.
    if (differ(own.userId, other.userId) || differ(claimed, other.userId)) return 'other_user_id';
    // Rule 16.
    if (own.nodes.some((node) => other.cannotLink.has(node))) return 'cannot_link';
    // Rule 7.
    const limits = this.#limits;
    if (
      own.emails + other.emails > limits.emails ||
      own.phoneNumbers + other.phoneNumbers > limits.phoneNumbers ||
      own.anonIds + other.anonIds > limits.anonIds ||
      own.nodes.length + other.nodes.length > limits.nodes
    ) {
      return 'limit';
    }
    // Rule 8. An anonymous profile can only be named by an anon_id, the weakest key, of which a user has at most one.
    // So `own` is never anonymous here, and a user causes at most one such merge.
    return user.keyKind === 'secret' || isAnonymous(other) ? null : 'publishable_key';
  }

  /** Rule 9: the older one survives. All nodes of the other get it as their alias, so that aliases are never chained. */
  #merge(own: Profile, other: Profile, edge: Pick<Merge, 'nodes' | 'via' | 'origin'>): Merge {
    const [into, from] = compareOrigins(own.origin, other.origin) < 0 ? [own, other] : [other, own];
    for (const node of from.nodes) {
      this.#aliases.set(node, into.root);
      into.nodes.push(node);
    }
    for (const node of from.cannotLink) into.cannotLink.add(node);
    into.userId ??= from.userId;
    into.emails += from.emails;
    into.phoneNumbers += from.phoneNumbers;
    into.anonIds += from.anonIds;
    this.#profiles.delete(from.root);
    const merge: Merge = { ...edge, from: from.root, into: into.root };
    this.#merges.push(merge);
    return merge;
  }

  #create(origin: Origin): NodeNumber {
    const node = this.#snapshot.nextNode + this.#nodes.length;
    this.#nodes.push({ node, origin });
    const empty = { userId: null, emails: 0, phoneNumbers: 0, anonIds: 0 };
    this.#profiles.set(node, { root: node, origin, nodes: [node], cannotLink: new Set(), ...empty });
    return node;
  }

  /** False if rule 7 forbids it; then the key stays without a node. */
  #link(key: MatchKey, node: NodeNumber, origin: Origin): boolean {
    const profile = this.#profileOf(this.#rootOf(node));
    if (key.type === 'user_id') {
      profile.userId = key.value;
    } else {
      const count = COUNT_OF_TYPE[key.type];
      if (profile[count] >= this.#limits[count]) return false;
      profile[count]++;
    }
    this.#added[key.type].set(key.value, node);
    this.#identifiers.push({ key, node, origin });
    return true;
  }

  #refuse(refused: readonly Refused[], node: NodeNumber, origin: Origin): readonly Refusal[] {
    if (refused.length === 0) return NO_REFUSALS;
    const refusals = refused.map(({ key, reason }): Refusal => ({ node, key, reason, origin }));
    this.#refusals.push(...refusals);
    return refusals;
  }

  #nodeOf(key: MatchKey): NodeNumber | undefined {
    return this.#snapshot.nodeOf(key) ?? this.#added[key.type].get(key.value);
  }

  #rootOf(node: NodeNumber): NodeNumber {
    const alias = this.#aliases.get(node);
    if (alias !== undefined) return alias;
    const { nextNode } = this.#snapshot;
    // Another writer's nodes may have larger numbers than ours.
    return node >= nextNode && node < nextNode + this.#nodes.length ? node : this.#snapshot.rootOf(node);
  }

  #profileOf(root: NodeNumber): Profile {
    const seen = this.#profiles.get(root);
    if (seen !== undefined) return seen;
    const stored: ProfileState = this.#snapshot.profileOf(root);
    const profile = { ...stored, nodes: [...stored.nodes], cannotLink: new Set(stored.cannotLink) };
    this.#profiles.set(root, profile);
    return profile;
  }
}

const COUNT_OF_TYPE = { email: 'emails', phone_number: 'phoneNumbers', anon_id: 'anonIds' } as const satisfies Record<
  Exclude<IdentifierType, 'user_id'>,
  keyof ProfileLimits
>;

/** Rule 6. */
function differ(a: string | null, b: string | null): boolean {
  return a !== null && b !== null && a !== b;
}

/** Rule 8. */
function isAnonymous(profile: Profile): boolean {
  return profile.userId === null && profile.emails === 0 && profile.phoneNumbers === 0;
}
