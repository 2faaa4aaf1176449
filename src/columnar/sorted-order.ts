/**
 * The order of rows by their columns, the first column first. Rows stay where they are: what is sorted are their places.
 * Equal rows stay in the order in which they came. Pure.
 *
 * Many rows are sorted by the digits of a column (radix sort): three passes, where comparing would take one for every
 * doubling. Of a column whose values lie 2^32 or more apart, such as hashes, the upper 32 bits are sorted so, and
 * what is equal in them is compared.
 */

const FEW = 16;
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

/** Sorts a stretch of the order, whose rows are equal in all columns before `depth`. */
function sort(columns: Columns, depth: number, order: Uint32Array, start: number, end: number): void {
  const column = columns[depth];
  if (column === undefined || end - start < 2) return;
  if (end - start <= FEW) {
    insertionSort(columns, depth, order, start, end);
    return;
  }
  let least = Number.POSITIVE_INFINITY;
  let greatest = Number.NEGATIVE_INFINITY;
  let isSorted = true;
  for (let at = start; at < end; at++) {
    const value = column[order[at] as number] as number;
    if (value < greatest) isSorted = false;
    if (value > greatest) greatest = value;
    if (value < least) least = value;
  }
  let bits = 0;
  while (2 ** bits <= greatest - least) bits++;
  const scale = 2 ** Math.max(0, bits - SORTED_BITS);
  if (!isSorted) sortByDigits(column, order.subarray(start, end), least, scale, Math.min(bits, SORTED_BITS));
  sortEqual(
    columns,
    depth,
    order,
    start,
    end,
    (value) => (isSorted ? value : Math.floor((value - least) / scale)),
    isSorted || scale === 1,
  );
}

/** Sorts what is equal in the digits that were sorted; `isExact` where they are the whole value. */
function sortEqual(
  columns: Columns,
  depth: number,
  order: Uint32Array,
  start: number,
  end: number,
  digitsOf: (value: number) => number,
  isExact: boolean,
): void {
  const column = columns[depth] as Float64Array;
  let digits = digitsOf(column[order[start] as number] as number);
  for (let from = start, to = start + 1; from < end; to++) {
    const next = to < end ? digitsOf(column[order[to] as number] as number) : Number.NaN;
    if (next === digits) continue;
    if (to - from > 1) {
      if (isExact) sort(columns, depth + 1, order, from, to);
      else if (to - from <= FEW) insertionSort(columns, depth, order, from, to);
      else {
        const places = Array.from(order.subarray(from, to));
        order.set(
          places.sort((a, b) => compareRows(columns, depth, a, b)),
          from,
        );
      }
    }
    from = to;
    digits = next;
  }
}

/** Lowest digit first. */
function sortByDigits(column: Float64Array, order: Uint32Array, least: number, scale: number, bits: number): void {
  const count = order.length;
  let [keys, otherKeys] = [new Uint32Array(count), new Uint32Array(count)];
  let places: Uint32Array = order;
  let otherPlaces: Uint32Array = new Uint32Array(count);
  for (let at = 0; at < count; at++) keys[at] = ((column[order[at] as number] as number) - least) / scale;
  const starts = new Uint32Array(DIGITS);
  for (let shift = 0; shift < bits; shift += DIGIT_BITS) {
    starts.fill(0);
    for (let at = 0; at < count; at++) {
      const digit = ((keys[at] as number) >>> shift) & (DIGITS - 1);
      starts[digit] = (starts[digit] as number) + 1;
    }
    let sum = 0;
    for (let digit = 0; digit < DIGITS; digit++) {
      const those = starts[digit] as number;
      starts[digit] = sum;
      sum += those;
    }
    for (let at = 0; at < count; at++) {
      const key = keys[at] as number;
      const digit = (key >>> shift) & (DIGITS - 1);
      const to = starts[digit] as number;
      starts[digit] = to + 1;
      otherKeys[to] = key;
      otherPlaces[to] = places[at] as number;
    }
    [keys, otherKeys] = [otherKeys, keys];
    [places, otherPlaces] = [otherPlaces, places];
  }
  if (places !== order) order.set(places);
}

function insertionSort(columns: Columns, depth: number, order: Uint32Array, start: number, end: number): void {
  for (let at = start + 1; at < end; at++) {
    const place = order[at] as number;
    let to = at;
    for (; to > start && compareRows(columns, depth, order[to - 1] as number, place) > 0; to--) {
      order[to] = order[to - 1] as number;
    }
    order[to] = place;
  }
}

function compareRows(columns: Columns, depth: number, a: number, b: number): number {
  for (let column = depth; column < columns.length; column++) {
    const values = columns[column] as Float64Array;
    const difference = (values[a] as number) - (values[b] as number);
    if (difference !== 0) return difference;
  }
  return 0;
}
