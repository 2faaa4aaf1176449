/**
 * The name of a person beside an event or in a trace: the name in the profile fields and a few identifiers, made of the
 * rows of its nodes. Pure. Clients choose what the fields contain: only texts count, and long ones are cut.
 */

import type { StoredPerson } from '../store.ts';
import { type IdentifierRow, identifiersByType, type ProfileNodes, viewOfNodes } from './profile.ts';

/** Stores omit longer properties of a node, in bytes: those of hundreds of people would fill the memory. */
export const NAMED_BYTES_MAX = 65_536;
const NAME_CHARACTERS_MAX = 200;
const IDENTIFIERS_PER_TYPE_MAX = 3;

/** `identifiers` oldest first. */
export function storedPerson({ root, nodes }: ProfileNodes, identifiers: readonly IdentifierRow[]): StoredPerson {
  const { fields } = viewOfNodes(nodes);
  return {
    id: root.id,
    name: nameOf((name) => fields.get(name)?.value),
    identifiers: identifiersByType(identifiers, IDENTIFIERS_PER_TYPE_MAX),
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
