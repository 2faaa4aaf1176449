/**
 * Predicts the effect of a request: prepares and decides it like the processor, from a lookup without locks, and
 * compares the decision with what is stored. Pure. A store calls three steps in one read transaction:
 * `preparePrediction`, then `decidePrediction` with the result of the lookup, then `completePrediction` with the
 * profiles that the second step names.
 *
 * Users of the request see each other, in order. A profile that would be created has no id yet: that comes from the
 * trace of the real request, so here it is named after the user that would create it. Limits: the list of property
 * changes is bounded, and so is what is read of stored properties (`PROPERTIES_BYTES_MAX`): changes of people beyond
 * that are not compared. A person with more than 10 MB of properties may keep fewer of them than is predicted.
 */

import type { Outcome } from '../identity/graph.ts';
import type { MatchOptions } from '../identity/match-keys.ts';
import { type Group, type PropertyValue, type View, viewOf } from '../identity/property-updates.ts';
import { parseJson } from '../json/parse.ts';
import type { LogRecord } from '../log.ts';
import type { MatchKey, NodeNumber, TenantId } from '../model.ts';
import type { PredictedIdentifier, PredictedMerge, PredictedUser, Prediction, PropertyChange } from '../store.ts';
import type { LookupRequest, LookupResult, RecordToStore, TenantBatch, UserToStore } from '../store-writer.ts';
import { foldedGroups, groupsIn } from '../views/node-properties.ts';
import type { ProfileNodes } from '../views/profile.ts';
import { decide, lookupRequestOf } from './decide.ts';
import { type PreparedRecord, prepareRecord } from './prepare.ts';

/** Number of the first node that a prediction creates: beyond all that are stored, on any backend. */
export const FIRST_PREDICTED_NODE: NodeNumber = 2 ** 52;
/** Characters of names and values that are listed for all users of a request together. */
const PROPERTY_CHANGES_LENGTH_MAX = 1_000_000;
/** Once this much is read of stored properties, those of further nodes are not. One node has up to 10 MB. */
export const PROPERTIES_BYTES_MAX = 16 * 1024 * 1024;

interface PreparedPrediction {
  readonly tenantId: TenantId;
  readonly records: readonly PreparedRecord[];
  readonly lookup: LookupRequest;
}

interface DecidedPrediction {
  readonly records: readonly PreparedRecord[];
  readonly batch: TenantBatch;
  /** Surviving nodes of the stored profiles that the users belong to, or that would be merged. */
  readonly roots: readonly NodeNumber[];
}

/** `records` are those of one request, or of several rejected users that a job would apply then. */
export function preparePrediction(
  tenantId: TenantId,
  records: readonly LogRecord[],
  options: MatchOptions,
  appliedAt?: number,
): PreparedPrediction {
  const prepared = records.map((record) => {
    const one = prepareRecord(record, options);
    return appliedAt === undefined ? one : { ...one, header: { ...one.header, appliedAt } };
  });
  return { tenantId, records: prepared, lookup: lookupRequestOf(tenantId, prepared) };
}

/** The snapshot of `result` must give `FIRST_PREDICTED_NODE` as its next node. */
export function decidePrediction({ tenantId, records }: PreparedPrediction, result: LookupResult): DecidedPrediction {
  const batch = decide(tenantId, result, records);
  const roots = new Set<NodeNumber>();
  for (const { node, merges } of batch.changes.outcomes) {
    if (node !== null && isStored(node)) roots.add(result.snapshot.rootOf(node));
    for (const { from, into } of merges) for (const root of [from, into]) if (isStored(root)) roots.add(root);
  }
  return { records, batch, roots: [...roots] };
}

/** `profiles` are those of the roots, without the properties of the nodes in `unread`. */
export function completePrediction(
  { records, batch }: DecidedPrediction,
  profiles: readonly ProfileNodes[],
  unread: ReadonlySet<NodeNumber>,
): Prediction {
  const { changes } = batch;
  const people = new PredictedPeople(profiles, unread);
  for (const { node, origin } of changes.nodes) people.create(node, origin.userIndex);
  const linked = Map.groupBy(changes.identifiers, ({ origin }) => origin.userIndex);
  const effects = new Map<number, Effect>();
  const stored = batch.records.flatMap(({ users }) => users);
  for (const [index, user] of stored.entries()) {
    const { userIndex } = user.origin;
    const outcome = changes.outcomes[index] as Outcome;
    const newIdentifiers = (linked.get(userIndex) ?? []).map(({ key }) => identifierOf(key));
    const refusals = outcome.refusals.map(({ key, reason }) => ({ ...identifierOf(key), reason }));
    effects.set(userIndex, { newIdentifiers, refusals, ...people.apply(user, outcome) });
  }
  const users = batch.records.flatMap((record, index) =>
    usersOf(record, records[index] as PreparedRecord, effects, people),
  );
  return { users: users.sort((a, b) => a.userIndex - b.userIndex), pendingRequests: 0 };
}

function isStored(node: NodeNumber): boolean {
  return node < FIRST_PREDICTED_NODE;
}

function identifierOf({ type, raw }: MatchKey): PredictedIdentifier {
  return { type, value: raw };
}

/** What a user would change, if anything of it is stored. */
type Effect = Pick<
  PredictedUser,
  'newIdentifiers' | 'merges' | 'refusals' | 'propertyChanges' | 'propertyChangesOmitted'
>;

const NOTHING = {
  profileId: null,
  isNew: false,
  events: 0,
  duplicateOf: null,
  duplicateEvents: 0,
  newIdentifiers: [],
  merges: [],
  refusals: [],
  propertyChanges: [],
  propertyChangesOmitted: 0,
} as const;

function usersOf(
  record: RecordToStore,
  prepared: PreparedRecord,
  effects: ReadonlyMap<number, Effect>,
  people: PredictedPeople,
): PredictedUser[] {
  const notes = new Map(record.notes.map((note) => [note.userIndex, note]));
  const stored = new Map(record.users.map((user) => [user.origin.userIndex, user]));
  const accepted = prepared.users.map(({ origin: { userIndex } }): PredictedUser => {
    const note = notes.get(userIndex);
    const user = stored.get(userIndex);
    const node = user?.node ?? null;
    return {
      ...NOTHING,
      ...effects.get(userIndex),
      ...(node !== null && people.profileOf(node)),
      userIndex,
      status: 'accepted',
      events: user?.events.length ?? 0,
      duplicateOf: user === undefined ? record.duplicateOf : null,
      duplicateEvents: note?.duplicateEvents ?? 0,
      warnings: note?.warnings ?? [],
      message: null,
    };
  });
  const rejected = record.rejections.map(({ userIndex, message }): PredictedUser => {
    const warnings = notes.get(userIndex)?.warnings ?? [];
    return { ...NOTHING, userIndex, status: 'rejected', message, warnings };
  });
  return [...accepted, ...rejected];
}

interface PredictedPerson {
  readonly id: string;
  readonly isNew: boolean;
  readonly nodes: NodeNumber[];
  /** Properties of all nodes; null while they are unknown. */
  view: View | null;
}

/** The people that a request concerns, as they are after each of its users. */
class PredictedPeople {
  readonly #people = new Map<NodeNumber, PredictedPerson>();
  readonly #roots = new Map<NodeNumber, NodeNumber>();
  readonly #properties = new Map<NodeNumber, string | null>();
  /** Parsed, of nodes whose properties were needed. */
  readonly #groups = new Map<NodeNumber, readonly Group[]>();
  readonly #unread: ReadonlySet<NodeNumber>;
  #lengthLeft = PROPERTY_CHANGES_LENGTH_MAX;

  constructor(profiles: readonly ProfileNodes[], unread: ReadonlySet<NodeNumber>) {
    this.#unread = unread;
    for (const { root, nodes } of profiles) {
      const numbers = nodes.map(({ node }) => node);
      this.#people.set(root.node, { id: root.id, isNew: false, nodes: numbers, view: null });
      for (const { node, properties } of nodes) {
        this.#roots.set(node, root.node);
        this.#properties.set(node, properties);
      }
    }
  }

  create(node: NodeNumber, userIndex: number): void {
    this.#people.set(node, { id: `new:${userIndex}`, isNew: true, nodes: [node], view: null });
    this.#roots.set(node, node);
  }

  /** In the order of the users. */
  apply(
    user: UserToStore,
    { node, merges }: Outcome,
  ): Pick<Effect, 'merges' | 'propertyChanges' | 'propertyChangesOmitted'> {
    if (node === null) return { merges: [], propertyChanges: [], propertyChangesOmitted: 0 };
    if (user.propertyUpdate === null && merges.length === 0) {
      return { merges: [], propertyChanges: [], propertyChangesOmitted: 0 };
    }
    // The oldest survives: its properties are those to compare with.
    const root = merges.at(-1)?.into ?? this.#rootOf(node);
    const before = this.#isRead(root) ? this.#viewOf(root) : null;
    const named = merges.map(({ from, into, via }): PredictedMerge => {
      const ids = { from: this.#person(from).id, into: this.#person(into).id };
      this.#merge(from, into);
      return { ...ids, via: identifierOf(via) };
    });
    if (before === null || !this.#isRead(root)) {
      return { merges: named, propertyChanges: [], propertyChangesOmitted: namesIn(user) };
    }
    this.#groups.set(node, foldedGroups(this.#groupsOf(node), [user]));
    this.#person(root).view = null;
    return { merges: named, ...this.#listed(changesOf(before, this.#viewOf(root))) };
  }

  #isRead(root: NodeNumber): boolean {
    return this.#unread.size === 0 || !this.#person(root).nodes.some((node) => this.#unread.has(node));
  }

  /** After all users. */
  profileOf(node: NodeNumber): { readonly profileId: string; readonly isNew: boolean } {
    const { id, isNew } = this.#person(this.#rootOf(node));
    return { profileId: id, isNew };
  }

  #merge(from: NodeNumber, into: NodeNumber): void {
    const { nodes } = this.#person(from);
    for (const node of nodes) this.#roots.set(node, into);
    this.#person(into).nodes.push(...nodes);
    this.#people.delete(from);
  }

  #listed(changes: readonly PropertyChange[]): Pick<Effect, 'propertyChanges' | 'propertyChangesOmitted'> {
    const propertyChanges = changes.filter(({ name, before, after }) => {
      const length = name.length + (before?.length ?? 0) + (after?.length ?? 0);
      if (length > this.#lengthLeft) return false;
      this.#lengthLeft -= length;
      return true;
    });
    return { propertyChanges, propertyChangesOmitted: changes.length - propertyChanges.length };
  }

  #viewOf(root: NodeNumber): View {
    const person = this.#person(root);
    person.view ??= viewOf(person.nodes.map((node) => this.#groupsOf(node)));
    return person.view;
  }

  #groupsOf(node: NodeNumber): readonly Group[] {
    const known = this.#groups.get(node);
    if (known !== undefined) return known;
    const groups = groupsIn(this.#properties.get(node));
    this.#groups.set(node, groups);
    return groups;
  }

  #rootOf(node: NodeNumber): NodeNumber {
    return this.#roots.get(node) ?? node;
  }

  #person(root: NodeNumber): PredictedPerson {
    const person = this.#people.get(root);
    if (person === undefined) throw new Error(`node ${root} is not among those that were looked up`);
    return person;
  }
}

/** How many names the user sets. */
function namesIn({ propertyUpdate }: UserToStore): number {
  if (propertyUpdate === null) return 0;
  const texts = [propertyUpdate.fields, propertyUpdate.properties];
  return texts.reduce((sum, text) => sum + Object.keys(parseJson(text) as object).length, 0);
}

function changesOf(before: View, after: View): PropertyChange[] {
  return [
    ...changesOfKind('profile_fields', before.fields, after.fields),
    ...changesOfKind('user_properties', before.properties, after.properties),
  ];
}

type Values = ReadonlyMap<string, PropertyValue>;

function changesOfKind(kind: PropertyChange['kind'], before: Values, after: Values): PropertyChange[] {
  const changes: PropertyChange[] = [];
  for (const name of new Set([...before.keys(), ...after.keys()])) {
    const [was, is] = [before.get(name), after.get(name)];
    // The same value object: nothing has set it since.
    if (was?.value === is?.value) continue;
    const [textBefore, textAfter] = [jsonOf(was), jsonOf(is)];
    if (textBefore !== textAfter) changes.push({ kind, name, before: textBefore, after: textAfter });
  }
  return changes.sort((a, b) => (a.name < b.name ? -1 : 1));
}

function jsonOf(value: PropertyValue | undefined): string | null {
  return value === undefined ? null : JSON.stringify(value.value);
}
