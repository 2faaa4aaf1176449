/**
 * Which currency an event's revenue is in. Sums of money are kept per currency and never added across currencies, so
 * every event belongs to exactly one of: a code of three letters, no currency, another currency (whatever is not a
 * code), or no revenue at all. Pure; the same event always gives the same currency, because an erase has to take it out
 * of the sum that it was added to.
 *
 * Limit: there are 26^3 codes, and all other texts are one, so clients cannot make rows without end by inventing
 * currencies. Amounts in another currency are counted, not summed, since they may not be comparable.
 */

import { parseJson } from '../json/parse.ts';

/** As it is stored with sums: a code such as `EUR`, or one of the three below. Codes are in capitals, these are not. */
export type CountedCurrency = string;

export const NO_REVENUE: CountedCurrency = '';
/** Revenue without a currency. */
export const NO_CURRENCY: CountedCurrency = 'none';
/** Revenue in a currency that is not a code of three letters. */
export const OTHER_CURRENCY: CountedCurrency = 'other';

const CODE = /^[A-Za-z]{3}$/;

/** The currency of an event that has revenue, from its property `currency`. */
export function currencyOf(given: unknown): CountedCurrency {
  if (given === undefined || given === null) return NO_CURRENCY;
  if (typeof given !== 'string') return OTHER_CURRENCY;
  const text = given.trim();
  if (text === '') return NO_CURRENCY;
  // Checked before upper-casing: the capitals of some other letters are among A to Z.
  return CODE.test(text) ? text.toUpperCase() : OTHER_CURRENCY;
}

/** The currency of a stored event, whose properties are a JSON object. */
export function currencyOfStored(revenue: number | string | null, properties: string): CountedCurrency {
  if (revenue === null) return NO_REVENUE;
  const given: unknown = parseJson(properties);
  return currencyOf(Object.getOwnPropertyDescriptor(given, 'currency')?.value);
}

/** What an event adds to the sum of its currency. */
export function amountToSum(revenue: number | string | null, currency: CountedCurrency): number {
  return revenue === null || currency === OTHER_CURRENCY ? 0 : Number(revenue);
}

/** A revenue or a value as JSON text; a number that a double would change is kept as its original text. */
export function amountText(amount: number | string | null): string | null {
  return typeof amount === 'number' ? JSON.stringify(amount) : amount;
}
