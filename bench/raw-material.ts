/**
 * What the raw-insert baseline writes, made before its clock starts: who is drawn, identifiers, ids, and texts of events
 * and people like those that the processor makes of a request. Texts repeat after a few thousand, which costs SQLite
 * nothing; ids do not.
 */

import { randomFillSync } from 'node:crypto';
import { keySetHashOf } from '../src/backends/embedded/store/match-keys.ts';
import { type HashOfKey, identityFingerprint } from '../src/views/keyed-hash.ts';
import { IDENTIFIER_TYPES } from '../src/model.ts';
import { type Population, identifiersOf, peopleOf, USERS_PER_REQUEST } from './people-generator.ts';
import { mulberry32, userOf } from './requests.ts';

const TEXTS = 4_096;
const ID_BYTES = 16;
const TIME_BYTES = 6;

export interface EventTexts {
  readonly name: string;
  readonly revenue: number;
  readonly currency: string;
  readonly properties: string;
  readonly known: string;
  readonly jitter: number;
}

/** All that the loop writes, made before. */
export interface Material {
  readonly drawn: Uint32Array;
  readonly identifiers: readonly (readonly [userId: string, email: string, anonId: string])[];
  readonly events: readonly EventTexts[];
  readonly nodeIds: Buffer;
  readonly traceIds: Buffer;
  readonly startedAt: number;
}

/** Of every person in turn, the hash of each key. */
export interface HashedKeys {
  readonly hashes: Float64Array;
  readonly rests: Float64Array;
  /** By person. */
  readonly companies: Float64Array;
}

/** Places in IDENTIFIER_TYPES, in the order of `Material.identifiers`. */
export const KEY_TYPES = [0, 1, 3] as const;

export function prepareMaterial(population: Population, users: number): Material {
  const nextPerson = peopleOf(population);
  const startedAt = Date.now();
  const random = mulberry32(20_260_303);
  return {
    startedAt,
    drawn: Uint32Array.from({ length: users }, () => nextPerson()),
    identifiers: Array.from({ length: population.people }, (_, person) => {
      const { user_id, email, anon_id } = identifiersOf(person);
      return [user_id, email, anon_id] as const;
    }),
    events: Array.from({ length: TEXTS }, () => makeTexts(random, startedAt)),
    nodeIds: makeIds(population.people, startedAt),
    traceIds: makeIds(users / USERS_PER_REQUEST, startedAt),
  };
}

/** Under the secret of the file that they go to. */
export function hashedKeys({ identifiers }: Material, tenant: number, hashOf: HashOfKey): HashedKeys {
  const length = identifiers.length * KEY_TYPES.length;
  const keys = {
    hashes: new Float64Array(length),
    rests: new Float64Array(length),
    companies: new Float64Array(identifiers.length),
  };
  for (const [person, texts] of identifiers.entries()) {
    for (const [n, type] of KEY_TYPES.entries()) {
      const { hash, rest } = hashOf(tenant, type, texts[n] ?? '');
      keys.hashes[person * KEY_TYPES.length + n] = hash;
      keys.rests[person * KEY_TYPES.length + n] = rest;
    }
    const together = KEY_TYPES.map((type, n) => ({ type: IDENTIFIER_TYPES[type], value: texts[n] ?? '' }));
    keys.companies[person] = keySetHashOf(identityFingerprint(hashOf, tenant, together));
  }
  return keys;
}

/** As the processor stores them: what is a column of its own is not among the properties. */
function makeTexts(random: () => number, startedAt: number): EventTexts {
  const { user_properties: userProperties, events } = userOf(random);
  const { event_name: name, revenue, timestamp: _timestamp, ...properties } = events[0] ?? {};
  const traceId = '00000000-0000-7000-8000-000000000000';
  return {
    name: String(name),
    revenue: Number(revenue),
    currency: String(properties.currency),
    properties: JSON.stringify(properties),
    known: JSON.stringify([[startedAt, traceId, 42, {}, userProperties]]),
    jitter: Math.floor(random() * 1000),
  };
}

/** Beginning with the time, like those of nodes and traces, so that they are inserted about in order. */
function makeIds(count: number, startedAt: number): Buffer {
  const ids = randomFillSync(Buffer.allocUnsafe(count * ID_BYTES));
  for (let n = 0; n < count; n += 1) ids.writeUIntBE(startedAt + Math.floor(n / 8), n * ID_BYTES, TIME_BYTES);
  return ids;
}

export function idOf(ids: Buffer, at: number): Buffer {
  return ids.subarray(at * ID_BYTES, (at + 1) * ID_BYTES);
}

export function textOf(texts: readonly EventTexts[], n: number): EventTexts {
  const text = texts[n % texts.length];
  if (text === undefined) throw new Error('no texts were made');
  return text;
}
