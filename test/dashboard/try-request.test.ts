/** Try a request: mistakes marked in place, the identity graph before and after, and the same request sent. */

import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import type { Locator, Page } from 'playwright-core';
import { eventually, get } from '../server.ts';
import { screenshot, type WatchedPage, whyNoBrowser } from './browser.ts';
import { assertNoComplaints, deliver, heading, type MemberServer, sees, startMemberServer } from './member-page.ts';

const TRY = '/dashboard/development/try';

suite('Try a request in the page', { skip: whyNoBrowser() }, () => {
  let running: MemberServer;
  let watched: WatchedPage;
  let page: Page;

  before(async () => {
    running = await startMemberServer();
    const { server } = running;
    const seen = [{ event_name: 'seen' }];
    await deliver(server, server.key, [
      { identifiers: { user_id: 'ada' }, user_properties: { plan: 'free' }, events: seen },
    ]);
    await deliver(server, server.key, [{ identifiers: { anon_id: 'phone' }, events: seen }]);
    await deliver(server, server.key, [{ identifiers: { user_id: 'eve', email: 'eve@example.com' }, events: seen }]);
    watched = await running.open();
    page = watched.page;
    await page.goto(TRY);
    await heading(page, 'Try a request');
  });
  after(() => running.close());

  const editor = (): Locator => page.getByLabel('Request body');
  const button = (name: string): Locator => page.getByRole('button', { name, exact: true });

  test('needs a key, which can be made here', async () => {
    assert.equal(await button('Check').isDisabled(), true);
    await button('Make a development key').click();
    await eventually(
      'the key is filled in',
      async () => (await page.locator('input[type=password]').inputValue()) !== '',
    );
    assert.equal(await button('Check').isDisabled(), false);
    assertNoComplaints(watched);
  });

  test('mistakes are marked where they are, and a click leads there', async () => {
    await editor().fill(
      '{\n  "users": [\n    {"identifiers":{"user_id":"x"},"events":[{"event_name":"a","timestamp":"soon"}]},\n    7\n  ]\n}',
    );
    await button('Check').click();
    await sees(page, 'Nothing would be accepted');
    await sees(page, 'events[0].timestamp must be an ISO 8601 timestamp');
    assert.deepEqual(await page.locator('.editor__marks mark').allTextContents(), ['"timestamp":"soon"', '7']);
    assert.equal(await button('Send it').isDisabled(), true);
    await button('Show').first().click();
    const field = `document.querySelector('.editor__field')`;
    const selected = await page.evaluate(`${field}.value.slice(${field}.selectionStart, ${field}.selectionEnd)`);
    assert.equal(selected, '"timestamp":"soon"');
    await screenshot(page, 'try-mistakes');

    await editor().fill('{\n  "users": [,]\n}');
    await sees(page, 'You have changed the request since');
    await button('Check').click();
    await sees(page, 'at line 2, column 13');
    assert.deepEqual(await page.locator('.editor__marks mark').allTextContents(), [',]']);
    assertNoComplaints(watched);
  });

  test('a merge is drawn before and after, with what would change, and sending it does that', async () => {
    const users = [
      {
        identifiers: { user_id: 'ada', anon_id: 'phone', email: 'eve@example.com' },
        user_properties: { plan: 'pro' },
        events: [{ event_name: 'signed_in' }],
      },
    ];
    await editor().fill(JSON.stringify({ users }, null, 2));
    await button('Check').click();
    await sees(page, '1 user accepted');
    await sees(page, 'A known person');
    await page.locator('.try-graph .graph').nth(2).waitFor();
    const counts = await page
      .locator('.try-graph')
      .evaluateAll((figures) => figures.map((one) => one.querySelectorAll('svg.graph').length));
    assert.deepEqual(counts, [2, 1], 'two profiles before, one person after');
    await sees(page, 'not linked');
    assert.equal(await page.locator('.try-graph .graph__item--merge').count(), 1);
    const row = page.getByRole('row', { name: /plan/ });
    assert.match((await row.textContent()) ?? '', /plan.*"free".*"pro"/);
    await screenshot(page, 'try-merge-light');
    await page.emulateMedia({ colorScheme: 'dark' });
    await screenshot(page, 'try-merge-dark');
    await page.emulateMedia({ colorScheme: 'light' });

    const { server } = running;
    const profile = async (): Promise<{ merged_ids: string[]; user_properties: { plan: string } }> =>
      (await get(server, server.key, '/profiles?user_id=ada')).body as never;
    assert.equal((await profile()).user_properties.plan, 'free', 'a check changes nothing');
    await button('Send it').click();
    await sees(page, 'Sent, and durable');
    await eventually('it happened', async () => {
      const { merged_ids: merged, user_properties: properties } = await profile();
      return merged.length === 1 && properties.plan === 'pro';
    });
    await page.getByRole('link', { name: 'See its trace' }).click();
    await heading(page, 'Traces');
    assertNoComplaints(watched);
  });

  test('a key for the other environment, or a wrong one, is reported', async () => {
    await page.goto(TRY);
    await page.getByLabel('API key').fill('sk_prod_something');
    await sees(page, 'This key is not for development');
    assert.equal(await button('Check').isDisabled(), true);
    await page.getByLabel('API key').fill('sk_dev_wrong');
    await button('Check').click();
    await sees(page, 'The server does not accept this key');
  });
});
