/**
 * Texts, numbers and lists of them, one behind the other, in memory that goes to another thread for next to nothing. What
 * was packed is to be unpacked (`unpacking.ts`) in the same order; `packing.ts` knows which.
 *
 * Most texts are parts of a body, so bodies are taken over as they are, and of a text it is told where it begins and
 * ends: in `narrow` a body that is ASCII, in `wide` any other. Texts that come again and again are words: each is told
 * once, and is the same string wherever it comes out. All other texts are one long string.
 *
 * A packer is used again and again, and its memory with it; what it gives out is a copy. Only memory of very large batches is
 * given out itself: it is not kept.
 */

export type Characters = Uint8Array<ArrayBuffer> | Uint16Array<ArrayBuffer>;

export interface Packed {
  readonly narrow: Uint8Array<ArrayBuffer>;
  readonly wide: Uint16Array<ArrayBuffer>;
  readonly text: string;
  readonly words: readonly string[];
  readonly numbers: Float64Array<ArrayBuffer>;
}

/** Where a text begins: below this in `narrow`. A batch has no more characters of a kind. */
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
const FIRST_CHARACTERS = 1024 * 1024;
const FIRST_NUMBERS = 65_536;
/** More than this is given back after a batch that needed it. */
const KEPT_CHARACTERS_MAX = 4 * 1024 * 1024;
const KEPT_NUMBERS_MAX = 1024 * 1024;

/** So few that they are still young when they are made into one. */
const LOOSE_TEXTS_MAX = 4_096;
/** Ends a text that should have ended before, so that nobody walks on and on. */
const QUOTE = 0x22;

/** Where a body lies, with as much room behind it as it is long. */
export interface Taken {
  readonly characters: Characters;
  readonly start: number;
  readonly end: number;
  /** Where its texts begin as `span` wants it: so much further. */
  readonly base: number;
}

/** What was packed up to there stays. */
export interface Place {
  readonly narrow: number;
  readonly wide: number;
  readonly numbers: number;
}

export class Packer {
  #narrow = new Uint8Array(0);
  #narrowCount = 0;
  #wide = new Uint16Array(0);
  #wideCount = 0;
  /** Each made of many. */
  #joined: string[] = [];
  #loose: string[] = [];
  #otherLength = 0;
  /** What stands for each. */
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
    const place = this.#numberCount;
    if (place + count > this.#numbers.length) this.#numbers = grown(this.#numbers, count, Float64Array);
    this.#numberCount = place + count;
    return place;
  }

  set(place: number, value: number): void {
    this.#numbers[place] = value;
  }

  text(value: string | null): void {
    const start = value === null ? NO_TEXT : this.other(value);
    this.number(start);
    this.number(value === null ? NO_TEXT : start + value.length);
  }

  /** Where the text begins. */
  other(value: string): number {
    const start = FIRST_OTHER + this.#otherLength;
    this.#otherLength += value.length;
    this.#loose.push(value);
    if (this.#loose.length === LOOSE_TEXTS_MAX) this.#join();
    return start;
  }

  /** What stands for the word. */
  word(value: string): number {
    const known = this.#words.get(value);
    if (known !== undefined) return known;
    const word = FIRST_WORD - this.#words.size;
    this.#words.set(value, word);
    return word;
  }

  /** Takes over a body, so that parts of it can be told. */
  take(body: Uint8Array, isAscii: boolean): Taken {
    return isAscii ? this.#takeNarrow(body) : this.#takeWide(body);
  }

  #takeNarrow(body: Uint8Array): Taken {
    const start = this.#narrowCount;
    const end = start + body.length;
    const room = 2 * (body.length + 1);
    if (start + room > this.#narrow.length) {
      this.#narrow = grown(this.#narrow, Math.max(room, FIRST_CHARACTERS), Uint8Array);
    }
    this.#narrow.set(body, start);
    this.#narrow[end] = QUOTE;
    this.#narrowCount = end + 1;
    return { characters: this.#narrow, start, end, base: 0 };
  }

  #takeWide(body: Uint8Array): Taken {
    const text = Buffer.from(body.buffer, body.byteOffset, body.length).toString('utf8');
    const start = this.#wideCount;
    const end = start + text.length;
    const room = 2 * (text.length + 1);
    if (start + room > this.#wide.length) {
      this.#wide = grown(this.#wide, Math.max(room, FIRST_CHARACTERS), Uint16Array);
    }
    Buffer.from(this.#wide.buffer).write(text, start * 2, 'utf16le');
    this.#wide[end] = QUOTE;
    this.#wideCount = end + 1;
    return { characters: this.#wide, start, end, base: FIRST_WIDE };
  }

  /** What was written behind the body that was taken last stays, up to there. */
  keepUpTo({ base }: Taken, end: number): void {
    if (base === 0) this.#narrowCount = Math.max(this.#narrowCount, end);
    else this.#wideCount = Math.max(this.#wideCount, end);
  }

  place(): Place {
    return { narrow: this.#narrowCount, wide: this.#wideCount, numbers: this.#numberCount };
  }

  goBack({ narrow, wide, numbers }: Place): void {
    this.#narrowCount = narrow;
    this.#wideCount = wide;
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
      narrow: firstOf(this.#narrow, this.#narrowCount, Uint8Array),
      wide: firstOf(this.#wide, this.#wideCount, Uint16Array),
      text: this.#joined.join(''),
      words: [...this.#words.keys()],
      numbers: this.#numbers.slice(0, this.#numberCount),
    };
    this.clear();
    return packed;
  }

  clear(): void {
    this.goBack({ narrow: 0, wide: 0, numbers: 0 });
    this.#joined = [];
    this.#loose = [];
    this.#otherLength = 0;
    this.#words.clear();
    for (const word of FIRST_WORDS) this.word(word);
    this.#batch = (this.#batch + 1) | 0;
    if (!isKept(this.#narrow)) this.#narrow = new Uint8Array(0);
    if (!isKept(this.#wide)) this.#wide = new Uint16Array(0);
    if (this.#numbers.length > KEPT_NUMBERS_MAX) this.#numbers = new Float64Array(FIRST_NUMBERS);
  }
}

/** Neither too large, nor given out. */
function isKept(array: Characters): boolean {
  return array.length <= KEPT_CHARACTERS_MAX && !array.buffer.detached;
}

/** A copy of the first characters, or their memory itself, and then `array` is empty from here on. */
function firstOf<T extends Characters>(array: T, count: number, Type: new (memory: ArrayBuffer) => T): T {
  if (isKept(array)) return array.slice(0, count) as T;
  return new Type(array.buffer.transfer(count * array.BYTES_PER_ELEMENT));
}

/** By as much as is needed, and at least to twice its size. */
function grown<T extends Characters | Float64Array>(array: T, more: number, Type: new (length: number) => T): T {
  const larger = new Type(Math.max(array.length * 2, array.length + more));
  larger.set(array);
  return larger;
}

/** As text; of bodies, so that there are no half characters at their ends. */
export function textOf(characters: Characters, start: number, end: number): string {
  const { buffer, BYTES_PER_ELEMENT: bytes } = characters;
  const view = Buffer.from(buffer, characters.byteOffset + start * bytes, (end - start) * bytes);
  return view.toString(bytes === 1 ? 'latin1' : 'utf16le');
}
