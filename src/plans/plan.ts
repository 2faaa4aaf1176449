/**
 * A tracking plan: which events a tenant expects and what their properties look like, as JSON Schema (2020-12). This file
 * owns the form of a plan file, and reads one: text to a `Plan`, or a list of mistakes with the path of each.
 *
 * A plan that was read here compiles (see `compiled-plan.ts`), and its checks are bounded in time. Limits: `PLAN_LIMITS`
 * and those of `schema.ts`. A `Plan` has the names of the file, so that `sluice plan pull` gives what push took.
 */

import { describeJsonError } from '../json/error.ts';
import { parseJson } from '../json/parse.ts';
import { isObject, type JsonObject, pathSegment } from '../validation/shape.ts';
import { isLongerThan } from '../validation/characters.ts';
import { LIMITS } from '../model.ts';
import { checkSchema, type PlanMistake } from './schema.ts';
import { UnusablePlanError } from './unusable-plan.ts';

/** `off`: not checked. `warn`: accepted, violations are counted and on the trace. `enforce`: the user is rejected. */
export const PLAN_MODES = ['off', 'warn', 'enforce'] as const;
export type PlanMode = (typeof PLAN_MODES)[number];

export const UNPLANNED_MODES = ['allow', 'warn', 'reject'] as const;
export type UnplannedMode = (typeof UNPLANNED_MODES)[number];

export interface PlannedProperties {
  readonly mode: PlanMode;
  readonly description?: string;
  /** JSON Schema of the object that holds the properties. */
  readonly schema: JsonObject;
}

export interface Plan {
  /** Given by the server with each push; in a file that is pushed, the version that was edited. */
  readonly version?: number;
  readonly unplanned_events: UnplannedMode;
  readonly events: Readonly<Record<string, PlannedProperties>>;
  readonly user_properties?: PlannedProperties;
  /** What is in `identifiers` besides the four identifiers. */
  readonly profile_fields?: PlannedProperties;
}

type PlanReading =
  | { readonly ok: true; readonly plan: Plan }
  | { readonly ok: false; readonly mistakes: readonly PlanMistake[] };

export const PLAN_LIMITS = { bytesMax: 1_048_576, eventsMax: 2_000, mistakesMax: 20 } as const;

const PLAN_MEMBERS = ['$schema', 'version', 'unplanned_events', 'events', 'user_properties', 'profile_fields'];
const PROPERTIES_MEMBERS = ['mode', 'description', 'schema'];

export function parsePlan(text: string): PlanReading {
  if (Buffer.byteLength(text) > PLAN_LIMITS.bytesMax) return oneMistake('', 'is larger than 1 MB');
  let value: unknown;
  try {
    value = parseJson(text);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return oneMistake('', `is not valid JSON: ${describeJsonError(text) ?? 'its syntax is wrong'}`);
  }
  return readPlan(value);
}

/** The same for parsed JSON, whose size the caller checks. */
export function readPlan(value: unknown): PlanReading {
  if (!isObject(value)) return oneMistake('', 'must be a JSON object');
  const mistakes: PlanMistake[] = [];
  checkMembers(value, PLAN_MEMBERS, '', mistakes);
  const { version, unplanned_events: unplanned = 'allow', events = {} } = value;
  const { user_properties: sets, profile_fields: fields } = value;
  if (version !== undefined && (!Number.isSafeInteger(version) || (version as number) < 0)) {
    mistakes.push({ path: 'version', message: 'must be the number of the version that was edited' });
  }
  if (!UNPLANNED_MODES.includes(unplanned as UnplannedMode)) {
    mistakes.push({ path: 'unplanned_events', message: `must be one of ${UNPLANNED_MODES.join(', ')}` });
  }
  const plan: Plan = {
    ...(version === undefined ? {} : { version: version as number }),
    unplanned_events: unplanned as UnplannedMode,
    events: readEvents(events, mistakes),
    ...(sets !== undefined && { user_properties: readPlannedProperties(sets, 'user_properties', mistakes) }),
    ...(fields !== undefined && { profile_fields: readPlannedProperties(fields, 'profile_fields', mistakes) }),
  };
  if (mistakes.length > 0) return { ok: false, mistakes: mistakes.slice(0, PLAN_LIMITS.mistakesMax) };
  return { ok: true, plan };
}

/** A stored plan, which was valid when it was stored. Throws `UnusablePlanError` if it is not for this version. */
export function readStored(text: string): Plan {
  const reading = parsePlan(text);
  if (!reading.ok) throw new UnusablePlanError(describeMistakes(reading.mistakes));
  return reading.plan;
}

export function describeMistakes(mistakes: readonly PlanMistake[]): string {
  return mistakes.map(({ path, message }) => `${path === '' ? 'the plan' : path} ${message}`).join('\n');
}

/** Whether some user can be rejected by this plan, and whether one can be warned about. */
export function modesOf(plan: Plan): { readonly enforces: boolean; readonly warns: boolean } {
  const planned = [...Object.values(plan.events), plan.user_properties, plan.profile_fields];
  return {
    enforces: plan.unplanned_events === 'reject' || planned.some((one) => one?.mode === 'enforce'),
    warns: plan.unplanned_events === 'warn' || planned.some((one) => one?.mode === 'warn'),
  };
}

export function eventOf(plan: Plan | null, eventName: string): PlannedProperties | undefined {
  return plan !== null && Object.hasOwn(plan.events, eventName) ? plan.events[eventName] : undefined;
}

function oneMistake(path: string, message: string): PlanReading {
  return { ok: false, mistakes: [{ path, message }] };
}

function checkMembers(value: JsonObject, known: readonly string[], path: string, mistakes: PlanMistake[]): void {
  for (const name of Object.keys(value)) {
    if (!known.includes(name)) {
      const at = `${path}${pathSegment(name)}`.replace(/^\./, '');
      mistakes.push({ path: at, message: `is unknown, expected ${known.join(', ')}` });
    }
  }
}

function readEvents(value: unknown, mistakes: PlanMistake[]): Record<string, PlannedProperties> {
  const events: Record<string, PlannedProperties> = {};
  if (!isObject(value)) {
    mistakes.push({ path: 'events', message: 'must be an object with a member for each event name' });
    return events;
  }
  const members = Object.entries(value);
  if (members.length > PLAN_LIMITS.eventsMax) {
    mistakes.push({
      path: 'events',
      message: `must have at most ${PLAN_LIMITS.eventsMax} events, not ${members.length}`,
    });
    return events;
  }
  for (const [name, member] of members) {
    const path = `events${pathSegment(name)}`;
    if (name === '__proto__') mistakes.push({ path, message: 'is a name that a plan cannot hold' });
    else if (name.trim() === '' || isLongerThan(name, LIMITS.eventNameCharactersMax)) {
      mistakes.push({ path, message: `name must be 1 to ${LIMITS.eventNameCharactersMax} characters, not blank` });
    } else events[name] = readPlannedProperties(member, path, mistakes);
    if (mistakes.length >= PLAN_LIMITS.mistakesMax) break;
  }
  return events;
}

function readPlannedProperties(value: unknown, path: string, mistakes: PlanMistake[]): PlannedProperties {
  if (!isObject(value)) {
    mistakes.push({ path, message: 'must be an object with mode and schema' });
    return { mode: 'off', schema: {} };
  }
  checkMembers(value, PROPERTIES_MEMBERS, path, mistakes);
  const { mode = 'warn', description, schema = {} } = value;
  if (!PLAN_MODES.includes(mode as PlanMode)) {
    mistakes.push({ path: `${path}.mode`, message: `must be one of ${PLAN_MODES.join(', ')}` });
  }
  if (description !== undefined && typeof description !== 'string') {
    mistakes.push({ path: `${path}.description`, message: 'must be a string' });
  }
  checkSchema(schema, `${path}.schema`, mistakes);
  return {
    mode: mode as PlanMode,
    ...(typeof description === 'string' ? { description } : {}),
    schema: schema as JsonObject,
  };
}
