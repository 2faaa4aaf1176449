/**
 * Finds the other places that name a person, for an erase (rule 17): stored parts of rejected users, and the
 * `$event_id`s of events. Rejected users are compared by the same match keys as accepted ones. If only the beginning of
 * one was stored, so that it is not valid JSON, its text is searched: removing one too many is better than one too few,
 * since rejections are kept for only a few days. The patches of jobs are searched in the same way.
 */

import { type MatchOptions, matchKeysOf } from '../identity/match-keys.ts';
import { parseJson } from '../json/parse.ts';
import { IDENTIFIER_TYPES, type IdentifierType } from '../model.ts';
import type { IdentifierRow } from './profile.ts';

export interface ErasedKey {
  readonly type: IdentifierType;
  readonly value: string;
  readonly raw: string;
}

/** Of all identifiers of a person. */
export function erasedKeys(identifiers: readonly IdentifierRow[]): ErasedKey[] {
  return identifiers.map(({ type, value, raw }) => ({ type, value, raw: raw ?? value }));
}

/** A match key as one text. */
export function nameOfKey({ type, value }: Pick<ErasedKey, 'type' | 'value'>): string {
  return `${IDENTIFIER_TYPES.indexOf(type)}:${value}`;
}

/** Whether one of these keys is a string in JSON, which may be cut off. */
export function textTest(keys: readonly ErasedKey[]): (json: string) => boolean {
  const values = new Set(
    keys.flatMap(({ value, raw }) => [value, raw].map((one) => JSON.stringify(one).toLowerCase())),
  );
  return (json) => {
    const text = json.toLowerCase();
    return values.values().some((value) => text.includes(value));
  };
}

/** Whether a rejected user has one of these keys. */
export function payloadTest(keys: readonly ErasedKey[], options: MatchOptions): (payload: string) => boolean {
  const names = new Set(keys.map(nameOfKey));
  const isIn = textTest(keys);
  return (payload) => {
    let user: unknown;
    try {
      user = parseJson(payload);
    } catch {
      return isIn(payload);
    }
    return identifiersIn(user).some(({ type, value }) => {
      const texts = { [type]: String(value) };
      return matchKeysOf(texts, options).keys.some((key) => names.has(nameOfKey(key)));
    });
  };
}

interface GivenIdentifier {
  readonly type: IdentifierType;
  readonly value: string | number;
}

/** Of a user in our own format, or of a message of Segment's SDKs. A number is what may have been wrong with it. */
function identifiersIn(user: unknown): GivenIdentifier[] {
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
