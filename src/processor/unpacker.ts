/**
 * What a packer has packed, one after the other: see `packer.ts`. Takes the memory of the texts over: they are strings from
 * here on, and what they were packed in is given back.
 */

import { releaseMemory } from '../threads.ts';
import { FIRST_OTHER, FIRST_WIDE, FIRST_WORD, NO_TEXT, type Packed } from './packer.ts';

export class Unpacker {
  readonly #narrow: string;
  readonly #wide: string;
  readonly #other: string;
  readonly #words: readonly string[];
  readonly #integers: Int32Array;
  readonly #numbers: Float64Array;
  #nextInteger = 0;
  #nextNumber = 0;

  constructor({ narrow, wide, text, words, integers, numbers }: Packed) {
    this.#narrow = Buffer.from(narrow.buffer).toString('latin1');
    this.#wide = Buffer.from(wide.buffer).toString('utf8');
    releaseMemory(narrow.buffer);
    releaseMemory(wide.buffer);
    this.#other = text;
    this.#words = words;
    this.#integers = integers;
    this.#numbers = numbers;
  }

  /** Where the next integer is. */
  get at(): number {
    return this.#nextInteger;
  }

  goTo(at: number): void {
    this.#nextInteger = at;
  }

  integer(): number {
    return this.#integers[this.#nextInteger++] as number;
  }

  number(): number {
    return this.#numbers[this.#nextNumber++] as number;
  }

  optionalText(): string | null {
    const start = this.integer();
    const end = this.integer();
    if (start < 0) return this.#word(start);
    if (start < FIRST_WIDE) return this.#narrow.substring(start, end);
    if (start < FIRST_OTHER) return this.#wide.substring(start - FIRST_WIDE, end - FIRST_WIDE);
    return this.#other.substring(start - FIRST_OTHER, end - FIRST_OTHER);
  }

  text(): string {
    return this.optionalText() ?? '';
  }

  optionalWord(): string | null {
    return this.#word(this.integer());
  }

  word(): string {
    return this.optionalWord() ?? '';
  }

  #word(word: number): string | null {
    return word === NO_TEXT ? null : (this.#words[FIRST_WORD - word] as string);
  }
}
