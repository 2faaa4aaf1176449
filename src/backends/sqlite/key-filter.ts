/**
 * Which match keys may be somebody's: a Bloom filter over their hashes. A key of a new person is in no table, and to see
 * that in a table of millions takes longer than everything else about it; here it takes a few looks into memory. Says "may be" of about
 * one in a hundred keys that nobody has, and never "nobody's" of one that somebody has, once all keys of the store are in it.
 *
 * Keys that were removed stay in it, which costs a look into the table. Grows by layers, each four times as large as the
 * one before; ten bits a key.
 */

import type { KeyHash } from '../../stored/keyed-hash.ts';

const FIRST_BITS = 2 ** 22;
const GROWTH = 4;
/** Of the largest layer: 32 MB. With 35 million keys it gives up. */
const BITS_MAX = 2 ** 28;
const BITS_PER_KEY = 10;
const PROBES = 6;

/** How a hash is cut into two numbers of 31 bits. */
const LOWER_BITS = 2 ** 17;
const LANE = 2 ** 31;

export interface FilterLayer {
  readonly words: Int32Array<ArrayBuffer>;
  keys: number;
}

export class KeyFilter {
  /** New keys go to the last. */
  #layers: FilterLayer[] = [];
  #isComplete = false;
  #hasGivenUp = false;
  readonly #bitsMax: number;

  /** Tests take few. */
  constructor(bitsMax = BITS_MAX) {
    this.#bitsMax = bitsMax;
  }

  /** Whether all keys of the store are in it. */
  get isComplete(): boolean {
    return this.#isComplete;
  }

  /** Whether there were too many keys: then its layers say nothing. */
  get hasGivenUp(): boolean {
    return this.#hasGivenUp;
  }

  /** To be handed to another thread. */
  get layers(): readonly FilterLayer[] {
    return this.#layers;
  }

  /** With what somebody else has found, in layers of theirs, all keys are in it. None for a store that has no keys. */
  complete(others: readonly FilterLayer[]): void {
    if (this.#hasGivenUp) return;
    this.#layers.unshift(...others);
    this.#isComplete = true;
  }

  /** Says "may be" of everything from now on. */
  giveUp(): void {
    this.#hasGivenUp = true;
    this.#isComplete = false;
    this.#layers = [];
  }

  add({ hash, rest }: KeyHash): void {
    const layer = this.#newest();
    if (layer === undefined) return;
    const mask = layer.words.length * 32 - 1;
    const step = stepOf(rest);
    let bit = startOf(hash);
    for (let probe = 0; probe < PROBES; probe++) {
      const word = (bit & mask) >>> 5;
      layer.words[word] = (layer.words[word] as number) | (1 << (bit & 31));
      bit = (bit + step) | 0;
    }
    layer.keys++;
  }

  /** False only if it is certain that nobody has it. */
  mayHave({ hash, rest }: KeyHash): boolean {
    if (!this.#isComplete) return true;
    const start = startOf(hash);
    const step = stepOf(rest);
    for (const { words } of this.#layers) {
      const mask = words.length * 32 - 1;
      let bit = start;
      let probe = 0;
      while (probe < PROBES && ((words[(bit & mask) >>> 5] as number) & (1 << (bit & 31))) !== 0) {
        bit = (bit + step) | 0;
        probe++;
      }
      if (probe === PROBES) return true;
    }
    return false;
  }

  /** The layer that has room; undefined if there are too many keys. */
  #newest(): FilterLayer | undefined {
    if (this.#hasGivenUp) return undefined;
    const newest = this.#layers.at(-1);
    if (newest !== undefined && newest.keys * BITS_PER_KEY < newest.words.length * 32) return newest;
    const bits = newest === undefined ? FIRST_BITS : newest.words.length * 32 * GROWTH;
    if (bits > this.#bitsMax) {
      this.giveUp();
      return undefined;
    }
    const layer = { words: new Int32Array(bits / 32), keys: 0 };
    this.#layers.push(layer);
    return layer;
  }
}

function startOf(hash: number): number {
  return Math.floor(hash / LOWER_BITS) | 0;
}

/** Odd, so that all bits can be reached. */
function stepOf(rest: number): number {
  return (rest - Math.floor(rest / LANE) * LANE) | 1;
}
