/**
 * Finds the users in the body of a request: where the bytes of each begin and end, how many events it has, and the
 * strongest identifier that it names. Sees what `JSON.parse` sees: of a name that is given twice the last counts, and a
 * name may be written with escapes.
 *
 * Relies on the body being JSON with a `users` array, which the edge has checked. Depth takes no stack.
 */

import { IDENTIFIER_TYPES, type IdentifierType } from '../../model.ts';

export interface BodyUser {
  readonly start: number;
  readonly end: number;
  /** 0 where `events` is no array. */
  readonly events: number;
  readonly identifier: { readonly type: IdentifierType; readonly value: string } | null;
}

const QUOTE = 0x22;
const COMMA = 0x2c;
const OPEN_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const SPACE = 0x20;
/** `phone_number`; a name with more bytes and no escapes is none that is looked for. */
const NAME_BYTES_MAX = 12;

export function usersInBody(body: Uint8Array): BodyUser[] {
  const scan = new BodyScan(body);
  let usersAt = -1;
  scan.members((name) => {
    if (name === 'users') usersAt = scan.at;
    scan.skipValue();
  });
  if (usersAt < 0) throw new Error('a body without users reached the log');
  scan.at = usersAt;
  const users: BodyUser[] = [];
  scan.elements(() => users.push(scan.user()));
  return users;
}

class BodyScan {
  readonly #bytes: Buffer;
  at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  user(): BodyUser {
    const start = this.at;
    let events = 0;
    let identifier: BodyUser['identifier'] = null;
    if (this.#bytes[start] === OPEN_BRACE) {
      this.members((name) => {
        if (name === 'events') events = this.#count();
        else if (name === 'identifiers') identifier = this.#strongest();
        else this.skipValue();
      });
    } else this.skipValue();
    return { start, end: this.at, events, identifier };
  }

  /** Stands before each value of an object when it calls; the callee goes past it. */
  members(each: (name: string) => void): void {
    this.#skipSpace();
    this.at++;
    for (;;) {
      this.#skipSpace();
      if (this.#bytes[this.at] !== QUOTE) break;
      const name = this.#name();
      this.#skipSpace();
      this.at++;
      this.#skipSpace();
      each(name);
      this.#skipSpace();
      if (this.#bytes[this.at] !== COMMA) break;
      this.at++;
    }
    this.#close(CLOSE_BRACE);
  }

  /** Likewise for the elements of an array. */
  elements(each: () => void): void {
    this.at++;
    this.#skipSpace();
    while (this.#bytes[this.at] !== CLOSE_BRACKET) {
      each();
      this.#skipSpace();
      if (this.#bytes[this.at] !== COMMA) break;
      this.at++;
      this.#skipSpace();
    }
    this.#close(CLOSE_BRACKET);
  }

  skipValue(): void {
    const bytes = this.#bytes;
    const first = bytes[this.at];
    if (first === QUOTE) this.#skipString();
    else if (first === OPEN_BRACE || first === OPEN_BRACKET) this.#skipNested();
    else {
      // A number or a word ends with what cannot stand in it.
      for (let code = first; !isEndOfWord(code); code = bytes[this.at]) this.at++;
    }
  }

  #skipNested(): void {
    const bytes = this.#bytes;
    let depth = 0;
    do {
      const code = bytes[this.at];
      if (code === QUOTE) {
        this.#skipString();
        continue;
      }
      if (code === undefined) throw new Error('a body that is not JSON reached the log');
      if (code === OPEN_BRACE || code === OPEN_BRACKET) depth++;
      else if (code === CLOSE_BRACE || code === CLOSE_BRACKET) depth--;
      this.at++;
    } while (depth > 0);
  }

  #skipString(): void {
    const bytes = this.#bytes;
    let at = this.at + 1;
    for (let code = bytes[at]; code !== QUOTE; code = bytes[at]) {
      if (code === undefined) throw new Error('a body that is not JSON reached the log');
      at += code === BACKSLASH ? 2 : 1;
    }
    this.at = at + 1;
  }

  #skipSpace(): void {
    // In JSON nothing below a space stands between values but white space.
    while ((this.#bytes[this.at] ?? 0xff) <= SPACE) this.at++;
  }

  #close(bracket: number): void {
    if (this.#bytes[this.at] !== bracket) throw new Error('a body that is not JSON reached the log');
    this.at++;
  }

  /** A name that nobody looks for may come out empty. */
  #name(): string {
    const start = this.at;
    this.#skipString();
    return this.#text(start, NAME_BYTES_MAX);
  }

  #text(start: number, plainBytesMax: number): string {
    const slice = this.#bytes.subarray(start, this.at);
    if (slice.includes(BACKSLASH)) return JSON.parse(slice.toString('utf8')) as string;
    return slice.length - 2 > plainBytesMax ? '' : slice.toString('utf8', 1, slice.length - 1);
  }

  #count(): number {
    let count = 0;
    if (this.#bytes[this.at] !== OPEN_BRACKET) this.skipValue();
    else {
      this.elements(() => {
        count++;
        this.skipValue();
      });
    }
    return count;
  }

  #strongest(): BodyUser['identifier'] {
    if (this.#bytes[this.at] !== OPEN_BRACE) {
      this.skipValue();
      return null;
    }
    const values = new Map<string, string>();
    this.members((name) => {
      const start = this.at;
      const isText = this.#bytes[start] === QUOTE;
      this.skipValue();
      if (isTypeName(name)) values.set(name, isText ? this.#text(start, Number.POSITIVE_INFINITY) : '');
    });
    for (const type of IDENTIFIER_TYPES) {
      const value = values.get(type);
      if (value !== undefined && value !== '') return { type, value };
    }
    return null;
  }
}

function isTypeName(name: string): boolean {
  return (IDENTIFIER_TYPES as readonly string[]).includes(name);
}

function isEndOfWord(code: number | undefined): boolean {
  return code === undefined || code <= SPACE || code === COMMA || code === CLOSE_BRACE || code === CLOSE_BRACKET;
}
