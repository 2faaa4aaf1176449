/**
 * The names of a request that mean something to us, by their numbers among all names that are met.
 */

import { KnownTexts } from './known-texts.ts';

/** Names that mean something, numbered in this order; then what an object's first name comes after. */
export const NAME = {
  identifiers: 0,
  user_properties: 1,
  events: 2,
  user_id: 3,
  email: 4,
  phone_number: 5,
  anon_id: 6,
  event_name: 7,
  timestamp: 8,
  revenue: 9,
  event_value: 10,
  $event_id: 11,
  currency: 12,
} as const;
/** No name holds a NUL. */
const BEGINNINGS = ['\0user', '\0identifiers', '\0properties', '\0event', '\0nested'];
const MEANINGFUL = Object.keys(NAME);
export const BEGINNING = {
  user: MEANINGFUL.length,
  identifiers: MEANINGFUL.length + 1,
  properties: MEANINGFUL.length + 2,
  event: MEANINGFUL.length + 3,
  nested: MEANINGFUL.length + 4,
} as const;

export function knownNames(): KnownTexts {
  return new KnownTexts([...MEANINGFUL, ...BEGINNINGS]);
}
