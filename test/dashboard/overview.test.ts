/** The overview in a browser: one clock at a time, any range, money by currency, and nothing guessed at. */

import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import type { Page } from 'playwright-core';
import { DAY_MS } from '../../src/model.ts';
import { eventually, get, post } from '../server.ts';
import { type WatchedPage, whyNoBrowser } from './browser.ts';
import { assertNoComplaints, type MemberServer, sees, settled, startMemberServer } from './member-page.ts';

const OVERVIEW = '/dashboard/development';

suite('The overview', { skip: whyNoBrowser() }, () => {
  let running: MemberServer;
  let watched: WatchedPage;
  let page: Page;

  before(async () => {
    running = await startMemberServer();
    watched = await running.open();
    page = watched.page;
    const { server } = running;
    const ago = (days: number): string => new Date(Date.now() - days * DAY_MS).toISOString();
    const user = (id: string, events: object[]): object => ({ identifiers: { user_id: id }, events });
    const sent = await post(server, server.key, {
      dropped_by_client: 1_234,
      users: [
        user('ada', [
          { event_name: 'bought', revenue: 40, currency: 'EUR' },
          { event_name: 'refunded', revenue: -15.5, currency: 'EUR', timestamp: ago(0.01) },
          { event_name: 'bought', revenue: 7, currency: 'usd' },
          { event_name: 'bought', revenue: 3, currency: 'gold' },
        ]),
        user('ada', [{ event_name: 'bought', revenue: 100, currency: 'EUR', timestamp: ago(20) }]),
        user('bob', [{ event_name: 'seen', timestamp: ago(60) }]),
        { identifiers: {}, events: [{ event_name: 'seen' }] },
      ],
    });
    assert.equal(sent.status, 202);
    await eventually('the request is processed', async () => {
      const { body } = await get(server, server.key, '/profiles/count');
      return (body as { profiles: number }).profiles === 2;
    });
  });
  after(() => running.close());

  async function figures(): Promise<Record<string, string>> {
    const found = await page.locator('.figure').allInnerTexts();
    return Object.fromEntries(found.map((text) => text.split('\n').slice(0, 2) as [string, string]));
  }

  /** They come with several requests. */
  async function showsFigures(expected: Record<string, string>): Promise<void> {
    const isShown = async (): Promise<boolean> => isDeepStrictEqual(await figures(), expected);
    await eventually('the figures are there', isShown).catch(async () => assert.deepEqual(await figures(), expected));
  }

  async function show(query: string): Promise<void> {
    await page.goto(OVERVIEW + query);
    await settled(page);
  }

  test('by event time there are people, events and revenue, each currency by itself', async () => {
    await show('');
    await sees(page.locator('.ranking'), 'bought');
    await showsFigures({
      People: '2',
      Events: '4',
      'Revenue, EUR': 'EUR 24.50',
      'Revenue, USD': 'USD 7.00',
      'Revenue, other currencies': 'Not summed',
    });
    await sees(page, '1 user entry was rejected in the last hour, by time of receipt');
    await sees(page, 'Clients dropped 1,234 events');
    await page.getByRole('button', { name: 'USD' }).click();
    await sees(page, 'Revenue per minute, USD');
    assert.ok(page.url().endsWith('?currency=USD'));
  });

  test('all figures follow the range, and the address has it', async () => {
    await show('');
    await page.getByRole('navigation', { name: 'Range' }).getByRole('link', { name: '30 days' }).click();
    await page.waitForURL(/\?range=30d$/);
    await sees(page, 'Events per day');
    await eventually('the figures are there', async () => (await figures())['Revenue, EUR'] === 'EUR 124.50');
    assert.equal((await figures())['Events'], '5');
    await page.locator('.ranking__row').first().waitFor();
    const ranked = await page.locator('.ranking__row').allInnerTexts();
    assert.deepEqual(
      ranked.map((row) => row.split('\n')),
      [
        ['bought', '4'],
        ['refunded', '1'],
      ],
    );
    await page.getByRole('navigation', { name: 'Range' }).getByRole('link', { name: '90 days' }).click();
    await eventually('the figures are there', async () => (await figures())['Events'] === '6');
  });

  test('a refund is drawn below zero', async () => {
    await show('');
    await sees(page, 'Revenue per minute, EUR');
    const zero = await page.locator('.chart__zero').boundingBox();
    const bars = await page.locator('.chart__bars--good').boundingBox();
    assert.ok(zero !== null && bars !== null);
    assert.ok(bars.y < zero.y && bars.y + bars.height > zero.y + 1, 'bars on both sides of zero');
    const labels = await page.locator('.chart__label--value').allTextContents();
    assert.ok(labels.includes('-20') && labels.includes('0') && labels.includes('40'), labels.join());
  });

  test('by time of receipt there are entries, not people, and events as they were received', async () => {
    await show('?range=7d');
    await page.getByRole('navigation', { name: 'Clock' }).getByRole('link', { name: 'Time of receipt' }).click();
    await page.waitForURL(/\?range=7d&clock=receipt$/);
    await sees(page, 'entries in requests, not people');
    await showsFigures({
      People: '2',
      'User entries accepted': '3',
      'User entries rejected': '1',
      'Events received': '6',
    });
    assert.equal(await page.getByText('Top events').count(), 0);
  });

  test('the last event of a person is at its event time, not when it was received', async () => {
    const { body } = await get(running.server, running.server.key, '/profiles?user_id=bob');
    await page.goto(`${OVERVIEW}/people/${(body as { id: string }).id}`);
    const last = page.locator('.facts > div').filter({ hasText: 'Last event' });
    await sees(last, '60 days ago');
  });

  test('a range of one’s own is typed in the viewer’s time, and stands in the address in UTC', async () => {
    await show('');
    await page.getByRole('navigation', { name: 'Range' }).getByRole('link', { name: 'Custom' }).click();
    await page.getByLabel('From', { exact: true }).fill('2026-01-02T03:04');
    await page.getByLabel('To', { exact: true }).fill('2026-02-03T04:05');
    await page.getByRole('button', { name: 'Show' }).click();
    await page.waitForURL(/range=custom&from=2026-01-02T02%3A04%3A00.000Z&to=2026-02-03T03%3A05%3A00.000Z/);
    await sees(page, '2 Jan 2026, 03:00 to 3 Feb 2026, 05:00, in your time zone (Europe/Berlin)');
    await page.reload();
    assert.equal(await page.getByLabel('From', { exact: true }).inputValue(), '2026-01-02T03:04');
  });

  test('what the address asks for and the page does not know is refused, and no figures are shown', async () => {
    for (const [query, words] of [
      ['?range=12h', 'There is no range “12h”'],
      ['?range=custom&from=soon&to=2026-01-01', '“soon” is not a time'],
      ['?clock=server', 'There is no clock “server”'],
    ] as const) {
      await show(query);
      await sees(page, words);
      assert.equal(await page.locator('.figure').count(), 0, query);
      await page.getByRole('link', { name: 'Show the last hour by event time' }).click();
      await page.locator('.figure').first().waitFor();
      assert.ok(page.url().endsWith(OVERVIEW));
    }
    assertNoComplaints(watched);
  });
});
