/**
 * `include=person`: the name and identifiers of the person of an event or of a user of a trace, so that a page that shows fifty
 * of them need not ask fifty times. Looked up for all of them at once, after they were read: one who was erased in
 * between is null.
 */

import type { TenantId } from '../model.ts';
import { isPersonalField, MASK, type Plan } from '../plans/plan.ts';
import type { ProfileReader, StoredPerson } from '../store.ts';
import { NAME_FIELDS } from '../views/people-search.ts';
import { choiceParameter } from './parameters.ts';
import { rowJson } from './json-text.ts';
import { identifiersOf, object, orNull, textOrNull, Type, uuid } from './schema.ts';

const Person = object('Person', 'The name and identifiers of a person.', {
  id: uuid('The profile as it is now.'),
  name: textOrNull('`first_name` and `last_name` of its profile fields, else `name` or `full_name`; null without any.'),
  identifiers: identifiersOf('The oldest three of each type.'),
});

/** Part of events and of users of traces. */
export const person = Type.Optional(
  orNull(Person, 'With `include=person`: the name and identifiers of the person; null without a profile.'),
);

export const include = choiceParameter(
  '`person` adds `person` to each: the name and the first identifiers of its profile, or null without one.',
  ['person'],
);

/** By the id of the profile. */
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
  if (!NAME_FIELDS.some((field) => isPersonalField(plan, field))) return people;
  return new Map([...people].map(([id, person]) => [id, person.name === null ? person : { ...person, name: MASK }]));
}

/** Undefined, and so left out of the response, unless asked for. */
export function personOf(people: People | undefined, profileId: string | null): StoredPerson | null | undefined {
  return people && (people.get(profileId ?? '') ?? null);
}

export function personJson(people: People | undefined, profileId: string | null) {
  const found = personOf(people, profileId);
  return found && rowJson(Person, found);
}
