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
import { VALUE_TYPES, type ValueType } from '../model.ts';
import type {
  CatalogueKind,
  EventToStore,
  Observation,
  ObservedProperty,
  RecordHeader,
  TenantBatch,
} from '../store-writer.ts';
import { exampleOf, EXAMPLES_MAX, KEYS_MAX, PROPERTIES_MAX } from '../views/catalogue.ts';

/** Limit of parsed JSON between two flushes. Some 10,000 ordinary objects, which take some 30 ms. */
const CHARACTERS_MAX = 2_000_000;
/** What parsing any object costs besides its characters. */
const CHARACTERS_PER_OBJECT = 64;
/** Once half of that is used, only the first events of each name in a transaction are parsed, */
const FIRST_EVENTS = 20;
/** and after them one of this many. */
const STRIDE = 64;
/** Between two flushes: entries with properties, since each is read and written by the flush; and entries in all. */
const EXAMINED_ENTRIES_MAX = 200;
const ENTRIES_MAX = 20_000;

/** Keys of a tenant's entries that are no event names: no event name is empty. */
const USER_PROPERTIES = '\0user_properties';
const PROFILE_FIELDS = '\0profile_fields';
const OTHER_EVENTS = '';
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
    let entries = this.#current.get(tenantId);
    if (entries === undefined) this.#current.set(tenantId, (entries = new Map()));
    const committed = this.#committed.get(tenantId);
    const sees = (name: string, kind: CatalogueKind, header: RecordHeader): Entry => {
      let entry = entries.get(name);
      if (entry === undefined) {
        const isFull = this.#size >= ENTRIES_MAX && committed?.has(name) !== true;
        if (isFull && kind === 'event' && name !== OTHER_EVENTS) return sees(OTHER_EVENTS, kind, header);
        entry = new Entry(kind, kind === 'event' ? name : '', header.receivedAt, committed?.get(name));
        entries.set(name, entry);
        this.#size++;
      }
      entry.count(header);
      return entry;
    };
    for (const { header, users } of records) {
      for (const { events, propertyUpdate } of users) {
        for (const event of events) {
          const entry = sees(event.name, 'event', header);
          const { properties } = event;
          if (this.#isExamined(entry, properties)) entry.examineEvent(event, header.receivedAt);
        }
        if (propertyUpdate === null) continue;
        const { fields, properties } = propertyUpdate;
        if (hasMembers(properties)) {
          const entry = sees(USER_PROPERTIES, 'user_properties', header);
          if (this.#isExamined(entry, properties)) entry.examine(properties, header.receivedAt);
        }
        if (hasMembers(fields)) {
          const entry = sees(PROFILE_FIELDS, 'profile_fields', header);
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
    const observations: Observation[] = [];
    for (const [tenantId, entries] of this.#committed) {
      for (const entry of entries.values()) observations.push(entry.observation(tenantId));
    }
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

class Entry {
  readonly kind: CatalogueKind;
  readonly #name: string;
  /** Its properties are collected. */
  isExamined: boolean;
  counted = 0;
  #examined = 0;
  #firstSeen: number;
  #lastSeen: number;
  #lastKeyId = '';
  readonly #keyIds = new Set<string>();
  readonly #properties = new Map<string, Property>();
  #otherProperties = 0;

  constructor(kind: CatalogueKind, name: string, at: number, committed: Entry | undefined) {
    this.kind = kind;
    this.#name = name;
    this.isExamined = committed?.isExamined === true;
    this.#firstSeen = at;
    this.#lastSeen = at;
  }

  /** All events whose names are too many. */
  get isOther(): boolean {
    return this.kind === 'event' && this.#name === OTHER_EVENTS;
  }

  count({ receivedAt, keyId }: RecordHeader): void {
    this.counted++;
    if (receivedAt < this.#firstSeen) this.#firstSeen = receivedAt;
    if (receivedAt > this.#lastSeen) this.#lastSeen = receivedAt;
    if (keyId === this.#lastKeyId) return;
    this.#lastKeyId = keyId;
    if (this.#keyIds.size < KEYS_MAX) this.#keyIds.add(keyId);
  }

  examineEvent({ properties, revenue, value }: EventToStore, at: number): void {
    this.examine(properties, at);
    // An amount that a double cannot hold is a text here, and a number all the same.
    if (revenue !== null) this.#see('revenue', Number(revenue), at);
    if (value !== null) this.#see('event_value', Number(value), at);
  }

  /** A JSON object. */
  examine(json: string, at: number): void {
    this.#examined++;
    const values = parseJson(json) as Readonly<Record<string, unknown>>;
    for (const name in values) if (name !== EVENT_ID) this.#see(name, values[name], at);
  }

  #see(name: string, value: unknown, at: number): void {
    let property = this.#properties.get(name);
    if (property === undefined) {
      if (this.#properties.size >= PROPERTIES_MAX) {
        this.#otherProperties++;
        return;
      }
      property = new Property(name, at);
      this.#properties.set(name, property);
    }
    // What people are called is never an example.
    property.see(value, at, this.kind !== 'profile_fields');
  }

  absorb(later: Entry): void {
    this.isExamined ||= later.isExamined;
    this.counted += later.counted;
    this.#examined += later.#examined;
    this.#firstSeen = Math.min(this.#firstSeen, later.#firstSeen);
    this.#lastSeen = Math.max(this.#lastSeen, later.#lastSeen);
    for (const keyId of later.#keyIds) if (this.#keyIds.size < KEYS_MAX) this.#keyIds.add(keyId);
    this.#otherProperties += later.#otherProperties;
    for (const [name, property] of later.#properties) {
      const before = this.#properties.get(name);
      if (before !== undefined) before.absorb(property);
      else if (this.#properties.size < PROPERTIES_MAX) this.#properties.set(name, property);
      else this.#otherProperties += property.count;
    }
  }

  observation(tenantId: string): Observation {
    return {
      tenantId,
      kind: this.kind,
      name: this.#name,
      count: this.counted,
      examined: this.#examined,
      firstSeen: this.#firstSeen,
      lastSeen: this.#lastSeen,
      keyIds: [...this.#keyIds],
      properties: Array.from(this.#properties.values(), (property) => property.observed()),
      otherProperties: this.#otherProperties,
    };
  }
}

class Property {
  readonly #name: string;
  count = 0;
  /** By index in VALUE_TYPES. */
  readonly #types = VALUE_TYPES.map(() => 0);
  #firstSeen: number;
  #lastSeen: number;
  #examples: string[] = [];

  constructor(name: string, at: number) {
    this.#name = name;
    this.#firstSeen = at;
    this.#lastSeen = at;
  }

  see(value: unknown, at: number, mayBeExample: boolean): void {
    this.count++;
    (this.#types[TYPE_INDEXES[typeOf(value)]] as number)++;
    if (at < this.#firstSeen) this.#firstSeen = at;
    if (at > this.#lastSeen) this.#lastSeen = at;
    if (mayBeExample && this.#examples.length < EXAMPLES_MAX) this.#addExample(exampleOf(value));
  }

  #addExample(example: string | undefined): void {
    if (example !== undefined && !this.#examples.includes(example)) this.#examples.push(example);
  }

  absorb(later: Property): void {
    this.count += later.count;
    for (const [index, count] of later.#types.entries()) (this.#types[index] as number) += count;
    this.#firstSeen = Math.min(this.#firstSeen, later.#firstSeen);
    this.#lastSeen = Math.max(this.#lastSeen, later.#lastSeen);
    for (const example of later.#examples) if (this.#examples.length < EXAMPLES_MAX) this.#addExample(example);
  }

  observed(): ObservedProperty {
    return {
      name: this.#name,
      count: this.count,
      types: VALUE_TYPES.flatMap((type, index) => {
        const count = this.#types[index] as number;
        return count === 0 ? [] : [{ type, count }];
      }),
      firstSeen: this.#firstSeen,
      lastSeen: this.#lastSeen,
      examples: this.#examples,
    };
  }
}

const TYPE_INDEXES = Object.fromEntries(VALUE_TYPES.map((type, index) => [type, index])) as Record<ValueType, number>;

function typeOf(value: unknown): ValueType {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  return typeof value as ValueType;
}

function hasMembers(json: string): boolean {
  return json.length > '{}'.length;
}
