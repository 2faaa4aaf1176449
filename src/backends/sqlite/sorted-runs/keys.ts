/**
 * Keys of sorted runs: a few integers each. As bytes they sort like the numbers, so that SQLite finds blocks by them.
 */

export type Key = readonly number[];

export function compareKeys(one: Key, other: Key): number {
  for (const [column, value] of one.entries()) {
    const difference = value - (other[column] as number);
    if (difference !== 0) return difference;
  }
  return 0;
}

/** The smallest key after this one: keys are integers. */
export function nextKey(key: Key): Key {
  return [...key.slice(0, -1), (key.at(-1) as number) + 1];
}

const WORD = 2 ** 32;
const SIGN = 2 ** 31;
const NUMBER_BYTES = 8;

/** Ordered like the numbers. A shorter key sorts before all that begin with it. */
export function bytesOf(key: Key): Uint8Array {
  const bytes = new Uint8Array(key.length * NUMBER_BYTES);
  for (let column = 0, at = 0; column < key.length; column++, at += NUMBER_BYTES) {
    const value = key[column] as number;
    const high = Math.floor(value / WORD);
    putWord(bytes, at, high + SIGN);
    putWord(bytes, at + 4, value - high * WORD);
  }
  return bytes;
}

/** Without a DataView, whose buffer would be allocated outside of the JavaScript heap. */
function putWord(bytes: Uint8Array, at: number, word: number): void {
  bytes[at] = word >>> 24;
  bytes[at + 1] = word >>> 16;
  bytes[at + 2] = word >>> 8;
  bytes[at + 3] = word;
}
