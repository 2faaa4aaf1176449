/**
 * Rows of integers as bytes, column after column. Each column is stored as its smallest value and, for every row, the
 * difference to it, all in as few bytes as the largest of the column needs (frame of reference): a column of equal
 * values takes no space, and any row can be read without decoding the others. Pure.
 *
 * Values are safe integers, and those of one column differ by less than 2^53. Rows may have bytes of their own, which
 * follow the columns.
 *
 *   rows: 2 bytes │ for each column: minimum: 8 bytes, width: 1 byte │ the columns │ the rows' own bytes
 */

import type { ByteColumn } from './byte-column.ts';

export interface Rows {
  /** All of one length; only the first `count` values are used. */
  readonly columns: readonly Float64Array[];
  /** A row's own bytes; null where rows have none. */
  readonly bytes: ByteColumn | null;
  readonly count: number;
}

export const NO_BYTES = new Uint8Array();
const COUNT_BYTES = 2;
const HEADER_BYTES = 9;
const WORD = 2 ** 32;
const WORD_BYTES = 4;
/** Bytes of a number below 2^53. */
const WIDTH_MAX = 7;

/**
 * `order` says which rows from `start` to `end`, and in which order. The bytes are overwritten by the next call: most are
 * copied into a database at once, and memory of its own for each costs more than the packing.
 */
export function encodeBlock(rows: Rows, order: Uint32Array, start: number, end: number): Uint8Array {
  const count = end - start;
  const stored = rows.bytes === null ? rows.columns.length : rows.columns.length + 1;
  const values = gathered.length < count ? (gathered = new Float64Array(count)) : gathered;
  let at = COUNT_BYTES + stored * HEADER_BYTES;
  reserve(at + stored * count * WIDTH_MAX);
  view.setUint16(0, count, true);
  for (let column = 0; column < stored; column++) {
    const source = rows.columns[column];
    if (source === undefined) gatherEnds(rows.bytes as ByteColumn, order, start, values, count);
    else for (let row = 0; row < count; row++) values[row] = source[order[start + row] as number] as number;
    let least = Number.POSITIVE_INFINITY;
    let greatest = Number.NEGATIVE_INFINITY;
    for (let row = 0; row < count; row++) {
      const value = values[row] as number;
      if (value < least) least = value;
      if (value > greatest) greatest = value;
    }
    const width = widthOf(greatest - least);
    const header = COUNT_BYTES + column * HEADER_BYTES;
    view.setFloat64(header, least, true);
    block[header + 8] = width;
    putColumn(values, count, least, width, at);
    at += width * count;
  }
  if (rows.bytes !== null) {
    reserve(at + (values[count - 1] as number));
    for (let row = start; row < end; row++) {
      const own = rows.bytes.get(order[row] as number);
      block.set(own, at);
      at += own.length;
    }
  }
  return block.subarray(0, at);
}

/** Values of one column, in the order of their rows. */
let gathered = new Float64Array(0);
let block = new Uint8Array(0);
let view = new DataView(block.buffer);

/** Makes room for so many bytes; what was put stays. */
function reserve(length: number): void {
  if (block.length >= length) return;
  const larger = new Uint8Array(2 * length);
  larger.set(block);
  block = larger;
  view = new DataView(block.buffer);
}

/** Where the bytes of each row end, in the given order. */
function gatherEnds(bytes: ByteColumn, order: Uint32Array, start: number, into: Float64Array, count: number): void {
  let sum = 0;
  for (let row = 0; row < count; row++) {
    sum += bytes.length(order[start + row] as number);
    into[row] = sum;
  }
}

/** Lowest byte first. */
function putColumn(values: Float64Array, count: number, base: number, width: number, start: number): void {
  const bytes = block;
  let at = start;
  for (let row = 0; row < count; row++) {
    const value = (values[row] as number) - base;
    let low = value >>> 0;
    const lowEnd = at + (width < WORD_BYTES ? width : WORD_BYTES);
    for (let n = at; n < lowEnd; n++) {
      bytes[n] = low;
      low >>>= 8;
    }
    if (width > WORD_BYTES) {
      let high = (value - (value >>> 0)) / WORD;
      for (let n = lowEnd; n < at + width; n++) {
        bytes[n] = high;
        high >>>= 8;
      }
    }
    at += width;
  }
}

/** A block that was read: any value of it, by column and row. */
export class ColumnBlock {
  readonly count: number;
  readonly #block: Uint8Array;
  readonly #columns: number;
  readonly #hasBytes: boolean;
  readonly #bases: number[] = [];
  readonly #widths: number[] = [];
  readonly #starts: number[] = [];
  readonly #ownStart: number;

  constructor(block: Uint8Array, columns: number, hasBytes: boolean) {
    const view = new DataView(block.buffer, block.byteOffset, block.byteLength);
    const stored = hasBytes ? columns + 1 : columns;
    this.count = view.getUint16(0, true);
    this.#block = block;
    this.#columns = columns;
    this.#hasBytes = hasBytes;
    let start = COUNT_BYTES + stored * HEADER_BYTES;
    for (let column = 0; column < stored; column++) {
      const header = COUNT_BYTES + column * HEADER_BYTES;
      const width = block[header + 8] as number;
      this.#bases.push(view.getFloat64(header, true));
      this.#widths.push(width);
      this.#starts.push(start);
      start += width * this.count;
    }
    this.#ownStart = start;
  }

  value(column: number, row: number): number {
    const width = this.#widths[column] as number;
    return (this.#bases[column] as number) + take(this.#block, (this.#starts[column] as number) + row * width, width);
  }

  /** A row's own bytes, in the block's memory. */
  bytes(row: number): Uint8Array {
    if (!this.#hasBytes) return NO_BYTES;
    const start = row === 0 ? 0 : this.value(this.#columns, row - 1);
    return this.#block.subarray(this.#ownStart + start, this.#ownStart + this.value(this.#columns, row));
  }

  /** Below 0, 0 or above 0, as the row comes before, is or comes after the key, which is of the first columns. */
  compare(row: number, key: readonly number[]): number {
    for (let column = 0; column < key.length; column++) {
      const difference = this.value(column, row) - (key[column] as number);
      if (difference !== 0) return difference;
    }
    return 0;
  }

  /** The first row that does not come before the key, in a block whose rows are in order; `count` where there is none. */
  firstFrom(key: readonly number[]): number {
    let low = 0;
    let high = this.count;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.compare(middle, key) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  copy(column: number, from: number, to: number, into: Float64Array, at: number): void {
    const base = this.#bases[column] as number;
    const width = this.#widths[column] as number;
    let start = (this.#starts[column] as number) + from * width;
    for (let row = from; row < to; row++) {
      into[at + row - from] = base + take(this.#block, start, width);
      start += width;
    }
  }
}

function widthOf(difference: number): number {
  if (!Number.isSafeInteger(difference)) throw new RangeError('the values of a column lie too far apart');
  let width = 0;
  for (let rest = difference; rest > 0; rest = Math.floor(rest / 256)) width++;
  return width;
}

function take(bytes: Uint8Array, at: number, width: number): number {
  let low = 0;
  const lowBytes = width < 4 ? width : 4;
  for (let n = lowBytes - 1; n >= 0; n--) low = (low << 8) | (bytes[at + n] as number);
  if (width <= 4) return low >>> 0;
  let high = 0;
  for (let n = width - 1; n >= 4; n--) high = (high << 8) | (bytes[at + n] as number);
  return (low >>> 0) + high * WORD;
}
