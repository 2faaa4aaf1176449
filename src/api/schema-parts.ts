/**
 * Pieces that the schemas of what is read back have in common.
 */

import { type TSchema, Type } from 'typebox';
import { IDENTIFIER_TYPES } from '../model.ts';

export function orNull<Schema extends TSchema>(schema: Schema, description: string) {
  return Type.Union([schema, Type.Null()], { description });
}

export function time(description: string) {
  return Type.String({ format: 'date-time', description });
}

export function profileId(description: string) {
  return Type.String({ format: 'uuid', description });
}

export function traceId(description: string) {
  return Type.String({ format: 'uuid', description });
}

export function keyId(description: string) {
  return Type.String({ description });
}

export function count(description: string) {
  return Type.Integer({ minimum: 0, description });
}

export const userIndex = count('Position of the user in that request, counted from 0.');
export const identifierType = Type.Union(
  IDENTIFIER_TYPES.map((type) => Type.Literal(type)),
  { description: 'Kind of identifier.' },
);
export const nextCursor = orNull(Type.String(), 'Send it as `cursor` for what follows; null when there is no more.');
export const asWritten = Type.Array(Type.String(), { description: 'As clients first wrote them, oldest first.' });
export const anyObject = (description: string) =>
  Type.Object({}, { description, additionalProperties: Type.Unknown() });
