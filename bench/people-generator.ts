/**
 * The people of the benchmarks that go all the way to the store, and the requests they make. A request is copied from
 * one of a few templates, and what must differ is written over it in place: who, how many visits, when, which order, which id. So
 * hundreds of thousands of people need no memory, and a user costs the generator a fraction of a microsecond. Every
 * field that is written over has a fixed width. The same population always draws the same people in the same order; only the ids
 * of its events are new in every run, for a repeated id would be a repeated event.
 */

import { randomBytes } from 'node:crypto';
import { mulberry32, userOf } from './requests.ts';

/** Which identifiers the users of a population carry. */
export type CarriedIdentifiers = 'everything' | 'anon_id' | 'email' | 'email and anon_id';

export interface Population {
  readonly people: number;
  /**
   * Drawn uniformly by a seed, or each in turn, `stride` apart (a prime that does not divide the number of people). With
   * `newShare` this share of the users are new people, and the others are drawn from those who came before them.
   */
  readonly order:
    | { readonly seed: number }
    | { readonly stride: number }
    | { readonly seed: number; readonly newShare: number };
  readonly carries: CarriedIdentifiers;
  /** About this share of the users carry an anon_id only, whatever `carries` is. */
  readonly anonymousShare?: number;
  /** Every event carries a random UUID as its `$event_id`. */
  readonly eventIds?: boolean;
}

export interface PersonIdentifiers {
  readonly user_id: string;
  readonly email: string;
  readonly anon_id: string;
}

export const USERS_PER_REQUEST = 100;

/** So many that plans, countries, names and amounts vary, so few that they stay in the processor's cache. */
const TEMPLATES = 32;
const PERSON_DIGITS = 8;
const VISITS_MIN = 100;
const VISITS_SPAN = 900;
const MARKED_ID = '00000000-0000-4000-8000-000000000000';
/** Where a UUID has random digits; its others are as version 4 has them. */
const ID_DIGITS_AT = MARKED_ID.split('').flatMap((character, at) => (character === '0' ? [at] : []));
const RANDOM_BYTES = 32_768;
const MARKED_TIME = '2026-01-01T00:00:00.000Z';
const MILLISECONDS_AT = MARKED_TIME.indexOf('.') + 1;
const ZERO = 0x30;
const HEX = Buffer.from('0123456789abcdef');
/** Odd numbers: multiplying by one maps 32 bits to 32 bits without collisions. */
const ANON_FACTORS = [2_654_435_761, 40_503, 97, 7_919];
/** The first person must not get an anon_id of zeros, which names no person (rule 3). */
const ANON_FIRST = 1;

export function peopleOf({ people, order }: Population): () => number {
  if ('newShare' in order) {
    const random = mulberry32(order.seed);
    let known = 0;
    return () => {
      if (known > 0 && (known === people || random() >= order.newShare)) return Math.floor(random() * known);
      known += 1;
      return known - 1;
    };
  }
  if ('seed' in order) {
    const random = mulberry32(order.seed);
    return () => Math.floor(random() * people);
  }
  let turn = 0;
  return () => {
    const person = (turn * order.stride) % people;
    turn += 1;
    return person;
  };
}

export function identifiersOf(person: number): PersonIdentifiers {
  const digits = String(person).padStart(PERSON_DIGITS, '0');
  const anon = ANON_FACTORS.map((factor) =>
    (Math.imul(person + ANON_FIRST, factor) >>> 0).toString(16).padStart(8, '0'),
  );
  return { user_id: `u_${digits}`, email: `person.${digits}@example.com`, anon_id: anon.join('-') };
}

/** How many of the first `users` users of a population are these people. */
export function timesDrawn(population: Population, users: number, people: readonly number[]): number[] {
  const next = peopleOf(population);
  const times = new Map(people.map((person) => [person, 0]));
  for (let n = 0; n < users; n += 1) {
    const person = next();
    const before = times.get(person);
    if (before !== undefined) times.set(person, before + 1);
  }
  return people.map((person) => times.get(person) ?? 0);
}

/** Where a user of a template has what is written over; -1 for what it does not say. */
interface Places {
  readonly userId: number;
  readonly email: number;
  readonly anonId: number;
  readonly visits: number;
  readonly timestamp: number;
  readonly orderId: number;
  readonly eventId: number;
}

interface Template {
  readonly bytes: Buffer;
  readonly users: readonly Places[];
}

export class RequestMaker {
  /** By the number of users in them. */
  private readonly templates: ReadonlyMap<number, readonly Template[]>;
  private readonly sizes: readonly number[];
  private readonly nextPerson: () => number;
  private readonly random = mulberry32(20_260_202);
  private turn = 0;
  /** Hexadecimal digits that are not used yet, from `randomAt` on. */
  private randomDigits = Buffer.alloc(0);
  private randomAt = 0;

  /** `sizes`: users of the requests, in turn. `head` goes before each body: of an HTTP request, or nothing. */
  constructor(population: Population, sizes: readonly number[], head: (bodyBytes: number) => string) {
    const random = mulberry32(20_260_101);
    const templatesOf = (size: number): Template[] =>
      Array.from({ length: TEMPLATES }, (_, n) => makeTemplate(population, { size, first: n * size }, head, random));
    this.sizes = sizes;
    this.templates = new Map([...new Set(sizes)].map((size) => [size, templatesOf(size)]));
    this.nextPerson = peopleOf(population);
  }

  /** The next request of the population, with events of the second that `now` is in. */
  next(now: number): { readonly bytes: Buffer; readonly users: number } {
    const templates = this.templates.get(this.sizes[this.turn % this.sizes.length] ?? 0);
    const template = templates?.[Math.floor(this.random() * templates.length)];
    if (template === undefined) throw new Error('a population without templates');
    this.turn += 1;
    const bytes = Buffer.allocUnsafe(template.bytes.length);
    template.bytes.copy(bytes);
    const time = Buffer.from(new Date(now).toISOString(), 'latin1');
    for (const places of template.users) this.writeUser(bytes, places, time);
    return { bytes, users: template.users.length };
  }

  private writeUser(bytes: Buffer, places: Places, time: Buffer): void {
    const person = this.nextPerson();
    if (places.userId >= 0) writeDigits(bytes, places.userId, person, PERSON_DIGITS);
    if (places.email >= 0) writeDigits(bytes, places.email, person, PERSON_DIGITS);
    if (places.anonId >= 0) {
      for (let part = 0; part < ANON_FACTORS.length; part += 1) {
        writeHex(bytes, places.anonId + part * 9, Math.imul(person + ANON_FIRST, ANON_FACTORS[part] ?? 1));
      }
    }
    const chance = (this.random() * 2 ** 31) | 0;
    writeDigits(bytes, places.visits, VISITS_MIN + (chance % VISITS_SPAN), 3);
    bytes.set(time, places.timestamp);
    writeDigits(bytes, places.timestamp + MILLISECONDS_AT, (chance >>> 10) % 1000, 3);
    writeHex(bytes, places.orderId, chance);
    if (places.eventId >= 0) this.writeEventId(bytes, places.eventId);
  }

  private writeEventId(bytes: Buffer, at: number): void {
    if (this.randomAt + ID_DIGITS_AT.length > this.randomDigits.length) {
      this.randomDigits = Buffer.from(randomBytes(RANDOM_BYTES).toString('hex'), 'latin1');
      this.randomAt = 0;
    }
    const { randomDigits, randomAt } = this;
    for (let n = 0; n < ID_DIGITS_AT.length; n += 1) {
      bytes[at + (ID_DIGITS_AT[n] ?? 0)] = randomDigits[randomAt + n] ?? ZERO;
    }
    this.randomAt += ID_DIGITS_AT.length;
  }
}

function makeTemplate(
  population: Population,
  { size, first }: { readonly size: number; readonly first: number },
  head: (bodyBytes: number) => string,
  random: () => number,
): Template {
  const texts = Array.from({ length: size }, (_, n) => JSON.stringify(markedUser(population, first + n, random)));
  const opening = '{"users":[';
  const body = `${opening}${texts.join(',')}]}\n`;
  // All of it is ASCII, so characters are bytes.
  const start = head(body.length);
  let at = start.length + opening.length;
  const users = texts.map((text) => {
    const place = (before: string): number => {
      const found = text.indexOf(before);
      return found < 0 ? -1 : at + found + before.length;
    };
    const places = {
      userId: place('"user_id":"u_'),
      email: place('"email":"person.'),
      anonId: place('"anon_id":"'),
      visits: place('"visits":'),
      timestamp: place('"timestamp":"'),
      orderId: place('"order_id":"order_'),
      eventId: place('"$event_id":"'),
    };
    at += text.length + 1;
    return places;
  });
  return { bytes: Buffer.from(start + body, 'latin1'), users };
}

/** As the edge benchmarks have them, the `n`th of all templates, with a stand-in of the right width for all that is written over. */
function markedUser(
  { carries, anonymousShare = 0, eventIds = false }: Population,
  n: number,
  random: () => number,
): object {
  const { user_properties: properties, events } = userOf(random);
  const { user_id, email, anon_id } = identifiersOf(0);
  const identifiers = {
    everything: { user_id, email, anon_id },
    anon_id: { anon_id },
    email: { email },
    'email and anon_id': { email, anon_id },
  }[isInShare(n, anonymousShare) ? 'anon_id' : carries];
  return {
    identifiers,
    user_properties: { ...properties, visits: VISITS_MIN },
    events: [{ ...events[0], timestamp: MARKED_TIME, ...(eventIds && { $event_id: MARKED_ID }) }],
  };
}

/** Whether it is among the share of all numbers, spread evenly. */
function isInShare(n: number, share: number): boolean {
  return Math.floor((n + 1) * share) > Math.floor(n * share);
}

function writeDigits(bytes: Buffer, at: number, value: number, width: number): void {
  let left = value | 0;
  for (let place = at + width - 1; place >= at; place -= 1) {
    const rest = (left / 10) | 0;
    bytes[place] = ZERO + left - rest * 10;
    left = rest;
  }
}

function writeHex(bytes: Buffer, at: number, value: number): void {
  for (let digit = 0; digit < 8; digit += 1) bytes[at + digit] = HEX[(value >>> (28 - 4 * digit)) & 15] ?? ZERO;
}
