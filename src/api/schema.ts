/**
 * What the schemas of routes are made of: JSON Schema with TypeBox's types, so that what a handler responds with is checked
 * against its schema by the compiler. A schema with a title is a component of the OpenAPI document, under its title.
 *
 * `Type` has the builders of TypeBox that are used here, without TypeBox: loading it takes 100 ms and several megabytes in
 * each edge thread, and what it builds is plain JSON Schema. Validation stays with TypeBox, in tests.
 */

import type { Static, TObjectOptions, TProperties, TSchema, Type as TypeBox } from 'typebox';
import { IDENTIFIER_TYPES } from '../model.ts';
import type { JsonSchema } from './openapi-types.ts';
import type { TimeText } from './responses.ts';
import type { ParameterKinds } from './parameters.ts';
import { type Examples, namedExamples, querySchema } from './route-schema.ts';

type Builders = 'Array' | 'Boolean' | 'Integer' | 'Literal' | 'Null' | 'Number' | 'Object' | 'Optional' | 'String';

export const Type = {
  Array: (items: TSchema, options?: object) => ({ type: 'array', items, ...options }),
  Boolean: (options?: object) => ({ type: 'boolean', ...options }),
  Integer: (options?: object) => ({ type: 'integer', ...options }),
  Literal: (value: unknown, options?: object) => ({ type: typeof value, const: value, ...options }),
  Null: (options?: object) => ({ type: 'null', ...options }),
  Number: (options?: object) => ({ type: 'number', ...options }),
  Object: (properties: TProperties, options?: object) => {
    const required = Object.keys(properties).filter((name) => !('~optional' in (properties[name] ?? {})));
    return { type: 'object', ...(required.length > 0 && { required }), properties, ...options };
  },
  // Out of sight of JSON, as TypeBox has it.
  Optional: (schema: TSchema) => Object.defineProperty({ ...schema }, '~optional', { value: true }),
  String: (options?: object) => ({ type: 'string', ...options }),
  Union: (anyOf: readonly TSchema[], options?: object) => ({ anyOf, ...options }),
  Unknown: (options?: object) => ({ ...options }),
  Unsafe: (schema: TSchema) => schema,
} as unknown as Pick<typeof TypeBox, Builders | 'Union' | 'Unknown' | 'Unsafe'>;

export function object<Fields extends TProperties>(
  title: string,
  description: string,
  fields: Fields,
  others: TObjectOptions = {},
) {
  return Type.Object(fields, { title, description, ...others });
}

/** A body that has these fields and no others. */
export function requestBody<Fields extends TProperties>(
  title: string,
  description: string,
  fields: Fields,
  examples: Examples,
) {
  return object(title, description, fields, { additionalProperties: false, 'x-examples': namedExamples(examples) });
}

/** The object `filter` of a body: what `readFilter` reads, described as in a query. */
export function filterObject(kinds: ParameterKinds, description: string) {
  return Type.Unsafe({ ...querySchema(kinds), description, additionalProperties: false });
}

export function list<Item extends TSchema>(items: Item, description: string) {
  return Type.Array(items, { description });
}

/** That or null; the description is of both, unless another one is given. */
export function orNull<Schema extends TSchema>(schema: Schema, description?: string) {
  if (description !== undefined) return Type.Union([schema, Type.Null()], { description });
  const { description: ofBoth = '', ...others } = schema as TSchema as JsonSchema;
  return Type.Union([others as TSchema as Schema, Type.Null()], { description: ofBoth });
}

export function oneOf<Choice extends string>(choices: readonly Choice[], description: string) {
  return Type.Unsafe<Choice>({ type: 'string', enum: choices, description });
}

export function mapOf<Schema extends TSchema>(values: Schema, description: string) {
  return Type.Unsafe<Record<string, Static<Schema>>>({ type: 'object', additionalProperties: values, description });
}

export function text(description: string) {
  return Type.String({ description });
}

export function flag(description: string) {
  return Type.Boolean({ description });
}

export function time(description: string) {
  return Type.Unsafe<TimeText>({ type: 'string', format: 'date-time', description });
}

export function uuid(description: string) {
  return Type.String({ format: 'uuid', description });
}

export function count(description: string) {
  return Type.Integer({ minimum: 0, description });
}

export const userIndex = count('Position of the user in that request, counted from 0.');
export const identifierType = oneOf(IDENTIFIER_TYPES, 'Kind of identifier.');
export const nextCursor = orNull(text('Send it as `cursor` for the next page; null when there is no more.'));
