/**
 * A small shop's last hour, as its clients would have sent it: visitors who become customers, people on shared devices,
 * orders, and some mistakes. For looking at the pages, and for pictures of them; the same every time but for the clock.
 */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { HOUR_MS, MINUTE_MS } from '../../src/model.ts';
import { eventually, get, post, type TestServer } from '../server.ts';
import { deliver } from './member-page.ts';

const PEOPLE = [
  ['Ada', 'Lovelace'],
  ['Grace', 'Hopper'],
  ['Alan', 'Turing'],
  ['Katherine', 'Johnson'],
  ['Edsger', 'Dijkstra'],
  ['Barbara', 'Liskov'],
  ['Donald', 'Knuth'],
  ['Radia', 'Perlman'],
] as const;
const STEPS = ['page_viewed', 'page_viewed', 'product_viewed', 'product_viewed', 'added_to_cart', 'checkout_started'];
const PRODUCTS = ['Enamel mug', 'Wool blanket', 'Brass lamp', 'Oak stool', 'Linen apron'];
const ROUNDS = 20;
const RECEIPT_MINUTES = 57;

interface ReceiptRow {
  readonly tenant: number;
  readonly minute: number;
  readonly users_accepted: number;
  readonly users_rejected: number;
  readonly events_accepted: number;
}

/** An hour of ordinary use; returns the user_id of a person with a history worth looking at. */
export async function sendSampleData(server: TestServer, key: string, now: number): Promise<string> {
  for (let round = 0; round < ROUNDS; round++) {
    const users = PEOPLE.map((_, person) => visit(person, round, now));
    await deliver(server, key, users);
  }
  await deliver(
    server,
    key,
    PEOPLE.slice(0, 5).map((_, person) => signUp(person, now)),
  );
  await deliver(
    server,
    key,
    PEOPLE.slice(0, 5).map((_, person) => order(person, now)),
  );
  await mergeDevices(server, key, now);
  await sendMistakes(server, key);
  spreadReceipts(server, now);
  return idOf(0);
}

function at(now: number, share: number): string {
  return new Date(Math.round(now - (1 - share) * HOUR_MS * 0.95)).toISOString();
}

function idOf(person: number): string {
  return `cus_${1_000 + 37 * person}`;
}

function emailOf(person: number): string {
  const [first = '', last = ''] = PEOPLE[person] ?? [];
  return `${first}.${last}@example.com`.toLowerCase();
}

function visit(person: number, round: number, now: number): object {
  const events = STEPS.slice(0, 1 + ((person * 5 + round * 3) % STEPS.length)).map((name, step) => {
    const timestamp = at(now, (round + step / STEPS.length + person / 40) / ROUNDS);
    if (name.startsWith('page')) {
      return { event_name: name, timestamp, path: ['/', '/prices', '/about'][(person + round) % 3] };
    }
    return { event_name: name, timestamp, product: PRODUCTS[(person + round + step) % PRODUCTS.length] };
  });
  return { identifiers: { anon_id: `device-${person}a` }, events };
}

function signUp(person: number, now: number): object {
  const [first, last] = PEOPLE[person] ?? [];
  return {
    identifiers: { user_id: idOf(person), email: emailOf(person), first_name: first, last_name: last },
    user_properties: { plan: person % 2 === 0 ? 'pro' : 'free', seats: 3 + person, newsletter: person % 3 === 0 },
    events: [{ event_name: 'signed_up', timestamp: at(now, 0.1 + 0.15 * person), method: 'e-mail' }],
  };
}

function order(person: number, now: number): object {
  return {
    identifiers: { user_id: idOf(person), anon_id: `device-${person}a`, phone_number: `+49 30 90018${20 + person}` },
    user_properties: { city: ['Berlin', 'London', 'Lisbon'][person % 3], last_order: `A-${2_041 + person}` },
    events: [
      {
        event_name: 'order_completed',
        timestamp: at(now, 0.25 + 0.17 * person),
        revenue: 24.9 + 17.35 * person,
        currency: person % 3 === 1 ? 'GBP' : 'EUR',
        order: { id: `A-${2_041 + person}`, items: [{ product: PRODUCTS[person], count: 1 + (person % 2) }] },
      },
    ],
  };
}

/** The first person has another device and an older address, and signs in on another person's device. */
async function mergeDevices(server: TestServer, key: string, now: number): Promise<void> {
  await deliver(server, key, [
    { identifiers: { anon_id: 'device-0b' }, events: [{ event_name: 'app_opened', timestamp: at(now, 0.85) }] },
    {
      identifiers: { email: 'ada.byron@example.org', anon_id: 'device-0c' },
      user_properties: { referrer: 'a friend' },
      events: [{ event_name: 'newsletter_joined', timestamp: at(now, 0.2) }],
    },
  ]);
  await deliver(server, key, [
    { identifiers: { user_id: idOf(0), anon_id: 'device-0b' }, events: [{ event_name: 'signed_in' }] },
    {
      identifiers: { user_id: idOf(0) },
      events: [{ event_name: 'order_refunded', timestamp: at(now, 0.7), revenue: -19.9, currency: 'EUR' }],
    },
    { identifiers: { user_id: idOf(0), email: 'ada.byron@example.org' }, events: [{ event_name: 'address_changed' }] },
  ]);
  await deliver(server, key, [
    { identifiers: { user_id: idOf(0), anon_id: 'device-1a' }, events: [{ event_name: 'signed_in' }] },
  ]);
}

/**
 * All of it was received within seconds, which makes a dull chart: its times are spread over the hour in the store. The
 * sums stay what they are.
 */
function spreadReceipts({ dataFolder }: TestServer, now: number): void {
  const database = new DatabaseSync(join(dataFolder, 'store.db'), { timeout: 10_000 });
  try {
    database.exec('BEGIN IMMEDIATE');
    const minutes = database.prepare('SELECT * FROM receipts').all() as unknown as ReceiptRow[];
    database.exec('DELETE FROM receipts');
    const add = database.prepare(
      `INSERT INTO receipts VALUES (?, ?, 0, ?, ?, ?) ON CONFLICT DO UPDATE SET
         users_accepted = users_accepted + excluded.users_accepted,
         users_rejected = users_rejected + excluded.users_rejected,
         events_accepted = events_accepted + excluded.events_accepted`,
    );
    for (const {
      tenant,
      minute,
      users_accepted: accepted,
      users_rejected: rejected,
      events_accepted: events,
    } of minutes) {
      const last = Math.max(minute, Math.floor(now / MINUTE_MS) * MINUTE_MS);
      for (const [name, sum] of [
        ['accepted', accepted],
        ['rejected', rejected],
        ['events', events],
      ] as const) {
        for (let n = 0; n < sum; n++) {
          const at = last - MINUTE_MS * minuteOf((n + 0.5) / sum);
          add.run(tenant, at, Number(name === 'accepted'), Number(name === 'rejected'), Number(name === 'events'));
        }
      }
    }
    database.exec('COMMIT');
  } finally {
    database.close();
  }
}

async function sendMistakes(server: TestServer, key: string): Promise<void> {
  const orders = ['24,90 €', '12', '7.50'].map((revenue) => ({
    identifiers: { user_id: 'cus_1111' },
    events: [{ event_name: 'order_completed', revenue, order: { id: 'A-2046', shipping: 'express' } }],
  }));
  const { status } = await post(server, key, {
    users: [
      ...orders,
      { identifiers: { user_id: 'cus_1148' }, events: [] },
      {
        identifiers: { user_id: 'cus_1185' },
        events: [{ event_name: 'a' }, { event_name: 'b', timestamp: '30.2.2026' }],
      },
      { identifiers: { user_id: 4711 }, events: [{ event_name: 'signed_in' }] },
    ],
  });
  assert.equal(status, 400);
  await eventually('they are kept', async () => {
    const { body } = await get(server, key, '/rejections');
    return (body as { rejections: unknown[] }).rejections.length === orders.length + 3;
  });
}

/** How busy each minute of the hour was: waves, and some chance that is always the same. */
const BUSY = Array.from({ length: RECEIPT_MINUTES }, (_, n) => 2 + Math.sin(n / 6) + ((n * n * 7) % 11) / 5);

/** The minute by which this share of everything had come, counted back from the last. */
function minuteOf(share: number): number {
  let left = share * BUSY.reduce((sum, weight) => sum + weight, 0);
  return Math.max(
    BUSY.findIndex((weight) => (left -= weight) <= 0),
    0,
  );
}
