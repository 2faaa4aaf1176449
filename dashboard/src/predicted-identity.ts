/**
 * The people that a checked request concerns, and their identity graphs as they would be after it: what is stored, with
 * the links, merges and refusals of the prediction added. Pure. A profile that would be created is called `new:0`, after
 * the user that would create it. Which node of an existing person gets a new identifier is not predicted; here it is the
 * one that gives the person its id.
 */

import { linkKey, mergeKey, refusalKey } from './identity-names.ts';
import type { Identity, LinkedIdentifier, Merge, PredictedUser, Refusal } from './api-types.ts';

export interface PredictedPerson {
  /** After the request. */
  readonly id: string;
  readonly isNew: boolean;
  readonly users: readonly PredictedUser[];
  /** Ids of the profiles that there are now, which the person would be made of. */
  readonly before: readonly string[];
}

/** In place of a trace: there is none. */
const CHECK = 'check';
const NEW_ID = /^new:/;

export function isNewId(id: string): boolean {
  return NEW_ID.test(id);
}

/** In the order of the users. */
export function peopleIn(users: readonly PredictedUser[]): PredictedPerson[] {
  const byProfile = new Map<string, PredictedUser[]>();
  for (const user of users) {
    if (user.profile_id === null) continue;
    const others = byProfile.get(user.profile_id);
    if (others === undefined) byProfile.set(user.profile_id, [user]);
    else others.push(user);
  }
  return Array.from(byProfile, ([id, own]) => {
    const named = own.flatMap(({ merges }) => merges.flatMap(({ from, into }) => [into, from]));
    const before = [...new Set([id, ...named])].filter((one) => !isNewId(one));
    return { id, isNew: isNewId(id), users: own, before };
  });
}

export interface GraphAfter {
  readonly identity: Identity;
  /** Names (identity-names.ts) of what the request would add, and ids of new nodes. */
  readonly added: ReadonlySet<string>;
}

/** `identities` are those of `person.before`; `at` is the time to show for what is new. */
export function graphAfter(person: PredictedPerson, identities: readonly Identity[], at: string): GraphAfter {
  const identifiers: LinkedIdentifier[] = identities.flatMap((one) => one.identifiers);
  const merges: Merge[] = identities.flatMap((one) => one.merges);
  const refusals: Refusal[] = identities.flatMap((one) => one.refusals);
  const added = new Set<string>();
  const created = new Set(
    person.users.flatMap((user) => [user.profile_id ?? '', ...user.merges.flatMap(({ from, into }) => [from, into])]),
  );
  for (const user of person.users) {
    const { userIndex } = user;
    const own = `new:${userIndex}`;
    const node = created.has(own) ? own : (user.merges[0]?.into ?? person.id);
    for (const { type, value } of user.new_identifiers) {
      const link: LinkedIdentifier = { type, value, node, first_trace_id: CHECK, userIndex, first_seen: at };
      identifiers.push(link);
      added.add(linkKey(link));
    }
    if (node === own) added.add(own);
    for (const { from, into, via } of user.merges) {
      const merge: Merge = { from, into, via, nodes: [from, into], trace_id: CHECK, userIndex, at };
      merges.push(merge);
      added.add(mergeKey(merge));
    }
    for (const { type, value, reason } of user.refusals) {
      const isSame = (one: Refusal): boolean => one.type === type && one.value === value && one.reason === reason;
      const known = refusals.find(isSame);
      const refusal = known ?? { type, value, reason, trace_id: CHECK, userIndex, at, count: 1 };
      if (known === undefined) refusals.push(refusal);
      added.add(refusalKey(refusal));
    }
  }
  return { identity: { identifiers, merges, refusals }, added };
}
