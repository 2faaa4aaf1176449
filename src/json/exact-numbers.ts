/**
 * JSON as the client wrote it: `JSON.parse`, but a number that a double cannot hold (an integer beyond 2^53, too many
 * digits, 1e400, -0) becomes a `JSON.rawJSON` object, which `JSON.stringify` writes back digit for digit. Numbers that
 * keep their value are plain numbers, so `1.50` comes back as `1.5`.
 *
 * Invariant: without such a number the result is that of `parseJson`; `mayLoseDigits` decides that for nearly all texts.
 */

import { buildValue, parseJson } from './parse.ts';
import { BACKSLASH, isDigit, LOWER_E, MINUS, QUOTE, ZERO } from './scanner.ts';

/** What `JSON.rawJSON` makes: a frozen object that holds the source text of a number. */
interface RawNumber {
  readonly rawJSON: string;
}

/** The part of `JSON` that the type library does not know yet. */
interface ExactJson {
  rawJSON(source: string): RawNumber;
  isRawJSON(value: unknown): value is RawNumber;
}

const exact = JSON as unknown as ExactJson;

/** A double keeps any 15 digits. A number of at most this many characters, without exponent, has no more. */
const SAFE_CHARACTERS_MAX = 15;

const NUMBER_PARTS = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/;

const POINT = 0x2e;

/** Throws as `JSON.parse` does. */
export function parseExact(text: string): unknown {
  return mayLoseDigits(text) ? buildValue(text, exactNumberOf) : parseJson(text);
}

export function isRawNumber(value: unknown): value is RawNumber {
  return exact.isRawJSON(value);
}

/**
 * Looks at each number outside strings, and passes over the character after it: in JSON that is not another number or
 * string. Has false positives, which cost time only, and no false negatives.
 */
function mayLoseDigits(text: string): boolean {
  const { length } = text;
  for (let at = 0; at < length; at++) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) {
      at = endOfString(text, at);
      if (at < 0) return false;
    } else if (code === MINUS || isDigit(code)) {
      const start = at;
      let isMinusZero = code === MINUS;
      let next = text.charCodeAt(++at);
      for (; isDigit(next) || next === POINT; next = text.charCodeAt(++at)) isMinusZero &&= next <= ZERO;
      if (isMinusZero || at - start > SAFE_CHARACTERS_MAX || (next | 0x20) === LOWER_E) return true;
    }
  }
  return false;
}

/** Of the string that begins at `start`: the offset of its closing quote; -1 if it has none, so it is not JSON. */
function endOfString(text: string, start: number): number {
  let end = text.indexOf('"', start + 1);
  while (end >= 0 && isEscaped(text, end)) end = text.indexOf('"', end + 1);
  return end;
}

/** Within a string: whether an odd number of backslashes comes before it. */
function isEscaped(text: string, at: number): boolean {
  let first = at;
  while (text.charCodeAt(first - 1) === BACKSLASH) first--;
  return (at - first) % 2 === 1;
}

function exactNumberOf(source: string): number | RawNumber {
  const value = Number(source);
  return isExact(source, value) ? value : exact.rawJSON(source);
}

/** Whether the double has the very value that the source says. */
function isExact(source: string, value: number): boolean {
  const text = String(value);
  return text === source || (Number.isFinite(value) && canonical(text) === canonical(source));
}

/** One spelling per value: sign, digits without zeros at either end, exponent of ten. */
function canonical(number: string): string {
  const [, sign = '', whole = '', fraction = '', exponent = '0'] = NUMBER_PARTS.exec(number) ?? [];
  const digits = whole + fraction;
  let start = 0;
  let end = digits.length;
  // Loops, because a regular expression for zeros at the end takes quadratic time on hostile digits.
  while (start < end && digits.charCodeAt(start) === ZERO) start++;
  while (end > start && digits.charCodeAt(end - 1) === ZERO) end--;
  if (start === end) return `${sign}0`;
  return `${sign}${digits.slice(start, end)}e${Number(exponent) - fraction.length + digits.length - end}`;
}
