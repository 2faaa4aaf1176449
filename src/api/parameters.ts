/**
 * Parameters of a query, once: how each is read, what it may be and what it means. Routes read requests by them and
 * the OpenAPI document lists them. What does not fit is refused with the name of the parameter and what is expected;
 * nothing is guessed and nothing unknown is passed over. Ajv would coerce values, and say it in other words.
 *
 * An empty value counts as absent, unless a parameter says otherwise.
 */

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
  const values = Object.entries(kinds).map(([name, kind]) => [name, kind.read(given.get(name), name)] as const);
  return Object.fromEntries(values) as ValuesOf<Kinds>;
}

function unknownText(name: string, known: readonly string[]): string {
  const shown = name.slice(0, NAME_CHARACTERS_SHOWN_MAX);
  return `unknown parameter ${shown}: ${known.length === 0 ? 'there are none' : `there are ${known.join(', ')}`}`;
}

export function textParameter(description: string, charactersMax: number): ParameterKind<string | null> {
  return {
    description,
    schema: { type: 'string', maxLength: charactersMax },
    read: (given, name) => {
      if (given === undefined || given === '') return null;
      if (isLongerThan(given, charactersMax)) {
        throw new BadParameterError(`${name} must be at most ${charactersMax} characters`);
      }
      if (!isStorable(given)) throw new BadParameterError(`${name} contains a character that cannot be stored`);
      return given;
    },
  };
}

/** A plus sign that is not encoded arrives as a space; no time has a space in it. */
export function timeParameter(description: string): ParameterKind<number | null> {
  return {
    description,
    schema: { type: 'string', examples: [TIME_EXAMPLE] },
    read: (given, name) => {
      if (given === undefined || given === '') return null;
      const milliseconds = parseIso8601(given.replace(' ', '+'));
      if (milliseconds !== undefined) return milliseconds;
      throw new BadParameterError(`${name} must be an ISO 8601 time, such as ${TIME_EXAMPLE}`);
    },
  };
}

export function choiceParameter<Choice extends string>(
  description: string,
  choices: readonly Choice[],
): ParameterKind<Choice | null> {
  return {
    description,
    schema: { type: 'string', enum: choices },
    read: (given, name) => {
      if (given === undefined || given === '') return null;
      const found = choices.find((one) => one === given);
      if (found !== undefined) return found;
      const listed = [choices.slice(0, -1).join(', '), choices.at(-1)].filter(Boolean).join(' or ');
      throw new BadParameterError(`${name} must be ${listed}`);
    },
  };
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

export const cursor: ParameterKind<string | null> = {
  description:
    'Where to continue: `next_cursor` of the previous response, unchanged. The other parameters stay the same.',
  schema: { type: 'string' },
  read: (given) => (given === undefined || given === '' ? null : given),
};

/** From (inclusive) to (exclusive), where both are given. */
export function refuseEmptyRange(from: number | null, to: number | null): void {
  if (from !== null && to !== null && from >= to) throw new BadParameterError('from must be before to');
}
