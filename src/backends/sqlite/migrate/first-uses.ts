/**
 * First uses for a migration (migration/parts.ts), in the order of their hashes. The secret of the hashes is migrated,
 * too, so the target finds them.
 */

import type { PartName } from '../../../migration/parts.ts';
import { EVENT_IDS, IDEMPOTENCY_KEYS, keyUseOf } from '../store/first-uses.ts';
import { positionIn, type RowGroup, type StoredValue } from './chunks.ts';
import type { Entry } from '../sorted-runs/entries.ts';
import type { StoreConnection } from '../store/connection.ts';
import { uuidBytes } from '../uuids.ts';

export type FirstUsesPart = 'idempotency_keys' | 'event_ids';

const SHAPES = { idempotency_keys: IDEMPOTENCY_KEYS, event_ids: EVENT_IDS } as const;
const LOWEST = [Number.MIN_SAFE_INTEGER];

export function isFirstUses(part: PartName): part is FirstUsesPart {
  return Object.hasOwn(SHAPES, part);
}

export function countFirstUses(store: StoreConnection, part: FirstUsesPart): number {
  let count = 0;
  for (const _ of store.runs(SHAPES[part]).all(LOWEST)) count += 1;
  return count;
}

export function* firstUses(store: StoreConnection, part: FirstUsesPart, after: string | null): Generator<RowGroup> {
  const [hash = 0, rest = 0] = after === null ? [] : positionIn(after).map(Number);
  for (const entry of store.runs(SHAPES[part]).all(after === null ? LOWEST : [hash, rest + 1])) {
    yield { rows: [rowOf(part, entry)], position: entry.key };
  }
}

/** In the order of MIGRATED_PARTS. */
function rowOf(part: FirstUsesPart, entry: Entry): StoredValue[] {
  const [hash = 0, rest = 0] = entry.key;
  if (part === 'event_ids') return [hash, rest, entry.values[0] as number];
  const { receivedAt, traceId, bodyHash } = keyUseOf(entry);
  return [hash, rest, receivedAt, uuidBytes(traceId), bodyHash];
}
