/**
 * Short texts that come again and again (names of properties, of events): a number for each, and the same string every
 * time. One that follows another usually did so the last time as well, and is then found by comparing it with that one
 * alone.
 *
 * When it is full it knows no more texts until it is cleared, which makes all numbers void.
 */

import { type Characters, textOf } from './packer.ts';

export const UNKNOWN = -1;
/** In characters. */
const LENGTH_MAX = 128;
const USUAL_LENGTH = 32;
export const TEXTS_MAX = 2_048;
const SLOTS = 2 * TEXTS_MAX;
const CHARACTERS_MAX = USUAL_LENGTH * TEXTS_MAX;
const HASH_FACTOR = 31;
const QUOTE = 0x22;

export class KnownTexts {
  /** Those that are known from the start, and are numbered in their order. */
  readonly #first: readonly string[];
  /** All of them, each with the quote that ends it, which no text holds. */
  readonly #characters = new Uint16Array(CHARACTERS_MAX);
  #characterCount = 0;
  readonly #starts = new Int32Array(TEXTS_MAX + 1);
  /** One more than the number of a text; 0 where there is none. */
  readonly #slots = new Int16Array(SLOTS);
  /** Which came after it the last time. */
  readonly #followers = new Int16Array(TEXTS_MAX);
  #texts: string[] = [];

  constructor(first: readonly string[]) {
    this.#first = first;
    this.clear();
  }

  /** How many more fit, if they are not unusually long. */
  get room(): number {
    return Math.min(TEXTS_MAX - this.#texts.length, (CHARACTERS_MAX - this.#characterCount) / USUAL_LENGTH);
  }

  clear(): void {
    this.#characterCount = 0;
    this.#slots.fill(0);
    this.#texts = [];
    for (const text of this.#first) {
      const characters = Uint16Array.from(`${text}"`, (character) => character.charCodeAt(0));
      this.#find(characters, 0);
    }
  }

  text(number: number): string {
    return this.#texts[number] as string;
  }

  length(number: number): number {
    return (this.#starts[number + 1] as number) - (this.#starts[number] as number) - 1;
  }

  /** The number of the text that begins there and ends before a quote, which came after `before`. */
  find(characters: Characters, start: number, before: number): number {
    const likely = this.#followers[before] as number;
    if (this.#isAt(characters, start, likely)) return likely;
    const found = this.#find(characters, start);
    if (found !== UNKNOWN) this.#followers[before] = found;
    return found;
  }

  #isAt(characters: Characters, start: number, number: number): boolean {
    const known = this.#characters;
    const from = this.#starts[number] as number;
    const length = (this.#starts[number + 1] as number) - from;
    for (let at = 0; at < length; at++) if (characters[start + at] !== known[from + at]) return false;
    return true;
  }

  #find(characters: Characters, start: number): number {
    let hash = 0;
    let at = start;
    for (let code = characters[at] as number; code !== QUOTE; code = characters[++at] as number) {
      hash = (Math.imul(hash, HASH_FACTOR) + code) | 0;
    }
    const length = at - start;
    if (length > LENGTH_MAX) return UNKNOWN;
    // The lowest bits of such a sum are those of the last characters.
    let slot = (Math.imul(hash, 0x9e_37_79_b1) >>> 16) % SLOTS;
    for (; this.#slots[slot] !== 0; slot = (slot + 1) % SLOTS) {
      const number = (this.#slots[slot] as number) - 1;
      if (this.length(number) === length && this.#isAt(characters, start, number)) return number;
    }
    const isFull = this.#texts.length === TEXTS_MAX || this.#characterCount + length >= CHARACTERS_MAX;
    return isFull ? UNKNOWN : this.#add(characters, start, at, slot);
  }

  #add(characters: Characters, start: number, end: number, slot: number): number {
    const number = this.#texts.length;
    this.#texts.push(textOf(characters, start, end));
    this.#characters.set(characters.subarray(start, end + 1), this.#characterCount);
    this.#starts[number] = this.#characterCount;
    this.#characterCount += end + 1 - start;
    this.#starts[number + 1] = this.#characterCount;
    this.#followers[number] = 0;
    this.#slots[slot] = number + 1;
    return number;
  }
}
