/**
 * JSON as the client wrote it: `JSON.parse`, but a number that a double cannot hold (an integer beyond 2^53, too many
 * digits, 1e400, -0) becomes a `JSON.rawJSON` object, which `JSON.stringify` writes back digit for digit. Numbers that
 * keep their value are plain numbers, so `1.50` comes back as `1.5`.
 *
 * Invariant: without such a number the result is that of `parseJson`. A quick scan decides that for nearly all texts.
 */

import { buildValue, parseJson } from './parse.ts';

/** What `JSON.rawJSON` makes: a frozen object that holds the source text of a number. */
export interface RawNumber {
  readonly rawJSON: string;
}

/** The part of `JSON` that the type library does not know yet. */
interface ExactJson {
  rawJSON(source: string): RawNumber;
  isRawJSON(value: unknown): value is RawNumber;
}

const exact = JSON as unknown as ExactJson;

/**
 * A double keeps any 15 digits if the exponent has at most two. So only a number with 16 or more characters of digits
 * and point, with three digits in its exponent, or equal to -0 is in danger.
 */
const DANGEROUS_RUN_CHARACTERS = 16;
const LARGE_EXPONENT_OR_MINUS_ZERO = /(?:\d[eE][+-]?\d{3,}|-0[.0]*(?:[eE][+-]?\d+)?)(?=[,\]}\s]|$)/;

const NUMBER_PARTS = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/;

const POINT = 0x2e;
const ZERO = 0x30;
const NINE = 0x39;

/** Throws as `JSON.parse` does. */
export function parseExact(text: string): unknown {
  return mayLoseDigits(text) ? buildValue(text, exactNumberOf) : parseJson(text);
}

export function isRawNumber(value: unknown): value is RawNumber {
  return exact.isRawJSON(value);
}

/** Quick. Has false positives, which cost time only, and no false negatives. */
function mayLoseDigits(text: string): boolean {
  return hasDangerousRun(text) || LARGE_EXPONENT_OR_MINUS_ZERO.test(text);
}

/** Looks at every 16th character: a run of 16 contains one of them. */
function hasDangerousRun(text: string): boolean {
  for (let at = DANGEROUS_RUN_CHARACTERS - 1; at < text.length; at += DANGEROUS_RUN_CHARACTERS) {
    if (!isDigitOrPoint(text, at)) continue;
    let start = at;
    let end = at + 1;
    while (start > 0 && isDigitOrPoint(text, start - 1)) start--;
    while (end < text.length && isDigitOrPoint(text, end)) end++;
    if (end - start >= DANGEROUS_RUN_CHARACTERS) return true;
  }
  return false;
}

function isDigitOrPoint(text: string, at: number): boolean {
  const code = text.charCodeAt(at);
  return code <= NINE && (code >= ZERO || code === POINT);
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
