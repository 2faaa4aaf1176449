/**
 * A JSON Schema as a table that a person can read: one row per field, fields of fields indented under them, references
 * followed. Knows the keywords that the schemas here use. Schemas here do not refer to themselves, so this ends.
 */

import { type Cell, type Html, html, inline, table } from './docs-html.ts';
import { follow, type JsonSchema, type OpenApiDocument } from './openapi-types.ts';

/** What is worth a note differs: in a request the fields that must be there, in a response those that may be missing. */
type Note = 'required' | 'not always';

export function schemaTable(document: OpenApiDocument, schema: JsonSchema, of: 'request' | 'response'): Html {
  const note = of === 'request' ? 'required' : 'not always';
  return table(['Field', 'Type', 'Meaning'], fieldRows(document, schema, 0, note));
}

function fieldRows(document: OpenApiDocument, schema: JsonSchema, depth: number, note: Note): (readonly Cell[])[] {
  const { properties = {}, required = [], additionalProperties: others } = fieldsOf(document, schema);
  // Those that have no name of their own come last.
  const fields = Object.entries<JsonSchema>(properties).concat(typeof others === 'object' ? [['', others]] : []);
  return fields.flatMap(([name, field]) => {
    const resolved = resolve(document, field);
    const inner = optionalOf(resolved);
    const description = resolved.description ?? (inner && resolve(document, inner).description) ?? '';
    const isNoted = required.includes(name) ? note === 'required' : note === 'not always' && name !== '';
    const cells: readonly Cell[] = [
      { className: `field depth-${depth}`, text: name === '' ? html`<i>any other</i>` : html`<code>${name}</code>` },
      { className: 'type', text: [typeText(document, resolved), isNoted ? html` <em>${note}</em>` : ''] },
      inline(description),
    ];
    return [cells].concat(fieldRows(document, field, depth + 1, note));
  });
}

/** The object whose fields are shown below a field: its own, that of its items, or that of its one choice but null. */
function fieldsOf(document: OpenApiDocument, schema: JsonSchema): JsonSchema {
  const resolved = resolve(document, schema);
  const inner = resolved.items ?? optionalOf(resolved);
  return inner === undefined ? resolved : fieldsOf(document, inner);
}

function optionalOf(schema: JsonSchema): JsonSchema | undefined {
  if (schema.type !== undefined) return undefined;
  return schema.anyOf?.find((choice) => choice.type !== 'null');
}

function resolve(document: OpenApiDocument, schema: JsonSchema): JsonSchema {
  return schema.$ref === undefined ? schema : follow(document.components.schemas, { $ref: schema.$ref });
}

/** In words: `string, 1 to 255 characters` or `array of objects, at least 1`. That null may stand for nothing goes unsaid. */
export function typeText(document: OpenApiDocument, schema: JsonSchema): string {
  const { type, items, anyOf, format } = resolve(document, schema);
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum !== undefined) return schema.enum.map(String).join(', ');
  if (type === undefined && anyOf !== undefined) {
    const choices = anyOf.filter((choice) => choice.type !== 'null');
    return choices.map((choice) => typeText(document, choice)).join(' or ');
  }
  if (type === 'array') {
    const plural = items === undefined ? 'values' : `${resolve(document, items).type ?? 'value'}s`;
    return `array of ${plural}${range(schema.minItems, schema.maxItems, '')}`;
  }
  if (type === 'string' && format === 'uuid') return 'string, UUID';
  if (type === 'string' && format === 'date-time') return 'string, ISO 8601';
  if (type === 'string') return `string${range(schema.minLength, schema.maxLength, ' characters')}`;
  return type ?? 'any JSON value';
}

function range(min: number | undefined, max: number | undefined, unit: string): string {
  if (min !== undefined && max !== undefined) return `, ${min} to ${max.toLocaleString('en')}${unit}`;
  if (max !== undefined) return `, at most ${max.toLocaleString('en')}${unit}`;
  return min === undefined ? '' : `, at least ${min}${unit}`;
}
