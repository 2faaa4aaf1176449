/** From a rejected batch: a reason is chosen, one user is fixed, all are previewed and resubmitted, and trace and ledger agree. */

import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import type { Locator, Page } from 'playwright-core';
import { eventually, user } from '../server.ts';
import { screenshot, type WatchedPage, whyNoBrowser } from './browser.ts';
import {
  assertNoComplaints,
  deliver,
  heading,
  type MemberServer,
  read,
  sees,
  startMemberServer,
} from './member-page.ts';

const REJECTED = '/dashboard/development/rejected';
const NUMBER = 'identifiers.user_id must be a string';

suite('Fixing rejected users in the page', { skip: whyNoBrowser() }, () => {
  let running: MemberServer;
  let watched: WatchedPage;
  let page: Page;
  let trace: string;

  before(async () => {
    running = await startMemberServer();
    watched = await running.open();
    page = watched.page;
    const wrong = (id: number, more: object = {}) => ({
      identifiers: { user_id: id },
      user_properties: { points: 12_345 },
      events: [{ event_name: 'order_placed', ...more }],
    });
    trace = await deliver(running.server, running.server.key, [
      user('fine'),
      ...Array.from({ length: 213 }, (_, n) => wrong(1_000 + n)),
      wrong(7, { event_name: '' }),
    ]);
  });
  after(() => running.close());

  const get = async (path: string) =>
    (await read(running.server, running.server.key, path)).body as Record<string, unknown>;
  const dialog = (): Locator => page.getByRole('dialog', { name: 'Fix and resubmit' });
  const openNth = async (nth: number): Promise<void> => {
    const sample = page.getByRole('region', { name: 'Rejected users' }).locator('details').nth(nth);
    await sample.locator('summary').click();
    await sample.getByRole('button', { name: 'Fix and resubmit' }).click();
  };
  const edit = async (change: (text: string) => string): Promise<void> => {
    const field = dialog().getByRole('textbox');
    await field.fill(change(await field.inputValue()));
  };

  test('one user is edited and resubmitted; what is not valid yet is said', async () => {
    await page.goto(REJECTED);
    await heading(page, 'Rejected');
    await openNth(1);
    const one = dialog().getByRole('button', { name: 'Resubmit this user' });
    assert.equal(await one.isDisabled(), true);
    await edit((text) => `${text},`);
    await sees(dialog(), 'This is not JSON yet.');
    await edit((text) => text.slice(0, -1).replace('12345', '12346'));
    await one.click();
    await sees(dialog(), `The user is still not valid: ${NUMBER}.`);
    // The browser reports the 400 that was provoked.
    assert.deepEqual(watched.complaints.splice(0).length, 1);
    await edit((text) => text.replace(/"user_id": \d+/, '"user_id": "by-hand"'));
    await one.click();
    await sees(dialog(), 'Accepted: 1 user is stored now.');
    await dialog().getByRole('button', { name: 'Close', exact: true }).last().click();
    await sees(page, /214 users, 1 fixed/);
    assert.equal((await get('/profiles?user_id=by-hand'))['event_count'], 1);
    assertNoComplaints(watched);
  });

  test('the change of one is applied to all: previewed, resubmitted, and what is left stays', async () => {
    await page.goto(REJECTED);
    await openNth(1);
    await edit((text) => text.replace(/"user_id": (\d+)/, '"user_id": "$1"'));
    await sees(dialog(), 'whatever number each has');
    await screenshot(page, 'fix-edit');
    await dialog().getByRole('button', { name: 'Apply to all 213, preview' }).click();
    await sees(dialog(), /212 of 213 users would be accepted/);
    await sees(dialog(), '1 would stay rejected');
    await sees(dialog(), 'event_name is required');
    await screenshot(page, 'fix-preview');
    assert.equal((await read(running.server, running.server.key, '/profiles?user_id=1005')).status, 404);
    await dialog().getByRole('button', { name: 'Resubmit 212' }).click();
    await sees(dialog(), 'Accepted: 212 users are stored now.');
    await sees(dialog(), '1 stayed rejected');
    await screenshot(page, 'fix-done');
    await dialog().getByRole('button', { name: 'Close', exact: true }).last().click();
    await sees(page, /214 users, 213 fixed/);
    await sees(page, 'That is every user that is left to fix.');
    assert.equal(await page.getByRole('region', { name: 'Rejected users' }).locator('details').count(), 1);
    await screenshot(page, 'fix-left');

    const { body } = await read(running.server, running.server.key, `/traces/${trace}`);
    const { users_accepted, users_rejected } = body as Record<string, unknown>;
    assert.deepEqual([users_accepted, users_rejected], [214, 1]);
    const ledger = await get('/ledger');
    const [hour] = ledger['hours'] as Record<string, unknown>[];
    assert.deepEqual([ledger['balanced'], hour?.['users_rejected'], hour?.['users_resubmitted']], [true, 214, 213]);
    await page.goto(`/dashboard/development/traces/${trace}`);
    await sees(page, 'Rejected at first, then resubmitted');
    await page.goto('/dashboard/development/audit');
    await sees(page, '213 rejected users');
    assertNoComplaints(watched);
  });

  test('a value that would make one person of all is warned of', async () => {
    await deliver(running.server, running.server.key, [
      user('fine'),
      ...[1, 2, 3].map(() => ({ identifiers: {}, events: [{ event_name: 'page_viewed' }] })),
    ]);
    await page.goto(
      `${REJECTED}?reason=${encodeURIComponent('at least one identifier is required (user_id, email, phone_number, or anon_id)')}`,
    );
    await eventually('it is there', async () => (await page.getByText('3 users').count()) > 0 || undefined);
    await openNth(0);
    await edit((text) => text.replace('"identifiers": {}', '"identifiers": {"anon_id": "visitor"}'));
    await dialog()
      .getByRole('button', { name: /Apply to all 3/ })
      .click();
    await sees(dialog(), /all of them would become one person/);
    await screenshot(page, 'fix-warning');
    await page.emulateMedia({ colorScheme: 'dark' });
    await screenshot(page, 'fix-warning-dark');
    assertNoComplaints(watched);
  });
});
