/**
 * Computes what the users of a batch change on their nodes: the number of events, first and last seen, and property
 * updates, merged into the stored ones (identity/property-updates.ts) and written as text. Pure; every store writes the
 * same text. Its length is limited: the properties set longest ago are dropped first.
 */

import { type Group, applyUpdates, type Values } from '../identity/property-updates.ts';
import { LIMITS, type NodeNumber, type Origin } from '../model.ts';
import type { PropertyUpdateToStore, UserToStore } from '../store-writer.ts';
import { parseExact } from '../json/exact-numbers.ts';

export type Visits = Map<NodeNumber, UserToStore[]>;

export function addVisit(visits: Visits, node: NodeNumber, user: UserToStore): void {
  visits.getOrInsertComputed(node, () => []).push(user);
}

const NOTHING: Values = {};
export const NO_GROUPS: readonly Group[] = [];
/** As much as a request may bring, so that the newest update always fits. */
const TEXT_LENGTH_MAX = LIMITS.bodyBytesMax;

export interface Sum {
  readonly events: number;
  readonly first: number;
  readonly last: number;
}

export function sumOf(visits: readonly UserToStore[]): Sum {
  let events = 0;
  let first = Number.POSITIVE_INFINITY;
  let last = Number.NEGATIVE_INFINITY;
  for (const { origin, events: more } of visits) {
    events += more.length;
    if (origin.receivedAt < first) first = origin.receivedAt;
    if (origin.receivedAt > last) last = origin.receivedAt;
  }
  return { events, first, last };
}

/** As it is stored; null is nothing. */
export function groupsIn(text: string | null | undefined): readonly Group[] {
  return typeof text === 'string' ? (parseExact(text) as readonly Group[]) : NO_GROUPS;
}

export function foldedGroups(before: readonly Group[], visits: readonly UserToStore[]): readonly Group[] {
  const updates = [];
  for (const { origin, propertyUpdate } of visits) {
    if (propertyUpdate === null) continue;
    updates.push({ origin, fields: valuesOf(propertyUpdate.fields), properties: valuesOf(propertyUpdate.properties) });
  }
  return updates.length === 0 ? before : applyUpdates(before, updates);
}

function valuesOf(text: string): Values {
  return text === '{}' ? NOTHING : (parseExact(text) as Values);
}

/** The text for a single update, as `boundedText` would write it. */
export function groupsText(
  { receivedAt, traceId, userIndex }: Origin,
  { fields, properties }: PropertyUpdateToStore,
): string {
  return `[[${receivedAt},"${traceId}",${userIndex},${fields},${properties}]]`;
}

/** The text to store; null for nothing. Values may be large: what was set longest ago is dropped first. */
export function boundedText(groups: readonly Group[]): string | null {
  if (groups.length === 0) return null;
  for (let count = groups.length; ; count--) {
    const text = JSON.stringify(groups.slice(0, count));
    if (text.length <= TEXT_LENGTH_MAX || count === 1) return text;
  }
}

/** Two stored texts of one node merged, in either order: of each name the newest origin counts. */
export function mergedGroups(a: string, b: string): string {
  const updates = groupsIn(b).map(([receivedAt, traceId, userIndex, fields, properties]) => {
    return { origin: { receivedAt, traceId, userIndex }, fields, properties };
  });
  return boundedText(applyUpdates(groupsIn(a), updates)) ?? a;
}
