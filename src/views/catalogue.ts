/**
 * What both stores keep of the catalogue, and how observations are added to it: pure functions over rows. Names, counts
 * and recent changes of an entry are in one row, its properties in another, which is written only when events were
 * examined. Lists are kept as JSON arrays in which no name chosen by a client is a key.
 *
 * Bounds: a tenant has at most `EVENT_NAMES_MAX` event names and an entry at most `PROPERTIES_MAX` properties, and what is
 * beyond is counted as other. An example is at most `EXAMPLE_CHARACTERS_MAX` long, and is dropped when its property has
 * not been seen for `EXAMPLE_KEPT_MS`.
 */

import { DAY_MS, VALUE_TYPES, type ValueType } from '../model.ts';
import type { CatalogueChange, CatalogueDetails, CatalogueEntry, CatalogueProperty } from '../store.ts';
import type { Observation } from '../store-writer.ts';

/**
 * Instead of a name, which is never empty: the events of all names beyond a bound. A writer locks the row of that name
 * first.
 */
export const OTHER_EVENTS = '';
export const EVENT_NAMES_MAX = 2_000;
export const PROPERTIES_MAX = 300;
export const KEYS_MAX = 20;
export const EXAMPLES_MAX = 3;
const EXAMPLE_CHARACTERS_MAX = 64;
export const EXAMPLE_KEPT_MS = 7 * DAY_MS;
/** Since it was last seen; less where events are kept for less. Makes room for other names. */
export const ENTRY_KEPT_MS = 90 * DAY_MS;
const CHANGES_MAX = 10;

/** A row of the table of entries. */
export interface EntryRow {
  readonly count: number;
  readonly examined: number;
  readonly first_seen: number;
  readonly last_seen: number;
  readonly property_count: number;
  /** JSON arrays. */
  readonly key_ids: string;
  readonly changes: string;
}

/** A row of the table of properties. */
interface PropertiesRow {
  /** JSON arrays. */
  readonly properties: string;
  readonly examples: string;
  readonly other_properties: number;
}

/** A property as it is kept, without its examples; a tuple, to be short as JSON. */
type KeptProperty = readonly [
  name: string,
  count: number,
  firstSeen: number,
  lastSeen: number,
  types: readonly (readonly [type: number, count: number, firstSeen: number])[],
];
type KeptExamples = readonly (readonly [name: string, examples: readonly string[]])[];
type KeptChange = readonly [property: string, type: number | null, at: number];

/** What is kept of an entry after an observation that examined nothing. */
export function countedEntry(stored: EntryRow | undefined, seen: Observation): EntryRow {
  const keyIds = new Set(stored === undefined ? [] : (JSON.parse(stored.key_ids) as readonly string[]));
  for (const keyId of seen.keyIds) if (keyIds.size < KEYS_MAX) keyIds.add(keyId);
  return {
    count: (stored?.count ?? 0) + seen.count,
    examined: (stored?.examined ?? 0) + seen.examined,
    first_seen: Math.min(stored?.first_seen ?? seen.firstSeen, seen.firstSeen),
    last_seen: Math.max(stored?.last_seen ?? seen.lastSeen, seen.lastSeen),
    property_count: stored?.property_count ?? 0,
    key_ids: JSON.stringify([...keyIds]),
    changes: stored?.changes ?? '[]',
  };
}

/** What is kept of an entry and its properties after an observation; examples are optional. */
export function examinedEntry(
  stored: { readonly entry: EntryRow; readonly properties: PropertiesRow | undefined } | undefined,
  seen: Observation,
  withExamples: boolean,
): { readonly entry: EntryRow; readonly properties: PropertiesRow } {
  const kept = new Map(keptProperties(stored?.properties).map((property) => [property[0], property]));
  const examples = new Map(keptExamples(stored?.properties));
  const changes: KeptChange[] = [];
  let other = (stored?.properties?.other_properties ?? 0) + seen.otherProperties;
  for (const property of seen.properties) {
    const before = kept.get(property.name);
    if (before === undefined && kept.size >= PROPERTIES_MAX) {
      other += property.count;
      continue;
    }
    const after = addProperty(before, property);
    kept.set(property.name, after);
    if (withExamples && property.examples.length > 0) examples.set(property.name, property.examples);
    if (before === undefined) changes.push([property.name, null, property.firstSeen]);
    else for (const type of newTypesOf(before, after)) changes.push([property.name, type, property.firstSeen]);
  }
  const staleBefore = seen.lastSeen - EXAMPLE_KEPT_MS;
  const fresh = [...examples].filter(([name]) => (kept.get(name)?.[3] ?? 0) >= staleBefore);
  const entry = countedEntry(stored?.entry, seen);
  return {
    entry: {
      ...entry,
      property_count: kept.size,
      // All properties are new with the entry itself.
      changes:
        stored === undefined ? '[]' : JSON.stringify([...keptChanges(stored.entry), ...changes].slice(-CHANGES_MAX)),
    },
    properties: {
      properties: JSON.stringify([...kept.values()]),
      examples: JSON.stringify(fresh satisfies KeptExamples),
      other_properties: other,
    },
  };
}

export function entryOf(name: string, row: EntryRow): CatalogueEntry {
  return {
    name,
    count: row.count,
    examined: row.examined,
    firstSeen: row.first_seen,
    lastSeen: row.last_seen,
    keyIds: JSON.parse(row.key_ids) as readonly string[],
    propertyCount: row.property_count,
    changes: keptChanges(row).map(
      ([property, type, at]): CatalogueChange => ({ property, type: type === null ? null : typeAt(type), at }),
    ),
  };
}

export function detailsOf(name: string, row: EntryRow, properties: PropertiesRow | undefined): CatalogueDetails {
  const examples = new Map(keptExamples(properties));
  const listed = keptProperties(properties).map(
    ([property, count, firstSeen, lastSeen, types]): CatalogueProperty => ({
      name: property,
      count,
      types: types.map(([type, of, since]) => ({ type: typeAt(type), count: of, firstSeen: since })),
      firstSeen,
      lastSeen,
      examples: examples.get(property) ?? [],
    }),
  );
  return {
    ...entryOf(name, row),
    properties: listed.sort((a, b) => b.count - a.count || (a.name < b.name ? -1 : 1)),
    otherProperties: properties?.other_properties ?? 0,
  };
}

/** A string, number or boolean as text; undefined for what is not a good example. */
export function exampleOf(value: unknown): string | undefined {
  if (typeof value === 'number' || typeof value === 'boolean') return String(value);
  if (typeof value !== 'string' || value === '') return undefined;
  if (value.length <= EXAMPLE_CHARACTERS_MAX) return value;
  // A character of two units must not be cut in half.
  return `${value.slice(0, EXAMPLE_CHARACTERS_MAX - 1).replace(/[\ud800-\udbff]$/, '')}…`;
}

function addProperty(before: KeptProperty | undefined, seen: Observation['properties'][number]): KeptProperty {
  const types = new Map(before?.[4].map((type) => [type[0], type]));
  for (const { type, count } of seen.types) {
    const index = VALUE_TYPES.indexOf(type);
    const known = types.get(index);
    types.set(index, known === undefined ? [index, count, seen.firstSeen] : [index, known[1] + count, known[2]]);
  }
  return [
    seen.name,
    (before?.[1] ?? 0) + seen.count,
    Math.min(before?.[2] ?? seen.firstSeen, seen.firstSeen),
    Math.max(before?.[3] ?? seen.lastSeen, seen.lastSeen),
    [...types.values()].sort(([a], [b]) => a - b),
  ];
}

/** A property that is null now and then has not changed its type. */
function newTypesOf(before: KeptProperty, after: KeptProperty): number[] {
  const known = new Set(before[4].map(([type]) => type));
  return after[4].flatMap(([type]) => (known.has(type) || typeAt(type) === 'null' ? [] : [type]));
}

function keptProperties(row: PropertiesRow | undefined): readonly KeptProperty[] {
  return row === undefined ? [] : (JSON.parse(row.properties) as readonly KeptProperty[]);
}

function keptExamples(row: PropertiesRow | undefined): KeptExamples {
  return row === undefined ? [] : (JSON.parse(row.examples) as KeptExamples);
}

function keptChanges(row: EntryRow): readonly KeptChange[] {
  return JSON.parse(row.changes) as readonly KeptChange[];
}

function typeAt(index: number): ValueType {
  return VALUE_TYPES[index] as ValueType;
}
