/**
 * What a transaction adds to nodes, until it is put as a run (store/profile-runs.ts): each node once. There are tens of
 * thousands of them for a second or more; as objects and texts, copying them about was most of what the garbage collector
 * did. So numbers lie in columns, and texts as UTF-8 in one piece of memory, where a text that was replaced stays until
 * all are cleared.
 */

import type { ByteColumn } from '../../../columnar/byte-column.ts';
import type { Rows } from '../../../columnar/column-block.ts';
import type { NodeNumber } from '../../../model.ts';
import type { Sum } from '../../../views/node-properties.ts';
import { combineProfiles, PROFILE_RUNS } from './profile-runs.ts';
import { NO_SHAPE } from './shape-hash.ts';
import { RowsToWrite } from '../sorted-runs/entries.ts';

/** What was set of a node, as text (identity/property-updates.ts). */
export interface PropertyUpdate {
  readonly text: string;
  /** Where it is one update: which names it set (store/shape-hash.ts), and when it was received. Else NO_SHAPE. */
  readonly shape: number;
  readonly writtenAt: number;
}

const COLUMNS = PROFILE_RUNS.keyColumns + PROFILE_RUNS.valueColumns;
const FIRST_NODES = 65_536;

export class ProfileMemtable {
  readonly #places = new Map<NodeNumber, number>();
  readonly #rows = new RowsToWrite(COLUMNS, true, FIRST_NODES);
  readonly #bytes = this.#rows.bytes as ByteColumn;

  get count(): number {
    return this.#rows.count;
  }

  /** Of all texts, those that were replaced among them. */
  get textBytes(): number {
    return this.#bytes.bytesUsed;
  }

  /** Good until the next change. */
  get rows(): Rows {
    return this.#rows;
  }

  add(node: NodeNumber, { events, first, last }: Sum, update: PropertyUpdate | null): void {
    const shape = update?.shape ?? NO_SHAPE;
    const writtenAt = update === null || shape === NO_SHAPE ? last : update.writtenAt;
    const rows = this.#rows;
    rows.addText([node, events, first, last, writtenAt, shape], update?.text ?? '');
    const place = this.#places.get(node);
    if (place === undefined) {
      this.#places.set(node, rows.count - 1);
      return;
    }
    combineProfiles(rows, place, rows.count - 1);
    rows.removeLast();
  }

  clear(): void {
    this.#places.clear();
    this.#rows.clear();
  }
}
