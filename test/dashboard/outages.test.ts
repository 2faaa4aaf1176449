/** When things do not go well: the server is away, requests are rejected for their key, the first user is rejected. */

import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { eventually, post } from '../server.ts';
import { type WatchedPage, whyNoBrowser } from './browser.ts';
import {
  askAs,
  assertNoComplaints,
  deliver,
  heading,
  type MemberServer,
  sees,
  settled,
  startMemberServer,
} from './member-page.ts';

const OVERVIEW = '/dashboard/development';
/** What the browser itself says of a server that does not respond. */
const AWAY = /ERR_INTERNET_DISCONNECTED|ViewNotLoadedError/;
const LEFT_ALONE_MS = 125_000;

suite('The page in problem', { skip: whyNoBrowser() }, () => {
  let running: MemberServer;

  before(async () => {
    running = await startMemberServer();
    const events = [{ event_name: 'bought', revenue: 12.5 }, { event_name: 'looked' }];
    await deliver(running.server, running.server.key, [{ identifiers: { user_id: 'ada' }, events }]);
  });
  after(() => running.close());

  async function figures({ page }: WatchedPage): Promise<string[]> {
    return page.locator('.figure__value').allInnerTexts();
  }

  test('while the server is away the overview keeps its last figures, and says how old they are', async () => {
    const watched = await running.open();
    const { page, context } = watched;
    await page.clock.install();
    await page.goto(OVERVIEW);
    await settled(page);
    await page.locator('.ranking').getByText('bought').waitFor();
    const known = ['1', '2', '12.50'];
    // They come with several requests.
    await eventually('the figures are there', async () => isDeepStrictEqual(await figures(watched), known));

    await context.setOffline(true);
    // The address of what is asked for moves on with every minute.
    await page.clock.runFor(LEFT_ALONE_MS);
    await sees(page, 'The server did not respond.');
    await sees(page, /As of .*, when the server last responded/);
    assert.deepEqual(await figures(watched), known);
    assert.equal(await page.getByText(/Nothing received|No events in this time|No revenue/).count(), 0);
    assert.equal(await page.getByText('Ready', { exact: true }).count(), 0);
    assert.equal(await page.getByRole('alert').count(), 1);

    await context.setOffline(false);
    await page.getByRole('button', { name: 'Try again' }).first().click();
    await page.clock.runFor(15_000);
    await page.getByRole('alert').waitFor({ state: 'detached' });
    assertNoComplaints(watched, AWAY);
    await context.close();
  });

  test('a view that cannot be loaded says that the server is away, and comes when it is back', async () => {
    const watched = await running.open();
    const { page, context } = watched;
    await page.goto(OVERVIEW);
    await settled(page);
    await context.setOffline(true);
    await page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: 'Health' }).click();
    await sees(page, 'The server does not respond');
    await context.setOffline(false);
    await heading(page, 'Health');
    assert.ok(page.url().endsWith('/development/health'));
    assertNoComplaints(watched, AWAY);
    await context.close();
  });

  test('requests that were refused for their key are on the overview, and explained on Health', async () => {
    for (let n = 0; n < 3; n++) assert.equal((await post(running.server, 'sk_dev_nobody', { users: [] })).status, 401);
    const watched = await running.open();
    const { page, context } = watched;
    await page.goto(OVERVIEW);
    await sees(page, 'On the whole server, 3 requests were refused for the key since it started.');
    await page.getByRole('link', { name: 'What it means' }).click();
    await heading(page, 'Health');
    const row = page.getByRole('table', { name: 'Requests by response' }).getByRole('row', { name: /^401/ });
    await sees(row, 'Invalid key');
    assert.equal(await row.getByRole('cell').last().innerText(), '3');
    assertNoComplaints(watched);
    await context.close();
  });

  test('who waits for their first event and sent one that was rejected learns it before all else', async () => {
    const made = await askAs(running.server, running.session, '/keys', {
      method: 'POST',
      environment: 'production',
      body: { name: 'first', kind: 'secret', environment: 'production' },
    });
    const { key } = made.body as { key: string };
    const events = [{ event_name: 'bought', revenue: '12,50' }];
    const { status } = await post(running.server, key, { users: [{ identifiers: { user_id: 'eve' }, events }] });
    assert.equal(status, 400);
    const watched = await running.open();
    const { page, context } = watched;
    await page.goto('/dashboard/production');
    await heading(page, 'Send your first event');
    await sees(page, 'A user was rejected');
    assert.equal(await page.getByText('Nothing has been received').count(), 0);
    const [notice, step] = await Promise.all([
      page.getByText('A user was rejected').boundingBox(),
      page.getByRole('heading', { name: 'Make a key' }).boundingBox(),
    ]);
    assert.ok((notice?.y ?? 0) < (step?.y ?? 0));
    assertNoComplaints(watched);
    await context.close();
  });
});
