/**
 * The display name of a person: by name if there is one, else by the identifier that says most, else by the id. Clients
 * choose what is in the fields, so they may be anything. Pure.
 */

import { shortId } from './identity-names.ts';
import type { IdentifierType } from './api-constants.ts';
import type { Person, Profile } from './api-types.ts';

const BY_IDENTIFIER: readonly IdentifierType[] = ['email', 'user_id', 'phone_number', 'anon_id'];
const NAME_CHARACTERS_MAX = 120;

export function nameOf(profile: Profile): string {
  const { id, profile_fields: fields } = profile;
  const text = (name: string): string => {
    const value = Object.hasOwn(fields, name) ? fields[name] : undefined;
    return typeof value === 'string' ? value.trim() : '';
  };
  const firstAndLast = `${text('first_name')} ${text('last_name')}`.trim();
  const named = [firstAndLast, text('name'), text('full_name')].find((name) => name !== '');
  const name = named ?? firstIdentifier(profile) ?? id;
  return name.length > NAME_CHARACTERS_MAX ? `${name.slice(0, NAME_CHARACTERS_MAX)}…` : name;
}

/** Of the person of an event: until it is known who that is, the short id. */
export function labelOf(profileId: string, person: Person | null | undefined): string {
  if (person === undefined || person === null) return shortId(profileId);
  return person.name ?? firstIdentifier(person) ?? shortId(profileId);
}

function firstIdentifier({ identifiers }: Pick<Profile, 'identifiers'>): string | undefined {
  return BY_IDENTIFIER.map((type) => identifiers[type][0]).find((value) => value !== undefined);
}
