/**
 * Members of a JSON body that a client sends to the API, each checked by name. Numbers keep their digits, and
 * `__proto__` is a name like any other: what is a client's own (a user, a patch) is passed on as it came.
 */

import { parseExact } from '../json/exact-numbers.ts';
import { isLongerThan } from '../validation/characters.ts';
import { parseIso8601 } from '../validation/iso8601.ts';
import { BadParameterError } from './responses.ts';

type JsonMembers = Readonly<Record<string, unknown>>;

/** The members of an object, all of them known: a misspelt one that does nothing is worse than a refusal. */
export function membersOf<Name extends string>(
  value: unknown,
  names: readonly Name[],
  where = 'the body',
): Readonly<Partial<Record<Name, unknown>>> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    // Plain text is not parsed: forms of other sites can send it.
    const isOtherType = where === 'the body' && (typeof value === 'string' || value === undefined);
    const hint = isOtherType ? ', sent with Content-Type: application/json' : '';
    throw new BadParameterError(`${where} must be a JSON object with ${names.join(', ')}${hint}`);
  }
  if (Object.keys(value).some((key) => !names.some((name) => name === key))) {
    // Not named: it may be a secret in the wrong place.
    throw new BadParameterError(`${where} has an unknown field; known are ${names.join(', ')}`);
  }
  return value as Readonly<Partial<Record<Name, unknown>>>;
}

/** The value of a body that a route takes as text (`bodyBytesMax`). */
export function parseBody(text: unknown): unknown {
  if (typeof text !== 'string') return text;
  try {
    return parseExact(text);
  } catch {
    throw new BadParameterError('the body is not valid JSON');
  }
}

/** The texts in a body, by name. Null stands for absent. What is missing or not a text is refused with its name. */
export function textMembers<Name extends string, Optional extends string = never>(
  body: unknown,
  required: readonly Name[],
  optional: readonly Optional[] = [],
): Readonly<Record<Name, string> & Partial<Record<Optional, string>>> {
  const given = Object.entries(membersOf(body, [...required, ...optional])).filter(([, value]) => value !== null);
  for (const [name, value] of given) {
    if (typeof value !== 'string') throw new BadParameterError(`${name} must be a string`);
  }
  const texts = Object.fromEntries(given) as Record<Name, string> & Partial<Record<Optional, string>>;
  for (const name of required) {
    if (!Object.hasOwn(texts, name)) throw new BadParameterError(`${name} is required`);
  }
  return texts;
}

/** A member of `filter`; null if it is absent or empty. */
export function filterText(members: JsonMembers, name: string, charactersMax: number): string | null {
  const value = members[name] ?? '';
  if (typeof value !== 'string') throw new BadParameterError(`filter.${name} must be a string`);
  if (isLongerThan(value, charactersMax)) {
    throw new BadParameterError(`filter.${name} must be at most ${charactersMax} characters`);
  }
  return value === '' ? null : value;
}

/** `from` (inclusive) and `to` (exclusive) of a filter. */
export function filterRange(members: JsonMembers): { from: number | null; to: number | null } {
  const [from, to] = [filterTime(members, 'from'), filterTime(members, 'to')];
  if (from !== null && to !== null && from >= to) throw new BadParameterError('filter.from must be before filter.to');
  return { from, to };
}

function filterTime(members: JsonMembers, name: string): number | null {
  const value = members[name] ?? '';
  if (value === '') return null;
  const time = typeof value === 'string' ? parseIso8601(value) : undefined;
  if (time === undefined)
    throw new BadParameterError(`filter.${name} must be an ISO 8601 time, such as 2026-11-14T09:30:00Z`);
  return time;
}
