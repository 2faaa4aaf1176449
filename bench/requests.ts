/**
 * The requests that the load generator sends, as bytes made before the clock starts. People are drawn from 200,000 by a
 * seeded generator, so every run and every server gets the same bytes. A user is about 390 bytes: three identifiers,
 * three user_properties, one event with five properties besides its name and time. Every body ends with a newline,
 * which JSON allows and which lets the responder of the calibration see the end of a request without parsing HTTP.
 */

import { LIMITS } from '../src/model.ts';

const PEOPLE = 200_000;
export const EVENT_NAMES = [
  'page_viewed',
  'product_viewed',
  'cart_updated',
  'order_completed',
  'search_performed',
  'signed_in',
];
const PLANS = ['free', 'starter', 'pro', 'enterprise'];
const COUNTRIES = ['DE', 'FR', 'US', 'BR', 'JP', 'IN', 'GB', 'NL'];
const CURRENCIES = ['EUR', 'USD', 'GBP', 'JPY'];

export interface Shape {
  readonly usersPerRequest: number;
  /** How many different requests are made; they are sent in turn. */
  readonly distinct: number;
  /** When given, users get more events until the body is as large as it can be without exceeding this. */
  readonly bodyBytes: number | null;
}

export const SHAPES = {
  'one user': { usersPerRequest: 1, distinct: 4096, bodyBytes: null },
  '100 users': { usersPerRequest: 100, distinct: 512, bodyBytes: null },
  '1,000 users': { usersPerRequest: 1000, distinct: 64, bodyBytes: null },
  '10 MB': { usersPerRequest: 1000, distinct: 3, bodyBytes: LIMITS.bodyBytesMax },
} as const satisfies Record<string, Shape>;
export type ShapeName = keyof typeof SHAPES;

export function makeRequests(shape: Shape, key: string): Buffer[] {
  const random = mulberry32(20_260_101);
  const requests: Buffer[] = [];
  for (let n = 0; n < shape.distinct; n += 1) {
    const body = Buffer.from(`${bodyOf(shape, random)}\n`);
    requests.push(Buffer.concat([Buffer.from(headOf(key, body.length), 'latin1'), body]));
  }
  return requests;
}

export function headOf(key: string, bodyBytes: number): string {
  return (
    'POST /ingest/events HTTP/1.1\r\nHost: localhost\r\nUser-Agent: sluice-bench\r\n' +
    `Authorization: Bearer ${key}\r\nContent-Type: application/json\r\nContent-Length: ${bodyBytes}\r\n\r\n`
  );
}

function bodyOf(shape: Shape, random: () => number): string {
  const users = Array.from({ length: shape.usersPerRequest }, () => userOf(random));
  if (shape.bodyBytes === null) return JSON.stringify({ users });
  // All of it is ASCII, so characters are bytes. One byte is left for the newline.
  let left = shape.bodyBytes - 1 - JSON.stringify({ users }).length;
  for (let n = 0; ; n += 1) {
    const event = eventOf(random);
    left -= JSON.stringify(event).length + 1;
    if (left < 0) return JSON.stringify({ users });
    users[n % users.length]?.events.push(event);
  }
}

export interface BenchUser {
  readonly identifiers: Record<string, string>;
  readonly user_properties: Record<string, string | number>;
  readonly events: Record<string, string | number>[];
}

export function userOf(random: () => number): BenchUser {
  const person = Math.floor(random() * PEOPLE);
  return {
    identifiers: {
      user_id: `u_${person}`,
      email: `person.${person}@example.com`,
      anon_id: `${hex(person * 2_654_435_761)}-${hex(person * 40_503)}-${hex(person * 97)}-${hex(person * 7919)}`,
    },
    user_properties: {
      plan: pick(PLANS, random),
      country: pick(COUNTRIES, random),
      visits: Math.floor(random() * 500),
    },
    events: [eventOf(random)],
  };
}

function eventOf(random: () => number): Record<string, string | number> {
  const time = Date.UTC(2026, 0, 1) + Math.floor(random() * 86_400_000);
  return {
    event_name: pick(EVENT_NAMES, random),
    timestamp: new Date(time).toISOString(),
    revenue: Math.round(random() * 20_000) / 100,
    currency: pick(CURRENCIES, random),
    order_id: `order_${hex(random() * 2 ** 32)}`,
    product_id: `sku_${hex(random() * 2 ** 32)}`,
    quantity: 1 + Math.floor(random() * 5),
  };
}

function hex(value: number): string {
  return Math.floor(value % 2 ** 32)
    .toString(16)
    .padStart(8, '0');
}

function pick(values: readonly string[], random: () => number): string {
  return values[Math.floor(random() * values.length)] ?? '';
}

/** A small generator of numbers in [0, 1) with a seed, which Math.random does not take. */
export function mulberry32(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}
