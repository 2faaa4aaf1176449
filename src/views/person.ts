/**
 * The name of a person beside an event or in a trace: the name in the profile fields and a few identifiers, made of the
 * rows of its nodes. Pure. Clients choose what the fields contain: only texts count, and long ones are cut.
 */

import { type Group, viewOf } from '../identity/property-updates.ts';
import { IDENTIFIER_TYPES, type IdentifierType } from '../model.ts';
import type { StoredPerson } from '../store.ts';
import { parseExact } from '../json/exact-numbers.ts';
import type { IdentifierRow, ProfileNodes } from './profile.ts';

/** Stores omit longer properties of a node, in bytes: those of hundreds of people would fill the memory. */
export const NAMED_BYTES_MAX = 65_536;
const NAME_CHARACTERS_MAX = 200;
const IDENTIFIERS_PER_TYPE_MAX = 3;

/** `identifiers` oldest first. */
export function storedPerson({ root, nodes }: ProfileNodes, identifiers: readonly IdentifierRow[]): StoredPerson {
  const groups = nodes.map(({ properties: json }) => (json === null ? [] : (parseExact(json) as readonly Group[])));
  const { fields } = viewOf(groups);
  const ofType = (type: IdentifierType): string[] =>
    identifiers
      .filter((row) => row.type === type)
      .slice(0, IDENTIFIERS_PER_TYPE_MAX)
      .map(({ raw, value }) => raw ?? value);
  return {
    id: root.id,
    name: nameOf((name) => fields.get(name)?.value),
    identifiers: Object.fromEntries(IDENTIFIER_TYPES.map((type) => [type, ofType(type)])) as Record<
      IdentifierType,
      string[]
    >,
  };
}

function nameOf(field: (name: string) => unknown): string | null {
  const text = (name: string): string => {
    const value = field(name);
    return typeof value === 'string' ? value.trim() : '';
  };
  const firstAndLast = `${text('first_name')} ${text('last_name')}`.trim();
  const name = [firstAndLast, text('name'), text('full_name')].find((one) => one !== '');
  return name === undefined ? null : Array.from(name).slice(0, NAME_CHARACTERS_MAX).join('');
}
