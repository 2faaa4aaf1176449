/**
 * Personal data, as a plan marks it (`"x-personal": true`): masked where people look at events by chance (Live, tail) and
 * where data leaves (exports), unless it is asked for. What is stored stays as it is, and so do all other reads. The rest
 * of a JSON text keeps its digits.
 */

import { parseExact } from '../json/exact-numbers.ts';
import { isObject } from '../validation/shape.ts';
import { eventOf, type Plan, type PlannedProperties } from './plan.ts';

export const MASK = '•••';
const MASK_JSON = JSON.stringify(MASK);

/** What is needed of a stored event; properties are a JSON object. */
interface MaskableEvent {
  readonly eventName: string;
  readonly properties: string;
  readonly revenue: string | null;
  readonly eventValue: string | null;
}

interface MaskableProfile<Value extends { readonly value: string }> {
  readonly profileFields: ReadonlyMap<string, Value>;
  readonly userProperties: ReadonlyMap<string, Value>;
}

/** The same event where nothing in it is personal. */
export function maskedEvent<Event extends MaskableEvent>(plan: Plan | null, event: Event): Event {
  const names = personalNames(eventOf(plan, event.eventName));
  if (names.length === 0) return event;
  const properties = parseExact(event.properties) as Record<string, unknown>;
  const present = names.filter((name) => Object.hasOwn(properties, name));
  for (const name of present) properties[name] = MASK;
  return {
    ...event,
    ...(present.length > 0 && { properties: JSON.stringify(properties) }),
    ...(names.includes('revenue') && { revenue: null }),
    ...(names.includes('event_value') && { eventValue: null }),
  };
}

/** Identifiers stay: they are what a profile is found by. */
export function maskedProfile<Value extends { readonly value: string }, Profile extends MaskableProfile<Value>>(
  plan: Plan | null,
  profile: Profile,
): Profile {
  if (plan === null || (plan.profile_fields === undefined && plan.user_properties === undefined)) return profile;
  return {
    ...profile,
    profileFields: masked(profile.profileFields, plan.profile_fields),
    userProperties: masked(profile.userProperties, plan.user_properties),
  };
}

function masked<Value extends { readonly value: string }>(
  values: ReadonlyMap<string, Value>,
  planned: PlannedProperties | undefined,
): ReadonlyMap<string, Value> {
  const names = new Set(personalNames(planned));
  return new Map([...values].map(([name, value]) => [name, names.has(name) ? { ...value, value: MASK_JSON } : value]));
}

/** The properties that are marked as personal, in the order of the plan. */
export function personalNames(planned: PlannedProperties | undefined): string[] {
  const properties = planned?.schema.properties;
  if (!isObject(properties)) return [];
  return Object.keys(properties).filter((name) => {
    const property = properties[name];
    return isObject(property) && property['x-personal'] === true;
  });
}

/** Events by name; those without any are left out. */
export function personalDataIn(plan: Plan | null) {
  const events = Object.entries(plan?.events ?? {}).map(([name, planned]) => [name, personalNames(planned)] as const);
  const marked = events.filter(([, names]) => names.length > 0);
  const [fields, properties] = [personalNames(plan?.profile_fields), personalNames(plan?.user_properties)];
  if (fields.length + properties.length + marked.length === 0) return null;
  return { profile_fields: fields, user_properties: properties, events: Object.fromEntries(marked) };
}
