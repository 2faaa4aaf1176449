/**
 * A plan that checks users. Each schema is compiled by ajv once per version of the plan, when its first event arrives, so
 * that a large plan does not hold up the thread that loads it. Give it plans that `plan.ts` has read: those are bounded.
 *
 * A schema is applied to the properties of an event: all members except `event_name`, `timestamp` and `$event_id`. A
 * `revenue` or `event_value` that is null counts as absent. Messages never quote what a client sent, so they
 * may be stored and shown. At most `VIOLATIONS_PER_USER_MAX` are given for one user. Numbers are compared as doubles.
 */

import { _, Ajv2020, type ErrorObject, type ValidateFunction } from 'ajv/dist/2020.js';
import { isEmptyObject, isObject, type JsonObject, pathSegment } from '../validation/shape.ts';
import type { UserCheck } from '../validation/validate-request.ts';
import { LinearPattern } from './pattern.ts';
import { eventOf, type Plan, type PlanMode, type PlannedProperties, readStored, type UnplannedMode } from './plan.ts';
import { FORMATS } from './schema.ts';

type ViolationMode = 'warn' | 'enforce';

export interface Violation {
  /** In the user: `events[0].total`, `user_properties.plan`. */
  readonly path: string;
  /** What is wrong at the path: `must be a number`. */
  readonly message: string;
  /** Null for user properties and profile fields. */
  readonly event_name: string | null;
  readonly mode: ViolationMode;
}

export const VIOLATIONS_PER_USER_MAX = 20;

/** If properties as JSON are longer, only the first violation is given, since ajv would collect one per item. */
const ALL_ERRORS_CHARACTERS_MAX = 4_096;

/** Longer paths are cut: names in them are the client's. */
const PATH_CHARACTERS_MAX = 300;
const LISTED_VALUES_MAX = 10;

/** With more names than this, parsing is cheaper than searching. */
const NAMES_LOOKED_FOR_MAX = 8;
const BACKSLASH = 0x5c;

/** What a plan is made of, as it goes to another thread. */
export interface PlanSource {
  /** Made of the tenant and the version. */
  readonly id: string;
  readonly version: number;
  readonly text: string;
}

export class CompiledPlan {
  readonly plan: Plan;
  readonly source: PlanSource;
  /** Stops at the first error. */
  readonly #first = newAjv(false);
  /** By schema: to ask ajv for what it has compiled takes longer than to check an event. */
  readonly #compiled = new Map<JsonObject, ValidateFunction>();
  /** Reports every error, so that people can fix all of them at once. */
  #all: Ajv2020 | undefined;
  /** Every request that has to be checked contains one of these; null if that cannot be guaranteed. */
  readonly #enforcedNames: readonly Buffer[] | null;

  constructor(plan: Plan, source: PlanSource) {
    this.plan = plan;
    this.source = source;
    this.#enforcedNames = enforcedNamesOf(plan);
  }

  /** Why a user is rejected: the first thing that it violates of what is enforced; null if nothing. */
  readonly enforced: UserCheck = (user) => {
    const [first] = checkUser(this, user, 'enforce', 1);
    return first === undefined ? null : violationText(first, this.source.version);
  };

  /** In every mode. */
  violationsOf(user: unknown): readonly Violation[] {
    return checkUser(this, user);
  }

  /** Whether something may be enforced in this body, by a look at its bytes. */
  mayEnforceIn(body: Uint8Array): boolean {
    if (this.#enforcedNames === null) return true;
    const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
    // A name may be written with escapes.
    return bytes.includes(BACKSLASH) || this.#enforcedNames.some((name) => bytes.includes(name));
  }

  /** ajv's errors, or null. With `all`, every error; only the first if the properties are large, to bound the work. */
  errorsOf(schema: JsonObject, properties: JsonObject, all: boolean): readonly ErrorObject[] | null {
    const first = this.#compiled.get(schema) ?? this.#first.compile(schema);
    this.#compiled.set(schema, first);
    if (first(properties)) return null;
    const errors = first.errors ?? [];
    if (!all || JSON.stringify(properties).length > ALL_ERRORS_CHARACTERS_MAX) return errors;
    this.#all ??= newAjv(true);
    const thorough = this.#all.compile(schema);
    return thorough(properties) ? errors : (thorough.errors ?? errors);
  }
}

/** Throws `UnusablePlanError` if the plan is not for this version. */
export function compileStored(source: PlanSource): CompiledPlan {
  return new CompiledPlan(readStored(source.text), source);
}

/**
 * What this user violates, in the order of the user. With `only`, checks in that mode alone: the edge enforces, the
 * processor warns. Takes a user that is valid otherwise; of any other it checks what can be checked.
 */
export function checkUser(
  plan: CompiledPlan,
  user: unknown,
  only?: ViolationMode,
  max = VIOLATIONS_PER_USER_MAX,
): Violation[] {
  const violations: Violation[] = [];
  if (!isObject(user)) return violations;
  const isChecked = (mode: PlanMode): mode is ViolationMode => mode !== 'off' && (only === undefined || mode === only);
  const add = (
    { schema }: PlannedProperties,
    mode: ViolationMode,
    properties: JsonObject,
    root: string,
    name?: string,
  ) => {
    for (const one of violationsIn(plan, schema, properties, root, max > 1)) {
      if (violations.length < max) violations.push({ ...one, event_name: name ?? null, mode });
    }
  };
  // A user that sets none of them is not checked for required ones.
  const addOfPerson = (planned: PlannedProperties | undefined, properties: JsonObject, root: string): void => {
    if (planned === undefined || !isChecked(planned.mode) || isEmptyObject(properties)) return;
    add(planned, planned.mode, properties, root);
  };
  const { identifiers, user_properties: userProperties, events } = user;
  if (plan.plan.profile_fields !== undefined && isObject(identifiers)) {
    const { user_id: _user, email: _email, phone_number: _phone, anon_id: _anon, ...fields } = identifiers;
    addOfPerson(plan.plan.profile_fields, fields, 'identifiers');
  }
  if (isObject(userProperties)) addOfPerson(plan.plan.user_properties, userProperties, 'user_properties');
  if (!Array.isArray(events)) return violations;
  for (let index = 0; index < events.length && violations.length < max; index++) {
    const event: unknown = events[index];
    if (!isObject(event) || typeof event.event_name !== 'string') continue;
    const { event_name: name } = event;
    const planned = eventOf(plan.plan, name);
    const mode = planned === undefined ? UNPLANNED[plan.plan.unplanned_events] : planned.mode;
    if (!isChecked(mode)) continue;
    if (planned !== undefined) {
      add(planned, mode, propertiesOf(event), `events[${index}]`, name);
    } else {
      const path = `events[${index}].event_name`;
      violations.push({ path, message: 'is not in the tracking plan', event_name: name, mode });
    }
  }
  return violations;
}

/** An error in a schema's code is a violation too, so that other users of the request are not affected. */
function violationsIn(
  plan: CompiledPlan,
  schema: JsonObject,
  properties: JsonObject,
  root: string,
  all: boolean,
): readonly Pick<Violation, 'path' | 'message'>[] {
  try {
    const errors = plan.errorsOf(schema, properties, all);
    if (errors === null) return [];
    // References may lead to the same schema twice.
    const distinct = new Map<string, Pick<Violation, 'path' | 'message'>>();
    for (const error of withoutBranches(errors)) {
      const path = root + pathOf(error, properties);
      const message = violationMessage(error);
      distinct.set(`${path} ${message}`, { path: shortened(path), message });
    }
    return [...distinct.values()];
  } catch (error) {
    // Not the message of the error: it may quote what a client sent.
    const message = `cannot be checked, because of a bug in Sluice (${error instanceof Error ? error.name : 'unknown'})`;
    return [{ path: root, message }];
  }
}

const UNPLANNED: Readonly<Record<UnplannedMode, PlanMode>> = { allow: 'off', warn: 'warn', reject: 'enforce' };

function propertiesOf(event: JsonObject): JsonObject {
  const { event_name: _name, timestamp: _timestamp, $event_id: _id, ...properties } = event;
  if (properties.revenue !== null && properties.event_value !== null) return properties;
  const isPresent = ([name, value]: [string, unknown]): boolean => value !== null || !NUMBER_FIELDS.has(name);
  return Object.fromEntries(Object.entries(properties).filter(isPresent));
}

const NUMBER_FIELDS: ReadonlySet<string> = new Set(['revenue', 'event_value']);

export function violationText({ path, message }: Violation, version: number): string {
  return `${path}: ${message} (tracking plan, version ${version})`;
}

/** Text without indexes, under which violations are counted: `events[3].items[7].price` is `items[].price`. */
export function countedPath(path: string): string {
  return path.replace(/^events\[\d+\]\.?/, '').replaceAll(/\[\d+\]/g, '[]');
}

function enforcedNamesOf({ events, unplanned_events, user_properties, profile_fields }: Plan): Buffer[] | null {
  if (unplanned_events === 'reject' || user_properties?.mode === 'enforce' || profile_fields?.mode === 'enforce') {
    return null;
  }
  const names = Object.keys(events).filter((name) => events[name]?.mode === 'enforce');
  if (names.length > NAMES_LOOKED_FOR_MAX || names.some((name) => name.includes('"'))) return null;
  return names.map((name) => Buffer.from(name));
}

function newAjv(allErrors: boolean): Ajv2020 {
  const ajv = new Ajv2020({
    allErrors,
    // Hundredths: 19.99 is a multiple of 0.01.
    multipleOfPrecision: 9,
    strict: false,
    // `schema.ts` has checked them.
    validateSchema: false,
    // Names such as toString are data like any other.
    ownProperties: true,
    logger: false,
    formats: FORMATS,
    code: { regExp: Object.assign((pattern: string) => new LinearPattern(pattern), { code: 'new LinearPattern' }) },
  });
  // ajv compares every pair of items, which clients could make arbitrarily slow.
  ajv.removeKeyword('uniqueItems');
  ajv.addKeyword({
    keyword: 'uniqueItems',
    type: 'array',
    schemaType: 'boolean',
    validate: hasUniqueItems,
    errors: false,
  });
  // ajv's comparison calls members named toString and valueOf, which are data here.
  ajv.removeKeyword('enum');
  ajv.addKeyword({
    keyword: 'enum',
    schemaType: 'array',
    compile: isOneOf,
    errors: false,
    error: { message: '', params: ({ schemaCode }) => _`{allowedValues: ${schemaCode}}` },
  });
  ajv.removeKeyword('const');
  ajv.addKeyword({
    keyword: 'const',
    compile: (value: unknown) => isOneOf([value]),
    errors: false,
    error: { message: '', params: ({ schemaCode }) => _`{allowedValue: ${schemaCode}}` },
  });
  return ajv;
}

function isOneOf(allowed: readonly unknown[]): (value: unknown) => boolean {
  const plain = new Set(allowed.filter((value) => !isNested(value)));
  const nested = new Set(allowed.filter(isNested).map(canonicalText));
  return (value) => (isNested(value) ? nested.size > 0 && nested.has(canonicalText(value)) : plain.has(value));
}

function isNested(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

function hasUniqueItems(isUnique: boolean, items: readonly unknown[]): boolean {
  return !isUnique || new Set(items.map(canonicalText)).size === items.length;
}

/** The same text for equal JSON values only, whatever the order of their members. */
function canonicalText(value: unknown): string {
  if (typeof value !== 'object') return JSON.stringify(value);
  return JSON.stringify(value, (_name, member: unknown) => {
    if (!isObject(member)) return member;
    return Object.fromEntries(Object.entries(member).toSorted(([a], [b]) => (a < b ? -1 : 1)));
  });
}

/** Each is preceded by the errors of its alternatives, or of the items that were tried. */
const ALTERNATIVES: ReadonlySet<string> = new Set(['anyOf', 'oneOf', 'contains']);

/** Without what each alternative of an `anyOf` says: the error of the `anyOf` itself follows and says it all. */
function withoutBranches(errors: readonly ErrorObject[]): ErrorObject[] {
  let kept: ErrorObject[] = [];
  for (const error of errors) {
    if (ALTERNATIVES.has(error.keyword)) {
      kept = kept.filter(({ instancePath, schemaPath }) => {
        const isBranch = schemaPath.startsWith(`${error.schemaPath}/`) || schemaPath.startsWith('#/$defs/');
        return !isBranch || !instancePath.startsWith(error.instancePath);
      });
    }
    // The error of the branch says what is wrong, not that of `if`; and `propertyNames` says it for a name.
    if (error.keyword !== 'if' && error.propertyName === undefined) kept.push(error);
  }
  return kept;
}

function pathOf(error: ErrorObject, properties: JsonObject): string {
  let path = '';
  let current: unknown = properties;
  for (const escaped of error.instancePath.split('/').slice(1)) {
    const name = escaped.replaceAll('~1', '/').replaceAll('~0', '~');
    path += Array.isArray(current) ? `[${name}]` : pathSegment(name);
    current = (current as Record<string, unknown>)[name];
  }
  const { missingProperty, additionalProperty, propertyName } = error.params as Record<string, string | undefined>;
  const member = missingProperty ?? additionalProperty ?? propertyName;
  return member === undefined ? path : path + pathSegment(member);
}

function shortened(path: string): string {
  return path.length <= PATH_CHARACTERS_MAX ? path : `${path.slice(0, PATH_CHARACTERS_MAX).toWellFormed()}…`;
}

const TYPE_WORDS: Readonly<Record<string, string>> = {
  string: 'a string',
  number: 'a number',
  integer: 'a whole number',
  boolean: 'true or false',
  null: 'null',
  array: 'an array',
  object: 'an object',
};

interface ErrorParameters {
  readonly type: string | readonly string[];
  readonly property: string;
  readonly allowedValues: readonly unknown[];
  readonly allowedValue: unknown;
  readonly comparison: string;
  readonly limit: number;
  readonly multipleOf: number;
  readonly minContains: number;
  readonly maxContains?: number;
  readonly pattern: string;
  readonly format: string;
  readonly passingSchemas: unknown;
}

function violationMessage({ keyword, params, schema }: ErrorObject): string {
  const message = Object.hasOwn(MESSAGES, keyword) ? MESSAGES[keyword] : undefined;
  if (message !== undefined) return message(params as ErrorParameters);
  return `violates ${keyword} ${typeof schema === 'string' ? schema : ''}`.trimEnd();
}

const COMPARISONS: Readonly<Record<string, string>> = {
  '>=': 'at least',
  '<=': 'at most',
  '>': 'above',
  '<': 'below',
};

type Message = (parameters: ErrorParameters) => string;

const compared: Message = ({ comparison, limit }) => `must be ${COMPARISONS[comparison] ?? comparison} ${limit}`;
const sized =
  (bound: 'at least' | 'at most', one: string, several: string): Message =>
  ({ limit }) =>
    `must have ${bound} ${limit} ${limit === 1 ? one : several}`;

const MESSAGES: Readonly<Record<string, Message>> = {
  type: ({ type }) =>
    `must be ${[type]
      .flat()
      .map((one) => TYPE_WORDS[one] ?? one)
      .join(' or ')}`,
  required: () => 'is required',
  dependentRequired: ({ property }) => `is required if ${property} is present`,
  additionalProperties: () => 'is not in the tracking plan',
  propertyNames: () => 'has a name that is not allowed',
  'false schema': () => 'is not allowed',
  enum: ({ allowedValues }) => `must be one of ${listed(allowedValues)}`,
  const: ({ allowedValue }) => `must be ${listed([allowedValue])}`,
  minimum: compared,
  maximum: compared,
  exclusiveMinimum: compared,
  exclusiveMaximum: compared,
  multipleOf: ({ multipleOf }) => `must be a multiple of ${multipleOf}`,
  minLength: sized('at least', 'character', 'characters'),
  maxLength: sized('at most', 'character', 'characters'),
  minItems: sized('at least', 'item', 'items'),
  maxItems: sized('at most', 'item', 'items'),
  minProperties: sized('at least', 'property', 'properties'),
  maxProperties: sized('at most', 'property', 'properties'),
  uniqueItems: () => 'must not have the same item twice',
  contains: ({ minContains, maxContains }) => {
    const most = maxContains === undefined ? '' : ` and at most ${maxContains}`;
    return `must have at least ${minContains}${most} of the items that the plan asks for (contains)`;
  },
  pattern: ({ pattern }) => `must match the pattern ${pattern}`,
  format: ({ format }) => `must be a valid ${format}`,
  anyOf: () => 'matches none of the alternatives (anyOf)',
  oneOf: ({ passingSchemas }) =>
    `matches ${passingSchemas === null ? 'none' : 'more than one'} of the alternatives (oneOf)`,
  not: () => 'matches what is excluded (not)',
};

/** Values of the plan, not of the client. */
function listed(values: readonly unknown[]): string {
  const shown = values.slice(0, LISTED_VALUES_MAX).map((value) => JSON.stringify(value));
  return shown.join(', ') + (values.length > LISTED_VALUES_MAX ? ', …' : '');
}
