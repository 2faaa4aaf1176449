/**
 * The memtable of profile deltas: what a transaction adds to nodes, until it is written as a run
 * (store/profile-runs.ts); each node once. There are tens of thousands of them for a second or more; as objects and
 * texts, copying them would cause most of the garbage collector's work. So numbers are in columns, and texts as UTF-8
 * in one piece of memory, where a replaced text stays until all are cleared.
 */

import type { ByteColumn } from '../../../columnar/byte-column.ts';
import type { Rows } from '../../../columnar/column-block.ts';
import type { NodeNumber } from '../../../model.ts';
import type { Sum } from '../../../views/node-properties.ts';
import { combineProfiles, PROFILE_RUNS } from './profile-runs.ts';
import { NO_SHAPE } from './shape-hash.ts';
import { RowsToWrite } from '../sorted-runs/entries.ts';

/** The properties set for a node, as text (identity/property-updates.ts). */
export interface PropertyUpdate {
  readonly text: string;
  /** For a single update: which names it set (store/shape-hash.ts), and when it was received. Else NO_SHAPE. */
  readonly shape: number;
  readonly writtenAt: number;
}

const COLUMNS = PROFILE_RUNS.keyColumns + PROFILE_RUNS.valueColumns;
const FIRST_NODES = 65_536;

export class ProfileMemtable {
  readonly #rowOf = new Map<NodeNumber, number>();
  readonly #rows = new RowsToWrite(COLUMNS, true, FIRST_NODES);
  readonly #bytes = this.#rows.bytes as ByteColumn;

  get count(): number {
    return this.#rows.count;
  }

  /** Of all texts, including replaced ones. */
  get textBytes(): number {
    return this.#bytes.bytesUsed;
  }

  /** Valid until the next change. */
  get rows(): Rows {
    return this.#rows;
  }

  add(node: NodeNumber, { events, first, last }: Sum, update: PropertyUpdate | null): void {
    const shape = update?.shape ?? NO_SHAPE;
    const writtenAt = update === null || shape === NO_SHAPE ? last : update.writtenAt;
    const rows = this.#rows;
    rows.addText([node, events, first, last, writtenAt, shape], update?.text ?? '');
    const row = this.#rowOf.get(node);
    if (row === undefined) {
      this.#rowOf.set(node, rows.count - 1);
      return;
    }
    combineProfiles(rows, row, rows.count - 1);
    rows.removeLast();
  }

  clear(): void {
    this.#rowOf.clear();
    this.#rows.clear();
  }
}
