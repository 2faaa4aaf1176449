/**
 * How profiles and events look in a response: names as the contract has them, times in UTC with milliseconds, values of
 * clients as they came. Routes check it against their schemas; the command line prints the same. Written out, and not
 * taken from a schema (`rowJson`), because exports print millions of them.
 *
 * With `include=person`, events and users of traces come with the name and identifiers of their person, so that a page
 * that shows fifty of them need not ask fifty times. These are looked up for all of them at once, after they were read:
 * one who was erased in between is null.
 */

import { IDENTIFIER_TYPES, type TenantId } from '../model.ts';
import { MASK, personalNames } from '../plans/personal.ts';
import type { Plan } from '../plans/plan.ts';
import type { Page, ProfileReader, Provenance, StoredEvent, StoredPerson, StoredProfile } from '../store.ts';
import { NAME_FIELDS } from '../views/people-search.ts';
import { raw, rawOrNull, rowJson, timeText } from './responses.ts';
import { choiceParameter } from './parameters.ts';
import { object, orNull, text, Type, uuid } from './schema.ts';

export function profileJson(profile: StoredProfile, withProvenance: boolean) {
  return {
    id: profile.id,
    merged_ids: profile.mergedIds,
    identifiers: new Map(IDENTIFIER_TYPES.map((type) => [type, profile.identifiers[type]])),
    profile_fields: valuesOf(profile.profileFields),
    user_properties: valuesOf(profile.userProperties),
    first_seen: timeText(profile.firstSeen),
    last_seen: timeText(profile.lastSeen),
    event_count: profile.eventCount,
    provenance: withProvenance
      ? {
          profile_fields: provenanceOf(profile.profileFields),
          user_properties: provenanceOf(profile.userProperties),
        }
      : undefined,
  };
}

function valuesOf(values: ReadonlyMap<string, Provenance>) {
  return new Map([...values].map(([name, { value }]) => [name, raw(value)]));
}

function provenanceOf(values: ReadonlyMap<string, Provenance>) {
  return new Map(
    [...values].map(([name, { value, traceId, receivedAt }]) => [
      name,
      { value: raw(value), trace_id: traceId, received_at: timeText(receivedAt) },
    ]),
  );
}

export function eventJson(event: StoredEvent, people?: People) {
  return {
    id: event.id,
    event_name: event.eventName,
    timestamp: timeText(event.timestamp),
    received_at: timeText(event.receivedAt),
    revenue: rawOrNull(event.revenue),
    event_value: rawOrNull(event.eventValue),
    properties: raw(event.properties),
    profile_id: event.profileId,
    trace_id: event.traceId,
    userIndex: event.userIndex,
    key_id: event.keyId,
    person: personJson(people, event.profileId),
  };
}

export function eventPageJson({ rows, nextCursor }: Page<StoredEvent>, people?: People) {
  return { events: rows.map((event) => eventJson(event, people)), next_cursor: nextCursor };
}

const asWritten = Type.Array(Type.String(), { description: 'As first sent, oldest first.' });

export function identifiersOf(description: string) {
  return Type.Object(
    { user_id: asWritten, email: asWritten, phone_number: asWritten, anon_id: asWritten },
    { description },
  );
}

const Person = object('Person', 'The name and identifiers of a person.', {
  id: uuid('The profile as it is now.'),
  name: orNull(
    text('`first_name` and `last_name` of its profile fields, else `name` or `full_name`; null without any.'),
  ),
  identifiers: identifiersOf('The oldest three of each type.'),
});

export const person = Type.Optional(
  orNull(Person, 'With `include=person`: the name and identifiers of the person; null without a profile.'),
);

export const include = choiceParameter(
  '`person` adds `person` to each: the name and the first identifiers of its profile, or null without one.',
  ['person'],
);

export type People = ReadonlyMap<string, StoredPerson>;

/** Undefined unless asked for. */
export async function peopleOf(
  store: Pick<ProfileReader, 'people'>,
  tenantId: TenantId,
  isIncluded: boolean,
  rows: readonly { readonly profileId: string | null }[],
): Promise<People | undefined> {
  if (!isIncluded) return undefined;
  const ids = new Set(rows.flatMap(({ profileId }) => profileId ?? []));
  return ids.size === 0 ? new Map() : store.people(tenantId, [...ids]);
}

/** A name is made of profile fields: where one of those is personal, so is the name. */
export function maskedPeople(plan: Plan, people: People): People {
  const personal = personalNames(plan.profile_fields);
  if (!NAME_FIELDS.some((field) => personal.includes(field))) return people;
  return new Map([...people].map(([id, person]) => [id, person.name === null ? person : { ...person, name: MASK }]));
}

/** Undefined, and so left out of the response, unless asked for. */
export function personOf(people: People | undefined, profileId: string | null): StoredPerson | null | undefined {
  return people && (people.get(profileId ?? '') ?? null);
}

function personJson(people: People | undefined, profileId: string | null) {
  const found = personOf(people, profileId);
  return found && rowJson(Person, found);
}
