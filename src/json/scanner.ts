/**
 * The one JSON scanner: a pull parser over UTF-8 bytes. It makes one pass, checks the whole grammar, and builds no
 * values: a caller that wants one reads its position in the bytes (`at`) or in the decoded text (`offset`, `text`), so
 * what is kept of a body is what the client wrote, to the last digit.
 *
 *     const scanner = new JsonScanner(bytes);
 *     if (scanner.openObject()) {
 *       for (let key = scanner.nextKey(KEYS); key !== END; key = scanner.nextKey(KEYS)) {
 *         if (key === 0 && scanner.string()) use(scanner.stringText());
 *         else scanner.skipValue();
 *       }
 *     }
 *     if (!scanner.finish()) report(scanner.error);
 *
 * - `openObject`, `openArray`, `string`, `number` consume a token of that kind; they return false, and consume nothing,
 *   if another kind comes next. `skipValue` consumes any value. Every value must be consumed before the next `nextKey`.
 * - `nextKey` returns the number of a known key, `OTHER` or `END`; `nextElement` whether there is one.
 * - Errors are sticky: the first one is kept in `error` and moves the scanner to the end, so that every loop ends. A
 *   caller need not check each step, but must check `finish()`.
 *
 * Invariant: without an error the text is JSON exactly when `JSON.parse` says so, provided that the bytes are UTF-8.
 * Limits: it does not compare keys, so the caller sees both of a duplicate key, in order. Depth takes one byte per
 * level, and no stack.
 */

import { decodeUtf8 } from './utf8.ts';

/** What `nextKey` gives for a key that is not among the known ones. */
export const OTHER = -1;
/** What it gives when the object has no more members, or the text is not JSON. */
export const END = -2;

export interface JsonError {
  /** Index into the text, in UTF-16 units; the length of the text if it ends too early. */
  readonly offset: number;
  readonly problem: string;
  /** What could have been there, in words; null if the problem says it all. */
  readonly expected: string | null;
}

const TAB = 0x09;
const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;
const SPACE = 0x20;
export const QUOTE = 0x22;
const PLUS = 0x2b;
const COMMA = 0x2c;
export const MINUS = 0x2d;
const POINT = 0x2e;
export const ZERO = 0x30;
const NINE = 0x39;
export const COLON = 0x3a;
export const OPEN_BRACKET = 0x5b;
export const BACKSLASH = 0x5c;
export const CLOSE_BRACKET = 0x5d;
export const LOWER_E = 0x65;
export const LOWER_F = 0x66;
export const LOWER_N = 0x6e;
const LOWER_U = 0x75;
export const OPEN_BRACE = 0x7b;
export const CLOSE_BRACE = 0x7d;
/** No JSON text holds it outside of a string; what `peek` gives at the end. */
const NOTHING = 0;

/** 1 for ASCII that can be in a string as it is: no quote, no backslash, no control character. */
const PLAIN = new Uint8Array(256).fill(1, SPACE, 0x80);
PLAIN[QUOTE] = 0;
PLAIN[BACKSLASH] = 0;
/** 1 for what can follow a backslash, apart from `u`. */
const SIMPLE_ESCAPE = new Uint8Array(256);
for (const code of bytesOf('"\\/bfnrt')) SIMPLE_ESCAPE[code] = 1;

const WORDS = [bytesOf('true'), bytesOf('false'), bytesOf('null')];

const NO_BRACKETS = new Uint8Array(0);

const A_VALUE = 'a value';
const A_KEY = 'a property name in double quotes';

/** Keys that a caller looks for, numbered in their order. ASCII, and none is longer than `KEY_BYTES_MAX`. */
export class KnownKeys {
  readonly #names: readonly string[];
  /** By the length of the key. */
  readonly byLength: readonly (readonly { readonly bytes: Uint8Array; readonly number: number }[])[];

  constructor(...names: readonly string[]) {
    this.#names = names;
    this.byLength = Array.from({ length: KEY_BYTES_MAX + 1 }, (_, length) =>
      names.flatMap((name, number) => (name.length === length ? [{ bytes: bytesOf(name), number }] : [])),
    );
  }

  numberOf(name: string): number {
    return this.#names.indexOf(name);
  }
}

const KEY_BYTES_MAX = 15;
export const NO_KEYS = new KnownKeys();

export class JsonScanner {
  readonly bytes: Uint8Array;
  /** Where the next byte is. */
  at = 0;
  /** Where the last string or key is, without its quotes. */
  stringStart = 0;
  stringEnd = 0;
  /** Whether the last string or key has a backslash in it. */
  isEscaped = false;
  /** Whether any string or key so far has an escape of U+0000, or of half of a surrogate pair. */
  hasRiskyEscape = false;
  /** Whether the last number has an exponent. */
  hasExponent = false;
  /** The longest of all keys so far. */
  longestKeyBytes = 0;
  /** The deepest nesting of arrays and objects in all values that were skipped so far. */
  deepest = 0;
  /** How many more bytes than UTF-16 units there are before `at`, and before the last string. */
  #surplus = 0;
  #surplusBefore = 0;
  /** The brackets that are open in `skipValue`. */
  #brackets: Uint8Array = NO_BRACKETS;
  readonly #lastQuote: number;
  #text: string | null;
  #error: JsonError | null = null;

  /** The text is that of the bytes, for a caller that has it; half of a surrogate pair in it may be U+FFFD in the bytes. */
  constructor(bytes: Uint8Array, text: string | null = null) {
    this.bytes = bytes;
    this.#text = text;
    // A buffer's own lastIndexOf takes as long as scanning a hundred bytes.
    let at = bytes.length - 1;
    while (at >= 0 && bytes[at] !== QUOTE) at--;
    this.#lastQuote = at;
  }

  /** The first error; null if there was none. */
  get error(): JsonError | null {
    return this.#error;
  }

  /** All of it, decoded. */
  get text(): string {
    return (this.#text ??= decodeUtf8(this.bytes));
  }

  /** `at` as an index into `text`. */
  get offset(): number {
    return this.at - this.#surplus;
  }

  /** `stringStart` and `stringEnd` as indexes into `text`. */
  get stringStartOffset(): number {
    return this.stringStart - this.#surplusBefore;
  }

  get stringEndOffset(): number {
    return this.stringEnd - this.#surplus;
  }

  /** The last string or key, decoded. Call it before the scanner moves on. */
  stringText(): string {
    const [start, end] = [this.stringStartOffset, this.stringEndOffset];
    return this.isEscaped ? (JSON.parse(this.text.slice(start - 1, end + 1)) as string) : this.text.slice(start, end);
  }

  /** The next byte that is not white space, without going past it; 0 at the end. */
  peek(): number {
    const { bytes, at } = this;
    if (at < bytes.length) {
      const code = bytes[at] as number;
      if (code > SPACE) return code;
    }
    return this.#peekPastWhiteSpace();
  }

  #peekPastWhiteSpace(): number {
    const { bytes } = this;
    const { length } = bytes;
    let { at } = this;
    while (at < length && isWhiteSpace(bytes[at] as number)) at++;
    this.at = at;
    return at < length ? (bytes[at] as number) : NOTHING;
  }

  openObject(): boolean {
    return this.#opens(OPEN_BRACE);
  }

  openArray(): boolean {
    return this.#opens(OPEN_BRACKET);
  }

  #opens(bracket: number): boolean {
    if (this.peek() !== bracket) return false;
    this.at++;
    return true;
  }

  /** Goes past the next key of an object and its colon, or past the end of the object. */
  nextKey(known: KnownKeys): number {
    return this.#nextMember() ? this.#numberOfKey(known) : END;
  }

  #nextMember(): boolean {
    const isFirst = this.bytes[this.at - 1] === OPEN_BRACE;
    const code = this.peek();
    if (code === CLOSE_BRACE) {
      this.at++;
      return false;
    }
    if (!isFirst) {
      if (code !== COMMA) return this.#unexpected('a comma or a closing brace');
      this.at++;
    }
    return this.#key(isFirst);
  }

  /** Goes to the next element of an array, or past the end of the array. */
  nextElement(): boolean {
    const isFirst = this.bytes[this.at - 1] === OPEN_BRACKET;
    const code = this.peek();
    if (code === CLOSE_BRACKET) {
      this.at++;
      return false;
    }
    if (isFirst && this.at < this.bytes.length) return true;
    if (code === COMMA) {
      this.at++;
      return this.peek() !== CLOSE_BRACKET || this.#unexpected(A_VALUE);
    }
    return this.#unexpected(isFirst ? `${A_VALUE} or a closing bracket` : 'a comma or a closing bracket');
  }

  string(): boolean {
    if (this.peek() !== QUOTE) return false;
    return this.#string();
  }

  number(): boolean {
    const code = this.peek();
    return (code === MINUS || isDigit(code)) && this.#number(code);
  }

  /** Goes past any value, whatever it is; false if it is not JSON. */
  skipValue(): boolean {
    const code = this.peek();
    if (code === QUOTE) return this.#string();
    if (code === MINUS || isDigit(code)) return this.#number(code);
    return this.#skipNested(code);
  }

  #skipNested(first: number): boolean {
    let depth = 0;
    let isFirst = false;
    for (let code = first; ; code = this.peek()) {
      if (code === QUOTE) this.#string();
      else if (code === MINUS || isDigit(code)) this.#number(code);
      else if (code === OPEN_BRACE || code === OPEN_BRACKET) {
        this.at++;
        if (depth === this.#brackets.length) this.#growBrackets();
        this.#brackets[depth++] = code;
        if (depth > this.deepest) this.deepest = depth;
      } else this.#word(code, isFirst);
      // To the next value, past the ends of what the last one was in.
      for (; ; depth--) {
        if (depth === 0 || this.#error !== null) return this.#error === null;
        isFirst = this.bytes[this.at - 1] === OPEN_BRACKET;
        if (this.#brackets[depth - 1] === OPEN_BRACE ? this.#nextMember() : this.nextElement()) break;
      }
    }
  }

  /** Whether the text was JSON, and nothing follows it. */
  finish(): boolean {
    this.peek();
    if (this.at < this.bytes.length) this.#unexpected('nothing more after the end of the JSON value');
    return this.#error === null;
  }

  /** A key and its colon. */
  #key(isFirst: boolean): boolean {
    if (this.peek() !== QUOTE) return this.#unexpected(isFirst ? `${A_KEY} or a closing brace` : A_KEY);
    if (!this.#string()) return false;
    const keyBytes = this.stringEnd - this.stringStart;
    if (keyBytes > this.longestKeyBytes) this.longestKeyBytes = keyBytes;
    if (this.peek() !== COLON) return this.#unexpected('a colon');
    this.at++;
    return true;
  }

  #numberOfKey(known: KnownKeys): number {
    if (this.isEscaped) return known.numberOf(this.stringText());
    const { bytes, stringStart: start } = this;
    const keyBytes = this.stringEnd - start;
    if (keyBytes > KEY_BYTES_MAX) return OTHER;
    const candidates = known.byLength[keyBytes] as KnownKeys['byLength'][number];
    for (let index = 0; index < candidates.length; index++) {
      const { bytes: name, number } = candidates[index] as (typeof candidates)[number];
      if (isSame(bytes, start, name)) return number;
    }
    return OTHER;
  }

  /** A string, at its opening quote. */
  #string(): boolean {
    const { bytes } = this;
    let at = this.at + 1;
    this.stringStart = at;
    this.isEscaped = false;
    this.#surplusBefore = this.#surplus;
    if (at > this.#lastQuote) return this.#restOfString(at);
    // Ends at the last quote at the latest: to compare with the length for each byte would take an eighth of all time.
    while (PLAIN[bytes[at] as number] === 1) at++;
    this.stringEnd = at;
    this.at = at + 1;
    return bytes[at] === QUOTE || this.#restOfString(at);
  }

  /** From the first byte that is not plain ASCII. */
  #restOfString(start: number): boolean {
    const { bytes } = this;
    const { length } = bytes;
    let at = start;
    for (;;) {
      while (at < length && PLAIN[bytes[at] as number] === 1) at++;
      this.at = at;
      if (at >= length) return this.#unexpected('a closing double quote');
      const code = bytes[at] as number;
      if (code === QUOTE) break;
      if (code >= 0x80) {
        // Two bytes make one unit, three one, four two.
        const more = code < 0xe0 ? 1 : code < 0xf0 ? 2 : 3;
        this.#surplus += more === 1 ? 1 : 2;
        at += more + 1;
      } else if (code === BACKSLASH) {
        if (!this.#escape()) return false;
        at = this.at;
      } else return this.#fail('raw control character in a string', 'an escape such as \\n');
    }
    this.stringEnd = at;
    this.at = at + 1;
    return true;
  }

  #escape(): boolean {
    const { bytes } = this;
    this.isEscaped = true;
    if (++this.at === bytes.length) return this.#unexpected('the rest of an escape');
    const code = bytes[this.at++] as number;
    if (SIMPLE_ESCAPE[code] === 1) return true;
    if (code !== LOWER_U) {
      this.at--;
      return this.#fail('bad escape in a string', 'one of " \\ / b f n r t u after a backslash');
    }
    let unit = 0;
    for (const end = this.at + 4; this.at < end; this.at++) {
      const digit = this.at < bytes.length ? hexDigitOf(bytes[this.at] as number) : NOT_HEX;
      if (digit === NOT_HEX) return this.#unexpected('four hexadecimal digits after \\u');
      unit = unit * 16 + digit;
    }
    if (unit === 0 || (unit >= 0xd800 && unit <= 0xdfff)) this.hasRiskyEscape = true;
    return true;
  }

  /** A number, at its first byte. */
  #number(first: number): boolean {
    const { bytes } = this;
    const { length } = bytes;
    const start = first === MINUS ? this.at + 1 : this.at;
    let at = this.#endOfDigits(start);
    if (at === start) return this.#noDigit(at);
    if (bytes[start] === ZERO && at > start + 1) {
      this.at = start + 1;
      return this.#fail('number with a leading zero', null);
    }
    if (at < length && bytes[at] === POINT) {
      const fraction = at + 1;
      at = this.#endOfDigits(fraction);
      if (at === fraction) return this.#noDigit(at);
    }
    this.hasExponent = at < length && ((bytes[at] as number) | 0x20) === LOWER_E;
    if (this.hasExponent) {
      at++;
      if (at < length && (bytes[at] === PLUS || bytes[at] === MINUS)) at++;
      const exponent = at;
      at = this.#endOfDigits(exponent);
      if (at === exponent) return this.#noDigit(at);
    }
    this.at = at;
    return true;
  }

  #endOfDigits(start: number): number {
    const { bytes } = this;
    let at = start;
    while (at < bytes.length && isDigit(bytes[at] as number)) at++;
    return at;
  }

  #noDigit(at: number): false {
    this.at = at;
    return this.#unexpected('a digit');
  }

  #word(first: number, isFirst: boolean): boolean {
    const { bytes } = this;
    for (const word of WORDS) {
      if (word[0] !== first) continue;
      for (let index = 1; index < word.length; index++) {
        this.at++;
        if (this.at === bytes.length || bytes[this.at] !== word[index])
          return this.#unexpected(`the word ${String.fromCharCode(...word)}`);
      }
      this.at++;
      return true;
    }
    return this.#unexpected(isFirst ? `${A_VALUE} or a closing bracket` : A_VALUE);
  }

  #growBrackets(): void {
    const grown = new Uint8Array(Math.max(32, this.#brackets.length * 2));
    grown.set(this.#brackets);
    this.#brackets = grown;
  }

  #unexpected(expected: string): false {
    return this.#fail(this.at < this.bytes.length ? 'unexpected character' : 'ends too early', expected);
  }

  /** The first error is kept, and nothing is left to scan. */
  #fail(problem: string, expected: string | null): false {
    this.#error ??= { offset: this.offset, problem, expected };
    this.at = this.bytes.length;
    return false;
  }
}

function bytesOf(text: string): Uint8Array {
  return Uint8Array.from(text, (character) => character.charCodeAt(0));
}

/** The caller knows that there are so many bytes. */
function isSame(bytes: Uint8Array, start: number, word: Uint8Array): boolean {
  for (let index = 0; index < word.length; index++) if (bytes[start + index] !== word[index]) return false;
  return true;
}

export function isWhiteSpace(code: number): boolean {
  return code === SPACE || code === LINE_FEED || code === CARRIAGE_RETURN || code === TAB;
}

export function isDigit(code: number): boolean {
  return code >= ZERO && code <= NINE;
}

const NOT_HEX = -1;

function hexDigitOf(code: number): number {
  if (isDigit(code)) return code - ZERO;
  const letter = (code | 0x20) - 0x61;
  return letter >= 0 && letter <= 5 ? 10 + letter : NOT_HEX;
}
