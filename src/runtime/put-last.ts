/**
 * A map as a bounded cache: beyond `max`, the least recently put entry is dropped.
 */

export function putLast<Key, Value>(map: Map<Key, Value>, key: Key, value: Value, max: number): void {
  map.delete(key);
  map.set(key, value);
  if (map.size <= max) return;
  const first = map.keys().next();
  if (first.done !== true) map.delete(first.value);
}
