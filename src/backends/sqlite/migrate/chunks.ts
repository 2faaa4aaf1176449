/**
 * Groups rows into chunks (migration/parts.ts) of a bounded size, and writes positions as text: a JSON array of the
 * values that a part is ordered by, bytes as `{"hex": …}`. A chunk contains at least one group of rows, however large
 * that is.
 */

import { type Chunk, type ColumnKind, columnsOf, type MigratedValue, type PartName } from '../../../migration/parts.ts';
import { uuidText } from '../uuids.ts';

export interface ChunkLimits {
  readonly rows: number;
  /** Length of the texts, in characters. */
  readonly length: number;
}

/** Large enough that a round trip costs little, small enough that chunks in flight fit the memory. */
export const CHUNK_LIMITS: ChunkLimits = { rows: 5_000, length: 8 * 1024 * 1024 };

/** Approximate size of a value that is not text. */
const VALUE_BYTES = 8;

/** What SQLite returns. */
export type StoredValue = number | bigint | string | Uint8Array | null;

/** Rows that are migrated together, and the position behind them. Values after the last column are ignored. */
export interface RowGroup {
  readonly rows: readonly (readonly StoredValue[])[];
  readonly position: readonly StoredValue[];
}

export function* chunksOf(part: PartName, limits: ChunkLimits, groups: Iterable<RowGroup>): Generator<Chunk> {
  const kinds = columnsOf(part).map(([, kind]) => kind);
  const noRows = () => ({ rows: 0, bytes: 0, columns: kinds.map((): MigratedValue[] => []) });
  let chunk = noRows();
  let last: readonly StoredValue[] = [];
  for (const { rows, position } of groups) {
    for (const row of rows) {
      for (const [index, kind] of kinds.entries()) {
        const value = migratedValue(row[index] ?? null, kind);
        chunk.bytes += typeof value === 'string' ? value.length : VALUE_BYTES;
        chunk.columns[index]?.push(value);
      }
      chunk.rows += 1;
    }
    last = position;
    if (chunk.rows < limits.rows && chunk.bytes < limits.length) continue;
    yield { ...chunk, position: positionText(last) };
    chunk = noRows();
  }
  if (chunk.rows > 0) yield { ...chunk, position: positionText(last) };
}

function migratedValue(value: StoredValue, kind: ColumnKind): MigratedValue {
  if (value === null || typeof value === 'bigint') return value === null ? null : Number(value);
  if (kind === 'uuid' && value instanceof Uint8Array) return uuidText(value);
  return value;
}

function positionText(position: readonly StoredValue[]): string {
  return JSON.stringify(position.map((value) => (value instanceof Uint8Array ? { hex: value.toHex() } : value)));
}

/** The values that the part is ordered by, of the last migrated row. */
export function positionIn(text: string): (number | string | Uint8Array)[] {
  const values = JSON.parse(text) as (number | string | { readonly hex: string })[];
  return values.map((value) => (typeof value === 'object' ? Buffer.from(value.hex, 'hex') : value));
}
