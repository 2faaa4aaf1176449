/**
 * Members of a JSON body that a client sends to the API, each refused in words that name it. Numbers keep their digits,
 * and `__proto__` is a name like any other: what is a client's own (a user, a patch) goes on as it came.
 */

import { parseExact } from '../json/exact-numbers.ts';
import { isLongerThan } from '../validation/characters.ts';
import { parseIso8601 } from '../validation/iso8601.ts';
import { BadParameterError } from './responses.ts';

export type JsonMembers = Readonly<Record<string, unknown>>;

/** The members of a text, which is parsed, or of a value within one. */
export function membersOf(given: unknown, names: readonly string[], where = 'the body'): JsonMembers {
  const value = typeof given === 'string' && where === 'the body' ? parsed(given) : given;
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new BadParameterError(`${where} must be a JSON object with ${names.join(', ')}`);
  }
  const unknown = Object.keys(value).find((name) => !names.includes(name));
  if (unknown !== undefined) {
    throw new BadParameterError(`${where} must have no other members than ${names.join(', ')}`);
  }
  return value as JsonMembers;
}

function parsed(text: string): unknown {
  try {
    return parseExact(text);
  } catch {
    throw new BadParameterError('the body is not valid JSON');
  }
}

/** Null if it is absent or empty. */
export function textMember(members: JsonMembers, name: string, charactersMax: number): string | null {
  const value = members[name] ?? '';
  if (typeof value !== 'string') throw new BadParameterError(`filter.${name} must be a text`);
  if (isLongerThan(value, charactersMax)) {
    throw new BadParameterError(`filter.${name} must be at most ${charactersMax} characters`);
  }
  return value === '' ? null : value;
}

/** `from` (inclusive) and `to` (exclusive) of a filter. */
export function rangeMembers(members: JsonMembers): { from: number | null; to: number | null } {
  const [from, to] = [timeMember(members, 'from'), timeMember(members, 'to')];
  if (from !== null && to !== null && from >= to) throw new BadParameterError('filter.from must be before filter.to');
  return { from, to };
}

function timeMember(members: JsonMembers, name: string): number | null {
  const value = members[name] ?? '';
  if (value === '') return null;
  const time = typeof value === 'string' ? parseIso8601(value) : undefined;
  if (time === undefined)
    throw new BadParameterError(`filter.${name} must be an ISO 8601 time, such as 2026-11-14T09:30:00Z`);
  return time;
}
