/** Which currency revenue is counted in: few, whatever clients send, and always the same for the same event. */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import * as fc from 'fast-check';
import { amountToSum, currencyOf, currencyOfStored } from '../../src/views/currency.ts';

suite('The currency of revenue', () => {
  test('three letters are a code, in capitals or not, with white space around them or not', () => {
    for (const given of ['EUR', 'eur', 'Eur', ' eur', 'EUR\n']) assert.equal(currencyOf(given), 'EUR', given);
  });

  test('nothing, null and blank are no currency', () => {
    for (const given of [undefined, null, '', ' \t']) assert.equal(currencyOf(given), 'none', String(given));
  });

  test('whatever else clients send is one other currency, also what capitals would make three letters of', () => {
    const others = [
      'Euro',
      '€',
      'EU',
      'E R',
      'EUR USD',
      'none',
      'other',
      '978',
      978,
      true,
      ['EUR'],
      {},
      'aß',
      'ıst',
      'ſar',
    ];
    for (const given of others) assert.equal(currencyOf(given), 'other', JSON.stringify(given));
  });

  test('clients cannot invent more currencies than there are codes of three letters', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (given) => {
        assert.match(currencyOf(given), /^([A-Z]{3}|none|other)$/);
      }),
    );
  });

  test('a stored event has the currency that its JSON says, however that is written', () => {
    assert.equal(currencyOfStored(null, '{"currency":"EUR"}'), '');
    assert.equal(currencyOfStored(1, '{"a":{"currency":"EUR"}}'), 'none');
    assert.equal(currencyOfStored(1, '{"\\u0063urrency":"\\u0045UR"}'), 'EUR');
    assert.equal(currencyOfStored('0.10000000000000000001', '{"currency":12345678901234567890}'), 'other');
    assert.equal(currencyOfStored(1, '{"__proto__":{"currency":"EUR"}}'), 'none');
  });

  test('amounts in other currencies are counted and not summed', () => {
    assert.equal(amountToSum(5, 'other'), 0);
    assert.equal(amountToSum(-5, 'EUR'), -5);
    assert.equal(amountToSum('1e2', 'none'), 100);
    assert.equal(amountToSum(null, ''), 0);
  });
});
