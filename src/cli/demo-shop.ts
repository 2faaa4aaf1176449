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
  const maker = new ShopMaker(seed, Math.floor(now / END_STEP_MS) * END_STEP_MS);
  return maker.make();
}

class ShopMaker {
  readonly #seed: number;
  readonly #end: number;
  readonly #random: () => number;
  readonly #visits: { readonly at: number; readonly user: ShopUser }[] = [];
  #events = 0;

  constructor(seed: number, end: number) {
    this.#seed = seed;
    this.#end = end;
    this.#random = randomFrom(seed);
  }

  make() {
    const names = FIRST_NAMES.split(' ');
    for (const [index, name] of names.entries()) this.#person(name, index);
    for (let n = 0; n < VISITORS_WITHOUT_NAME; n++)
      this.#browse({ anon_id: this.#visitor(`v${n}`) }, this.#time(DAYS, 0.1));
    for (let n = 0; n < VISITS_LAST_HOUR; n++) {
      const minutesAgo = 2 + Math.floor(this.#random() * 50);
      this.#browse({ anon_id: this.#visitor(`now${n}`) }, this.#end - minutesAgo * MINUTE_MS);
    }
    this.#sharedTablet();
    const visits = this.#visits.toSorted((left, right) => left.at - right.at).map(({ user }) => user);
    const batches: unknown[][] = [];
    for (let from = 0; from < visits.length; from += VISITS_PER_REQUEST) {
      batches.push(visits.slice(from, from + VISITS_PER_REQUEST));
    }
    batches.push([...this.#happeningNow(), ...rejectedUsers()]);
    const requests = batches.map((users, index) => {
      return { idempotencyKey: `demo-${this.#seed}-${index}`, body: JSON.stringify({ users }), users: users.length };
    });
    return { requests, people: names.length, events: this.#events };
  }

  /** Looks around without a name on one or two devices, signs up, and orders. */
  #person(name: string, index: number): void {
    const userId = name.toLowerCase();
    const email = `${userId}@example.com`;
    const [city, country, currency] = this.#pick(PLACES);
    const laptop = this.#visitor(`${userId}-laptop`);
    const signedUpAt = this.#time(DAYS - 1, 2);
    for (let n = 1 + Math.floor(this.#random() * 3); n > 0; n--) {
      this.#browse({ anon_id: laptop }, signedUpAt - n * 5 * HOUR_MS);
    }
    // A profile of its own until the sign-in on the phone says whose it is: a merge.
    const phone = this.#visitor(`${userId}-phone`);
    const isOnPhone = index % 3 === 0;
    if (isOnPhone) {
      this.#visit({ anon_id: phone }, signedUpAt - 3 * HOUR_MS, [['newsletter_opened', { campaign: 'autumn' }]]);
    }
    this.#visit(
      { user_id: userId, email, anon_id: laptop, first_name: name, city, country },
      signedUpAt,
      [['signed_up', { source: this.#pick(SOURCES) }]],
      { plan: index % 4 === 0 ? 'pro' : 'free', newsletter: isOnPhone },
    );
    if (isOnPhone) {
      this.#visit({ user_id: userId, anon_id: phone }, signedUpAt + 2 * HOUR_MS, [['signed_in', { device: 'phone' }]]);
    }
    const orders = Math.floor(this.#random() * 5);
    for (let n = 0; n < orders; n++) this.#order(userId, laptop, currency, `${index}-${n}`, signedUpAt);
  }

  #order(userId: string, anonId: string, currency: string, number: string, after: number): void {
    const [product, price] = this.#pick(PRODUCTS);
    const quantity = 1 + Math.floor(this.#random() * 3);
    const revenue = Math.round(price * quantity * 100) / 100;
    const at = after + this.#random() * (this.#end - 2 * HOUR_MS - after);
    const order = { order_id: `D-${this.#seed}-${number}`, currency };
    this.#visit({ user_id: userId, anon_id: anonId }, at, [
      ['product_viewed', { product }],
      ['cart_updated', { product, quantity }],
      ['order_placed', { revenue, product, quantity, ...order }],
    ]);
    if (this.#random() < REFUND_SHARE) {
      const refundedAt = at + this.#random() * (this.#end - at);
      this.#visit({ user_id: userId }, refundedAt, [['order_refunded', { revenue: -revenue, ...order }]]);
    }
  }

  /** Two people who sign in on one tablet stay two: the second link is refused. */
  #sharedTablet(): void {
    const tablet = this.#visitor('tablet');
    const at = this.#end - 20 * HOUR_MS;
    this.#visit({ user_id: PERSON_WITH_MERGE, anon_id: tablet }, at, [['signed_in', { device: 'tablet' }]]);
    this.#visit({ user_id: PERSON_WITH_REFUSAL, anon_id: tablet }, at + HOUR_MS, [['signed_in', { device: 'tablet' }]]);
  }

  #browse(identifiers: ShopUser['identifiers'], at: number): void {
    const [product] = this.#pick(PRODUCTS);
    const [other] = this.#pick(PRODUCTS);
    this.#visit(identifiers, at, [
      ['page_viewed', { path: '/', source: this.#pick(SOURCES) }],
      ['product_viewed', { product }],
      ...(this.#random() < 0.5 ? ([['product_viewed', { product: other }]] as const) : []),
    ]);
  }

  /** Without timestamps: the server takes the time of receipt. */
  #happeningNow(): ShopUser[] {
    return ['ada', 'alan', 'katherine'].map((userId) => ({
      identifiers: { user_id: userId },
      events: [{ event_name: 'page_viewed', $event_id: this.#eventId(), path: '/orders' }],
    }));
  }

  #visit(
    identifiers: ShopUser['identifiers'],
    at: number,
    events: readonly (readonly [name: string, properties: Readonly<Record<string, unknown>>])[],
    properties?: Readonly<Record<string, unknown>>,
  ): void {
    const user: ShopUser = {
      identifiers,
      ...(properties === undefined ? {} : { user_properties: properties }),
      events: events.map(([name, rest], index) => ({
        event_name: name,
        $event_id: this.#eventId(),
        timestamp: new Date(Math.round(at) + index * MINUTE_MS).toISOString(),
        ...rest,
      })),
    };
    this.#visits.push({ at, user });
  }

  #eventId(): string {
    return `demo-${this.#seed}-${this.#events++}`;
  }

  #visitor(name: string): string {
    return `demo-${this.#seed}-${name}`;
  }

  #time(fromDaysAgo: number, toDaysAgo: number): number {
    return this.#end - (toDaysAgo + this.#random() * (fromDaysAgo - toDaysAgo)) * DAY_MS;
  }

  #pick<T>(values: readonly T[]): T {
    const value = values[Math.floor(this.#random() * values.length)];
    if (value === undefined) throw new Error('there is nothing to pick from');
    return value;
  }
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
