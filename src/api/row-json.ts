/**
 * Rows of the stores as responses show them, by the schema of the response: the fields that it names and no others, each
 * taken from the row under its name in camel case (identifiers under their own), with times in UTC. The compiler checks
 * that the row has all of them. A field that may be absent is left out where the row has none.
 */

import type { Static, TObject, TProperties, TSchema } from 'typebox';
import type { IdentifierType } from '../model.ts';
import type { Json, JsonObjectOf, RawJson } from './json-text.ts';
import type { JsonSchema } from './openapi-types.ts';

/** A time as responses have it. */
export type TimeText = `${string}Z`;

export function timeText(milliseconds: number): TimeText {
  return new Date(milliseconds).toISOString() as TimeText;
}

type CamelCase<Name> = Name extends `${infer First}_${infer Rest}` ? `${First}${Capitalize<CamelCase<Rest>>}` : Name;

/** What a value of a response is made of: times are in milliseconds. */
type RowOf<Value> = unknown extends Value
  ? Json
  : Value extends TimeText
    ? number
    : Value extends readonly (infer Item)[]
      ? readonly RowOf<Item>[]
      : Value extends object
        ? { readonly [Key in keyof Value as NameInRow<Key>]: RowOf<Value[Key]> | OrAbsent<Value, Key> }
        : Value | (Value extends number | string ? RawJson : never);

type NameInRow<Name> = Name extends IdentifierType ? Name : CamelCase<Name>;

type OrAbsent<Value, Key extends keyof Value> = object extends Pick<Value, Key> ? undefined : never;

export function rowJson<Fields extends TProperties>(
  schema: TObject<Fields>,
  row: RowOf<Static<TObject<Fields>>>,
): JsonObjectOf<Static<TObject<Fields>>> {
  return valueJson(schema as TSchema as JsonSchema, row) as JsonObjectOf<Static<TObject<Fields>>>;
}

function valueJson({ anyOf, format, items, properties }: JsonSchema, value: unknown): unknown {
  if (value === null || value === undefined) return value;
  // A type or null: the type comes first.
  if (anyOf?.[0] !== undefined) return valueJson(anyOf[0], value);
  if (format === 'date-time') return timeText(value as number);
  if (items !== undefined) return (value as readonly unknown[]).map((item) => valueJson(items, item));
  if (properties === undefined) return value;
  const row = value as Readonly<Record<string, unknown>>;
  const members = Object.entries(properties).map(([name, field]) => [
    name,
    valueJson(field, row[Object.hasOwn(row, name) ? name : camelCase(name)]),
  ]);
  return Object.fromEntries(members.filter(([, member]) => member !== undefined));
}

function camelCase(name: string): string {
  return name.replaceAll(/_(.)/g, (_, letter: string) => letter.toUpperCase());
}
