/**
 * The builders of TypeBox that schemas here use, with TypeBox's types and without TypeBox: loading it takes 100 ms and
 * several megabytes in each edge thread, and what it builds is plain JSON Schema. Validation stays with TypeBox, in tests.
 */

import type { TOptional, TProperties, TSchema, Type as TypeBox } from 'typebox';

type Builders = 'Array' | 'Boolean' | 'Integer' | 'Literal' | 'Null' | 'Number' | 'Object' | 'Optional' | 'String';

export const Type = {
  Array: (items: TSchema, options?: object) => ({ type: 'array', items, ...options }),
  Boolean: (options?: object) => ({ type: 'boolean', ...options }),
  Integer: (options?: object) => ({ type: 'integer', ...options }),
  Literal: (value: unknown, options?: object) => ({ type: typeof value, const: value, ...options }),
  Null: (options?: object) => ({ type: 'null', ...options }),
  Number: (options?: object) => ({ type: 'number', ...options }),
  Object: (properties: TProperties, options?: object) => {
    const required = Object.keys(properties).filter((name) => !isOptional(properties[name]));
    return { type: 'object', ...(required.length > 0 && { required }), properties, ...options };
  },
  // Out of sight of JSON, as TypeBox has it.
  Optional: (schema: TSchema) => Object.defineProperty({ ...schema }, '~optional', { value: true }),
  String: (options?: object) => ({ type: 'string', ...options }),
  Union: (anyOf: readonly TSchema[], options?: object) => ({ anyOf, ...options }),
  Unknown: (options?: object) => ({ ...options }),
  Unsafe: (schema: TSchema) => schema,
} as unknown as Pick<typeof TypeBox, Builders | 'Union' | 'Unknown' | 'Unsafe'>;

function isOptional(schema: TSchema | undefined): schema is TOptional {
  return schema !== undefined && '~optional' in schema;
}
