/** What a page does when something changes elsewhere (another tab, the environment), or does not work. */

import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { runSluice } from '../server.ts';
import { whyNoBrowser } from './browser.ts';
import {
  assertNoComplaints,
  deliver,
  EMAIL,
  heading,
  join,
  type MemberServer,
  PASSWORD,
  sees,
  settled,
  startMemberServer,
} from './member-page.ts';

const OTHER_EMAIL = 'olga@other.example';
const NOBODY = '00000000-0000-7000-8000-000000000000';

suite('The session and the address', { skip: whyNoBrowser() }, () => {
  let running: MemberServer;

  before(async () => {
    running = await startMemberServer();
    const { server } = running;
    const env = { SLUICE_DATA: server.dataFolder };
    const invited = await runSluice(['invite', '--account', 'othercompany', '--json'], env);
    assert.equal(invited.code, 0, invited.stderr);
    await join(server, (JSON.parse(invited.stdout) as { link: string }).link, OTHER_EMAIL);
  });
  after(() => running.close());

  test('the other environment is gone to without the person, key and event of this one', async () => {
    const watched = await running.open();
    const { page } = watched;
    await page.goto(`/dashboard/development/live?name=bought&person=${NOBODY}&key=key_1&open=${NOBODY}.0.0`);
    await page.getByRole('link', { name: 'Production' }).click();
    await page.waitForURL('**/dashboard/production/live?name=bought');
    await page.getByRole('link', { name: 'Development' }).click();
    await page.waitForURL('**/dashboard/development/live?name=bought');
    assertNoComplaints(watched, /404/);
    await watched.context.close();
  });

  test('the next page of rejected users says why it did not come', async () => {
    const { server } = running;
    const rejected = Array.from({ length: 25 }, () => ({ identifiers: {}, events: [{ event_name: 'lost' }] }));
    const kept = { identifiers: { user_id: 'kept' }, events: [{ event_name: 'kept' }] };
    await deliver(server, server.key, [kept, ...rejected]);
    const watched = await running.open();
    const { page } = watched;
    await page.goto('/dashboard/development/rejected');
    await page.route('**/rejections?*cursor=*', (route) => route.fulfill({ status: 503, body: '{}' }));
    await page.getByRole('button', { name: 'Show more' }).click();
    await sees(page, 'The server is unavailable.');
    assertNoComplaints(watched, /503/);
    await watched.context.close();
  });

  test('signing out says so when it did not work', async () => {
    const watched = await running.open();
    const { page } = watched;
    await page.goto('/dashboard/development/settings/team');
    await settled(page);
    await page.route('**/session', (route) =>
      route.request().method() === 'DELETE' ? route.fulfill({ status: 503, body: '{}' }) : route.continue(),
    );
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByRole('button', { name: 'Still signed in. Try again' }).waitFor();
    await heading(page, 'Team');
    assertNoComplaints(watched, /503/);
    await watched.context.close();
  });

  // The last one: signing in ends the session that the browser had.
  test('a tab starts over when a member of another account signs in in the next tab', async () => {
    const watched = await running.open();
    const { page, context } = watched;
    await page.goto('/dashboard/development/settings/keys');
    await settled(page);
    await sees(page, EMAIL);

    const next = await context.newPage();
    await next.goto(`${running.server.baseUrl}/dashboard/sign-in`);
    await next.getByLabel('E-mail').fill(OTHER_EMAIL);
    await next.getByLabel('Password', { exact: true }).fill(PASSWORD);
    await next.getByRole('button', { name: 'Sign in' }).click();
    await sees(next, OTHER_EMAIL);

    await sees(page, OTHER_EMAIL);
    await sees(page, 'othercompany');
    await heading(page, 'API keys');
    assertNoComplaints(watched);
    await context.close();
  });
});
