/**
 * Walks over the characters of a record that the edge has accepted, and keeps what is to be stored of an object as the text
 * that it is. A step that comes upon text which JavaScript would write in another way (an exponent, a name that is a
 * number, a name given twice), or that it does not know, returns false, and then the walk is over.
 *
 * Relies on the text being JSON without escapes; if it is not, the walk ends somewhere, but never behind the quote that
 * follows the text. Writes over it: of what is kept of an object, a
 * comma before or behind it becomes a brace; where it has gaps, it is put together behind the text. So nobody may walk
 * there again.
 */

import { TEXTS_MAX, UNKNOWN } from './known-texts.ts';
import { type Characters, textOf, type Taken } from './packer.ts';
import { BEGINNING, knownNames } from './plain-names.ts';

export const QUOTE = 0x22;
export const COMMA = 0x2c;
const MINUS = 0x2d;
const POINT = 0x2e;
const ZERO = 0x30;
const NINE = 0x39;
const COLON = 0x3a;
export const OPEN_BRACKET = 0x5b;
export const CLOSE_BRACKET = 0x5d;
const UNDERSCORE = 0x5f;
const LOWER_F = 0x66;
export const LOWER_N = 0x6e;
const LOWER_T = 0x74;
export const OPEN_BRACE = 0x7b;
export const CLOSE_BRACE = 0x7d;
const WHITE_SPACE_MAX = 0x20;

const NOWHERE = -1;
const NESTING_MAX = 32;
/** In all nested objects that the walk is in: names are compared with each other, so there must not be many. */
const NESTED_NAMES_MAX = 64;
/** Of an object that is not nested. */
const NAMES_MAX = 512;
/** A double keeps any 15 digits; with at most 6 behind the point it is never written with an exponent. */
const NUMBER_CHARACTERS_MAX = 15;
const FRACTION_DIGITS_MAX = 6;
const POWERS_OF_TEN = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000] as const;

export class PlainWalk {
  readonly names = knownNames();
  #characters: Characters = new Uint8Array(0);
  #end = 0;
  #at = 0;
  /** By name: the last object that had it, of those that were entered. */
  readonly #lastObjects = new Int32Array(TEXTS_MAX);
  #object = 0;
  #nameCount = 0;
  readonly #nestedNames = new Int16Array(NESTED_NAMES_MAX);
  #nestedCount = 0;
  #textStart = 0;
  #textEnd = 0;
  #number = 0;
  /** What is kept of an object: members that follow each other, and those before them, put together elsewhere. */
  #runStart = NOWHERE;
  #runEnd = 0;
  #copyStart = NOWHERE;
  /** Where there is room behind the text. */
  #free = 0;

  begin({ characters, start, end }: Taken): void {
    this.#characters = characters;
    this.#at = start;
    this.#end = end;
    this.#free = end + 1;
    this.#nestedCount = 0;
  }

  get characters(): Characters {
    return this.#characters;
  }

  get at(): number {
    return this.#at;
  }

  /** The character that comes next. */
  get code(): number {
    return this.#characters[this.#at] as number;
  }

  /** Of the last string, without its quotes, or of what was kept. */
  get textStart(): number {
    return this.#textStart;
  }

  get textEnd(): number {
    return this.#textEnd;
  }

  text(): string {
    return textOf(this.#characters, this.#textStart, this.#textEnd);
  }

  /** The last number. */
  get number(): number {
    return this.#number;
  }

  /** Where what was kept ends, all in all. */
  get keptUpTo(): number {
    return this.#free;
  }

  isAtEnd(): boolean {
    let at = this.#at;
    while (at < this.#end && (this.#characters[at] as number) <= WHITE_SPACE_MAX) at++;
    return at === this.#end;
  }

  /** Past a string whose closing quote was found there; false if it is the one behind the text. */
  goPast(quote: number): boolean {
    this.#at = quote + 1;
    return quote < this.#end;
  }

  takes(code: number): boolean {
    if (this.#characters[this.#at] !== code) return false;
    this.#at++;
    return true;
  }

  /** Names from here on belong to another object, of which nothing is kept yet. */
  enter(): void {
    this.#object = (this.#object + 1) | 0;
    this.#nameCount = 0;
    this.#runStart = NOWHERE;
    this.#copyStart = NOWHERE;
  }

  /** A name of the object that was entered, and its colon. Its number, or `UNKNOWN`. */
  name(before: number): number {
    const name = this.anyName(before);
    if (name === UNKNOWN || this.#lastObjects[name] === this.#object || this.#nameCount === NAMES_MAX) return UNKNOWN;
    this.#lastObjects[name] = this.#object;
    this.#nameCount++;
    return name;
  }

  /** The same, and the caller sees to it that none comes twice. */
  anyName(before: number): number {
    const characters = this.#characters;
    const start = this.#at + 1;
    if (characters[start - 1] !== QUOTE) return UNKNOWN;
    const first = characters[start] as number;
    // Names that are numbers come first in objects, and `__proto__` is not worth a thought.
    if (first >= ZERO && first <= NINE) return UNKNOWN;
    if (first === UNDERSCORE && characters[start + 1] === UNDERSCORE) return UNKNOWN;
    const name = this.names.find(characters, start, before);
    if (name === UNKNOWN) return UNKNOWN;
    const colon = start + this.names.length(name) + 1;
    this.#at = colon + 1;
    return characters[colon] === COLON && this.#at < this.#end ? name : UNKNOWN;
  }

  /** The member from there to here. */
  keep(from: number): void {
    if (this.#runStart === NOWHERE) {
      this.#runStart = from;
    } else if (from !== this.#runEnd + 1) {
      this.#copyRun();
      this.#runStart = from;
    }
    this.#runEnd = this.#at;
  }

  /** What was kept is the text then; false if there is nothing. To be called when the walk has left the object. */
  takeKept(): boolean {
    const characters = this.#characters;
    if (this.#runStart === NOWHERE) return false;
    if (this.#copyStart === NOWHERE) {
      // Commas of the object, or its own braces.
      this.#textStart = this.#runStart - 1;
      this.#textEnd = this.#runEnd + 1;
      characters[this.#textStart] = OPEN_BRACE;
    } else {
      this.#copyRun();
      this.#textStart = this.#copyStart;
      this.#textEnd = ++this.#free;
    }
    characters[this.#textEnd - 1] = CLOSE_BRACE;
    return true;
  }

  #copyRun(): void {
    const isFirst = this.#copyStart === NOWHERE;
    if (isFirst) this.#copyStart = this.#free;
    this.#characters[this.#free++] = isFirst ? OPEN_BRACE : COMMA;
    this.#characters.copyWithin(this.#free, this.#runStart, this.#runEnd);
    this.#free += this.#runEnd - this.#runStart;
  }

  string(): boolean {
    const characters = this.#characters;
    let at = this.#at;
    if (characters[at] !== QUOTE || at === this.#end) return false;
    this.#textStart = ++at;
    while (characters[at] !== QUOTE) at++;
    this.#textEnd = at;
    return this.goPast(at);
  }

  /** Goes past any value that is written as it would be written again. */
  value(depth: number): boolean {
    switch (this.code) {
      case QUOTE:
        return this.string();
      case OPEN_BRACE:
        return depth < NESTING_MAX && this.#nestedObject(depth + 1);
      case OPEN_BRACKET:
        return depth < NESTING_MAX && this.#array(depth + 1);
      case LOWER_T:
      case LOWER_N:
      case LOWER_F:
        this.#at += this.code === LOWER_F ? 5 : 4;
        return this.#at < this.#end;
      default:
        return this.#numeral(false);
    }
  }

  #nestedObject(depth: number): boolean {
    this.#at++;
    if (this.takes(CLOSE_BRACE)) return true;
    const first = this.#nestedCount;
    let name: number = BEGINNING.nested;
    do {
      name = this.anyName(name);
      if (name === UNKNOWN || !this.#isNew(name, first) || !this.value(depth)) return false;
    } while (this.takes(COMMA));
    this.#nestedCount = first;
    return this.takes(CLOSE_BRACE);
  }

  /** Among those of the same object, which begin at `first`. */
  #isNew(name: number, first: number): boolean {
    const count = this.#nestedCount;
    if (count === NESTED_NAMES_MAX) return false;
    for (let index = first; index < count; index++) if (this.#nestedNames[index] === name) return false;
    this.#nestedNames[count] = name;
    this.#nestedCount = count + 1;
    return true;
  }

  #array(depth: number): boolean {
    this.#at++;
    if (this.takes(CLOSE_BRACKET)) return true;
    do {
      if (!this.value(depth)) return false;
    } while (this.takes(COMMA));
    return this.takes(CLOSE_BRACKET);
  }

  null(): boolean {
    return this.code === LOWER_N && this.value(1);
  }

  /** A number, or null, which is NaN. */
  amount(): boolean {
    if (this.code !== LOWER_N) return this.#numeral(true);
    this.#number = Number.NaN;
    return this.value(1);
  }

  /** A number of few digits. Unless its value is all that counts, it must be written as JavaScript writes it. */
  #numeral(isValueEnough: boolean): boolean {
    const characters = this.#characters;
    const start = this.#at;
    let at = start;
    let code = characters[at] as number;
    const isNegative = code === MINUS;
    if (isNegative) code = characters[++at] as number;
    const firstDigit = at;
    let digits = 0;
    for (; code >= ZERO && code <= NINE; code = characters[++at] as number) digits = digits * 10 + (code - ZERO);
    if (at === firstDigit) return false;
    let fractionDigits = 0;
    if (code === POINT) {
      const point = at;
      code = characters[++at] as number;
      for (; code >= ZERO && code <= NINE; code = characters[++at] as number) digits = digits * 10 + (code - ZERO);
      fractionDigits = at - point - 1;
      if (!isValueEnough && characters[at - 1] === ZERO) return false;
    }
    // Exponents end up here as well: what follows a number is none of the letters of one.
    if (at - start > NUMBER_CHARACTERS_MAX || fractionDigits > FRACTION_DIGITS_MAX) return false;
    if ((isNegative && digits === 0) || (code !== COMMA && code !== CLOSE_BRACE && code !== CLOSE_BRACKET))
      return false;
    const size = digits / (POWERS_OF_TEN[fractionDigits] as number);
    this.#number = isNegative ? -size : size;
    this.#at = at;
    return true;
  }
}
