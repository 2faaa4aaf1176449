/**
 * What clients give: parameters of a query, and members of a JSON body. A parameter is described once: how it is read,
 * what it may be and what it means; routes read requests by that, and the OpenAPI document lists it. What does not fit
 * is refused with its name and what is expected; nothing is guessed and nothing unknown is passed over. Ajv would coerce
 * values, and say it in other words.
 *
 * An empty value counts as absent, unless a parameter says otherwise. Numbers of a body keep their digits, and
 * `__proto__` is a name like any other: what is a client's own (a user, a patch) is passed on as it came.
 */

import { parseExact } from '../json/exact-numbers.ts';
import { BadCursorError } from '../store.ts';
import { isLongerThan, isStorable } from '../validation/characters.ts';
import { parseIso8601 } from '../validation/iso8601.ts';
import type { JsonSchema } from './openapi-types.ts';
import { BadParameterError } from './responses.ts';

export interface ParameterKind<Value> {
  readonly description: string;
  readonly schema: JsonSchema;
  /** Returns the default for undefined. Throws `BadParameterError`. */
  readonly read: (text: string | undefined, name: string) => Value;
}

export type ParameterKinds = Readonly<Record<string, ParameterKind<unknown>>>;

export type ValuesOf<Kinds extends ParameterKinds> = {
  readonly [Name in keyof Kinds]: Kinds[Name] extends ParameterKind<infer Value> ? Value : never;
};

export const NO_PARAMETERS = {} as const;

const PAGE_LIMIT_DEFAULT = 50;
const PAGE_LIMIT_MAX = 500;

const NAME_CHARACTERS_SHOWN_MAX = 64;
const WHOLE_NUMBER = /^\d{1,9}$/;
const TIME_EXAMPLE = '2026-11-14T09:30:00Z';

export function readParameters<Kinds extends ParameterKinds>(kinds: Kinds, url: string): ValuesOf<Kinds> {
  const given = new Map<string, string>();
  const at = url.indexOf('?');
  for (const [name, text] of new URLSearchParams(at === -1 ? '' : url.slice(at + 1))) {
    if (!Object.hasOwn(kinds, name)) throw new BadParameterError(unknownText(name, Object.keys(kinds)));
    if (given.has(name)) throw new BadParameterError(`${name} is given more than once`);
    given.set(name, text);
  }
  return valuesOf(kinds, given, '');
}

/** The same parameters as members of the object `filter` in a body. */
export function readFilter<Kinds extends ParameterKinds>(kinds: Kinds, filter: unknown): ValuesOf<Kinds> {
  const given = new Map<string, string>();
  for (const [name, value] of Object.entries(membersOf(filter, Object.keys(kinds), 'filter'))) {
    if (value === null) continue;
    if (typeof value !== 'string') throw new BadParameterError(`filter.${name} must be a string`);
    given.set(name, value);
  }
  return valuesOf(kinds, given, 'filter.');
}

function valuesOf<Kinds extends ParameterKinds>(
  kinds: Kinds,
  given: ReadonlyMap<string, string>,
  prefix: string,
): ValuesOf<Kinds> {
  const values = Object.entries(kinds).map(
    ([name, kind]) => [name, kind.read(given.get(name), prefix + name)] as const,
  );
  return Object.fromEntries(values) as ValuesOf<Kinds>;
}

function unknownText(name: string, known: readonly string[]): string {
  const shown = name.slice(0, NAME_CHARACTERS_SHOWN_MAX);
  return `unknown parameter ${shown}: ${known.length === 0 ? 'this call has no parameters' : `known parameters: ${known.join(', ')}`}`;
}

/** Null where it is absent. */
export function optionalParameter<Value>(
  description: string,
  schema: JsonSchema,
  read: (text: string, name: string) => Value,
): ParameterKind<Value | null> {
  return {
    description,
    schema,
    read: (given, name) => (given === undefined || given === '' ? null : read(given, name)),
  };
}

export function textParameter(description: string, charactersMax: number): ParameterKind<string | null> {
  return optionalParameter(description, { type: 'string', maxLength: charactersMax }, (given, name) => {
    if (isLongerThan(given, charactersMax)) {
      throw new BadParameterError(`${name} must be at most ${charactersMax} characters`);
    }
    if (!isStorable(given)) throw new BadParameterError(`${name} contains a character that cannot be stored`);
    return given;
  });
}

/** A plus sign that is not encoded arrives as a space; no time has a space in it. */
export function timeParameter(description: string): ParameterKind<number | null> {
  return optionalParameter(description, { type: 'string', examples: [TIME_EXAMPLE] }, (given, name) => {
    const milliseconds = parseIso8601(given.replace(' ', '+'));
    if (milliseconds !== undefined) return milliseconds;
    throw new BadParameterError(`${name} must be an ISO 8601 time, such as ${TIME_EXAMPLE}`);
  });
}

export function choiceParameter<Choice extends string>(
  description: string,
  choices: readonly Choice[],
): ParameterKind<Choice | null> {
  return optionalParameter(description, { type: 'string', enum: choices }, (given, name) => {
    const found = choices.find((one) => one === given);
    if (found !== undefined) return found;
    const listed = [choices.slice(0, -1).join(', '), choices.at(-1)].filter(Boolean).join(' or ');
    throw new BadParameterError(`${name} must be ${listed}`);
  });
}

export const limit: ParameterKind<number> = {
  description: `The page size: 1 to ${PAGE_LIMIT_MAX}. Default: ${PAGE_LIMIT_DEFAULT}.`,
  schema: { type: 'integer', minimum: 1, maximum: PAGE_LIMIT_MAX, default: PAGE_LIMIT_DEFAULT },
  read: (given, name) => {
    if (given === undefined || given === '') return PAGE_LIMIT_DEFAULT;
    const number = WHOLE_NUMBER.test(given) ? Number(given) : 0;
    if (number >= 1 && number <= PAGE_LIMIT_MAX) return number;
    throw new BadParameterError(`${name} must be a whole number from 1 to ${PAGE_LIMIT_MAX}`);
  },
};

export const cursor = optionalParameter(
  'Where to continue: `next_cursor` of the previous response, unchanged. The other parameters stay the same.',
  { type: 'string' },
  (given) => given,
);

/** A cursor that is refused is named as the client gave it. */
export async function withCursor<T>(name: string, response: Promise<T>): Promise<T> {
  try {
    return await response;
  } catch (error) {
    if (!(error instanceof BadCursorError)) throw error;
    throw new BadParameterError(`${name} ${error.message}`);
  }
}

/** From (inclusive) to (exclusive), where both are given. */
export function refuseEmptyRange(from: number | null, to: number | null, prefix = ''): void {
  if (from === null || to === null || from < to) return;
  throw new BadParameterError(`${prefix}from must be before ${prefix}to`);
}

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
