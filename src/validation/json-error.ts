/**
 * Says where and why a text is not JSON. Runs only after `JSON.parse` has refused the text, because the engine's own
 * messages do not always have a position and quote the text, which may be personal data and must not get into logs.
 *
 * Invariant: an error is found exactly when `JSON.parse` throws, at the first character that no JSON text could have
 * there. The scanner does not recurse, so nesting is bounded by memory alone (a byte a level).
 */

export interface JsonError {
  /** Index into the text, in UTF-16 units; the length of the text if it ends too early. */
  readonly offset: number;
  readonly problem: string;
  /** What could have stood there, in words; null if the problem says it all. */
  readonly expected: string | null;
}

/** For example `unexpected character at line 3, column 17, expected a value`. Columns count characters from 1. */
export function describeJsonError(text: string): string | undefined {
  const error = findJsonError(text);
  if (error === undefined) return undefined;
  let line = 1;
  let column = 1;
  for (let at = 0; at < error.offset; at++) {
    const code = text.charCodeAt(at);
    if (code === LINE_FEED) {
      line++;
      column = 1;
    } else if (code < 0xdc00 || code > 0xdfff) {
      // The second half of a surrogate pair is no character of its own.
      column++;
    }
  }
  const expected = error.expected === null ? '' : `, expected ${error.expected}`;
  return `${error.problem} at line ${line}, column ${column}${expected}`;
}

export function findJsonError(text: string): JsonError | undefined {
  return new Scanner(text).firstError();
}

const LINE_FEED = 0x0a;
const QUOTE = 0x22;
const PLUS = 0x2b;
const COMMA = 0x2c;
const MINUS = 0x2d;
const POINT = 0x2e;
const ZERO = 0x30;
const NINE = 0x39;
const COLON = 0x3a;
const OPEN_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_BRACKET = 0x5d;
const LOWER_E = 0x65;
const LOWER_U = 0x75;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const BYTE_ORDER_MARK = 0xfeff;

const ARRAY = 0;
const OBJECT = 1;

const LITERALS = ['true', 'false', 'null'] as const;
const ESCAPED = '"\\/bfnrt';

const A_VALUE = 'a value';
const A_KEY = 'a property name in double quotes';

/** What comes next: a token, or a token or the end of the container that was just opened. */
type Next = 'value' | 'valueOrClose' | 'key' | 'keyOrClose' | 'colon' | 'commaOrClose';

class Scanner {
  readonly #text: string;
  #at = 0;
  #error: JsonError | undefined;
  /** One byte for each open container: ARRAY or OBJECT. */
  #containers = new Uint8Array(64);
  #depth = 0;

  constructor(text: string) {
    this.#text = text;
  }

  firstError(): JsonError | undefined {
    if (this.#text.charCodeAt(0) === BYTE_ORDER_MARK) {
      this.#fail(0, 'byte order mark', 'JSON to start without one');
    }
    let next: Next = 'value';
    while (this.#error === undefined) {
      this.#skipWhiteSpace();
      const code = this.#text.charCodeAt(this.#at);
      if (this.#depth === 0 && next === 'commaOrClose') {
        if (this.#at < this.#text.length) this.#unexpected('nothing more after the end of the JSON value');
        return this.#error;
      }
      next = this.#step(next, code);
    }
    return this.#error;
  }

  #step(next: Next, code: number): Next {
    switch (next) {
      case 'valueOrClose':
        return code === CLOSE_BRACKET ? this.#close() : this.#value(code, `${A_VALUE} or a closing bracket`);
      case 'value':
        return this.#value(code, A_VALUE);
      case 'keyOrClose':
        return code === CLOSE_BRACE ? this.#close() : this.#key(code, `${A_KEY} or a closing brace`);
      case 'key':
        return this.#key(code, A_KEY);
      case 'commaOrClose':
        return this.#commaOrClose(code);
      case 'colon':
        break;
    }
    if (code === COLON) this.#at++;
    else this.#unexpected('a colon');
    return 'value';
  }

  #commaOrClose(code: number): Next {
    const inArray = this.#containers[this.#depth - 1] === ARRAY;
    if (code === (inArray ? CLOSE_BRACKET : CLOSE_BRACE)) return this.#close();
    if (code === COMMA) this.#at++;
    else this.#unexpected(inArray ? 'a comma or a closing bracket' : 'a comma or a closing brace');
    return inArray ? 'value' : 'key';
  }

  #open(kind: number): void {
    if (this.#depth === this.#containers.length) {
      const grown = new Uint8Array(this.#depth * 2);
      grown.set(this.#containers);
      this.#containers = grown;
    }
    this.#containers[this.#depth++] = kind;
    this.#at++;
  }

  #close(): Next {
    this.#depth--;
    this.#at++;
    return 'commaOrClose';
  }

  #key(code: number, expected: string): Next {
    if (code === QUOTE) this.#string();
    else this.#unexpected(expected);
    return 'colon';
  }

  #value(code: number, expected: string): Next {
    if (code === OPEN_BRACE) {
      this.#open(OBJECT);
      return 'keyOrClose';
    }
    if (code === OPEN_BRACKET) {
      this.#open(ARRAY);
      return 'valueOrClose';
    }
    if (code === QUOTE) this.#string();
    else if (code === MINUS || isDigit(code)) this.#number();
    else this.#literal(expected);
    return 'commaOrClose';
  }

  #literal(expected: string): void {
    const literal = LITERALS.find((word) => word.charCodeAt(0) === this.#text.charCodeAt(this.#at));
    if (literal === undefined) {
      this.#unexpected(expected);
      return;
    }
    for (let index = 0; index < literal.length; index++) {
      if (this.#text.charCodeAt(this.#at) !== literal.charCodeAt(index)) {
        this.#unexpected(`the word ${literal}`);
        return;
      }
      this.#at++;
    }
  }

  #number(): void {
    if (this.#text.charCodeAt(this.#at) === MINUS) this.#at++;
    if (this.#text.charCodeAt(this.#at) === ZERO) {
      this.#at++;
      if (isDigit(this.#text.charCodeAt(this.#at))) this.#fail(this.#at, 'number with a leading zero', null);
    } else {
      this.#digits();
    }
    if (this.#text.charCodeAt(this.#at) === POINT) {
      this.#at++;
      this.#digits();
    }
    const exponent = this.#text.charCodeAt(this.#at) | 0x20;
    if (exponent !== LOWER_E) return;
    this.#at++;
    const sign = this.#text.charCodeAt(this.#at);
    if (sign === PLUS || sign === MINUS) this.#at++;
    this.#digits();
  }

  #digits(): void {
    if (!isDigit(this.#text.charCodeAt(this.#at))) this.#unexpected('a digit');
    while (isDigit(this.#text.charCodeAt(this.#at))) this.#at++;
  }

  #string(): void {
    this.#at++;
    while (this.#at < this.#text.length) {
      const code = this.#text.charCodeAt(this.#at);
      if (code === QUOTE) {
        this.#at++;
        return;
      }
      if (code < 0x20) {
        this.#fail(this.#at, 'raw control character in a string', 'an escape such as \\n');
        return;
      }
      if (code === BACKSLASH) this.#escape();
      else this.#at++;
      if (this.#error !== undefined) return;
    }
    this.#unexpected('a closing double quote');
  }

  #escape(): void {
    this.#at++;
    if (this.#at === this.#text.length) {
      this.#unexpected('the rest of an escape');
    } else if (this.#text.charCodeAt(this.#at) === LOWER_U) {
      this.#at++;
      for (const end = this.#at + 4; this.#at < end; this.#at++) {
        if (!isHexDigit(this.#text.charCodeAt(this.#at))) {
          this.#unexpected('four hexadecimal digits after \\u');
          return;
        }
      }
    } else if (ESCAPED.includes(this.#text.charAt(this.#at))) {
      this.#at++;
    } else {
      this.#fail(this.#at, 'bad escape in a string', 'one of " \\ / b f n r t u after a backslash');
    }
  }

  #skipWhiteSpace(): void {
    while (isWhiteSpace(this.#text.charCodeAt(this.#at))) this.#at++;
  }

  #unexpected(expected: string): void {
    this.#fail(this.#at, this.#at < this.#text.length ? 'unexpected character' : 'ends too early', expected);
  }

  /** The first error stays; what a token does after its error does not count. */
  #fail(offset: number, problem: string, expected: string | null): void {
    this.#error ??= { offset, problem, expected };
  }
}

function isDigit(code: number): boolean {
  return code >= ZERO && code <= NINE;
}

function isHexDigit(code: number): boolean {
  const lower = code | 0x20;
  return isDigit(code) || (lower >= 0x61 && lower <= 0x66);
}

function isWhiteSpace(code: number): boolean {
  return code === 0x20 || code === LINE_FEED || code === 0x0d || code === 0x09;
}
