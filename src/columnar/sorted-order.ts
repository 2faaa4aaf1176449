/**
 * The order of rows by their columns, the first column first. Rows stay where they are: their indexes are sorted. The
 * sort is stable. Pure.
 *
 * Many rows are sorted by radix sort: three passes over a column, where comparing takes log2(n). If the values of a
 * column differ by 2^32 or more, such as hashes, their upper 32 bits are sorted this way, and then rows that are equal in
 * them.
 */

/** Up to this many rows, insertion sort is fastest: most people have a few rows in a run. */
const INSERTION_SORT_MAX = 24;
/** Fewer rows are compared: counting digits costs the same however few there are. */
const RADIX_SORT_MIN = 256;
const DIGIT_BITS = 11;
const DIGITS = 2 ** DIGIT_BITS;
const SORTED_BITS = 32;

type Columns = readonly Float64Array[];

export function sortedOrder(columns: Columns, count: number): Uint32Array {
  const order = new Uint32Array(count);
  for (let at = 0; at < count; at++) order[at] = at;
  sort(columns, 0, order, 0, count);
  return order;
}

/** Sorts a range of the order, whose rows are equal in all columns before `depth`. */
function sort(columns: Columns, depth: number, order: Uint32Array, start: number, end: number): void {
  const column = columns[depth];
  if (column === undefined) return;
  const count = end - start;
  if (count <= INSERTION_SORT_MAX) {
    insertionSort(columns, depth, order, start, end);
    return;
  }
  if (count < RADIX_SORT_MIN) {
    if (isInOrder(columns, depth, order, start, end)) return;
    order.subarray(start, end).sort((a, b) => compareRows(columns, depth, a, b));
    return;
  }
  let values: Float64Array | Uint32Array = new Float64Array(count);
  let least = Number.POSITIVE_INFINITY;
  let greatest = Number.NEGATIVE_INFINITY;
  let isSorted = true;
  for (let at = 0; at < count; at++) {
    const value = column[order[start + at] as number] as number;
    values[at] = value;
    if (value < greatest) isSorted = false;
    if (value > greatest) greatest = value;
    if (value < least) least = value;
  }
  let scale = 1;
  if (!isSorted) {
    let bits = 0;
    while (2 ** bits <= greatest - least) bits++;
    scale = 2 ** Math.max(0, bits - SORTED_BITS);
    const keys = new Uint32Array(count);
    for (let at = 0; at < count; at++) keys[at] = ((values[at] as number) - least) / scale;
    values = sortByDigits(keys, order.subarray(start, end), Math.min(bits, SORTED_BITS));
  }
  for (let from = 0; from < count; ) {
    const value = values[from];
    let to = from + 1;
    while (to < count && values[to] === value) to++;
    if (to - from > 1) sort(columns, scale === 1 ? depth + 1 : depth, order, start + from, start + to);
    from = to;
  }
}

/** Sorts the indexes by their keys, lowest digit first; returns the sorted keys. */
function sortByDigits(unsorted: Uint32Array, order: Uint32Array, bits: number): Uint32Array {
  const count = order.length;
  let keys = unsorted;
  let otherKeys: Uint32Array = new Uint32Array(count);
  let rows: Uint32Array = order;
  let otherRows: Uint32Array = new Uint32Array(count);
  const starts = new Uint32Array(DIGITS);
  for (let shift = 0; shift < bits; shift += DIGIT_BITS) {
    starts.fill(0);
    for (let at = 0; at < count; at++) {
      const digit = ((keys[at] as number) >>> shift) & (DIGITS - 1);
      starts[digit] = (starts[digit] as number) + 1;
    }
    let sum = 0;
    for (let digit = 0; digit < DIGITS; digit++) {
      const occurrences = starts[digit] as number;
      starts[digit] = sum;
      sum += occurrences;
    }
    for (let at = 0; at < count; at++) {
      const key = keys[at] as number;
      const digit = (key >>> shift) & (DIGITS - 1);
      const to = starts[digit] as number;
      starts[digit] = to + 1;
      otherKeys[to] = key;
      otherRows[to] = rows[at] as number;
    }
    [keys, otherKeys] = [otherKeys, keys];
    [rows, otherRows] = [otherRows, rows];
  }
  if (rows !== order) order.set(rows);
  return keys;
}

function insertionSort(columns: Columns, depth: number, order: Uint32Array, start: number, end: number): void {
  for (let at = start + 1; at < end; at++) {
    const row = order[at] as number;
    let to = at;
    for (; to > start && compareRows(columns, depth, order[to - 1] as number, row) > 0; to--) {
      order[to] = order[to - 1] as number;
    }
    order[to] = row;
  }
}

function isInOrder(columns: Columns, depth: number, order: Uint32Array, start: number, end: number): boolean {
  for (let at = start + 1; at < end; at++) {
    if (compareRows(columns, depth, order[at - 1] as number, order[at] as number) > 0) return false;
  }
  return true;
}

function compareRows(columns: Columns, depth: number, a: number, b: number): number {
  for (let column = depth; column < columns.length; column++) {
    const values = columns[column] as Float64Array;
    const difference = (values[a] as number) - (values[b] as number);
    if (difference !== 0) return difference;
  }
  return 0;
}
