/**
 * `GET /catalogue`: which events are received, how often and since when, and what users set on people;
 * `GET /catalogue/{event_name}` adds the properties of one event with types, shares and examples. Examples of properties
 * that the tracking plan marks as personal are masked; if the plan cannot be read, neither can the catalogue.
 */

import type { FastifyInstance } from 'fastify';
import { LIMITS, type TenantId, tenantPartsOf, VALUE_TYPES } from '../../model.ts';
import { MASK, personalNames } from '../../plans/personal.ts';
import { eventOf, type Plan, type PlannedProperties, readStored } from '../../plans/plan.ts';
import type { PlanStore } from '../../plans.ts';
import type { CatalogueDetails, CatalogueEntry } from '../../store.ts';
import { textParameter } from '../parameters.ts';
import { rowJson } from '../responses.ts';
import type { ApiParts } from '../parts.ts';
import { count, flag, list, object, oneOf, orNull, text, time, Type } from '../schema.ts';
import { tenantRoute } from '../route-kinds.ts';

const valueType = oneOf(VALUE_TYPES, 'Type of a JSON value.');

const CatalogueChange = object('CatalogueChange', 'A property or type that was added after the event was first seen.', {
  change: oneOf(['new_property', 'new_type'], 'A new property, or a new type of a property.'),
  property: text('The property.'),
  type: orNull(valueType, 'The other type; null for a new property.'),
  at: time('When it was first received.'),
});

const seen = {
  count: count('How many were stored since it was first seen. An erase and retention do not change it.'),
  examined: count('How many of them were examined for properties.'),
  is_sampled: flag('Whether some were not examined: then shares are estimates, and rare properties may be missing.'),
  first_seen: time('When the first was received.'),
  last_seen: time('When the last was received.'),
  key_ids: list(Type.String(), 'The keys that sent it, oldest first; at most 20.'),
  property_count: count('The number of properties.'),
  changes: list(
    CatalogueChange,
    'The last 10, oldest first. Properties that the event had from the start are not included.',
  ),
};

const CatalogueEvent = object('CatalogueEvent', 'An event name that is received.', {
  event_name: text('The name.'),
  ...seen,
});

const CatalogueProperty = object('CatalogueProperty', 'A property and the types of its values.', {
  name: text('The name.'),
  share: Type.Number({ minimum: 0, maximum: 1, description: 'Share of the examined events or users that have it.' }),
  types: list(
    Type.Object({
      type: valueType,
      share: Type.Number({ minimum: 0, maximum: 1, description: 'Share of its values that have this type.' }),
      first_seen: time('When a value of this type was first received.'),
    }),
    'The types of its values.',
  ),
  examples: list(
    Type.String(),
    'A few recent values: strings, numbers and booleans as text, cut to 64 characters. Profile fields have none. Masked if the tracking plan marks the property as personal.',
  ),
  is_personal: flag('Whether the tracking plan marks it as personal.'),
  first_seen: time('When it was first received.'),
  last_seen: time('When it was last received.'),
});

const properties = {
  properties: list(CatalogueProperty, 'The most frequent first; at most 300.'),
  other_properties: count('Values of further properties.'),
};

const CatalogueEventDetails = object('CatalogueEventDetails', 'An event name, and its properties.', {
  event_name: text('The name.'),
  ...seen,
  ...properties,
});
const CataloguePeople = object('CataloguePeople', 'What users set on people.', { ...seen, ...properties });

const Catalogue = object('Catalogue', 'What is received.', {
  events: list(CatalogueEvent, 'By name; at most 2,000.'),
  other_events: count('Events with further names.'),
  user_properties: orNull(CataloguePeople, 'Counted in users that set any; null before the first.'),
  profile_fields: orNull(CataloguePeople, 'The same for profile fields.'),
});

const nameInQuery = textParameter(
  'The event name, used instead of the one in the path: for the names `.` and `..`, which clients and proxies remove from a path, percent-encoded or not.',
  LIMITS.eventNameCharactersMax,
);

export function registerCatalogueRoutes(app: FastifyInstance, parts: ApiParts): void {
  const { plans } = parts.keyStore;

  tenantRoute(app, parts, 'GET /catalogue', {
    operationId: 'getCatalogue',
    summary: 'The catalogue of events',
    description:
      'The event names that are received, with counts, times, keys and recent changes, and what users set on people. A few seconds behind the events. See docs/catalogue.md.',
    response: { description: 'The catalogue.', body: Catalogue },
    handler: async ({ store, tenantId }) => {
      const plan = await newestPlan(plans, tenantId);
      const { events, otherEvents, userProperties, profileFields } = await store.catalogue(tenantId);
      return {
        events: events.map((entry) => rowJson(CatalogueEvent, { ...seenRow(entry), eventName: entry.name })),
        other_events: otherEvents,
        user_properties: userProperties && rowJson(CataloguePeople, detailsRow(userProperties, plan?.user_properties)),
        profile_fields: profileFields && rowJson(CataloguePeople, detailsRow(profileFields, plan?.profile_fields)),
      };
    },
  });

  tenantRoute(app, parts, 'GET /catalogue/:event_name', {
    idForm: 'text',
    operationId: 'getCatalogueEvent',
    summary: 'One event of the catalogue',
    description: 'The properties of the events of one name: types, shares, examples, first and last seen.',
    params: { event_name: text('The event name, percent-encoded.') },
    query: { event_name: nameInQuery },
    response: { description: 'The event.', body: CatalogueEventDetails },
    handler: async ({ store, tenantId, id, parameters }) => {
      const eventName = parameters.event_name ?? id;
      const plan = await newestPlan(plans, tenantId);
      const details = await store.cataloguedEvent(tenantId, eventName);
      return details && rowJson(CatalogueEventDetails, { ...detailsRow(details, eventOf(plan, eventName)), eventName });
    },
  });
}

export async function newestPlan(plans: PlanStore, tenantId: TenantId): Promise<Plan | null> {
  const stored = await plans.find(tenantPartsOf(tenantId));
  return stored === undefined ? null : readStored(stored.text);
}

function seenRow(entry: CatalogueEntry) {
  const changes = entry.changes.map((one) => {
    return { ...one, change: one.type === null ? ('new_property' as const) : ('new_type' as const) };
  });
  return { ...entry, isSampled: entry.examined < entry.count, changes };
}

function detailsRow(details: CatalogueDetails, planned: PlannedProperties | undefined) {
  const marked = new Set(personalNames(planned));
  const properties = details.properties.map((property) => {
    const { name, count: having, types, examples } = property;
    return {
      ...property,
      share: shareOf(having, details.examined),
      types: types.map(({ type, count: of, firstSeen }) => ({ type, share: shareOf(of, having), firstSeen })),
      examples: marked.has(name) && examples.length > 0 ? [MASK] : examples,
      isPersonal: marked.has(name),
    };
  });
  return { ...seenRow(details), properties, otherProperties: details.otherProperties };
}

/** To four digits: more would only look exact. */
function shareOf(part: number, whole: number): number {
  return whole === 0 ? 0 : Math.min(1, Math.round((part / whole) * 10_000) / 10_000);
}
