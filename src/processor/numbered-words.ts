/**
 * Which word of a packer stands for a text that has a number of its own: looked up once a batch, since looking a text up
 * in a map takes as long as comparing it with what is expected.
 */

import type { Packer } from './packer.ts';

export class NumberedWords {
  readonly #packer: Packer;
  readonly #words: Int32Array;
  /** In which it was looked up. */
  readonly #batches: Int32Array;

  constructor(packer: Packer, numbersEnd: number) {
    this.#packer = packer;
    this.#words = new Int32Array(numbersEnd);
    this.#batches = new Int32Array(numbersEnd).fill(packer.batch - 1);
  }

  /** When numbers get other texts. */
  clear(): void {
    this.#batches.fill(this.#packer.batch - 1);
  }

  word(number: number, text: string): number {
    if (this.#batches[number] !== this.#packer.batch) {
      this.#words[number] = this.#packer.word(text);
      this.#batches[number] = this.#packer.batch;
    }
    return this.#words[number] as number;
  }
}
