/**
 * Rows of the stores as responses show them, by the schema of the response: the fields that it names and no others, each
 * taken from the row under its name in camel case, with times in UTC. The compiler checks that the row has all of them.
 */

import type { Static, TObject, TProperties, TSchema } from 'typebox';
import type { Json, JsonObjectOf } from './json-text.ts';
import type { JsonSchema } from './openapi-types.ts';
import { type TimeText, timeText } from './stored-json.ts';

type CamelCase<Name> = Name extends `${infer First}_${infer Rest}` ? `${First}${Capitalize<CamelCase<Rest>>}` : Name;

/** What a value of a response is made of: times are in milliseconds. */
type RowOf<Value> = unknown extends Value
  ? Json
  : Value extends TimeText
    ? number
    : Value extends readonly (infer Item)[]
      ? readonly RowOf<Item>[]
      : Value extends object
        ? { readonly [Key in keyof Value as CamelCase<Key>]: RowOf<Value[Key]> | OrAbsent<Value, Key> }
        : Value;

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
  return Object.fromEntries(
    Object.entries(properties).map(([name, field]) => [name, valueJson(field, row[camelCase(name)])]),
  );
}

function camelCase(name: string): string {
  return name.replaceAll(/_(.)/g, (_, letter: string) => letter.toUpperCase());
}
