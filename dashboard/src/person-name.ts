/**
 * What to call a person: by name if there is one, else by the identifier that says most, else by the id. Whoever sent
 * the fields chose what is in them, so they may be anything. Pure.
 */

import type { IdentifierType, Profile } from './types.ts';

const BY_IDENTIFIER: readonly IdentifierType[] = ['email', 'user_id', 'phone_number', 'anon_id'];
const NAME_CHARACTERS_MAX = 120;

export function nameOf({ id, identifiers, profile_fields: fields }: Profile): string {
  const text = (name: string): string => {
    const value = Object.hasOwn(fields, name) ? fields[name] : undefined;
    return typeof value === 'string' ? value.trim() : '';
  };
  const firstAndLast = `${text('first_name')} ${text('last_name')}`.trim();
  const named = [firstAndLast, text('name'), text('full_name')].find((name) => name !== '');
  const name = named ?? BY_IDENTIFIER.map((type) => identifiers[type][0]).find((value) => value !== undefined) ?? id;
  return name.length > NAME_CHARACTERS_MAX ? `${name.slice(0, NAME_CHARACTERS_MAX)}…` : name;
}
