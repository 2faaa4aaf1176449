/**
 * Walks over the text of a record that the edge has accepted, and keeps what is to be stored of an object as the text that
 * it is. A step that comes upon text which JavaScript would write in another way (an exponent, a name that is a number, a
 * name given twice), or that it does not know, returns false, and then the walk is over.
 *
 * Relies on the text being JSON without escapes. It is not reentrant: all walks share the memory for names.
 */

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

const NESTING_MAX = 32;
/** In all objects that the walk is in: names are compared with each other, so there must not be many. */
const NAMES_MAX = 64;
/** A double keeps any 15 digits; with at most 6 behind the point it is never written with an exponent. */
const NUMBER_CHARACTERS_MAX = 15;
const FRACTION_DIGITS_MAX = 6;
const POWERS_OF_TEN = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000] as const;

/** Hashes of the names of the objects that a walk is in. */
const NAMES = new Int32Array(NAMES_MAX);

export class PlainWalk {
  readonly #text: string;
  #at: number;
  #nameCount = 0;
  /** Of the last name or string, without its quotes. */
  #start = 0;
  #end = 0;
  #number = 0;
  /** The members of an object that are kept, as text: those before the present run of neighbours, and that run. */
  #kept = '';
  #runStart = -1;
  #runEnd = 0;

  constructor(text: string, at: number) {
    this.#text = text;
    this.#at = at;
  }

  get at(): number {
    return this.#at;
  }

  /** The last number. */
  get number(): number {
    return this.#number;
  }

  /** The character that comes next. */
  get code(): number {
    return this.#text.charCodeAt(this.#at);
  }

  isAtEnd(): boolean {
    return this.#text.slice(this.#at).trim() === '';
  }

  /** Names from here on belong to another object. Returns what `leave` wants. */
  enter(): number {
    return this.#nameCount;
  }

  leave(entered: number): void {
    this.#nameCount = entered;
  }

  keepNothing(): void {
    this.#kept = '';
    this.#runStart = -1;
  }

  /** The member from there to here. */
  keep(from: number): void {
    if (this.#runStart < 0) this.#runStart = from;
    this.#runEnd = this.#at;
  }

  leaveOut(): void {
    if (this.#runStart < 0) return;
    this.#kept += `${this.#text.slice(this.#runStart, this.#runEnd)},`;
    this.#runStart = -1;
  }

  keptText(): string {
    if (this.#runStart >= 0) return `{${this.#kept}${this.#text.slice(this.#runStart, this.#runEnd)}}`;
    return this.#kept === '' ? '{}' : `{${this.#kept.slice(0, -1)}}`;
  }

  takes(code: number): boolean {
    if (this.#text.charCodeAt(this.#at) !== code) return false;
    this.#at++;
    return true;
  }

  slice(): string {
    return this.#text.slice(this.#start, this.#end);
  }

  /** A name and its colon. Those of the same object begin at `from`. */
  name(from: number): boolean {
    const text = this.#text;
    if (!this.takes(QUOTE)) return false;
    const start = this.#at;
    let at = start;
    let hash = 0;
    for (let code = text.charCodeAt(at); code !== QUOTE; code = text.charCodeAt(++at)) {
      // Not a number at the end of the text, which is not JSON then.
      if (!(code >= 0)) return false;
      hash = (Math.imul(hash, 31) + code) | 0;
    }
    const first = text.charCodeAt(start);
    // Names that are numbers come first in objects, and `__proto__` is not worth a thought.
    if ((first >= ZERO && first <= NINE) || (first === UNDERSCORE && text.charCodeAt(start + 1) === UNDERSCORE)) {
      return false;
    }
    const count = this.#nameCount;
    if (count === NAMES_MAX) return false;
    for (let index = from; index < count; index++) if (NAMES[index] === hash) return false;
    NAMES[count] = hash;
    this.#nameCount = count + 1;
    this.#start = start;
    this.#end = at;
    this.#at = at + 1;
    return this.takes(COLON);
  }

  /** Goes past any value that is written as it would be written again. */
  value(depth: number): boolean {
    const code = this.#text.charCodeAt(this.#at);
    switch (code) {
      case QUOTE:
        this.#start = this.#at + 1;
        this.#end = this.#text.indexOf('"', this.#start);
        this.#at = this.#end + 1;
        return this.#end >= 0;
      case OPEN_BRACE:
        return depth < NESTING_MAX && this.#object(depth + 1);
      case OPEN_BRACKET:
        return depth < NESTING_MAX && this.#array(depth + 1);
      case LOWER_T:
      case LOWER_N:
        this.#at += 4;
        return true;
      case LOWER_F:
        this.#at += 5;
        return true;
      default:
        return this.#numeral(false);
    }
  }

  #object(depth: number): boolean {
    this.#at++;
    if (this.takes(CLOSE_BRACE)) return true;
    const names = this.#nameCount;
    do {
      if (!this.name(names) || !this.value(depth)) return false;
    } while (this.takes(COMMA));
    this.#nameCount = names;
    return this.takes(CLOSE_BRACE);
  }

  #array(depth: number): boolean {
    this.#at++;
    if (this.takes(CLOSE_BRACKET)) return true;
    do {
      if (!this.value(depth)) return false;
    } while (this.takes(COMMA));
    return this.takes(CLOSE_BRACKET);
  }

  amount(first: number): boolean {
    return first === LOWER_N ? this.value(1) : this.#numeral(true);
  }

  /** A number of few digits. Unless its value is all that counts, it must be written as JavaScript writes it. */
  #numeral(isValueEnough: boolean): boolean {
    const text = this.#text;
    const start = this.#at;
    let at = start;
    let code = text.charCodeAt(at);
    const isNegative = code === MINUS;
    if (isNegative) code = text.charCodeAt(++at);
    const firstDigit = at;
    let digits = 0;
    for (; code >= ZERO && code <= NINE; code = text.charCodeAt(++at)) digits = digits * 10 + (code - ZERO);
    if (at === firstDigit) return false;
    let fractionDigits = 0;
    if (code === POINT) {
      const point = at;
      code = text.charCodeAt(++at);
      for (; code >= ZERO && code <= NINE; code = text.charCodeAt(++at)) digits = digits * 10 + (code - ZERO);
      fractionDigits = at - point - 1;
      if (!isValueEnough && text.charCodeAt(at - 1) === ZERO) return false;
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
