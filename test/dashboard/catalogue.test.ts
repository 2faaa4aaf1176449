/** The view Catalogue: what is new (pure), and the view itself in Chromium on a real server. */

import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import type { CatalogueEvent, CatalogueProperty } from '../../dashboard/src/api-types.ts';
import {
  changesIn,
  dailyCounts,
  lastDays,
  newnessOf,
  propertyMark,
} from '../../dashboard/src/pages/catalogue-changes.ts';
import { DAY_MS } from '../../src/model.ts';
import { eventually, get } from '../server.ts';
import { whyNoBrowser } from './browser.ts';
import { assertNoComplaints, deliver, heading, type MemberServer, sees, startMemberServer } from './member-page.ts';

const NOW = Date.UTC(2026, 10, 16, 12);
const ago = (days: number): string => new Date(NOW - days * DAY_MS).toISOString();

function eventSeen(name: string, days: number, changes: CatalogueEvent['changes'] = []): CatalogueEvent {
  return {
    ...{ event_name: name, count: 5, examined: 5, is_sampled: false, first_seen: ago(days), last_seen: ago(0) },
    ...{ key_ids: [], property_count: 1, changes },
  };
}

suite('What is new in the catalogue', () => {
  test('are events, properties and types of the last days, newest first', () => {
    const events = [
      eventSeen('old', 40, [
        { change: 'new_property', property: 'long ago', type: null, at: ago(20) },
        { change: 'new_property', property: 'coupon', type: null, at: ago(3) },
        { change: 'new_type', property: 'total', type: 'string', at: ago(1) },
      ]),
      eventSeen('young', 2, [{ change: 'new_property', property: 'x', type: null, at: ago(1) }]),
    ];
    const changes = changesIn({ events }, newnessOf(events, NOW));
    assert.deepEqual(
      changes.map(({ kind, eventName, property, type }) => [kind, eventName, property, type]),
      [
        ['type', 'old', 'total', 'string'],
        ['event', 'young', null, null],
        ['property', 'old', 'coupon', null],
      ],
    );
  });

  test('is nothing on the first day', () => {
    const events = [eventSeen('first', 0.9), eventSeen('second', 0.1)];
    assert.deepEqual(changesIn({ events }, newnessOf(events, NOW)), []);
  });

  test('a property is marked as new, or for another type that is not null', () => {
    const isNew = newnessOf([eventSeen('old', 40)], NOW);
    const property = (days: number, types: readonly (readonly ['string' | 'null', number])[]): CatalogueProperty => ({
      ...{ name: 'total', share: 1, examples: [], is_personal: false, first_seen: ago(days), last_seen: ago(0) },
      types: types.map(([type, since]) => ({ type, share: 1, first_seen: ago(since) })),
    });
    assert.equal(propertyMark(property(2, [['string', 2]]), isNew), 'new');
    assert.equal(propertyMark(property(30, [['string', 2]]), isNew), 'new type');
    assert.equal(propertyMark(property(30, [['null', 2]]), isNew), null);
  });

  test('volumes are by day, with days without events', () => {
    const days = lastDays(NOW, 3);
    assert.deepEqual(days, ['2026-11-14', '2026-11-15', '2026-11-16']);
    const counts = dailyCounts(
      [
        { start: '2026-11-14T00:00:00.000Z', event_name: 'a', events: 2 },
        { start: '2026-11-16T00:00:00.000Z', event_name: 'a', events: 3 },
        { start: '2026-11-01T00:00:00.000Z', event_name: 'a', events: 9 },
      ],
      days,
    );
    assert.deepEqual(counts, new Map([['a', [2, 0, 3]]]));
  });
});

suite('The view Catalogue', { skip: whyNoBrowser() }, () => {
  let running: MemberServer;
  before(async () => {
    running = await startMemberServer();
    const { server } = running;
    const order = { event_name: 'order / placed', total: 49.9, currency: 'EUR', '<b>': '<img src=x>' };
    await deliver(server, server.key, [
      { identifiers: { user_id: 'ada' }, user_properties: { plan: 'pro' }, events: [order, { ...order, total: '12' }] },
      { identifiers: { user_id: 'bob', first_name: 'Bob' }, events: [{ event_name: 'page_viewed' }] },
    ]);
    await eventually('the catalogue is flushed', async () => {
      const { body } = await get(server, server.key, '/catalogue');
      return (body as { events: unknown[] }).events.length === 2;
    });
  });
  after(() => running.close());

  test('lists events, opens one with its properties, and goes back', async () => {
    const watched = await running.open();
    const { page } = watched;
    await page.goto('/dashboard/development/catalogue');
    await heading(page, 'Catalogue');
    await page.getByRole('link', { name: 'order / placed' }).click();
    await heading(page, 'order / placed');
    const row = page.getByRole('row', { name: /^total/ });
    await sees(row, 'string');
    await sees(row, '49.9');
    await sees(page, '<img src=x>');
    await page.getByRole('link', { name: 'All events' }).click();
    await page.getByLabel('Find an event name').fill('page');
    await page.getByRole('link', { name: 'order / placed' }).waitFor({ state: 'detached' });
    await sees(page, 'page_viewed');
    await sees(page, 'User properties');
    await sees(page, 'first_name');
    assertNoComplaints(watched);
    await watched.context.close();
  });

  test('marks what is new, and says what is sampled and personal', async () => {
    const watched = await running.open();
    const { page } = watched;
    const at = (days: number): string => new Date(Date.now() - days * DAY_MS).toISOString();
    const seen = { examined: 40, is_sampled: true, key_ids: [], property_count: 2, last_seen: at(0) };
    const order = {
      ...{ event_name: 'order_placed', count: 9_000, first_seen: at(60), ...seen },
      changes: [{ change: 'new_type', property: 'total', type: 'string', at: at(2) }],
    };
    const young = { event_name: 'gift_sent', count: 4, first_seen: at(1), ...seen, changes: [] };
    const properties = [
      {
        ...{ name: 'total', share: 1, examples: ['12'], is_personal: false, first_seen: at(60), last_seen: at(0) },
        types: [
          { type: 'string', share: 0.004, first_seen: at(2) },
          { type: 'number', share: 0.996, first_seen: at(60) },
        ],
      },
      {
        ...{ name: 'card', share: 0.5, examples: ['•••'], is_personal: true, first_seen: at(60), last_seen: at(0) },
        types: [{ type: 'string', share: 1, first_seen: at(60) }],
      },
    ];
    const catalogue = { events: [young, order], other_events: 12, user_properties: null, profile_fields: null };
    await page.route('**/catalogue', (route) =>
      route.request().isNavigationRequest() ? route.continue() : route.fulfill({ json: catalogue }),
    );
    await page.route('**/catalogue/_?event_name=order_placed', (route) =>
      route.fulfill({ json: { ...order, properties, other_properties: 0 } }),
    );
    await page.goto('/dashboard/development/catalogue');
    await sees(page, 'New in the last 7 days');
    await sees(page, /is also a string/);
    await sees(page.getByRole('row', { name: /^gift_sent/ }), 'new');
    await sees(page, '12 events with other names');
    await page
      .getByRole('row', { name: /^order_placed/ })
      .getByRole('link')
      .click();
    await sees(page, 'From a sample');
    await sees(page.getByRole('row', { name: /^total/ }), 'type changed');
    await sees(page.getByRole('row', { name: /^card/ }), 'personal');
    assert.equal(await page.getByText('•••').count(), 0);
    assertNoComplaints(watched);
    await watched.context.close();
  });
});
