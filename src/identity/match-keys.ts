/**
 * Turns identifiers as sent into match keys: rules 1 to 4. Junk makes no key; `null` and blank values count as absent.
 * Types never match each other, so the type is part of the key; so is the tenant, but the store adds it (rule 1).
 *
 * Invariant: normalising twice changes nothing. This runs for every user: plain ASCII, which nearly every value is, is
 * returned as the same string.
 */

import { IDENTIFIER_TYPES, type IdentifierType, type MatchKey } from '../model.ts';
import { isPhoneNumberJunk, normalisePhoneNumber } from './phone-number.ts';

export interface MatchOptions {
  /** Two capital letters: where phone numbers without a country code belong; null if unknown. */
  readonly defaultCountry: string | null;
  /** `SLUICE_JUNK_VALUES`, in lower case. */
  readonly junkValues: ReadonlySet<string>;
}

export const DEFAULT_MATCH_OPTIONS: MatchOptions = { defaultCountry: null, junkValues: new Set() };

interface MatchKeys {
  /** Strongest first (rule 4), at most one of a type. */
  readonly keys: MatchKey[];
  /** Types whose value was there, but junk. */
  readonly junk: readonly IdentifierType[];
}

/** Rule 3. `ZEROS_AND_DASHES` adds more. */
const JUNK_VALUES: ReadonlySet<string> = new Set([
  '',
  'null',
  'nil',
  'none',
  'undefined',
  'nan',
  'n/a',
  'unknown',
  'anonymous',
  'guest',
  'true',
  'false',
  '-1',
  '[object object]',
  'id',
  'email',
  'user_id',
  'distinct_id',
  'not_authenticated',
]);
const JUNK_CHARACTERS_MAX = Math.max(...[...JUNK_VALUES].map((value) => value.length));
/** In ASCII, this bit is the only difference between a lower-case letter and its capital. */
const LOWER_CASE_BIT = 0x20;
/** By first letter and length: 1 if a junk value has them. */
const JUNK_SHAPES = new Uint8Array(0x80 * (JUNK_CHARACTERS_MAX + 1));
for (const value of JUNK_VALUES) JUNK_SHAPES[shapeOf(value.charCodeAt(0), value.length)] = 1;
const ZEROS_AND_DASHES = /^[0\-‐-―−]+$/;
const QUOTES = '\'"`´‘’‚‛“”„‟«»‹›';

const ZERO = 0x30;

const NOTHING: readonly IdentifierType[] = [];

/** `identifiers` has been validated: each of the four is a string, null or absent. */
export function matchKeysOf(identifiers: Readonly<Record<string, unknown>>, options: MatchOptions): MatchKeys {
  const keys: MatchKey[] = [];
  let junk: IdentifierType[] | null = null;
  // Rule 4: the order of the types is the order of priority.
  for (const type of IDENTIFIER_TYPES) {
    const raw = identifiers[type];
    if (typeof raw !== 'string') continue;
    const key = matchKeyOf(type, raw, options);
    if (key === 'junk') {
      junk ??= [];
      junk.push(type);
    } else if (key !== null) {
      keys.push(key);
    }
  }
  return { keys, junk: junk ?? NOTHING };
}

/** Null for a blank value. */
export function matchKeyOf(type: IdentifierType, raw: string, options: MatchOptions): MatchKey | 'junk' | null {
  const isPlain = isPrintableAscii(raw);
  const trimmed = isPlain ? raw : raw.trim();
  if (trimmed === '') return null;
  if (isJunk(trimmed, options) || (type === 'phone_number' && isPhoneNumberJunk(trimmed))) return 'junk';
  // Plain user_ids and anon_ids stay unchanged, as do plain emails in lower case.
  const isNormal = isPlain && type !== 'phone_number' && (type !== 'email' || !hasUpperCaseAscii(raw));
  return { type, value: isNormal ? raw : normalise(type, trimmed, options), raw };
}

/** Rule 2. */
export function normalise(type: IdentifierType, raw: string, options: MatchOptions): string {
  const text = isPrintableAscii(raw) ? raw : raw.normalize('NFC').trim();
  if (type === 'phone_number') return normalisePhoneNumber(text, options.defaultCountry);
  return type === 'email' ? lowerCase(text) : text;
}

function lowerCase(text: string): string {
  if (isPrintableAscii(text)) return hasUpperCaseAscii(text) ? text.toLowerCase() : text;
  // Some letters have a composed form in lower case alone.
  return text.toLowerCase().normalize('NFC');
}

/** Rule 3, for a trimmed value of any type. */
export function isJunk(value: string, options: MatchOptions): boolean {
  const first = value.charCodeAt(0);
  const last = value.charCodeAt(value.length - 1);
  if (cannotBeJunk(first, last, value.length, options)) return false;
  const bare = isLetterOrDigit(first) && isLetterOrDigit(last) ? value : withoutQuotes(value);
  const lower = bare.toLowerCase();
  return options.junkValues.has(lower) || JUNK_VALUES.has(lower) || ZEROS_AND_DASHES.test(bare);
}

/** A fast check without false positives: no junk value has these characters at its ends and this length. */
function cannotBeJunk(first: number, last: number, length: number, { junkValues }: MatchOptions): boolean {
  return (
    isLetterOrDigit(first) &&
    isLetterOrDigit(last) &&
    (length > JUNK_CHARACTERS_MAX || JUNK_SHAPES[shapeOf(first, length)] === 0) &&
    (first !== ZERO || last !== ZERO) &&
    junkValues.size === 0
  );
}

function shapeOf(first: number, length: number): number {
  return (first | LOWER_CASE_BIT) * (JUNK_CHARACTERS_MAX + 1) + length;
}

/** Without white space. Loops, because regular expressions take three times as long for so short a text. */
function isPrintableAscii(text: string): boolean {
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code < 0x21 || code > 0x7e) return false;
  }
  return text !== '';
}

function hasUpperCaseAscii(text: string): boolean {
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code >= 0x41 && code <= 0x5a) return true;
  }
  return false;
}

/** ASCII only, since nearly every value begins and ends with it. */
function isLetterOrDigit(code: number): boolean {
  return (code >= 0x61 && code <= 0x7a) || (code >= 0x41 && code <= 0x5a) || (code >= ZERO && code <= 0x39);
}

/** Without quotes and white space at either end, paired or not: values out of broken exports often have one only. */
function withoutQuotes(value: string): string {
  let start = 0;
  let end = value.length;
  while (start < end && isQuoteOrSpace(value.charAt(start))) start++;
  while (end > start && isQuoteOrSpace(value.charAt(end - 1))) end--;
  return value.slice(start, end);
}

function isQuoteOrSpace(character: string): boolean {
  return QUOTES.includes(character) || character.trim() === '';
}
