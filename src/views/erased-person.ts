/**
 * Finds the other places that name a person, for an erase (rule 17): stored parts of rejected users, users in dead
 * letters, and the `$event_id`s of events. An accepted user has its identifiers where they belong, each of its type. A
 * rejected one may have them anywhere, which may be why it was rejected, so all its strings, numbers and names of members
 * are compared, as each type of identifier: removing one too many is better than one too few, since rejections are kept
 * for only a few days. Only values shorter than SHORT_CHARACTERS must be where an identifier is expected: a person with
 * the user_id "1" is not named by every quantity.
 *
 * Settings may have changed since the person was stored, and may change again before late data is processed. So a
 * phone number is also compared, and its tombstone also stored, as it is without `SLUICE_DEFAULT_COUNTRY`; and no value
 * is taken for junk because of `SLUICE_JUNK_VALUES`.
 */

import {
  DEFAULT_MATCH_OPTIONS,
  type MatchOptions,
  matchKeyOf,
  matchKeysOf,
  normalise,
} from '../identity/match-keys.ts';
import { parseExact } from '../json/exact-numbers.ts';
import { jsonIn, parseJson } from '../json/parse.ts';
import { IDENTIFIER_TYPES, type IdentifierType, type MatchKey, type NormalisedKey } from '../model.ts';
import type { IdentifierRow } from './profile.ts';

export function erasedKeys(identifiers: readonly IdentifierRow[]): MatchKey[] {
  return identifiers.map(({ type, value, raw }) => ({ type, value, raw: raw ?? value }));
}

export function nameOfKey({ type, value }: NormalisedKey): string {
  return `${IDENTIFIER_TYPES.indexOf(type)}:${value}`;
}

/** The keys under which an erased key is found, whatever the default country. */
export function spellingsOf(key: MatchKey): readonly NormalisedKey[] {
  const { type, value, raw } = key;
  if (type !== 'phone_number' || raw === value) return [key];
  const plain = normalise(type, raw, DEFAULT_MATCH_OPTIONS);
  return plain === value ? [key] : [key, { type, value: plain }];
}

/** Whether a key is one of those that are erased. */
function keyTest(keys: readonly MatchKey[]): (key: MatchKey) => boolean {
  const names = new Set(keys.flatMap(spellingsOf).map(nameOfKey));
  return (key) => spellingsOf(key).some((spelling) => names.has(nameOfKey(spelling)));
}

/** Compares keys under the settings of today, but takes no value for junk because of them. */
function comparable({ defaultCountry }: MatchOptions): MatchOptions {
  return { ...DEFAULT_MATCH_OPTIONS, defaultCountry };
}

export function textTest(keys: readonly MatchKey[]): (json: string) => boolean {
  const values = new Set(
    keys.flatMap(({ value, raw }) => [value, raw].map((one) => JSON.stringify(one).toLowerCase())),
  );
  return (json) => {
    const text = json.toLowerCase();
    return values.values().some((value) => text.includes(value));
  };
}

/** Whether an accepted user has one of these keys; of what is not JSON, whether it names them. */
export function userTest(keys: readonly MatchKey[], options: MatchOptions): (user: string) => boolean {
  const isErased = keyTest(keys);
  const isIn = textTest(keys);
  return (payload) => {
    const user = jsonIn(payload);
    return user === undefined ? isIn(payload) : isUserOf(user, isErased, options);
  };
}

function isUserOf(user: unknown, isErased: (key: MatchKey) => boolean, options: MatchOptions): boolean {
  return identifiersIn(user).some(({ type, value }) => {
    const texts = { [type]: String(value) };
    return matchKeysOf(texts, comparable(options)).keys.some(isErased);
  });
}

/** Shorter values name a person only where an identifier is expected. */
const SHORT_CHARACTERS = 6;
/** No identifier is longer. */
const VALUE_CHARACTERS_MAX = 1_024;
/** Names of members, in lower case and without anything but letters, whose values are taken to be identifiers. */
const IDENTIFIER_NAMES: ReadonlySet<string> = new Set([
  ...['userid', 'user', 'id', 'uid', 'customerid', 'externalid', 'email', 'emailaddress', 'mail'],
  ...['phone', 'phonenumber', 'mobile', 'tel', 'anonid', 'anonymousid', 'previousid', 'deviceid', 'distinctid'],
]);
/** Strings and numbers of JSON that may be cut off. */
const TOKENS = /"(?:[^"\\]|\\.)*(?:"|\\?$)|-?\d[\d.eE+-]*/g;

/** Whether a rejected user names one of these keys anywhere; its JSON may be cut off. */
export function payloadTest(keys: readonly MatchKey[], options: MatchOptions): (payload: string) => boolean {
  const isErased = keyTest(keys);
  const types = [...new Set(keys.map(({ type }) => type))];
  const isKey = (text: string): boolean =>
    text.length <= VALUE_CHARACTERS_MAX &&
    types.some((type) => {
      const key = matchKeyOf(type, text, comparable(options));
      return typeof key === 'object' && key !== null && isErased(key);
    });
  return (payload) => {
    const user = jsonIn(payload, parseExact);
    if (user === undefined) return (payload.match(TOKENS) ?? []).some((token) => isKey(textOfToken(token)));
    if (isUserOf(user, isErased, options)) return true;
    for (const { text, isExpected } of textsIn(user)) {
      if ((isExpected || text.length >= SHORT_CHARACTERS) && isKey(text)) return true;
    }
    return false;
  };
}

function textOfToken(token: string): string {
  if (!token.startsWith('"')) return token;
  const text = jsonIn(token);
  // Without its end it is not JSON.
  return typeof text === 'string' ? text : '';
}

/** Strings, numbers and names of members, and whether an identifier is expected there. Not recursive. */
function* textsIn(user: unknown): Generator<{ readonly text: string; readonly isExpected: boolean }, void, undefined> {
  const identifiers = memberOf(user, 'identifiers');
  const open: { readonly value: unknown; readonly isExpected: boolean }[] = [{ value: user, isExpected: false }];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { value, isExpected } = next;
    if (typeof value === 'string') yield { text: value, isExpected };
    else if (typeof value === 'number') yield { text: String(value), isExpected };
    else if (Array.isArray(value)) for (const item of value) open.push({ value: item, isExpected });
    else if (typeof value === 'object' && value !== null) {
      for (const [name, member] of Object.entries(value)) {
        yield { text: name, isExpected: false };
        // One that is where it belongs has been compared as its own type; a short one is none of another type.
        const isWellPlaced = value === identifiers && IDENTIFIER_TYPES.includes(name as IdentifierType);
        const isOfAnyType = isExpected || value === identifiers || isIdentifierName(name);
        open.push({ value: member, isExpected: isOfAnyType && (!isWellPlaced || typeof member === 'object') });
      }
    }
  }
}

function isIdentifierName(name: string): boolean {
  const letters = name.toLowerCase().replaceAll(/[^a-z]/g, '');
  return letters === 'identifiers' || IDENTIFIER_NAMES.has(letters);
}

/** Identifiers of a user in our own format, or of a Segment message; numbers too, for which it may have been rejected. */
function identifiersIn(user: unknown) {
  const identifiers = memberOf(user, 'identifiers');
  const given: (readonly [IdentifierType, unknown])[] = IDENTIFIER_TYPES.map((type) => [
    type,
    memberOf(identifiers, type),
  ]);
  const contextTraits = memberOf(memberOf(user, 'context'), 'traits');
  for (const traits of [memberOf(user, 'traits'), contextTraits]) {
    given.push(['email', memberOf(traits, 'email')], ['phone_number', memberOf(traits, 'phone')]);
  }
  for (const name of ['anonymousId', 'previousId', 'userId']) given.push(['anon_id', memberOf(user, name)]);
  for (const name of ['userId', 'previousId']) given.push(['user_id', memberOf(user, name)]);
  return given.flatMap(([type, value]) =>
    typeof value === 'string' || typeof value === 'number' ? [{ type, value }] : [],
  );
}

/** Only properties that contain this text can have an `$event_id`. */
export const EVENT_ID_IN_PROPERTIES = '"$event_id"';

/** The `$event_id` among the properties of an event; undefined for none. */
export function eventIdOf(properties: string): string | undefined {
  if (!properties.includes(EVENT_ID_IN_PROPERTIES)) return undefined;
  const eventId = memberOf(parseJson(properties), '$event_id');
  return typeof eventId === 'string' ? eventId : undefined;
}

function memberOf(value: unknown, name: string): unknown {
  if (typeof value !== 'object' || value === null) return undefined;
  return Object.getOwnPropertyDescriptor(value, name)?.value;
}
