/**
 * Collects what the catalogue shows while batches are processed: every stored event is counted by name, and some are
 * parsed to see their properties. The processor flushes it every few seconds, in the transaction that makes its commits
 * durable, so a process that is killed loses a few seconds of these statistics and nothing else. What a transaction
 * observed counts once the transaction is committed.
 *
 * Parsing is limited to `CHARACTERS_MAX` between two flushes. Up to half of that every event is parsed, so that at low
 * rates the catalogue is exact; after that the first few events of each name in a transaction, and one of `STRIDE`. The
 * number of names is bounded as well, in memory and per flush.
 */

import { parseJson } from '../json/parse.ts';
import type { TenantId, ValueType } from '../model.ts';
import type {
  CatalogueKind,
  EventToStore,
  Observation,
  ObservedProperty,
  RecordHeader,
  TenantBatch,
} from '../store-writer.ts';
import { exampleOf, EXAMPLES_MAX, KEYS_MAX, OTHER_EVENTS, PROPERTIES_MAX } from '../views/catalogue.ts';

/** Limit of parsed JSON between two flushes. Some 10,000 ordinary objects, which take some 30 ms. */
const CHARACTERS_MAX = 2_000_000;
/** What parsing any object costs besides its characters. */
const CHARACTERS_PER_OBJECT = 64;
/** How many events of each name in a transaction are parsed for certain, once half of that limit is used. */
const FIRST_EVENTS = 20;
/** After those, one event of this many is parsed. */
const STRIDE = 64;
/** Between two flushes: entries with properties, since each is read and written by the flush; and entries in all. */
const EXAMINED_ENTRIES_MAX = 200;
const ENTRIES_MAX = 20_000;

/** Keys of a tenant's entries that are not event names: no event name is empty. */
const USER_PROPERTIES = '\0user_properties';
const PROFILE_FIELDS = '\0profile_fields';
/** No property: the same for tracking plans (`plans/compiled-plan.ts`). */
const EVENT_ID = '$event_id';

export class CatalogueCollector {
  /** Observations of committed transactions since the last flush, and of the transaction in progress. */
  #committed: Collected = new Map();
  #current: Collected = new Map();
  #size = 0;
  #examinedEntries = 0;
  #characters = 0;
  #since: number | null = null;
  readonly #now: () => number;

  constructor(now: () => number) {
    this.#now = now;
  }

  /** What the transaction under way stores. */
  add({ tenantId, records }: TenantBatch): void {
    this.#since ??= this.#now();
    const entries = this.#current.getOrInsertComputed(tenantId, () => new Map<string, Entry>());
    const committed = this.#committed.get(tenantId);
    const entryFor = (name: string, kind: CatalogueKind, header: RecordHeader): Entry => {
      let entry = entries.get(name);
      if (entry === undefined) {
        const isFull = this.#size >= ENTRIES_MAX && committed?.has(name) !== true;
        if (isFull && kind === 'event' && name !== OTHER_EVENTS) return entryFor(OTHER_EVENTS, kind, header);
        entry = new Entry(tenantId, kind, kind === 'event' ? name : '', header.receivedAt, committed?.get(name));
        entries.set(name, entry);
        this.#size++;
      }
      entry.count(header);
      return entry;
    };
    for (const { header, users } of records) {
      for (const { events, propertyUpdate } of users) {
        for (const event of events) {
          const entry = entryFor(event.name, 'event', header);
          const { properties } = event;
          if (this.#isExamined(entry, properties)) entry.examineEvent(event, header.receivedAt);
        }
        if (propertyUpdate === null) continue;
        const { fields, properties } = propertyUpdate;
        if (hasMembers(properties)) {
          const entry = entryFor(USER_PROPERTIES, 'user_properties', header);
          if (this.#isExamined(entry, properties)) entry.examine(properties, header.receivedAt);
        }
        if (hasMembers(fields)) {
          const entry = entryFor(PROFILE_FIELDS, 'profile_fields', header);
          if (this.#isExamined(entry, fields)) entry.examine(fields, header.receivedAt);
        }
      }
    }
  }

  #isExamined(entry: Entry, json: string): boolean {
    if (this.#characters >= CHARACTERS_MAX) return false;
    const { counted } = entry;
    if (this.#characters >= CHARACTERS_MAX / 2 && counted > FIRST_EVENTS && counted % STRIDE !== 0) return false;
    if (!entry.isExamined) {
      if (entry.isOther || this.#examinedEntries >= EXAMINED_ENTRIES_MAX) return false;
      this.#examinedEntries++;
      entry.isExamined = true;
    }
    this.#characters += json.length + CHARACTERS_PER_OBJECT;
    return true;
  }

  /** The transaction under way is committed. */
  commit(): void {
    for (const [tenantId, entries] of this.#current) {
      const committed = this.#committed.get(tenantId);
      if (committed === undefined) {
        this.#committed.set(tenantId, entries);
        continue;
      }
      for (const [name, entry] of entries) {
        const before = committed.get(name);
        if (before === undefined) committed.set(name, entry);
        else {
          before.absorb(entry);
          this.#size--;
        }
      }
    }
    this.#current = new Map();
  }

  /** The transaction under way is rolled back. */
  discard(): void {
    for (const entries of this.#current.values()) this.#size -= entries.size;
    this.#current = new Map();
  }

  /** What was observed in committed transactions, and since when. They stay here until `flushed`. */
  observations(): { readonly observations: readonly Observation[]; readonly since: number } {
    const observations = [...this.#committed.values()].flatMap((entries) =>
      Array.from(entries.values(), ({ observation }) => observation),
    );
    return { observations, since: this.#since ?? this.#now() };
  }

  /** Call it between transactions, when the last returned observations are committed. */
  flushed(): void {
    this.#committed = new Map();
    this.#size = 0;
    this.#examinedEntries = 0;
    this.#characters = 0;
    this.#since = null;
  }
}

/** By tenant and by name. */
type Collected = Map<string, Map<string, Entry>>;

type Mutable<T> = { -readonly [name in keyof T]: T[name] };
/** Observed properties, as long as they are added to. */
type Property = Mutable<Omit<ObservedProperty, 'types' | 'examples'>> & {
  readonly types: { readonly type: ValueType; count: number }[];
  readonly examples: string[];
};

class Entry {
  /** Without its properties. */
  readonly #observed: Mutable<Omit<Observation, 'keyIds' | 'properties'>>;
  /** Its properties are collected. */
  isExamined: boolean;
  #lastKeyId = '';
  readonly #keyIds = new Set<string>();
  readonly #properties = new Map<string, Property>();

  constructor(tenantId: TenantId, kind: CatalogueKind, name: string, at: number, committed: Entry | undefined) {
    const nothing = { count: 0, examined: 0, firstSeen: at, lastSeen: at, otherProperties: 0 };
    this.#observed = { tenantId, kind, name, ...nothing };
    this.isExamined = committed?.isExamined === true;
  }

  get counted(): number {
    return this.#observed.count;
  }

  /** All events whose names are too many. */
  get isOther(): boolean {
    return this.#observed.kind === 'event' && this.#observed.name === OTHER_EVENTS;
  }

  get observation(): Observation {
    return { ...this.#observed, keyIds: [...this.#keyIds], properties: [...this.#properties.values()] };
  }

  count({ receivedAt, keyId }: RecordHeader): void {
    addObserved(this.#observed, 1, receivedAt, receivedAt);
    if (keyId === this.#lastKeyId) return;
    this.#lastKeyId = keyId;
    if (this.#keyIds.size < KEYS_MAX) this.#keyIds.add(keyId);
  }

  examineEvent({ properties, revenue, value }: EventToStore, at: number): void {
    this.examine(properties, at);
    // An amount that a double cannot hold is a text here, and a number all the same.
    if (revenue !== null) this.#observe('revenue', Number(revenue), at);
    if (value !== null) this.#observe('event_value', Number(value), at);
  }

  /** A JSON object. */
  examine(json: string, at: number): void {
    this.#observed.examined++;
    const values = parseJson(json) as Readonly<Record<string, unknown>>;
    for (const name in values) if (name !== EVENT_ID) this.#observe(name, values[name], at);
  }

  #observe(name: string, value: unknown, at: number): void {
    // What people are called is never an example.
    const example = this.#observed.kind === 'profile_fields' ? undefined : exampleOf(value);
    this.#add({
      name,
      count: 1,
      firstSeen: at,
      lastSeen: at,
      types: [{ type: typeOf(value), count: 1 }],
      examples: example === undefined ? [] : [example],
    });
  }

  /** Adds what a later transaction has seen. */
  absorb(later: Entry): void {
    const { count, examined, firstSeen, lastSeen, otherProperties } = later.#observed;
    this.isExamined ||= later.isExamined;
    addObserved(this.#observed, count, firstSeen, lastSeen);
    this.#observed.examined += examined;
    this.#observed.otherProperties += otherProperties;
    for (const keyId of later.#keyIds) if (this.#keyIds.size < KEYS_MAX) this.#keyIds.add(keyId);
    for (const property of later.#properties.values()) this.#add(property);
  }

  #add(seen: Property): void {
    const property = this.#properties.get(seen.name);
    if (property === undefined) {
      if (this.#properties.size < PROPERTIES_MAX) this.#properties.set(seen.name, seen);
      else this.#observed.otherProperties += seen.count;
      return;
    }
    addObserved(property, seen.count, seen.firstSeen, seen.lastSeen);
    for (const { type, count } of seen.types) {
      const known = property.types.find((one) => one.type === type);
      if (known === undefined) property.types.push({ type, count });
      else known.count += count;
    }
    for (const example of seen.examples) {
      const isFull = property.examples.length === EXAMPLES_MAX;
      if (!isFull && !property.examples.includes(example)) property.examples.push(example);
    }
  }
}

function addObserved(
  to: { count: number; firstSeen: number; lastSeen: number },
  count: number,
  firstSeen: number,
  lastSeen: number,
): void {
  to.count += count;
  if (firstSeen < to.firstSeen) to.firstSeen = firstSeen;
  if (lastSeen > to.lastSeen) to.lastSeen = lastSeen;
}

function typeOf(value: unknown): ValueType {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  return typeof value as ValueType;
}

function hasMembers(json: string): boolean {
  return json.length > '{}'.length;
}
