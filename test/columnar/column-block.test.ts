/** Rows of numbers as bytes, and the order of rows: against the plainest way of doing the same. */

import assert from 'node:assert/strict';
import { ByteColumn } from '../../src/columnar/byte-column.ts';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { ColumnBlock, encodeBlock } from '../../src/columnar/column-block.ts';
import { sortedOrder } from '../../src/columnar/sorted-order.ts';

/** Of one column: near each other, or anywhere between two that are less than 2^53 apart. */
const numbers = fc.oneof(
  fc.integer({ min: -3, max: 3 }),
  fc.integer({ min: -(2 ** 31), max: 2 ** 31 }),
  fc.maxSafeInteger().map((value) => Math.floor(value / 2)),
);

const rowsOf = (columns: number) =>
  fc.array(
    fc.record({
      values: fc.array(numbers, { minLength: columns, maxLength: columns }),
      bytes: fc.uint8Array({ maxLength: 5 }),
    }),
    { minLength: 1, maxLength: 60 },
  );

function columnsOf(rows: readonly { readonly values: readonly number[] }[], columns: number): Float64Array[] {
  return Array.from({ length: columns }, (_, column) => Float64Array.from(rows, ({ values }) => values[column] ?? 0));
}

function compare(a: readonly number[], b: readonly number[]): number {
  for (const [at, value] of a.entries()) if (value !== b[at]) return value - (b[at] ?? 0);
  return 0;
}

suite('A block of rows', () => {
  test('gives back every value and all bytes of the rows that went in, in the given order', () => {
    fc.assert(
      fc.property(rowsOf(3), fc.boolean(), fc.nat(), (rows, hasBytes, seed) => {
        const columns = columnsOf(rows, 3);
        const order = Uint32Array.from(rows.keys(), (at) => (at + seed) % rows.length);
        const start = seed % rows.length;
        const bytes = hasBytes ? new ByteColumn() : null;
        for (const row of rows) bytes?.push(row.bytes);
        const block = new ColumnBlock(
          encodeBlock({ columns, bytes, count: rows.length }, order, start, rows.length),
          3,
          hasBytes,
        );
        assert.equal(block.count, rows.length - start);
        for (let at = 0; at < block.count; at++) {
          const row = rows[order[start + at] as number];
          assert.deepEqual(
            [0, 1, 2].map((column) => block.value(column, at)),
            row?.values.map((value) => value + 0),
          );
          if (hasBytes) assert.deepEqual([...block.bytes(at)], [...(row?.bytes ?? [])]);
        }
        const copied = new Float64Array(block.count + 1);
        block.copy(1, 0, block.count, copied, 1);
        assert.deepEqual(
          [...copied.subarray(1)],
          [...Array(block.count).keys()].map((at) => block.value(1, at)),
        );
      }),
    );
  });

  test('finds the first row that does not come before a key', () => {
    fc.assert(
      fc.property(rowsOf(2), fc.array(numbers, { minLength: 1, maxLength: 2 }), (rows, key) => {
        const sorted = rows.map(({ values }) => values).sort(compare);
        const columns = columnsOf(
          sorted.map((values) => ({ values })),
          2,
        );
        const order = Uint32Array.from(sorted.keys());
        const block = new ColumnBlock(
          encodeBlock({ columns, bytes: null, count: sorted.length }, order, 0, sorted.length),
          2,
          false,
        );
        const expected = sorted.findIndex((values) => compare(values.slice(0, key.length), key) >= 0);
        assert.equal(block.firstFrom(key), expected < 0 ? sorted.length : expected);
      }),
    );
  });

  test('refuses values that differ too much to be stored exactly', () => {
    const columns = [Float64Array.of(Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER)];
    assert.throws(() => encodeBlock({ columns, bytes: null, count: 2 }, Uint32Array.of(0, 1), 0, 2), RangeError);
  });
});

suite('The order of rows', () => {
  test('is by the first column, then the next, and equal rows stay as they came', () => {
    const column = fc.oneof(
      fc.constant(7),
      fc.nat(3),
      fc.integer({ min: 0, max: 2 ** 31 - 1 }),
      fc.maxSafeInteger().map((value) => Math.floor(value / 32)),
    );
    fc.assert(
      fc.property(
        fc.array(fc.tuple(column, column, fc.nat(2)), { maxLength: 400 }),
        fc.integer({ min: 1, max: 3 }),
        (rows, columns) => {
          const values = rows.map((row) => ({ values: row }));
          const order = sortedOrder(columnsOf(values, columns), rows.length);
          const expected = [...rows.keys()].sort((a, b) =>
            compare((rows[a] ?? []).slice(0, columns), (rows[b] ?? []).slice(0, columns)),
          );
          assert.deepEqual([...order], expected);
        },
      ),
    );
  });

  test('is right for values that lie a power of two apart', () => {
    for (const bits of [11, 22, 31, 32, 33, 47, 48, 49, 52]) {
      const values = Float64Array.from({ length: 40 }, (_, at) => (at % 2) * 2 ** bits + ((at * 7) % 5));
      const sorted = Array.from(sortedOrder([values], values.length), (at) => values[at] ?? 0);
      assert.deepEqual(
        sorted,
        [...values].sort((a, b) => a - b),
      );
    }
  });

  test('is right for thousands of hashes with equal upper digits', () => {
    const hashes = Float64Array.from(
      { length: 5_000 },
      (_, at) => ((at * 7_919) % 50) * 2 ** 40 + ((at * 104_729) % 251),
    );
    const order = sortedOrder([hashes], hashes.length);
    for (let at = 1; at < order.length; at++) {
      const [before, here] = [order[at - 1] as number, order[at] as number];
      const difference = (hashes[here] as number) - (hashes[before] as number);
      assert.ok(difference > 0 || (difference === 0 && before < here));
    }
  });
});
