/**
 * A JSON Schema as a table that a person can read: one row per field, fields of fields indented under them, references
 * followed. Knows the keywords that the schemas here use. Schemas here do not refer to themselves, so this ends.
 */

import { type Html, html, inline, type Part } from './docs-html.ts';
import { follow, type JsonSchema, type OpenApiDocument } from './openapi-types.ts';

interface Row {
  readonly depth: number;
  /** Null for all keys that have no row. */
  readonly name: string | null;
  readonly type: string;
  readonly required: boolean;
  readonly description: string;
}

/** What is worth a note differs: in a request the fields that must be there, in a response those that may be missing. */
export function schemaTable(document: OpenApiDocument, schema: JsonSchema, of: 'request' | 'response'): Html {
  const rows = fieldRows(document, schema, 0).map(({ depth, name, type, required, description }) => {
    const mayBeMissing = of === 'response' && !required && name !== null;
    const note = of === 'request' && required ? 'required' : mayBeMissing ? 'not always' : '';
    return html`
      <tr>
        <td class="field depth-${depth}">${name === null ? html`<i>any other</i>` : html`<code>${name}</code>`}</td>
        <td class="type">${type}${note === '' ? '' : html` <em>${note}</em>`}</td>
        <td>${inline(description)}</td>
      </tr>`;
  });
  return table(['Field', 'Type', 'Meaning'], rows);
}

/** All tables of the page look alike, and stack their cells on narrow screens. */
export function table(heads: readonly string[], rows: readonly Part[]): Html {
  return html`
    <table>
      <thead><tr>${heads.map((head) => html`<th scope="col">${head}</th>`)}</tr></thead>
      <tbody>${rows}
      </tbody>
    </table>`;
}

function fieldRows(document: OpenApiDocument, schema: JsonSchema, depth: number): Row[] {
  const object = fieldsOf(document, schema);
  const rows: Row[] = [];
  for (const [name, field] of Object.entries(object.properties ?? {})) {
    const required = object.required?.includes(name) === true;
    rows.push({ depth, name, required, ...typeAndDescription(document, field) });
    rows.push(...fieldRows(document, field, depth + 1));
  }
  const { additionalProperties: others } = object;
  if (typeof others === 'object') {
    rows.push({ depth, name: null, required: false, ...typeAndDescription(document, others) });
    rows.push(...fieldRows(document, others, depth + 1));
  }
  return rows;
}

/** The object whose fields are shown below a field: its own, that of its items, or that of its one choice but null. */
function fieldsOf(document: OpenApiDocument, schema: JsonSchema): JsonSchema {
  const resolved = resolve(document, schema);
  const inner = resolved.items ?? optionalOf(resolved);
  return inner === undefined ? resolved : fieldsOf(document, inner);
}

function typeAndDescription(document: OpenApiDocument, schema: JsonSchema): { type: string; description: string } {
  const resolved = resolve(document, schema);
  const inner = optionalOf(resolved);
  const described = resolved.description ?? (inner && resolve(document, inner).description);
  return { type: typeText(document, resolved), description: described ?? '' };
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
