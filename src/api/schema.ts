/**
 * Pieces that the schemas of routes have in common. Schemas are JSON Schema with TypeBox's types, so that what a
 * handler responds with is checked against its schema by the compiler. A schema with a title is a component of the OpenAPI
 * document, under its title.
 */

import type { Static, TProperties, TSchema } from 'typebox';
import { IDENTIFIER_TYPES } from '../model.ts';
import { Type } from './json-schema.ts';
import type { TimeText } from './row-json.ts';

/** An object that has a name. */
export function object<Fields extends TProperties>(title: string, description: string, fields: Fields) {
  return Type.Object(fields, { title, description });
}

export function list<Item extends TSchema>(items: Item, description: string) {
  return Type.Array(items, { description });
}

export function orNull<Schema extends TSchema>(schema: Schema, description: string) {
  return Type.Union([schema, Type.Null()], { description });
}

/** One of several texts. */
export function oneOf<Choice extends string>(choices: readonly Choice[], description: string) {
  return Type.Unsafe<Choice>({ type: 'string', enum: choices, description });
}

/** An object with any keys. */
export function mapOf<Schema extends TSchema>(values: Schema, description: string) {
  return Type.Unsafe<Record<string, Static<Schema>>>({ type: 'object', additionalProperties: values, description });
}

export function text(description: string) {
  return Type.String({ description });
}

export function textOrNull(description: string) {
  return orNull(Type.String(), description);
}

export function numberOrNull(description: string) {
  return orNull(Type.Number(), description);
}

export function flag(description: string) {
  return Type.Boolean({ description });
}

/** What a client chose: any JSON value. */
export function anyJson(description: string) {
  return Type.Unknown({ description });
}

export function time(description: string) {
  return Type.Unsafe<TimeText>({ type: 'string', format: 'date-time', description });
}

export function timeOrNull(description: string) {
  return orNull(Type.Unsafe<TimeText>({ type: 'string', format: 'date-time' }), description);
}

export function uuid(description: string) {
  return Type.String({ format: 'uuid', description });
}

export function uuidOrNull(description: string) {
  return orNull(Type.String({ format: 'uuid' }), description);
}

export function count(description: string) {
  return Type.Integer({ minimum: 0, description });
}

export const userIndex = count('Position of the user in that request, counted from 0.');
export const identifierType = oneOf(IDENTIFIER_TYPES, 'Kind of identifier.');
export const nextCursor = textOrNull('Send it as `cursor` for the next page; null when there is no more.');

const asWritten = Type.Array(Type.String(), { description: 'As first sent, oldest first.' });

export function identifiersOf(description: string) {
  return Type.Object(
    { user_id: asWritten, email: asWritten, phone_number: asWritten, anon_id: asWritten },
    { description },
  );
}
