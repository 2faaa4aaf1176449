/**
 * What is said of a person: profile fields (rule 12) and user_properties, each name with the value of its newest
 * origin (rule 11). A node keeps what was said on it as groups, one per origin that still has something to say
 * (rule 13), so a profile's view is a fold over its nodes and an unmerge is exact.
 *
 * Invariants of a node's groups: newest first; a name is in one group at most, per kind; no group is empty; a deleted
 * property stays as null, so that an older value does not come back. Names are the client's and may be `__proto__`:
 * objects are made by `Object.fromEntries` alone, which makes that a member like any other.
 */

import { IDENTIFIER_TYPES, type IdentifierType, type Origin } from '../model.ts';
import { compareOrigins } from './origin.ts';

export type Values = Readonly<Record<string, unknown>>;

/** What one user said of a person, as far as nothing newer was said; a tuple, to be short as JSON. */
export type Group = readonly [
  receivedAt: number,
  traceId: string,
  userIndex: number,
  fields: Values,
  properties: Values,
];

export interface Statement {
  readonly fields: Values;
  readonly properties: Values;
}

/** A value, and who said so. */
export interface Told {
  readonly value: unknown;
  readonly origin: Origin;
}

export interface View {
  readonly fields: Map<string, Told>;
  readonly properties: Map<string, Told>;
}

const NOTHING: Values = Object.freeze({});

/** Rule 12: every member of `identifiers` but the four that name a person is a profile field; null is absent. */
export function statementOf(identifiers: Values, userProperties: Values | null | undefined): Statement {
  let hasFields = false;
  for (const name in identifiers) hasFields ||= isField(name, identifiers[name]);
  const fields = hasFields ? selected(identifiers, isField) : NOTHING;
  return { fields, properties: userProperties ?? NOTHING };
}

function isField(name: string, value: unknown): boolean {
  return value !== null && value !== undefined && !IDENTIFIER_TYPES.includes(name as IdentifierType);
}

/** What a node knows after one more statement; the same array if that says nothing new. `null` deletes a property. */
export function state(known: readonly Group[], origin: Origin, fields: Values, properties: Values): readonly Group[] {
  const said: Group = [origin.receivedAt, origin.traceId, origin.userIndex, withoutNulls(fields), properties];
  if (isEmpty(said)) return known;
  const place = known.findIndex((group) => compareOrigins(originOf(group), origin) <= 0);
  const [newer, older] = place < 0 ? [known, []] : [known.slice(0, place), known.slice(place)];
  const first = older[0];
  if (first !== undefined && compareOrigins(originOf(first), origin) === 0) return known;
  const left = newer.reduce(without, said);
  if (isEmpty(left)) return known;
  const result = [...newer, left];
  for (const group of older) {
    const rest = without(group, left);
    if (!isEmpty(rest)) result.push(rest);
  }
  return result;
}

/** Rule 13: what all nodes of a profile say together, names in order. */
export function view(nodes: Iterable<readonly Group[]>): View {
  const fields = new Map<string, Told>();
  const properties = new Map<string, Told>();
  for (const groups of nodes) {
    for (const group of groups) {
      tell(fields, group[3], originOf(group));
      tell(properties, group[4], originOf(group));
    }
  }
  return { fields: presented(fields), properties: presented(properties) };
}

function tell(told: Map<string, Told>, values: Values, origin: Origin): void {
  for (const name in values) {
    const before = told.get(name);
    if (before === undefined || compareOrigins(before.origin, origin) < 0) {
      told.set(name, { value: values[name], origin });
    }
  }
}

/** Without what was deleted, and in an order that does not depend on the order of nodes. */
function presented(told: ReadonlyMap<string, Told>): Map<string, Told> {
  const entries = [...told].filter(([, { value }]) => value !== null);
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

/** The group without the names that another one has. */
function without(group: Group, other: Group): Group {
  const [receivedAt, traceId, userIndex, fields, properties] = group;
  const [, , , otherFields, otherProperties] = other;
  return [receivedAt, traceId, userIndex, less(fields, otherFields), less(properties, otherProperties)];
}

/** The same object if there is nothing to take away. */
function less(values: Values, others: Values): Values {
  let shared = 0;
  let names = 0;
  for (const name in values) {
    names++;
    if (Object.hasOwn(others, name)) shared++;
  }
  if (shared === 0) return values;
  return shared === names ? NOTHING : selected(values, (name) => !Object.hasOwn(others, name));
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
