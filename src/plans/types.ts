/**
 * TypeScript types from a tracking plan, for `new Sluice<EventMap>(…)` of `@sluice/sdk`: an interface with a member for
 * each event of the plan. What TypeScript cannot say (lengths, patterns, ranges) is left to the check; what it can say only
 * roughly is `unknown`. Members that a schema does not name are refused by the compiler in a call, as a misspelt name
 * should be, unless the schema has `additionalProperties: true`.
 *
 * Plans are bounded and have no circular references (see `schema.ts`), so a reference is written out where it is used.
 */

import { isObject, type JsonObject } from '../validation/shape.ts';
import type { Plan, PlannedProperties } from './plan.ts';
import type { Schema } from './schema.ts';

const IDENTIFIER = /^[A-Za-z_$][\w$]*$/;
const DEFINITION = /^#\/\$defs\/(.+)$/;
const TYPE_NAMES: Readonly<Record<string, string>> = {
  ...{ string: 'string', number: 'number', integer: 'number', boolean: 'boolean', null: 'null' },
  ...{ array: 'readonly unknown[]', object: '{ readonly [name: string]: unknown }' },
};

export function typesOf(plan: Plan): string {
  const events = Object.entries(plan.events).map(
    ([name, planned]) => `${commentOf(planned, '  ')}  ${memberName(name)}: ${propertiesType(planned, '  ')};\n`,
  );
  const version = plan.version === undefined ? '' : ` from version ${plan.version} of the plan`;
  const sets = plan.user_properties;
  return [
    `// Written by sluice plan types${version}. Do not edit.\n`,
    `\n/** Event names and their properties: new Sluice<EventMap>(…). */\nexport interface EventMap {\n${events.join('')}}\n`,
    sets === undefined ? '' : `\n${commentOf(sets, '')}export type UserProperties = ${propertiesType(sets, '')};\n`,
  ].join('');
}

function propertiesType({ schema }: PlannedProperties, indent: string): string {
  return objectType(schema, isObject(schema.$defs) ? schema.$defs : {}, indent);
}

function typeOf(schema: Schema, definitions: JsonObject, indent: string): string {
  if (schema === true) return 'unknown';
  if (schema === false) return 'never';
  if ('const' in schema) return literal(schema.const);
  if (Array.isArray(schema.enum)) return union(schema.enum.map(literal));
  const definition = typeof schema.$ref === 'string' ? DEFINITION.exec(schema.$ref)?.[1] : undefined;
  if (definition !== undefined) return typeOf((definitions[definition] ?? true) as Schema, definitions, indent);
  const choices = schema.anyOf ?? schema.oneOf;
  if (Array.isArray(choices)) return union((choices as Schema[]).map((one) => typeOf(one, definitions, indent)));
  const types = [schema.type ?? (isObject(schema.properties) ? 'object' : [])].flat() as string[];
  return types.length === 0 ? 'unknown' : union(types.map((type) => ofType(type, schema, definitions, indent)));
}

function ofType(type: string, schema: JsonObject, definitions: JsonObject, indent: string): string {
  if (type === 'object' && isObject(schema.properties)) return objectType(schema, definitions, indent);
  const isList = type === 'array' && schema.items !== undefined && schema.prefixItems === undefined;
  if (isList) return `readonly (${typeOf(schema.items as Schema, definitions, indent)})[]`;
  return TYPE_NAMES[type] ?? 'unknown';
}

function objectType(schema: JsonObject, definitions: JsonObject, indent: string): string {
  const required = new Set(Array.isArray(schema.required) ? (schema.required as string[]) : []);
  const inner = `${indent}  `;
  const properties = isObject(schema.properties) ? schema.properties : {};
  const onlyRequired = [...required].filter((name) => !Object.hasOwn(properties, name));
  const named = [...Object.entries(properties), ...onlyRequired.map((name) => [name, true] as const)];
  const members = named.map(([name, member]) => {
    const property = member as Schema;
    const sign = required.has(name) ? '' : '?';
    return `${commentOf(property, inner)}${inner}readonly ${memberName(name)}${sign}: ${typeOf(property, definitions, inner)};\n`;
  });
  if (schema.additionalProperties === true) members.push(`${inner}readonly [name: string]: unknown;\n`);
  return members.length === 0 ? '{}' : `{\n${members.join('')}${indent}}`;
}

function union(types: readonly string[]): string {
  const distinct = [...new Set(types)];
  return distinct.length === 0 ? 'never' : distinct.join(' | ');
}

function literal(value: unknown): string {
  return typeof value === 'object' && value !== null ? 'unknown' : JSON.stringify(value);
}

function memberName(name: string): string {
  return IDENTIFIER.test(name) ? name : JSON.stringify(name);
}

/** One line, in which nothing can end the comment. */
function commentOf(described: unknown, indent: string): string {
  const text = isObject(described) ? described.description : undefined;
  if (typeof text !== 'string' || text.trim() === '') return '';
  return `${indent}/** ${text.trim().replaceAll(/\s+/g, ' ').replaceAll('*/', '*\\/')} */\n`;
}
