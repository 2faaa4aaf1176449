/**
 * Builds a profile, and the explanation why it is one person, from the rows of its nodes. A profile is the combination
 * of its nodes (rule 13), computed at every read, so a merge has nothing to keep in sync. Pure: stores read the rows,
 * at most 100 nodes per profile, all from one snapshot.
 */

import { compareOrigins } from '../identity/origin.ts';
import { type PropertyValue, viewOf } from '../identity/property-updates.ts';
import { IDENTIFIER_TYPES, type IdentifierType, type NodeNumber, type NormalisedKey, type Origin } from '../model.ts';
import type { Cause, Provenance, StoredIdentity, StoredPerson, StoredProfile, StoredRefusal } from '../store.ts';
import { groupsIn } from './node-properties.ts';

export interface ProfileNode {
  readonly node: NodeNumber;
  /** Public. */
  readonly id: string;
  readonly origin: Origin;
  readonly events: number;
  readonly firstSeen: number;
  readonly lastSeen: number;
  /** Groups (identity/property-updates.ts) as JSON; null for none. */
  readonly properties: string | null;
}

export interface ProfileNodes {
  readonly root: ProfileNode;
  /** All of them, the root among them, oldest first. */
  readonly nodes: readonly ProfileNode[];
}

export interface IdentifierRow {
  readonly type: IdentifierType;
  readonly value: string;
  /** As the client first wrote it; null where that is `value`. */
  readonly raw: string | null;
  readonly node: NodeNumber;
  readonly origin: Origin;
}

export interface MergeRow {
  /** Grows in the order of the log. */
  readonly no: number;
  /** The ends of the edge. */
  readonly nodes: readonly [NodeNumber, NodeNumber];
  readonly from: NodeNumber;
  readonly into: NodeNumber;
  readonly via: NormalisedKey;
  readonly origin: Origin;
}

export interface RefusalRow {
  readonly type: IdentifierType;
  readonly raw: string;
  readonly reason: StoredRefusal['reason'];
  readonly origin: Origin;
  readonly lastAt: number;
  readonly count: number;
}

/** `nodes` may be in any order. */
export function profileNodes(rootNo: NodeNumber, nodes: readonly ProfileNode[]): ProfileNodes {
  const root = nodes.find(({ node }) => node === rootNo);
  if (root === undefined) throw new Error(`node ${rootNo} has aliases and is not in the store`);
  return { root, nodes: oldestFirst(nodes) };
}

/** Rows of one origin stay in the order in which they came. */
export function oldestFirst<Row extends { readonly origin: Origin }>(rows: readonly Row[]): Row[] {
  return rows.toSorted((a, b) => compareOrigins(a.origin, b.origin));
}

/** `identifiers` oldest first. */
export function storedProfile({ root, nodes }: ProfileNodes, identifiers: readonly IdentifierRow[]): StoredProfile {
  const { fields, properties } = viewOfNodes(nodes);
  return {
    id: root.id,
    mergedIds: nodes.filter(({ node }) => node !== root.node).map(({ id }) => id),
    identifiers: identifiersByType(identifiers),
    profileFields: provenances(fields),
    userProperties: provenances(properties),
    firstSeen: Math.min(...nodes.map(({ firstSeen }) => firstSeen)),
    lastSeen: Math.max(...nodes.map(({ lastSeen }) => lastSeen)),
    eventCount: nodes.reduce((sum, { events }) => sum + events, 0),
  };
}

function viewOfNodes(nodes: readonly ProfileNode[]): ReturnType<typeof viewOf> {
  return viewOf(nodes.map(({ properties }) => groupsIn(properties)));
}

/** Identifiers as the clients wrote them, in the order of the rows, at most `countMax` of each type. */
function identifiersByType(
  rows: readonly IdentifierRow[],
  countMax = Number.POSITIVE_INFINITY,
): StoredProfile['identifiers'] {
  const ofType = (type: IdentifierType): string[] => {
    const own = rows.filter((row) => row.type === type).slice(0, countMax);
    return own.map(({ raw, value }) => raw ?? value);
  };
  return Object.fromEntries(IDENTIFIER_TYPES.map((type) => [type, ofType(type)])) as Record<IdentifierType, string[]>;
}

function provenances(values: ReadonlyMap<string, PropertyValue>): Map<string, Provenance> {
  const entries = [...values].map(([name, { value, origin }]): [string, Provenance] => [
    name,
    { value: JSON.stringify(value), traceId: origin.traceId, receivedAt: origin.receivedAt },
  ]);
  return new Map(entries.sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** All rows oldest first. */
interface IdentityRows {
  readonly identifiers: readonly IdentifierRow[];
  readonly merges: readonly MergeRow[];
  readonly refusals: readonly RefusalRow[];
  /** The public id of any node; undefined for one that was erased. */
  publicId(node: NodeNumber): string | undefined;
}

/** Rule 15: every link, merge and refusal of the profile with the request that caused it, oldest first. */
export function storedIdentity({ root, nodes }: ProfileNodes, rows: IdentityRows): StoredIdentity {
  const ids = new Map(nodes.map(({ node, id }) => [node, id]));
  // The root of that merge may belong to another profile by now (after an unmerge), and may have been erased with
  // it.
  const idOf = (node: NodeNumber): string => ids.get(node) ?? rows.publicId(node) ?? root.id;
  return {
    id: root.id,
    identifiers: rows.identifiers.map(({ type, value, raw, node, origin }) => ({
      type,
      value: raw ?? value,
      normalised: value,
      nodeId: idOf(node),
      ...causeOf(origin),
    })),
    merges: rows.merges.map(({ from, into, nodes: [a, b], via, origin }) => ({
      from: idOf(from),
      into: idOf(into),
      nodes: [idOf(a), idOf(b)],
      via,
      ...causeOf(origin),
    })),
    refusals: rows.refusals.map(({ type, raw: value, reason, origin, lastAt, count }) => ({
      type,
      value,
      reason,
      ...causeOf(origin),
      lastAt,
      count,
    })),
  };
}

function causeOf({ receivedAt, traceId, userIndex }: Origin): Cause {
  return { traceId, userIndex, at: receivedAt };
}

/** Types are stored as their index in IDENTIFIER_TYPES. */
export function identifierTypeOf(no: number): IdentifierType {
  const type = IDENTIFIER_TYPES[no];
  if (type === undefined) throw new Error(`there is no type of identifier ${no}`);
  return type;
}

/** Stores omit longer properties of a node, in bytes: those of hundreds of people would fill the memory. */
export const NAMED_BYTES_MAX = 65_536;
const NAME_CHARACTERS_MAX = 200;
const IDENTIFIERS_PER_TYPE_MAX = 3;

/**
 * The name of a person next to an event or in a trace: the name in the profile fields and a few identifiers, given
 * oldest first. Clients choose what the fields contain: only texts count, and long ones are cut.
 */
export function storedPerson({ root, nodes }: ProfileNodes, identifiers: readonly IdentifierRow[]): StoredPerson {
  const { fields } = viewOfNodes(nodes);
  return {
    id: root.id,
    name: nameOf((name) => fields.get(name)?.value),
    identifiers: identifiersByType(identifiers, IDENTIFIERS_PER_TYPE_MAX),
  };
}

function nameOf(field: (name: string) => unknown): string | null {
  const text = (name: string): string => {
    const value = field(name);
    return typeof value === 'string' ? value.trim() : '';
  };
  const firstAndLast = `${text('first_name')} ${text('last_name')}`.trim();
  const name = [firstAndLast, text('name'), text('full_name')].find((one) => one !== '');
  return name === undefined ? null : Array.from(name).slice(0, NAME_CHARACTERS_MAX).join('');
}
