/**
 * The sample shop of `sluice demo`: 30 days of visits, sign-ups, orders and refunds, made from a seed. Pure: the same seed
 * and the same ten minutes give the same requests, byte for byte, and the same seed gives every event the same
 * `$event_id` at any time, so that no event can be stored twice. The last request does not depend on the time at all: it has
 * what happens now, and users that are rejected.
 */

import { DAY_MS, HOUR_MS, MINUTE_MS } from '../model.ts';

const DAYS = 30;
/** Ends of the 30 days are multiples of this, so that a repeat soon after is the same to the byte. */
const END_STEP_MS = 10 * MINUTE_MS;
const VISITS_PER_REQUEST = 40;
const VISITORS_WITHOUT_NAME = 40;
const VISITS_LAST_HOUR = 8;
const REFUND_SHARE = 0.12;

const FIRST_NAMES =
  'Ada Grace Alan Katherine Edsger Barbara Donald Radia Annie Dennis Frances John Hedy Ken Jean Linus Joan Niklaus ' +
  'Karen Robin Lynn Tony Margaret Leslie Mary Butler Shafi Vint Sophie Tim Susan Guido Betty Bjarne Evelyn Claude';
const PRODUCTS = [
  ['Enamel mug', 14.5],
  ['Linen apron', 39],
  ['Wool blanket', 89.9],
  ['Brass lamp', 129],
  ['Oak stool', 179],
] as const;
const PLACES = [
  ['Berlin', 'DE', 'EUR'],
  ['Lisbon', 'PT', 'EUR'],
  ['Paris', 'FR', 'EUR'],
  ['Boston', 'US', 'USD'],
  ['Seattle', 'US', 'USD'],
] as const;
const SOURCES = ['search', 'newsletter', 'direct', 'social'] as const;

export type Shop = ReturnType<typeof shopOf>;

/** One of `users` in a request. Those that are rejected have other shapes. */
interface ShopUser {
  readonly identifiers: Readonly<Record<string, string>>;
  readonly user_properties?: Readonly<Record<string, unknown>>;
  readonly events: readonly Readonly<Record<string, unknown>>[];
}

/** People to point out in the summary; they exist for every seed. */
export const PERSON_WITH_MERGE = 'ada';
export const PERSON_WITH_REFUSAL = 'grace';

/** `requests` are in the order in which they are to be sent. */
export function shopOf(seed: number, now: number) {
  const end = Math.floor(now / END_STEP_MS) * END_STEP_MS;
  const random = randomFrom(seed);
  const visits: { readonly at: number; readonly user: ShopUser }[] = [];
  let events = 0;
  const eventId = (): string => `demo-${seed}-${events++}`;
  const visitor = (name: string): string => `demo-${seed}-${name}`;
  const upTo = (count: number): number => Math.floor(random() * count);
  const pick = <T>(values: readonly T[]): T => values[upTo(values.length)] as T;
  const daysAgo = (from: number, to: number): number => end - (to + random() * (from - to)) * DAY_MS;

  function visit(
    identifiers: ShopUser['identifiers'],
    at: number,
    named: readonly (readonly [name: string, properties: Readonly<Record<string, unknown>>])[],
    properties?: Readonly<Record<string, unknown>>,
  ): void {
    const user: ShopUser = {
      identifiers,
      ...(properties === undefined ? {} : { user_properties: properties }),
      events: named.map(([name, rest], index) => ({
        event_name: name,
        $event_id: eventId(),
        timestamp: new Date(Math.round(at) + index * MINUTE_MS).toISOString(),
        ...rest,
      })),
    };
    visits.push({ at, user });
  }

  function browse(identifiers: ShopUser['identifiers'], at: number): void {
    const [product] = pick(PRODUCTS);
    const [other] = pick(PRODUCTS);
    visit(identifiers, at, [
      ['page_viewed', { path: '/', source: pick(SOURCES) }],
      ['product_viewed', { product }],
      ...(random() < 0.5 ? ([['product_viewed', { product: other }]] as const) : []),
    ]);
  }

  function order(userId: string, anonId: string, currency: string, number: string, after: number): void {
    const [product, price] = pick(PRODUCTS);
    const quantity = 1 + upTo(3);
    const revenue = Math.round(price * quantity * 100) / 100;
    const at = after + random() * (end - 2 * HOUR_MS - after);
    const details = { order_id: `D-${seed}-${number}`, currency };
    visit({ user_id: userId, anon_id: anonId }, at, [
      ['product_viewed', { product }],
      ['cart_updated', { product, quantity }],
      ['order_placed', { revenue, product, quantity, ...details }],
    ]);
    if (random() < REFUND_SHARE) {
      const refundedAt = at + random() * (end - at);
      visit({ user_id: userId }, refundedAt, [['order_refunded', { revenue: -revenue, ...details }]]);
    }
  }

  /** Looks around without a name on one or two devices, signs up, and orders. */
  function person(name: string, index: number): void {
    const userId = name.toLowerCase();
    const [city, country, currency] = pick(PLACES);
    const laptop = visitor(`${userId}-laptop`);
    const signedUpAt = daysAgo(DAYS - 1, 2);
    for (let n = 1 + upTo(3); n > 0; n--) browse({ anon_id: laptop }, signedUpAt - n * 5 * HOUR_MS);
    // A profile of its own until the sign-in on the phone says whose it is: a merge.
    const phone = visitor(`${userId}-phone`);
    const isOnPhone = index % 3 === 0;
    if (isOnPhone) {
      visit({ anon_id: phone }, signedUpAt - 3 * HOUR_MS, [['newsletter_opened', { campaign: 'autumn' }]]);
    }
    visit(
      { user_id: userId, email: `${userId}@example.com`, anon_id: laptop, first_name: name, city, country },
      signedUpAt,
      [['signed_up', { source: pick(SOURCES) }]],
      { plan: index % 4 === 0 ? 'pro' : 'free', newsletter: isOnPhone },
    );
    if (isOnPhone) {
      visit({ user_id: userId, anon_id: phone }, signedUpAt + 2 * HOUR_MS, [['signed_in', { device: 'phone' }]]);
    }
    const orders = upTo(5);
    for (let n = 0; n < orders; n++) order(userId, laptop, currency, `${index}-${n}`, signedUpAt);
  }

  const names = FIRST_NAMES.split(' ');
  for (const [index, name] of names.entries()) person(name, index);
  for (let n = 0; n < VISITORS_WITHOUT_NAME; n++) browse({ anon_id: visitor(`v${n}`) }, daysAgo(DAYS, 0.1));
  for (let n = 0; n < VISITS_LAST_HOUR; n++) browse({ anon_id: visitor(`now${n}`) }, end - (2 + upTo(50)) * MINUTE_MS);
  // Two people who sign in on one tablet stay two: the second link is refused.
  for (const [n, userId] of [PERSON_WITH_MERGE, PERSON_WITH_REFUSAL].entries()) {
    const identifiers = { user_id: userId, anon_id: visitor('tablet') };
    visit(identifiers, end - (20 - n) * HOUR_MS, [['signed_in', { device: 'tablet' }]]);
  }
  const batches: unknown[][] = [];
  const users = visits.toSorted((left, right) => left.at - right.at).map(({ user }) => user);
  for (let from = 0; from < users.length; from += VISITS_PER_REQUEST) {
    batches.push(users.slice(from, from + VISITS_PER_REQUEST));
  }
  // Without timestamps: the server takes the time of receipt.
  const happeningNow = ['ada', 'alan', 'katherine'].map((userId) => ({
    identifiers: { user_id: userId },
    events: [{ event_name: 'page_viewed', $event_id: eventId(), path: '/orders' }],
  }));
  batches.push([...happeningNow, ...rejectedUsers()]);
  const requests = batches.map((batch, index) => {
    return { idempotencyKey: `demo-${seed}-${index}`, body: JSON.stringify({ users: batch }), users: batch.length };
  });
  return { requests, people: names.length, events };
}

/** Mistakes that clients make; each is rejected for another reason. */
function rejectedUsers(): unknown[] {
  const event = { event_name: 'order_placed', currency: 'EUR' };
  return [
    { identifiers: { user_id: 4711 }, events: [event] },
    { identifiers: { first_name: 'Sam' }, events: [event] },
    { identifiers: { email: 'sam@example.com' }, events: [] },
    { identifiers: { user_id: 'sam' }, events: [{ ...event, revenue: '19,90' }] },
    { identifiers: { user_id: 'sam' }, events: [{ ...event, timestamp: 'yesterday' }] },
  ];
}

/** Numbers from 0 to 1, the same for the same seed: Mulberry32. */
function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}
