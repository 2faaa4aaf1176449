/**
 * What a node knows (identity/statements.ts), told in two parts: put together as text. Pure. The order of the parts does
 * not matter: of each name the newest origin counts.
 *
 * Nearly always both parts are one group of the same names, and then the newer one is all there is to know: that is seen
 * by walking over both texts at once, which takes a fraction of the time of parsing them and writing them again.
 */

import { compareOrigins } from '../identity/origin.ts';
import { type Group, stateAll } from '../identity/statements.ts';
import type { Origin } from '../model.ts';
import { boundedText, groupsIn } from './known.ts';

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/** Neither part is empty. */
export function mergedKnown(a: string, b: string): string {
  return newerOfSameNames(a, b) ?? merged(a, b);
}

function merged(a: string, b: string): string {
  const said = groupsIn(b).map((group) => ({ origin: originOf(group), fields: group[3], properties: group[4] }));
  return boundedText(stateAll(groupsIn(a), said)) ?? a;
}

function originOf([receivedAt, traceId, userIndex]: Group): Origin {
  return { receivedAt, traceId, userIndex };
}

/** The newer text, if both are one group, of the same names in the same order; else null. */
export function newerOfSameNames(a: string, b: string): string | null {
  const [ofA, ofB] = [new GroupWalk(a), new GroupWalk(b)];
  const [originA, originB] = [ofA.origin(), ofB.origin()];
  if (originA === null || originB === null) return null;
  // Fields, then properties.
  if (!walkNames(ofA, ofB) || !ofA.takes(COMMA) || !ofB.takes(COMMA) || !walkNames(ofA, ofB)) return null;
  if (!ofA.isEnd() || !ofB.isEnd()) return null;
  return compareOrigins(originA, originB) < 0 ? b : a;
}

/** Both over an object; false when the names are not the same, or when the text is not what it should be. */
function walkNames(a: GroupWalk, b: GroupWalk): boolean {
  if (!a.takes(OPEN_BRACE) || !b.takes(OPEN_BRACE)) return false;
  if (a.takes(CLOSE_BRACE)) return b.takes(CLOSE_BRACE);
  do {
    const [startA, startB] = [a.at, b.at];
    if (!a.string() || !b.string() || !a.isSame(startA, b, startB)) return false;
    if (!a.takes(COLON) || !b.takes(COLON) || !a.value() || !b.value()) return false;
  } while (a.takes(COMMA) && b.takes(COMMA));
  return a.takes(CLOSE_BRACE) && b.takes(CLOSE_BRACE);
}

/** A place in the text of groups, as JavaScript writes JSON. */
class GroupWalk {
  readonly #text: string;
  at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  takes(code: number): boolean {
    if (this.#text.charCodeAt(this.at) !== code) return false;
    this.at++;
    return true;
  }

  /** Up to the fields of the first group. */
  origin(): Origin | null {
    if (!this.takes(OPEN_BRACKET) || !this.takes(OPEN_BRACKET)) return null;
    const receivedAt = this.#number();
    const start = this.at + 1;
    if (!this.string() || !this.takes(COMMA)) return null;
    const traceId = this.#text.slice(start, this.at - 2);
    const userIndex = this.#number();
    return { receivedAt, traceId, userIndex };
  }

  /** Of a list of one group. */
  isEnd(): boolean {
    return this.takes(CLOSE_BRACKET) && this.takes(CLOSE_BRACKET) && this.at === this.#text.length;
  }

  /** Whether what was just walked over is the same text in both. */
  isSame(start: number, other: GroupWalk, otherStart: number): boolean {
    const length = this.at - start;
    if (other.at - otherStart !== length) return false;
    for (let n = 0; n < length; n++) {
      if (this.#text.charCodeAt(start + n) !== other.#text.charCodeAt(otherStart + n)) return false;
    }
    return true;
  }

  string(): boolean {
    const text = this.#text;
    if (!this.takes(QUOTE)) return false;
    for (let code = text.charCodeAt(this.at); code !== QUOTE; code = text.charCodeAt(this.at)) {
      // Not a number at the end of the text.
      if (!(code >= 0)) return false;
      this.at += code === BACKSLASH ? 2 : 1;
    }
    this.at++;
    return true;
  }

  value(): boolean {
    const text = this.#text;
    let depth = 0;
    for (;;) {
      const code = text.charCodeAt(this.at);
      if (code === QUOTE) {
        if (!this.string()) return false;
        if (depth === 0) return true;
        continue;
      }
      if (code === OPEN_BRACE || code === OPEN_BRACKET) depth++;
      else if (code === CLOSE_BRACE || code === CLOSE_BRACKET) {
        // That of the object around a number or a literal.
        if (depth === 0) return true;
        depth--;
        if (depth === 0) {
          this.at++;
          return true;
        }
      } else if (code === COMMA && depth === 0) return true;
      else if (!(code >= 0)) return false;
      this.at++;
    }
  }

  #number(): number {
    const end = this.#text.indexOf(',', this.at);
    const number = Number(this.#text.slice(this.at, end));
    this.at = end + 1;
    return number;
  }
}
