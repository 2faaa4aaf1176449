/**
 * Serialises texts, numbers and lists of them, one after another, into memory that is cheap to send to another thread.
 * They are unpacked (`unpacking.ts`) in the same order, which `packing.ts` defines.
 *
 * Most texts are parts of a body, so bodies are copied as bytes, and a text is packed as its start and end, in UTF-16
 * units of all bodies together: ASCII bodies in `narrow`, others in `wide`. Frequent texts are interned (words): each
 * is packed once, and is the same string wherever it is unpacked. All other texts are one long string.
 *
 * A packer and its memory are reused; its result is a copy. Only the memory of a very large batch is itself the result,
 * and is not reused.
 */

export interface Packed {
  readonly narrow: Uint8Array<ArrayBuffer>;
  readonly wide: Uint8Array<ArrayBuffer>;
  readonly text: string;
  readonly words: readonly string[];
  readonly numbers: Float64Array<ArrayBuffer>;
}

/** Where a text begins: below this in `narrow`. A batch has no more units of a kind. */
export const FIRST_WIDE = 2 ** 29;
export const FIRST_OTHER = 2 ** 30;
/** Instead of where a text begins. */
export const NO_TEXT = -1;
/** Words count down from here. */
export const FIRST_WORD = -2;
/** This one is always there. */
export const EMPTY_OBJECT = FIRST_WORD;
const FIRST_WORDS: readonly string[] = ['{}'];

/** About what a batch needs. */
const FIRST_BYTES = 1024 * 1024;
const FIRST_NUMBERS = 65_536;
/** More than this is given back after a batch that needed it. */
const KEPT_BYTES_MAX = 4 * 1024 * 1024;
const KEPT_NUMBERS_MAX = 1024 * 1024;

/** Few enough that they are still in the young generation when they are joined. */
const LOOSE_TEXTS_MAX = 4_096;
/** The location of a body, with as much room after it as it is long. */
export interface Taken {
  readonly memory: Uint8Array<ArrayBuffer>;
  readonly start: number;
  /** What its first unit is packed as. */
  readonly base: number;
}

/** What was packed up to there stays. */
export interface PackerOffset {
  readonly numbers: number;
}

/** Bodies, one behind the other. */
class BodyMemory {
  readonly firstBase: number;
  #bytes = new Uint8Array(0);
  #count = 0;
  #units = 0;

  constructor(firstBase: number) {
    this.firstBase = firstBase;
  }

  take(body: Uint8Array): Taken {
    const start = this.#count;
    const room = 2 * (body.length + 1);
    if (start + room > this.#bytes.length) this.#bytes = grown(this.#bytes, Math.max(room, FIRST_BYTES), Uint8Array);
    this.#bytes.set(body, start);
    return { memory: this.#bytes, start, base: this.firstBase + this.#units };
  }

  keep(bytes: number, units: number): void {
    this.#count += bytes;
    this.#units += units;
  }

  /** A copy, or the memory itself if it is too large to be kept. */
  finish(): Uint8Array<ArrayBuffer> {
    const count = this.#count;
    this.clear();
    if (this.#bytes.length <= KEPT_BYTES_MAX) return this.#bytes.slice(0, count);
    const given = new Uint8Array(this.#bytes.buffer.transfer(count));
    this.#bytes = new Uint8Array(0);
    return given;
  }

  clear(): void {
    this.#count = 0;
    this.#units = 0;
  }
}

export class Packer {
  readonly #narrow = new BodyMemory(0);
  readonly #wide = new BodyMemory(FIRST_WIDE);
  /** Each joined from many texts. */
  #joined: string[] = [];
  #loose: string[] = [];
  #otherLength = 0;
  /** The number that stands for each. */
  readonly #words = new Map<string, number>();
  #batch = 0;
  #numbers = new Float64Array(FIRST_NUMBERS);
  #numberCount = 0;

  constructor() {
    this.clear();
  }

  /** Words are those of one batch. */
  get batch(): number {
    return this.#batch;
  }

  number(value: number): void {
    this.set(this.room(1), value);
  }

  /** Room for numbers that are `set` later. */
  room(count: number): number {
    const at = this.#numberCount;
    if (at + count > this.#numbers.length) this.#numbers = grown(this.#numbers, count, Float64Array);
    this.#numberCount = at + count;
    return at;
  }

  set(at: number, value: number): void {
    this.#numbers[at] = value;
  }

  text(value: string | null): void {
    const start = value === null ? NO_TEXT : this.other(value);
    this.number(start);
    this.number(value === null ? NO_TEXT : start + value.length);
  }

  /** Packs a text that is not part of a body; returns where it begins. */
  other(value: string): number {
    const start = FIRST_OTHER + this.#otherLength;
    this.#otherLength += value.length;
    this.#loose.push(value);
    if (this.#loose.length === LOOSE_TEXTS_MAX) this.#join();
    return start;
  }

  /** The number that stands for the word, which is interned if it is new. */
  word(value: string): number {
    const known = this.#words.get(value);
    if (known !== undefined) return known;
    const word = FIRST_WORD - this.#words.size;
    this.#words.set(value, word);
    return word;
  }

  /** Parts of the body can be packed from now on, if it is kept when all of them are. */
  take(body: Uint8Array, isAscii: boolean): Taken {
    return (isAscii ? this.#narrow : this.#wide).take(body);
  }

  /** So much of the body that was taken last, and of what was written behind it. */
  keep({ base }: Taken, bytes: number, units: number): void {
    (base < FIRST_WIDE ? this.#narrow : this.#wide).keep(bytes, units);
  }

  offset(): PackerOffset {
    return { numbers: this.#numberCount };
  }

  truncate({ numbers }: PackerOffset): void {
    this.#numberCount = numbers;
  }

  #join(): void {
    this.#joined.push(this.#loose.join(''));
    this.#loose = [];
  }

  /** Everything since the last time. */
  finish(): Packed {
    this.#join();
    const packed = {
      narrow: this.#narrow.finish(),
      wide: this.#wide.finish(),
      text: this.#joined.join(''),
      words: [...this.#words.keys()],
      numbers: this.#numbers.slice(0, this.#numberCount),
    };
    this.clear();
    return packed;
  }

  clear(): void {
    this.truncate({ numbers: 0 });
    this.#narrow.clear();
    this.#wide.clear();
    this.#joined = [];
    this.#loose = [];
    this.#otherLength = 0;
    this.#words.clear();
    for (const word of FIRST_WORDS) this.word(word);
    this.#batch = (this.#batch + 1) | 0;
    if (this.#numbers.length > KEPT_NUMBERS_MAX) this.#numbers = new Float64Array(FIRST_NUMBERS);
  }
}

/** By as much as is needed, and at least to twice its size. */
function grown<T extends Uint8Array | Float64Array>(array: T, more: number, Type: new (length: number) => T): T {
  const larger = new Type(Math.max(array.length * 2, array.length + more));
  larger.set(array);
  return larger;
}
