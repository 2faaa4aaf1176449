/**
 * Earlier uses of the event ids of a batch (`EventIdUses`), made from a lookup by id. Pure. For a store that looks ids
 * up as texts.
 */

import type { EventIdUses } from '../../store-writer.ts';

export function eventIdUsesOf(ids: readonly string[], usedAt: (id: string) => number | undefined): EventIdUses {
  const indexes = new Map<string, number>();
  const firstIndexes = new Int32Array(ids.length);
  const times = new Float64Array(ids.length);
  for (const [index, id] of ids.entries()) {
    const first = indexes.get(id);
    if (first === undefined) indexes.set(id, index);
    firstIndexes[index] = first ?? index;
    times[index] = usedAt(id) ?? Number.NaN;
  }
  return { firstIndexes, usedAt: times };
}
