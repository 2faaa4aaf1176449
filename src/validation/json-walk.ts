/**
 * Walks over the bytes of JSON text without making anything of them. Every step says whether it went well; after one
 * that did not, the walk is over. It is stricter than JSON on purpose: escaped keys, `\u` escapes, exponents, keys over
 * the limit and nesting beyond `NESTING_MAX` are refused, and whoever walks then asks `JSON.parse` instead.
 *
 * What it passes is JSON, provided that the bytes are UTF-8. It never reads behind the end: one such read would make the
 * engine compile slower code for all walks to come. Checks for that are per token, not per byte: a number stops at the
 * closing brace that the text ends with, a string at its last quote.
 */

import { LIMITS } from '../model.ts';

/** Well below the limit of nesting, and what recursion can take. */
const NESTING_MAX = 32;
/** Any number with fewer digits is finite. */
const DIGITS_MAX = 300;

const TAB = 0x09;
const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;
const SPACE = 0x20;
export const QUOTE = 0x22;
export const COMMA = 0x2c;
export const MINUS = 0x2d;
export const POINT = 0x2e;
export const ZERO = 0x30;
const NINE = 0x39;
export const COLON = 0x3a;
export const OPEN_BRACKET = 0x5b;
export const BACKSLASH = 0x5c;
export const CLOSE_BRACKET = 0x5d;
const LOWER_E = 0x65;
export const OPEN_BRACE = 0x7b;
export const CLOSE_BRACE = 0x7d;

/** 1 for what may stand in a string as it is: no quote, no backslash, no control character. */
const PLAIN = Uint8Array.from({ length: 256 }, (_, code) =>
  code >= SPACE && code !== QUOTE && code !== BACKSLASH ? 1 : 0,
);

/** Names to look out for, by their length; each has a bit of its own. */
export type Names = readonly (readonly Name[])[];

interface Name {
  readonly bytes: Uint8Array;
  readonly bit: number;
}

const NAME_BYTES_MAX = 15;

export function namesOf(...names: readonly string[]): Names {
  return Array.from({ length: NAME_BYTES_MAX + 1 }, (_, length) =>
    names.flatMap((name, index) => (name.length === length ? [{ bytes: bytesOf(name), bit: 1 << index }] : [])),
  );
}

export const NO_NAMES = namesOf();

export class JsonWalk {
  readonly bytes: Uint8Array;
  at = 0;
  /** Where the content of the last string starts, and where its closing quote is. */
  stringStart = 0;
  stringEnd = 0;
  /** Behind the last byte that is not white space. */
  readonly #end: number;
  readonly #lastQuote: number;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
    let end = bytes.length;
    while (end > 0 && isWhiteSpace(bytes[end - 1] as number)) end--;
    this.#end = end;
    this.#lastQuote = bytes.lastIndexOf(QUOTE);
  }

  /** Whether this could be an object at all. To be asked first: all else relies on the brace at the end. */
  endsWithBrace(): boolean {
    return this.#end > 0 && this.bytes[this.#end - 1] === CLOSE_BRACE;
  }

  /** The next byte that is not white space, without going past it; 0, which no JSON text holds, at the end. */
  peek(): number {
    const { bytes } = this;
    if (this.at >= this.#end) return 0;
    let code = bytes[this.at] as number;
    // What the text ends with is not white space, so this stops there.
    while (code <= SPACE && isWhiteSpace(code)) {
      this.at++;
      code = bytes[this.at] as number;
    }
    return code;
  }

  /** The next byte that is not white space, going past it. */
  next(): number {
    const code = this.peek();
    this.at++;
    return code;
  }

  /** Whether nothing but white space is left. */
  isAtEnd(): boolean {
    return this.at === this.#end;
  }

  /** A key and its colon: the bit of the name that it is, 0 for any other, -1 if it is refused. */
  key(names: Names): number {
    if (this.next() !== QUOTE) return -1;
    const { bytes, at: start } = this;
    if (start > this.#lastQuote) return -1;
    let at = start;
    while (PLAIN[bytes[at] as number] === 1) at++;
    const keyBytes = at - start;
    if (bytes[at] !== QUOTE || keyBytes > LIMITS.propertyKeyCharactersMax) return -1;
    this.at = at + 1;
    if (this.next() !== COLON) return -1;
    const candidates = keyBytes <= NAME_BYTES_MAX ? names[keyBytes] : undefined;
    if (candidates === undefined) return 0;
    for (let index = 0; index < candidates.length; index++) {
      const { bytes: name, bit } = candidates[index] as Name;
      if (isSame(bytes, start, name)) return bit;
    }
    return 0;
  }

  /** Any value that is within `depth` arrays and objects. */
  value(depth: number): boolean {
    const code = this.next();
    if (code === QUOTE) return this.string();
    if (code === OPEN_BRACE) return this.#object(depth + 1);
    if (code === OPEN_BRACKET) return this.#array(depth + 1);
    if (code === MINUS || isDigit(code)) return this.number(code);
    return this.#literal(code);
  }

  /** The rest of a string, after its opening quote. */
  string(): boolean {
    const { bytes } = this;
    let { at } = this;
    this.stringStart = at;
    for (;;) {
      if (at > this.#lastQuote) return false;
      while (PLAIN[bytes[at] as number] === 1) at++;
      const code = bytes[at];
      if (code === QUOTE) break;
      if (code !== BACKSLASH || !isSimpleEscape(bytes[at + 1] as number)) return false;
      at += 2;
    }
    this.stringEnd = at;
    this.at = at + 1;
    return true;
  }

  /** The rest of a number, after its first byte. */
  number(first: number): boolean {
    const { bytes, at: start } = this;
    let at = start;
    let code = first;
    if (code === MINUS) code = bytes[at++] as number;
    if (!isDigit(code)) return false;
    if (code === ZERO) code = bytes[at++] as number;
    else while (isDigit(code)) code = bytes[at++] as number;
    if (code === POINT) {
      code = bytes[at++] as number;
      if (!isDigit(code)) return false;
      while (isDigit(code)) code = bytes[at++] as number;
    }
    if ((code | 0x20) === LOWER_E || isDigit(code) || at - start > DIGITS_MAX) return false;
    this.at = at - 1;
    return true;
  }

  #object(depth: number): boolean {
    if (depth > NESTING_MAX) return false;
    if (this.peek() === CLOSE_BRACE) {
      this.at++;
      return true;
    }
    for (;;) {
      if (this.key(NO_NAMES) < 0 || !this.value(depth)) return false;
      const code = this.next();
      if (code === CLOSE_BRACE) return true;
      if (code !== COMMA) return false;
    }
  }

  #array(depth: number): boolean {
    if (depth > NESTING_MAX) return false;
    if (this.peek() === CLOSE_BRACKET) {
      this.at++;
      return true;
    }
    for (;;) {
      if (!this.value(depth)) return false;
      const code = this.next();
      if (code === CLOSE_BRACKET) return true;
      if (code !== COMMA) return false;
    }
  }

  #literal(first: number): boolean {
    for (const word of LITERALS) {
      if (word[0] !== first) continue;
      if (this.at - 1 + word.length > this.#end || !isSame(this.bytes, this.at - 1, word)) return false;
      this.at += word.length - 1;
      return true;
    }
    return false;
  }
}

const LITERALS = [bytesOf('true'), bytesOf('false'), bytesOf('null')];

function bytesOf(text: string): Uint8Array {
  return Uint8Array.from(text, (character) => character.charCodeAt(0));
}

/** The caller knows that there are so many bytes. */
function isSame(bytes: Uint8Array, start: number, word: Uint8Array): boolean {
  for (let index = 0; index < word.length; index++) if (bytes[start + index] !== word[index]) return false;
  return true;
}

export function isDigit(code: number): boolean {
  return code >= ZERO && code <= NINE;
}

/** What may follow a backslash, apart from `u`. */
const SIMPLE_ESCAPES = Uint8Array.from({ length: 256 }, (_, code) =>
  '"\\/bfnrt'.includes(String.fromCharCode(code)) ? 1 : 0,
);

function isWhiteSpace(code: number): boolean {
  return code === SPACE || code === LINE_FEED || code === CARRIAGE_RETURN || code === TAB;
}

function isSimpleEscape(code: number): boolean {
  return SIMPLE_ESCAPES[code] === 1;
}
