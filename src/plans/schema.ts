/**
 * Checks one JSON Schema (2020-12) of a tracking plan before it is compiled: every keyword is one that we promise, has a
 * value of the right kind, and cannot make a check slow. Each mistake is named by its path in the plan file.
 *
 * Bounded: nesting, number of subschemas with every `$ref` written out, length of lists, patterns (see `pattern.ts`).
 * `$ref` leads to `#/$defs/NAME` of the same schema and nowhere else, and never back to itself. Keywords that JSON Schema
 * would ignore as unknown are mistakes here: a misspelt keyword would check nothing and look as if it did.
 */

import { isObject, type JsonObject, pathSegment } from '../validation/shape.ts';
import { parseIso8601 } from '../validation/iso8601.ts';
import { problemOfPattern } from './pattern.ts';

export type Schema = JsonObject | boolean;

export interface PlanMistake {
  readonly path: string;
  readonly message: string;
}

const SCHEMA_LIMITS = {
  depthMax: 20,
  /** Limit for one schema, with every `$ref` written out. */
  subschemasMax: 1_000,
  listItemsMax: 1_000,
  patternsMax: 200,
} as const;

const SCHEMA_DIALECT = 'https://json-schema.org/draft/2020-12/schema';
const TYPES = ['string', 'number', 'integer', 'boolean', 'null', 'array', 'object'];
const DEFINITION = /^#\/\$defs\/([^/]+)$/;

const DATE = /^\d{4}-\d\d-\d\d$/;
const DATE_TIME = /^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)$/;
const EMAIL = /^[^\s@]+@[^\s@]+$/;
const UUID = /^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$/;

/**
 * The values of `format`. Each takes time linear in the text. They are deliberately plain: an e-mail address is anything
 * with one @ between two parts and no space; a date-time needs a time and an offset.
 */
export const FORMATS: Readonly<Record<string, (text: string) => boolean>> = {
  date: (text) => DATE.test(text) && parseIso8601(text) !== undefined,
  'date-time': (text) => DATE_TIME.test(text) && parseIso8601(text.toUpperCase()) !== undefined,
  email: (text) => EMAIL.test(text),
  uri: (text) => URL.canParse(text),
  uuid: (text) => UUID.test(text),
};
const FORMAT_NAMES = Object.keys(FORMATS);

/** What the value of a keyword has to be, if it holds no schema. */
interface ValueRule {
  readonly isRight: (value: unknown) => boolean;
  readonly message: string;
}

type Kind = ValueRule | 'pattern' | 'reference' | 'schema' | 'schemas' | 'schemaMap' | 'patternMap' | 'nameListMap';

const ANY: ValueRule = { isRight: () => true, message: '' };
const TEXT: ValueRule = { isRight: (value) => typeof value === 'string', message: 'must be a string' };
const BOOLEAN: ValueRule = { isRight: (value) => typeof value === 'boolean', message: 'must be true or false' };
const NUMBER: ValueRule = { isRight: Number.isFinite, message: 'must be a number' };
const POSITIVE: ValueRule = {
  isRight: (value) => isAtLeast(value, Number.MIN_VALUE),
  message: 'must be a number above 0',
};
const COUNT: ValueRule = {
  isRight: (value) => Number.isSafeInteger(value) && isAtLeast(value, 0),
  message: 'must be a whole number of at least 0',
};
const NAMES: ValueRule = { isRight: isListOfNames, message: 'must be a list of different at most 1,000 names' };
const LIST: ValueRule = {
  isRight: (value) => isList(value) && value.length > 0,
  message: 'must be a list of at least one and at most 1,000 values',
};
const TYPE: ValueRule = { isRight: isTypes, message: `must be one or several of ${TYPES.join(', ')}` };
const DIALECT: ValueRule = { isRight: (value) => value === SCHEMA_DIALECT, message: `must be ${SCHEMA_DIALECT}` };
const FORMAT: ValueRule = {
  isRight: (value) => FORMAT_NAMES.includes(value as string),
  message: `must be one of ${FORMAT_NAMES.join(', ')}; for others use pattern`,
};

const KEYWORDS = new Map<string, Kind>(
  Object.entries({
    title: TEXT,
    description: TEXT,
    $comment: TEXT,
    examples: ANY,
    default: ANY,
    deprecated: BOOLEAN,
    'x-personal': BOOLEAN,
    $schema: DIALECT,
    $defs: 'schemaMap',
    $ref: 'reference',
    type: TYPE,
    enum: LIST,
    const: ANY,
    minimum: NUMBER,
    maximum: NUMBER,
    exclusiveMinimum: NUMBER,
    exclusiveMaximum: NUMBER,
    multipleOf: POSITIVE,
    minLength: COUNT,
    maxLength: COUNT,
    pattern: 'pattern',
    format: FORMAT,
    items: 'schema',
    prefixItems: 'schemas',
    contains: 'schema',
    minContains: COUNT,
    maxContains: COUNT,
    minItems: COUNT,
    maxItems: COUNT,
    uniqueItems: BOOLEAN,
    properties: 'schemaMap',
    required: NAMES,
    additionalProperties: 'schema',
    patternProperties: 'patternMap',
    propertyNames: 'schema',
    minProperties: COUNT,
    maxProperties: COUNT,
    dependentRequired: 'nameListMap',
    dependentSchemas: 'schemaMap',
    allOf: 'schemas',
    anyOf: 'schemas',
    oneOf: 'schemas',
    not: 'schema',
    if: 'schema',
    // oxlint-disable-next-line unicorn/no-thenable -- a keyword of JSON Schema
    then: 'schema',
    else: 'schema',
  } satisfies Record<string, Kind>),
);

/** The keywords that may be used, for the documentation and its test. */
export const SCHEMA_KEYWORDS: readonly string[] = [...KEYWORDS.keys()];

/** Adds what is wrong with this schema, which stands at this path of the plan file. */
export function checkSchema(schema: unknown, path: string, mistakes: PlanMistake[]): void {
  if (!isObject(schema)) {
    mistakes.push({ path, message: 'must be an object: a JSON Schema' });
    return;
  }
  const mistakesBefore = mistakes.length;
  const check = new SchemaCheck(schema, mistakes);
  check.schema(schema, path, 0);
  // Counting follows references, which must be sound for that.
  if (mistakes.length === mistakesBefore) check.checkSize(path);
}

class SchemaCheck {
  readonly #root: JsonObject;
  readonly #mistakes: PlanMistake[];
  #patterns = 0;

  constructor(root: JsonObject, mistakes: PlanMistake[]) {
    this.#root = root;
    this.#mistakes = mistakes;
  }

  #mistake(path: string, message: string): void {
    this.#mistakes.push({ path, message });
  }

  schema(schema: unknown, path: string, depth: number): void {
    if (typeof schema === 'boolean') return;
    if (!isObject(schema)) return this.#mistake(path, 'must be a JSON Schema: an object, true or false');
    if (depth > SCHEMA_LIMITS.depthMax) {
      return this.#mistake(path, `is nested too deeply, at most ${SCHEMA_LIMITS.depthMax} schemas inside one another`);
    }
    for (const [keyword, value] of Object.entries(schema)) {
      if (keyword.startsWith('x-') && keyword !== 'x-personal') continue;
      const at = path + pathSegment(keyword);
      const kind = KEYWORDS.get(keyword);
      if (kind === undefined) this.#mistake(at, 'is not a keyword that plans support (see docs/plans.md)');
      else if ((keyword === '$defs' || keyword === '$schema') && schema !== this.#root) {
        this.#mistake(at, 'may only be at the top of a schema');
      } else if (keyword === 'x-personal' && !this.#isTopLevelProperty(schema)) {
        this.#mistake(at, 'may only be on a property at the top of a schema; mark the whole property');
      } else this.#value(kind, value, at, depth);
    }
  }

  #isTopLevelProperty(schema: JsonObject): boolean {
    const properties = this.#root.properties;
    return isObject(properties) && Object.values(properties).includes(schema);
  }

  #value(kind: Kind, value: unknown, path: string, depth: number): void {
    if (typeof kind === 'object') return this.#expect(kind.isRight(value), path, kind.message);
    if (kind === 'pattern') return this.#pattern(value, path);
    if (kind === 'reference') return this.#reference(value, path);
    if (kind === 'schema') return this.schema(value, path, depth + 1);
    if (kind === 'schemas') return this.#schemas(value, path, depth);
    return this.#map(kind, value, path, depth);
  }

  #expect(isRight: boolean, path: string, message: string): void {
    if (!isRight) this.#mistake(path, message);
  }

  #pattern(value: unknown, path: string): void {
    if (typeof value !== 'string') return this.#mistake(path, 'must be a regular expression in a string');
    if (++this.#patterns > SCHEMA_LIMITS.patternsMax) {
      return this.#mistake(path, `is one pattern too many, a schema may have ${SCHEMA_LIMITS.patternsMax}`);
    }
    const problem = problemOfPattern(value);
    if (problem !== null) this.#mistake(path, problem);
  }

  #reference(value: unknown, path: string): void {
    const name = typeof value === 'string' ? DEFINITION.exec(value)?.[1] : undefined;
    if (name === undefined) return this.#mistake(path, 'must be "#/$defs/NAME": other schemas cannot be referred to');
    if (/[~%]/.test(name)) return this.#mistake(path, 'must not hold ~ or %: give the definition a plain name');
    this.#expect(this.#definition(name) !== undefined, path, `refers to ${name}, which is not in $defs`);
  }

  #definition(name: string): unknown {
    const definitions = this.#root.$defs;
    return isObject(definitions) && Object.hasOwn(definitions, name) ? definitions[name] : undefined;
  }

  #schemas(value: unknown, path: string, depth: number): void {
    if (!isList(value) || value.length === 0)
      return this.#mistake(path, 'must be a list of at least one and at most 1,000 schemas');
    for (const [index, schema] of value.entries()) this.schema(schema, `${path}[${index}]`, depth + 1);
  }

  #map(kind: 'schemaMap' | 'patternMap' | 'nameListMap', value: unknown, path: string, depth: number): void {
    if (!isObject(value)) return this.#mistake(path, 'must be an object');
    const members = Object.entries(value);
    if (members.length > SCHEMA_LIMITS.listItemsMax) {
      return this.#mistake(path, `must have at most ${SCHEMA_LIMITS.listItemsMax} members`);
    }
    for (const [name, member] of members) {
      const at = path + pathSegment(name);
      if (name === '__proto__') this.#mistake(at, 'is a name that a plan cannot hold');
      else if (kind === 'nameListMap') this.#expect(NAMES.isRight(member), at, NAMES.message);
      else {
        if (kind === 'patternMap') this.#pattern(name, at);
        this.schema(member, at, depth + 1);
      }
    }
  }

  /** References written out: ten definitions that each refer to the next one twice are a thousand schemas. */
  checkSize(path: string): void {
    const sizes = new Map<string, number | 'counting'>();
    const recursive: string[] = [];
    const sizeOf = (schema: unknown): number => {
      if (!isObject(schema)) return 1;
      let size = 1;
      for (const [keyword, value] of Object.entries(schema)) {
        const kind = KEYWORDS.get(keyword);
        if (kind === 'schema') size += sizeOf(value);
        else if (kind === 'reference') size += sizeOfDefinition(DEFINITION.exec(value as string)?.[1] as string);
        else if ((kind === 'schemas' || kind === 'schemaMap' || kind === 'patternMap') && keyword !== '$defs') {
          for (const member of Object.values(value as object)) size += sizeOf(member);
        }
      }
      return size;
    };
    const sizeOfDefinition = (name: string): number => {
      const known = sizes.get(name);
      if (known === 'counting') recursive.push(name);
      if (known !== undefined) return known === 'counting' ? 0 : known;
      sizes.set(name, 'counting');
      const size = sizeOf(this.#definition(name));
      sizes.set(name, size);
      return size;
    };
    let size = sizeOf(this.#root);
    for (const name of Object.keys(this.#root.$defs ?? {})) size += sizeOfDefinition(name);
    if (recursive.length > 0) {
      this.#mistake(path, `$defs.${recursive[0]} refers to itself: recursive schemas are not supported`);
    } else if (size > SCHEMA_LIMITS.subschemasMax) {
      const most = SCHEMA_LIMITS.subschemasMax;
      this.#mistake(path, `has ${size} schemas with every $ref written out, at most ${most} are allowed`);
    }
  }
}

function isAtLeast(value: unknown, least: number): boolean {
  return Number.isFinite(value) && (value as number) >= least;
}

function isList(value: unknown): value is readonly unknown[] {
  return Array.isArray(value) && value.length <= SCHEMA_LIMITS.listItemsMax;
}

function isListOfNames(value: unknown): boolean {
  return isList(value) && value.every((name) => typeof name === 'string') && new Set(value).size === value.length;
}

function isTypes(value: unknown): boolean {
  const types = Array.isArray(value) ? (value as unknown[]) : [value];
  return (
    types.length > 0 && types.every((type) => TYPES.includes(type as string)) && new Set(types).size === types.length
  );
}
