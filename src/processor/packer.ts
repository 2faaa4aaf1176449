/**
 * Texts, numbers and lists of them, one behind the other, in memory that goes to another thread for next to nothing: all
 * texts as one string, all numbers in one array. What was packed is to be unpacked in the same order; `packing.ts` knows
 * which. A part that was packed as skippable can be passed over, and unpacked later.
 */

export interface Packed {
  readonly text: string;
  /** Of each text in turn; -1 stands for null. */
  readonly lengths: Int32Array<ArrayBuffer>;
  readonly numbers: Float64Array<ArrayBuffer>;
}

/** An amount is a number, a text with more digits than a double holds, or null. */
const AMOUNT = { number: 0, text: 1, none: 2 } as const;

/** Of a packer's arrays: about what a batch needs. */
const FIRST_CAPACITY = 65_536;

/** So few that they are still young when they are made into one. */
const LOOSE_TEXTS_MAX = 4_096;

/** Most lists are empty. */
const NONE: readonly never[] = [];

export class Packer {
  /** Each made of many. */
  readonly #joined: string[] = [];
  #loose: string[] = [];
  #characters = 0;
  #lengths = new Int32Array(FIRST_CAPACITY);
  #lengthCount = 0;
  #numbers = new Float64Array(FIRST_CAPACITY);
  #numberCount = 0;

  text(value: string | null): void {
    if (this.#lengthCount === this.#lengths.length) this.#lengths = doubled(this.#lengths, Int32Array);
    this.#lengths[this.#lengthCount++] = value === null ? -1 : value.length;
    if (value === null) return;
    this.#loose.push(value);
    this.#characters += value.length;
    if (this.#loose.length === LOOSE_TEXTS_MAX) this.#join();
  }

  number(value: number): void {
    if (this.#numberCount === this.#numbers.length) this.#numbers = doubled(this.#numbers, Float64Array);
    this.#numbers[this.#numberCount++] = value;
  }

  amount(value: number | string | null): void {
    this.number(value === null ? AMOUNT.none : typeof value === 'number' ? AMOUNT.number : AMOUNT.text);
    if (typeof value === 'number') this.number(value);
    else if (value !== null) this.text(value);
  }

  /** What is packed meanwhile can be passed over as a whole. */
  skippable(packParts: () => void): void {
    const place = this.#numberCount;
    for (let n = 0; n < 3; n++) this.number(0);
    const [characters, lengths, numbers] = [this.#characters, this.#lengthCount, this.#numberCount];
    packParts();
    this.#numbers[place] = this.#characters - characters;
    this.#numbers[place + 1] = this.#lengthCount - lengths;
    this.#numbers[place + 2] = this.#numberCount - numbers;
  }

  list<T>(items: readonly T[], packItem: (packer: Packer, item: T) => void): void {
    this.number(items.length);
    for (const item of items) packItem(this, item);
  }

  /** Like `list`, for as many as there turn out to be. */
  counted<T>(items: Iterable<T>, packItem: (packer: Packer, item: T) => void): void {
    const place = this.#numberCount;
    this.number(0);
    let count = 0;
    for (const item of items) {
      packItem(this, item);
      count++;
    }
    this.#numbers[place] = count;
  }

  #join(): void {
    this.#joined.push(this.#loose.join(''));
    this.#loose = [];
  }

  finish(): Packed {
    this.#join();
    return {
      text: this.#joined.join(''),
      lengths: this.#lengths.slice(0, this.#lengthCount),
      numbers: this.#numbers.slice(0, this.#numberCount),
    };
  }
}

function doubled<T extends Int32Array | Float64Array>(array: T, Type: new (length: number) => T): T {
  const larger = new Type(array.length * 2);
  larger.set(array);
  return larger;
}

export class Unpacker {
  readonly #packed: Packed;
  #at: number;
  #nextLength: number;
  #nextNumber: number;

  constructor(packed: Packed, at = 0, nextLength = 0, nextNumber = 0) {
    this.#packed = packed;
    this.#at = at;
    this.#nextLength = nextLength;
    this.#nextNumber = nextNumber;
  }

  /** Passes over what was packed as skippable; whoever wants it all the same has another unpacker for it. */
  skip(): Unpacker {
    const [characters, lengths, numbers] = [this.number(), this.number(), this.number()];
    const skipped = new Unpacker(this.#packed, this.#at, this.#nextLength, this.#nextNumber);
    this.#at += characters;
    this.#nextLength += lengths;
    this.#nextNumber += numbers;
    return skipped;
  }

  optionalText(): string | null {
    const length = this.#packed.lengths[this.#nextLength++] as number;
    if (length < 0) return null;
    const start = this.#at;
    this.#at += length;
    return this.#packed.text.substring(start, this.#at);
  }

  text(): string {
    return this.optionalText() ?? '';
  }

  number(): number {
    return this.#packed.numbers[this.#nextNumber++] as number;
  }

  amount(): number | string | null {
    const kind = this.number();
    if (kind === AMOUNT.number) return this.number();
    return kind === AMOUNT.text ? this.text() : null;
  }

  list<T>(unpackItem: (unpacker: Unpacker) => T): readonly T[] {
    let left = this.number();
    if (left === 0) return NONE;
    const items: T[] = [];
    for (; left > 0; left--) items.push(unpackItem(this));
    return items;
  }
}
