/**
 * What is new in the catalogue: events, properties and types of the last days. Pure. On the first day of an account
 * everything is new and nothing is worth a mark, so only what came at least a day after the very first event counts.
 */

import type { Catalogue, CatalogueEvent, CatalogueProperty } from '../api-types.ts';
import { DAY_MS } from '../time-units.ts';

export const NEW_DAYS = 7;

export interface Change {
  readonly eventName: string;
  readonly kind: 'event' | 'property' | 'type';
  readonly property: string | null;
  readonly type: string | null;
  readonly at: string;
}

/** Whether something that was first seen at that time is new. */
export type IsNew = (firstSeen: string) => boolean;

export function newnessOf(events: readonly CatalogueEvent[], now: number): IsNew {
  const beginning = Math.min(...events.map(({ first_seen: at }) => Date.parse(at)));
  const since = Math.max(now - NEW_DAYS * DAY_MS, beginning + DAY_MS);
  return (firstSeen) => Date.parse(firstSeen) >= since;
}

/** Newest first. What came with a new event is not listed besides it. */
export function changesIn({ events }: Pick<Catalogue, 'events'>, isNew: IsNew): Change[] {
  const changes = events.flatMap((event): Change[] => {
    const { event_name: eventName, first_seen: firstSeen } = event;
    if (isNew(firstSeen)) return [{ eventName, kind: 'event', property: null, type: null, at: firstSeen }];
    return event.changes
      .filter(({ at }) => isNew(at))
      .map(({ property, type, at }) => ({ eventName, kind: type === null ? 'property' : 'type', property, type, at }));
  });
  return changes.sort((left, right) => Date.parse(right.at) - Date.parse(left.at));
}

/** What is new about a property of an event that is not new itself; a null now and then is not a change. */
export function propertyMark(property: CatalogueProperty, isNew: IsNew): 'new' | 'new type' | null {
  if (isNew(property.first_seen)) return 'new';
  return property.types.some(({ type, first_seen: at }) => type !== 'null' && isNew(at)) ? 'new type' : null;
}

/** Events of each day, oldest first, as the sparkline draws them. */
export function dailyCounts(
  buckets: readonly { readonly start: string; readonly event_name?: string | undefined; readonly events: number }[],
  days: readonly string[],
): ReadonlyMap<string, readonly number[]> {
  const counts = new Map<string, number[]>();
  for (const { start, event_name: name = '', events } of buckets) {
    const day = days.indexOf(start.slice(0, 'YYYY-MM-DD'.length));
    if (day === -1) continue;
    const ofName = counts.get(name) ?? days.map(() => 0);
    ofName[day] = (ofName[day] ?? 0) + events;
    counts.set(name, ofName);
  }
  return counts;
}

/** The last days in UTC, today last: `2026-11-16`. */
export function lastDays(now: number, count: number): string[] {
  return Array.from({ length: count }, (_, n) =>
    new Date(now - (count - 1 - n) * DAY_MS).toISOString().slice(0, 'YYYY-MM-DD'.length),
  );
}
