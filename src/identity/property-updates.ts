/**
 * The properties of a person: profile fields (rule 12) and user_properties, each name with the value of its newest
 * origin (rule 11). A node keeps its property updates as groups, one per origin that still sets a name (rule 13), so a
 * profile's view is a fold over its nodes and an unmerge is exact.
 *
 * Invariants of a node's groups: newest first; a name is in one group at most, per kind; no group is empty; a deleted
 * property stays as null, so that an older value does not come back. Names are the client's and may be `__proto__`:
 * objects are made by `Object.fromEntries` alone, which makes that a member like any other.
 */

import { IDENTIFIER_TYPES, type IdentifierType, LIMITS, type Origin } from '../model.ts';
import { compareOrigins } from './origin.ts';

export type Values = Readonly<Record<string, unknown>>;

/** What one user set and nothing newer has replaced; a tuple, to be short as JSON. */
export type Group = readonly [
  receivedAt: number,
  traceId: string,
  userIndex: number,
  fields: Values,
  properties: Values,
];

interface PropertyUpdate {
  readonly fields: Values;
  readonly properties: Values;
}

/** A value, and the request that set it. */
export interface PropertyValue {
  readonly value: unknown;
  readonly origin: Origin;
}

export interface View {
  readonly fields: Map<string, PropertyValue>;
  readonly properties: Map<string, PropertyValue>;
}

const NOTHING: Values = Object.freeze({});

/** Rule 12: every member of `identifiers` but the four that identify a person is a profile field; null is absent. */
export function propertyUpdateOf(identifiers: Values, userProperties: Values | null | undefined): PropertyUpdate {
  let hasFields = false;
  for (const name in identifiers) hasFields ||= isField(name, identifiers[name]);
  const fields = hasFields ? selected(identifiers, isField) : NOTHING;
  return { fields, properties: userProperties ?? NOTHING };
}

function isField(name: string, value: unknown): boolean {
  return value !== null && value !== undefined && !IDENTIFIER_TYPES.includes(name as IdentifierType);
}

/**
 * The groups after more updates, in one pass over all names; the same array if they change nothing. `null` deletes a
 * property. A node keeps `namesPerNodeMax` names of each kind and `deletionsPerNodeMax` deletions; beyond that, those
 * set or deleted longest ago are dropped.
 */
export function applyUpdates(
  groups: readonly Group[],
  updates: readonly (PropertyUpdate & { origin: Origin })[],
): readonly Group[] {
  const added = updates.map(
    ({ origin, fields, properties }): Group => [
      origin.receivedAt,
      origin.traceId,
      origin.userIndex,
      withoutNulls(fields),
      properties,
    ],
  );
  // Stable: of two with the same origin, the stored one comes first.
  const all = [...groups, ...added].sort((a, b) => compareOrigins(originOf(b), originOf(a)));
  const fieldsSeen = noneSeen();
  const propertiesSeen = noneSeen();
  const result: Group[] = [];
  let before: Group | undefined;
  for (const group of all) {
    const isRepeat = before !== undefined && compareOrigins(originOf(before), originOf(group)) === 0;
    before = group;
    if (isRepeat) continue;
    const rest = unseen(group, fieldsSeen, propertiesSeen);
    if (!isEmpty(rest)) result.push(rest);
  }
  const isSame = result.length === groups.length && result.every((group, index) => group === groups[index]);
  return isSame ? groups : result;
}

/** The names of one kind in the groups so far. */
interface SeenNames {
  readonly all: Set<string>;
  set: number;
  deleted: number;
}

function noneSeen(): SeenNames {
  return { all: new Set(), set: 0, deleted: 0 };
}

/** The group without names that newer ones have, and beyond the limits; the same object if it keeps all. */
function unseen(group: Group, fieldsSeen: SeenNames, propertiesSeen: SeenNames): Group {
  const [receivedAt, traceId, userIndex, fields, properties] = group;
  const newFields = unseenValues(fields, fieldsSeen);
  const newProperties = unseenValues(properties, propertiesSeen);
  if (newFields === fields && newProperties === properties) return group;
  return [receivedAt, traceId, userIndex, newFields, newProperties];
}

function unseenValues(values: Values, seen: SeenNames): Values {
  let names = 0;
  const kept = new Set<string>();
  for (const name in values) {
    names++;
    if (seen.all.has(name)) continue;
    seen.all.add(name);
    if (countIfRoom(values[name], seen)) kept.add(name);
  }
  if (kept.size === names) return values;
  return kept.size === 0 ? NOTHING : selected(values, (name) => kept.has(name));
}

/** Deletions have a limit of their own, so that they displace no value. */
function countIfRoom(value: unknown, seen: SeenNames): boolean {
  return value === null ? seen.deleted++ < LIMITS.deletionsPerNodeMax : seen.set++ < LIMITS.namesPerNodeMax;
}

/** Rule 13: the properties of all nodes of a profile together, names in order. */
export function viewOf(nodes: Iterable<readonly Group[]>): View {
  const fields = new Map<string, PropertyValue>();
  const properties = new Map<string, PropertyValue>();
  for (const groups of nodes) {
    for (const group of groups) {
      keepNewest(fields, group[3], originOf(group));
      keepNewest(properties, group[4], originOf(group));
    }
  }
  return { fields: presented(fields), properties: presented(properties) };
}

function keepNewest(found: Map<string, PropertyValue>, values: Values, origin: Origin): void {
  for (const name in values) {
    const before = found.get(name);
    if (before === undefined || compareOrigins(before.origin, origin) < 0) {
      found.set(name, { value: values[name], origin });
    }
  }
}

/** Without what was deleted, and in an order that does not depend on the order of nodes. */
function presented(found: ReadonlyMap<string, PropertyValue>): Map<string, PropertyValue> {
  const entries = [...found].filter(([, { value }]) => value !== null);
  return new Map(entries.sort(([a], [b]) => (a < b ? -1 : 1)));
}

function originOf([receivedAt, traceId, userIndex]: Group): Origin {
  return { receivedAt, traceId, userIndex };
}

function isEmpty([, , , fields, properties]: Group): boolean {
  return hasNoNames(fields) && hasNoNames(properties);
}

function hasNoNames(values: Values): boolean {
  for (const _name in values) return false;
  return true;
}

function withoutNulls(fields: Values): Values {
  for (const name in fields) {
    if (fields[name] === null || fields[name] === undefined) {
      return selected(fields, (_name, value) => value !== null && value !== undefined);
    }
  }
  return fields;
}

function selected(values: Values, isWanted: (name: string, value: unknown) => boolean): Values {
  return Object.fromEntries(Object.entries(values).filter(([name, value]) => isWanted(name, value)));
}
