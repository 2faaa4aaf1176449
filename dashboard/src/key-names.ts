/**
 * Which of several keys of one name is which. A rolled key keeps its name, so while both work there are two of it. Pure.
 */

import type { Key } from './api-types.ts';

type Named = Pick<Key, 'id' | 'name' | 'kind' | 'environment' | 'created_at' | 'state'>;

/** Words by id of a key, for active keys that share name, kind and environment with another active one. */
export function sameNames(keys: readonly Named[]): Map<string, string> {
  const words = new Map<string, string>();
  const active = keys.filter(({ state }) => state === 'active');
  const groups = Map.groupBy(active, ({ name, kind, environment }) => JSON.stringify([name, kind, environment]));
  for (const group of groups.values()) {
    if (group.length < 2) continue;
    const newestFirst = group.toSorted((left, right) => Date.parse(right.created_at) - Date.parse(left.created_at));
    for (const [index, { id }] of newestFirst.entries()) {
      const place = index === 0 ? 'newest' : index === newestFirst.length - 1 ? 'oldest' : 'older one';
      words.set(id, `${place} of ${newestFirst.length} with this name`);
    }
  }
  return words;
}
