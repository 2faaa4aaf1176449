/** People: found by any identifier, what is known and who said so, why they are one person, and taking that back. */

import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import type { Locator, Page } from 'playwright-core';
import { createKey, eventually, get, user } from '../server.ts';
import { type WatchedPage, whyNoBrowser } from './browser.ts';
import {
  assertNoComplaints,
  deliver,
  eventsInTheirOrder,
  heading,
  inView,
  type MemberServer,
  sees,
  startMemberServer,
} from './member-page.ts';

const PEOPLE = '/dashboard/development/people';

/** More digits than a double holds; TypeScript does not know `rawJSON` yet. */
const LONG_NUMBER = (JSON as unknown as { rawJSON(text: string): unknown }).rawJSON('12345678901234567890');

interface ProfileResponse {
  readonly id: string;
  readonly merged_ids: readonly string[];
}

suite('People in the page', { skip: whyNoBrowser() }, () => {
  let running: MemberServer;
  let watched: WatchedPage;
  let page: Page;
  /** Of the requests about the visitor, about Grace, and that they are one. */
  let visited: string;
  let signedUp: string;
  let joined: string;
  let grace: ProfileResponse;

  before(async () => {
    running = await startMemberServer();
    const { server } = running;
    visited = await deliver(server, server.key, [
      {
        identifiers: { anon_id: 'visitor-7' },
        user_properties: { referrer: 'newsletter' },
        events: [{ event_name: 'page_viewed', path: '/prices' }],
      },
    ]);
    signedUp = await deliver(server, server.key, [
      {
        identifiers: {
          user_id: 'grace',
          email: 'grace@example.com',
          phone_number: '+49 30 123456',
          first_name: 'Grace',
          last_name: 'Hopper',
        },
        user_properties: { plan: 'pro', seats: LONG_NUMBER },
        events: [{ event_name: 'signed_up', revenue: 12.5 }],
      },
    ]);
    joined = await deliver(server, server.key, [
      { identifiers: { user_id: 'grace', anon_id: 'visitor-7' }, events: [{ event_name: 'came_back' }] },
    ]);
    await deliver(server, server.key, [
      { identifiers: { user_id: 'someone-else', anon_id: 'visitor-7' }, events: [{ event_name: 'shared_a_device' }] },
    ]);
    grace = await profileOf('user_id=grace');
    watched = await running.open();
    page = watched.page;
  });
  after(() => running.close());

  async function profileOf(query: string): Promise<ProfileResponse> {
    const { status, body, text } = await get(running.server, running.server.key, `/profiles?${query}`);
    assert.equal(status, 200, text);
    return body as ProfileResponse;
  }

  const openPerson = async (tab = ''): Promise<void> => {
    await page.goto(`${PEOPLE}/${grace.id}${tab === '' ? '' : `?tab=${tab}`}`);
    await heading(page, 'Grace Hopper');
  };

  const merge = (): Locator => page.locator('.graph__item--merge .graph__disc');

  const table = (): Locator => page.getByRole('table', { name: 'People, newest first' });

  test('everyone is listed, newest first, with what they are known by', async () => {
    await page.goto(PEOPLE);
    await heading(page, 'People');
    await sees(table().getByRole('row').filter({ hasText: 'Grace Hopper' }), 'grace@example.com');
    await sees(page, '2 people. That is everyone.');
    const names = await table().getByRole('link').allTextContents();
    assert.deepEqual(names, ['someone-else', 'Grace Hopper']);
    await page.getByRole('link', { name: 'Grace Hopper' }).click();
    await heading(page, 'Grace Hopper');
    assertNoComplaints(watched);
  });

  test('a person is found by each identifier or name, by the beginning of it, and by profile id', async () => {
    const values = ['grace', 'Grace@Ex', '+49 30 12', 'visitor-7', 'hopp', 'GRACE H', grace.merged_ids[0] ?? ''];
    for (const value of values) {
      await page.goto(PEOPLE);
      await page.getByRole('searchbox').fill(`  ${value} `);
      await page.getByRole('button', { name: 'Find' }).click();
      await page.waitForURL(/q=/);
      await sees(page, '1 person. That is everyone.');
      assert.deepEqual(await table().getByRole('link').allTextContents(), ['Grace Hopper'], value);
    }
    await page.reload();
    await table().getByRole('link', { name: 'Grace Hopper' }).click();
    await heading(page, 'Grace Hopper');
    assertNoComplaints(watched);
  });

  test('a property narrows the list down, and stands in the address', async () => {
    await page.goto(PEOPLE);
    await page.getByLabel('Property').fill('plan');
    await page.getByLabel('Its value').fill('pro');
    await page.getByRole('button', { name: 'Find' }).click();
    await page.waitForURL(/property=plan&is=pro$/);
    await sees(page, '1 person. That is everyone.');
    await page.goto(`${PEOPLE}?property=plan&is=free`);
    await sees(page, 'No one found');
    assertNoComplaints(watched);
  });

  test('a long list is read page by page, to its end', async () => {
    const { server } = running;
    const other = await createKey(server.dataFolder, { env: 'production' });
    const users = Array.from({ length: 120 }, (_, n) => user(`many-${String(n).padStart(3, '0')}`));
    await deliver(server, other.key, users);
    const second = await running.open();
    await second.page.goto('/dashboard/production/people');
    const rows = second.page.getByRole('table', { name: 'People, newest first' }).getByRole('link');
    await rows.first().waitFor();
    assert.equal(await rows.count(), 50);
    for (const count of [100, 120]) {
      await second.page.getByRole('button', { name: 'Show more' }).click();
      await rows.nth(count - 1).waitFor();
      assert.equal(await rows.count(), count);
    }
    await sees(second.page, '120 people. That is everyone.');
    assert.equal(new Set(await rows.allTextContents()).size, 120);
    assertNoComplaints(second);
    await second.context.close();
  });

  test('an unknown person is reported as not found', async () => {
    await page.goto(`${PEOPLE}?q=nobody@example.com`);
    await sees(page, 'No one found');
    await page.goto(`${PEOPLE}/01a1ddc0-5109-7246-bf39-3425125c6c6d`);
    await sees(page, 'No such person here');
    assertNoComplaints(watched, /status of 404/);
    watched.complaints.length = 0;
  });

  test('each property has the request that set it, and numbers keep their digits', async () => {
    await openPerson();
    const properties = page.getByRole('table', { name: 'User properties' });
    for (const [name, value, trace] of [
      ['plan', 'pro', signedUp],
      ['seats', '12345678901234567890', signedUp],
      ['referrer', 'newsletter', visited],
    ] as const) {
      const row = properties.getByRole('row').filter({ hasText: name });
      await sees(row, value);
      await row.getByRole('link', { name: trace }).waitFor();
    }
    await sees(page.getByRole('table', { name: 'Profile fields' }), 'Hopper');
    await properties.getByRole('link', { name: signedUp }).first().click();
    await heading(page, 'Traces');
    await sees(page, 'processed');
    assertNoComplaints(watched);
  });

  test('the timeline has the events of both profiles, each with its request', async () => {
    await openPerson('timeline');
    for (const name of ['page_viewed', 'signed_up', 'came_back']) {
      await page.getByRole('button', { name: new RegExp(name) }).waitFor();
    }
    await page.getByRole('button', { name: /page_viewed/ }).click();
    await page.getByRole('link', { name: visited }).waitFor();
    await sees(page, '"/prices"');
    await page.reload();
    await page.getByRole('link', { name: visited }).waitFor();

    await page.getByLabel('Event name').fill('signed_up');
    await page.getByRole('button', { name: 'Filter' }).click();
    await page.getByRole('button', { name: /page_viewed/ }).waitFor({ state: 'detached' });
    await page.getByRole('button', { name: /signed_up/ }).waitFor();
    assertNoComplaints(watched);
  });

  test('a link opens an event further back in the timeline, or says that it is not there', async () => {
    const { server } = running;
    const trace = await deliver(server, server.key, eventsInTheirOrder('regular', 600));
    const { id } = await profileOf('user_id=regular');
    const open = (eventId: string): Promise<unknown> =>
      page.goto(`${PEOPLE}/${id}?tab=timeline&open=${encodeURIComponent(eventId)}`);
    await open(`${trace}.1.20`);
    await inView(page.locator('.timeline__details').getByText('"no": 120'));

    await open(`${trace}.5.99`);
    const missing = page.getByText('The event that this link opens is not among the newest 500 shown here');
    await missing.waitFor();
    await page.getByRole('link', { name: 'See the request that it came with' }).waitFor();
    for (const shown of [550, 600]) {
      await page.getByRole('button', { name: 'More', exact: true }).click();
      await eventually('more are shown', async () => (await page.locator('.timeline__event').count()) === shown);
    }
    await missing.waitFor({ state: 'detached' });
    await page.locator('.timeline__details').getByText('"no": 599').waitFor();

    await open(`${visited}.0.0`);
    await missing.waitFor();
    await page.getByLabel('Event name').fill('counted');
    await page.getByRole('button', { name: 'Filter' }).click();
    await page.getByText(/The event that this link opens/).waitFor({ state: 'detached' });
    assertNoComplaints(watched);
  });

  test('the picture shows the merge, and the request behind it', async () => {
    await openPerson('identity');
    await sees(page, 'One person, merged from 2 profiles');
    assert.equal(await merge().count(), 1);
    await merge().click();
    const panel = page.getByRole('complementary', { name: 'The request behind it' });
    await panel.getByRole('heading', { name: 'Merge' }).waitFor();
    await panel.getByRole('link', { name: joined }).waitFor();
    await sees(panel, 'users[0]');
    await sees(panel, 'with it an identifier of the profile of');
    await page.reload();
    await panel.getByRole('link', { name: joined }).waitFor();
    assertNoComplaints(watched);
  });

  test('the picture can be gone through with the keyboard', async () => {
    await openPerson('identity');
    await page.locator('.graph__item[tabindex="0"]').focus();
    const panel = page.getByRole('complementary', { name: 'The request behind it' });
    await panel.getByRole('heading', { name: 'Identifier' }).waitFor();
    await page.keyboard.press('End');
    await page.keyboard.press('Home');
    for (let step = 0; step < 10 && !(await panel.getByRole('heading', { name: 'Merge' }).isVisible()); step++) {
      await page.keyboard.press('ArrowDown');
    }
    await page.keyboard.press('Enter');
    await page.waitForURL(/pick=merge/);
    assertNoComplaints(watched);
  });

  test('the list says the same as the picture', async () => {
    await openPerson('identity');
    await page.getByRole('button', { name: 'List' }).click();
    const list = page.locator('.identity__list');
    for (const text of ['grace', 'grace@example.com', 'visitor-7']) await sees(list, text);
    await page.waitForURL(/as=list/);
    assertNoComplaints(watched);
  });

  test('the chain between two identifiers goes through the request that joined them', async () => {
    await openPerson('identity');
    await page.getByLabel('This identifier').selectOption({ label: 'anon_id: visitor-7' });
    await page.getByLabel('and this one').selectOption({ label: 'email: grace@example.com' });
    const chain = page.getByRole('list', { name: 'The chain of requests' });
    await chain.getByRole('link', { name: joined }).waitFor();
    await chain.getByRole('link', { name: visited }).waitFor();
    assert.doesNotMatch(page.url(), /grace|visitor-7/, 'no identifier stands in the address');
    await page.reload();
    await chain.getByRole('link', { name: joined }).waitFor();
    assertNoComplaints(watched);
  });

  test('a merge is undone in the page, and there are two people again', async () => {
    await openPerson('identity');
    await merge().click();
    await page.getByRole('button', { name: 'These are not one person' }).click();
    const dialog = page.getByRole('dialog', { name: 'These are not one person' });
    await dialog.getByRole('button', { name: 'Undo the merge' }).click();
    await sees(page, 'Undone. There are now 2 profiles instead of one');
    const visitor = await profileOf('anon_id=visitor-7');
    const signedIn = await profileOf('user_id=grace');
    assert.notEqual(visitor.id, signedIn.id);
    for (const name of [`visitor-7 ${visitor.id}`, `Grace Hopper ${signedIn.id}`]) {
      await page.getByRole('link', { name }).waitFor();
    }
    const [, act = ''] =
      /In the audit as\s*([0-9a-f-]{36})/.exec((await page.locator('main').textContent()) ?? '') ?? [];
    await page.getByRole('link', { name: act, exact: true }).click();
    await page.getByRole('heading', { name: /^Unmerge/ }).waitFor();
    await page.getByRole('link', { name: joined }).waitFor();
    for (const { id } of [visitor, signedIn]) await page.getByRole('link', { name: id }).waitFor();
    assertNoComplaints(watched, /status of 404/);
    watched.complaints.length = 0;

    await page.goto(`${PEOPLE}/${visitor.id}`);
    await sees(page, 'referrer');
    assert.equal(await page.getByText('plan', { exact: true }).count(), 0);
    await page.goto(`${PEOPLE}/${signedIn.id}`);
    await heading(page, 'Grace Hopper');
    await sees(page, 'plan');
    assert.equal(await page.getByText('referrer', { exact: true }).count(), 0);
    assertNoComplaints(watched);
  });

  test('erasing asks for a text to be typed, and afterwards the person is gone from page and API', async () => {
    const { id } = await profileOf('user_id=grace');
    await page.goto(`${PEOPLE}/${id}`);
    await page.getByRole('button', { name: 'Erase' }).click();
    const dialog = page.getByRole('dialog', { name: 'Erase this person' });
    const erase = dialog.getByRole('button', { name: 'Erase permanently' });
    await sees(dialog, /stay in the log .* until SLUICE_LOG_RETENTION \(7d on this server\) is over/);
    assert.ok(await erase.isDisabled());
    await dialog.getByRole('textbox').fill('grace');
    assert.ok(await erase.isDisabled());
    await dialog.getByRole('textbox').fill('grace@example.com');
    await erase.click();
    await sees(page, 'The person is erased.');
    await page.getByRole('link', { name: /^[0-9a-f-]{36}$/ }).click();
    await page.getByRole('heading', { name: /^Erasure/ }).waitFor();
    await sees(page, id);

    assert.equal((await get(running.server, running.server.key, `/profiles/${id}`)).status, 404);
    assert.equal((await get(running.server, running.server.key, '/profiles?user_id=grace')).status, 404);
    await page.goto(`${PEOPLE}/${id}`);
    await sees(page, 'No such person here');
    assertNoComplaints(watched, /status of 404/);
  });
});
