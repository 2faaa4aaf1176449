/**
 * Groups rows into chunks (migration/parts.ts) of a bounded size, and writes positions as text: a JSON array of the
 * values that a part is ordered by, bytes as `{"hex": …}`. A chunk contains at least one group of rows, however large
 * that is.
 */

import type { Chunk, ColumnKind, MigratedValue, PartName } from '../../../migration/parts.ts';
import { columnsOf } from '../../../migration/parts.ts';
import { uuidText } from '../uuids.ts';

export interface ChunkLimits {
  readonly rows: number;
  /** Of texts, in characters. */
  readonly length: number;
}

/** Large enough that a round trip costs little, small enough that chunks in flight fit the memory. */
export const CHUNK_LIMITS: ChunkLimits = { rows: 5_000, length: 8 * 1024 * 1024 };

/** Approximate size of a value that is not text. */
const VALUE_BYTES = 8;

/** What SQLite returns. */
export type StoredValue = number | bigint | string | Uint8Array | null;

export class ChunkBuilder {
  readonly #kinds: readonly ColumnKind[];
  readonly #limits: ChunkLimits;
  #columns: MigratedValue[][];
  #rows = 0;
  #bytes = 0;

  constructor(part: PartName, limits: ChunkLimits) {
    this.#kinds = columnsOf(part).map(([, kind]) => kind);
    this.#limits = limits;
    this.#columns = this.#kinds.map(() => []);
  }

  get isEmpty(): boolean {
    return this.#rows === 0;
  }

  get isFull(): boolean {
    return this.#rows >= this.#limits.rows || this.#bytes >= this.#limits.length;
  }

  /** Values after the last column are ignored. */
  add(row: readonly StoredValue[]): void {
    for (const [index, kind] of this.#kinds.entries()) {
      const value = migratedValue(row[index] ?? null, kind);
      this.#bytes += typeof value === 'string' ? value.length : VALUE_BYTES;
      this.#columns[index]?.push(value);
    }
    this.#rows += 1;
  }

  take(position: readonly StoredValue[]): Chunk {
    const chunk = {
      rows: this.#rows,
      columns: this.#columns,
      bytes: this.#bytes,
      position: JSON.stringify(position.map((value) => (value instanceof Uint8Array ? { hex: hexOf(value) } : value))),
    };
    this.#columns = this.#kinds.map(() => []);
    this.#rows = 0;
    this.#bytes = 0;
    return chunk;
  }
}

function migratedValue(value: StoredValue, kind: ColumnKind): MigratedValue {
  if (value === null || typeof value === 'bigint') return value === null ? null : Number(value);
  if (kind === 'uuid' && value instanceof Uint8Array) return uuidText(value);
  return value;
}

/** The values that the part is ordered by, of the last migrated row. */
export function positionIn(text: string): (number | string | Uint8Array)[] {
  const values = JSON.parse(text) as (number | string | { readonly hex: string })[];
  return values.map((value) => (typeof value === 'object' ? Buffer.from(value.hex, 'hex') : value));
}

function hexOf(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex');
}
