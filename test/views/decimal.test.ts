import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { Decimal } from '../../src/views/decimal.ts';

const amounts = fc.double({ noNaN: true, noDefaultInfinity: true });
const cents = fc.integer({ min: -(10 ** 12), max: 10 ** 12 });

function sumOf(numbers: readonly number[]): Decimal {
  return numbers.reduce((sum, number) => sum.plus(Decimal.of(number)), Decimal.ZERO);
}

suite('A decimal number', () => {
  test('is the double that it was made of, whatever its exponent', () => {
    fc.assert(
      fc.property(amounts, (amount) => {
        const decimal = Decimal.of(amount);
        assert.equal(decimal.toNumber(), amount + 0);
        assert.doesNotMatch(String(decimal), /e/);
        assert.equal(String(Decimal.of(String(decimal))), String(decimal));
      }),
    );
  });

  test('adds cents exactly', () => {
    fc.assert(
      fc.property(fc.array(cents), (many) => {
        const total = many.reduce((sum, one) => sum + BigInt(one), 0n);
        const sum = sumOf(many.map((one) => one / 100));
        assert.equal(sum.toNumber(), Number(total) / 100);
      }),
    );
  });

  test('has a sum that depends neither on the order nor on what was added and subtracted meanwhile', () => {
    fc.assert(
      fc.property(fc.array(amounts, { maxLength: 20 }), fc.array(amounts, { maxLength: 20 }), (kept, removed) => {
        const both = sumOf([...removed, ...kept.toReversed()]);
        const left = removed.reduce((sum, number) => sum.minus(Decimal.of(number)), both);
        assert.equal(left.minus(sumOf(kept)).toNumber(), 0);
        assert.equal(left.toNumber(), sumOf(kept).toNumber());
      }),
    );
  });

  test('beyond the range of a double reads as the largest one, and is back in range after a subtraction', () => {
    const [large, sum] = [Decimal.of(1e308), sumOf([1e308, 1e308, 0.1])];
    assert.equal(sum.toNumber(), Number.MAX_VALUE);
    assert.equal(Decimal.ZERO.minus(sum).toNumber(), -Number.MAX_VALUE);
    assert.equal(sum.minus(large).minus(large).toNumber(), 0.1);
  });

  for (const [number, text] of [
    [0, '0'],
    [-0, '0'],
    [49.9, '49.9'],
    [-0.05, '-0.05'],
    [1e21, '1000000000000000000000'],
    [1.5e-7, '0.00000015'],
    ['79.80', '79.80'],
  ] as const) {
    test(`shows ${Object.is(number, -0) ? '-0' : number} as ${text}`, () => {
      assert.equal(String(Decimal.of(number)), text);
    });
  }
});
