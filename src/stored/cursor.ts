/**
 * Cursors of the store's lists: where the last row stood, as a few whole numbers, with the name of the list. They are
 * opaque to clients and hold nothing secret: a made-up one shows other rows of the same tenant at most.
 */

import { BadCursorError } from '../store.ts';

type List = 'events' | 'arrivals' | 'profiles' | 'rejections' | 'audit';

const NUMBER = /^(0|-?[1-9]\d{0,15})$/;

export function cursorOf(list: List, ...numbers: readonly number[]): string {
  return Buffer.from([list, ...numbers].join(' ')).toString('base64url');
}

/** Throws `BadCursorError` unless `cursorOf` could have made it. */
export function numbersOf(list: List, cursor: string, count: number): number[] {
  const [name, ...words] = Buffer.from(cursor, 'base64url').toString('latin1').split(' ');
  const numbers = words.map((word) => (NUMBER.test(word) ? Number(word) : Number.NaN));
  const isOurs = name === list && words.length === count && numbers.every(Number.isSafeInteger);
  // Decoding passes over strange characters; only one spelling of a cursor is right.
  if (!isOurs || cursorOf(list, ...numbers) !== cursor) throw new BadCursorError('not a cursor of this list');
  return numbers;
}
