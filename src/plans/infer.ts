/**
 * A tracking plan from the catalogue: every event name and property that is really received, with the types it has. What
 * the plan has already stays as it is; only events, and what users set on people, that it does not have are added. Nothing
 * is enforced: an inferred plan warns, and people decide what they want.
 *
 * A type that hardly any value has is taken for a mistake and left out. A property is required if every event had it, and
 * enough of them were examined.
 */

import type { ValueType } from '../model.ts';
import type { JsonObject } from '../validation/shape.ts';
import type { Plan, PlannedProperties } from './plan.ts';

/** What is needed of `GET /catalogue/{event_name}`. */
export interface CataloguedEvent {
  readonly event_name: string;
  readonly examined: number;
  readonly properties: readonly CataloguedProperty[];
}

export interface CataloguedProperty {
  readonly name: string;
  readonly share: number;
  readonly types: readonly { readonly type: ValueType; readonly share: number }[];
  readonly is_personal: boolean;
}

export interface InferredFrom {
  readonly events: readonly CataloguedEvent[];
  readonly user_properties: Omit<CataloguedEvent, 'event_name'> | null;
  readonly profile_fields: Omit<CataloguedEvent, 'event_name'> | null;
}

/** A type is in the plan if at least this share of a property's values have it. */
const TYPE_SHARE_MIN = 0.01;
/** With fewer a property may be in all of them by chance. */
const EXAMINED_MIN = 20;
/** A plan cannot hold it: objects that are made of JSON may not have it as a member. */
const UNNAMEABLE = '__proto__';

export function inferPlan(catalogue: InferredFrom, current: Plan | null): Plan {
  const inferred = catalogue.events
    .filter(({ event_name: name }) => name !== UNNAMEABLE)
    .toSorted((a, b) => (a.event_name < b.event_name ? -1 : 1))
    .map((event) => [event.event_name, planned(event, true)] as const);
  const userProperties = current?.user_properties ?? (catalogue.user_properties && planned(catalogue.user_properties));
  const profileFields = current?.profile_fields ?? (catalogue.profile_fields && planned(catalogue.profile_fields));
  return {
    ...(current?.version !== undefined && { version: current.version }),
    unplanned_events: current?.unplanned_events ?? 'warn',
    events: { ...Object.fromEntries(inferred), ...current?.events },
    ...(userProperties && { user_properties: userProperties }),
    ...(profileFields && { profile_fields: profileFields }),
  };
}

function planned({ examined, properties }: Omit<CataloguedEvent, 'event_name'>, mayRequire = false): PlannedProperties {
  const named = properties.filter(({ name }) => name !== UNNAMEABLE);
  const isRequired = ({ share }: CataloguedProperty): boolean => mayRequire && share === 1 && examined >= EXAMINED_MIN;
  const required = named.filter(isRequired).map(({ name }) => name);
  return {
    mode: 'warn',
    schema: {
      type: 'object',
      ...(named.length > 0 && { properties: Object.fromEntries(named.map((one) => [one.name, schemaOf(one)])) }),
      ...(required.length > 0 && { required }),
    },
  };
}

function schemaOf({ types, is_personal: isPersonal }: CataloguedProperty): JsonObject {
  const common = types.filter(({ type, share }) => share >= TYPE_SHARE_MIN || type === 'null').map(({ type }) => type);
  return {
    ...(common.length > 0 && { type: common.length === 1 ? common[0] : common }),
    ...(isPersonal && { 'x-personal': true }),
  };
}
