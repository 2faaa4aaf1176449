/**
 * From a rejected batch: a reason is chosen, one user is fixed, all are previewed and resubmitted, and trace and ledger
 * agree. Dead letters are retried, and jobs stopped and resumed.
 */

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { DatabaseSync } from 'node:sqlite';
import { after, before, suite, test } from 'node:test';
import type { Locator, Page } from 'playwright-core';
import { storeFileOf } from '../../src/data-folder/files.ts';
import { eventually, get, user } from '../server.ts';
import { DESKTOP, PHONE, screenshot, type WatchedPage, whyNoBrowser } from './browser.ts';
import { assertNoComplaints, deliver, heading, type MemberServer, sees, startMemberServer } from './member-page.ts';

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

  const bodyOf = async (path: string) =>
    (await get(running.server, running.server.key, path)).body as Record<string, unknown>;
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

  test('one user is edited and resubmitted; what is still invalid is shown', async () => {
    await page.goto(REJECTED);
    await heading(page, 'Rejected');
    await openNth(1);
    const one = dialog().getByRole('button', { name: 'Resubmit this user' });
    assert.equal(await one.isDisabled(), true);
    await edit((text) => `${text},`);
    await sees(dialog(), 'This is not valid JSON.');
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
    assert.equal((await bodyOf('/profiles?user_id=by-hand'))['event_count'], 1);
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
    const effects = dialog().getByRole('list', { name: 'What they would do' });
    assert.deepEqual(await effects.getByRole('listitem').allTextContents(), [
      '212 events would be stored',
      '212 people would be new',
      '212 properties would change',
    ]);
    await screenshot(page, 'fix-preview');
    await dialog().getByText('What would happen to').first().click();
    await sees(dialog(), '1 event would be stored.');
    await sees(dialog(), 'Links');
    await screenshot(page, 'fix-preview-open');
    assert.equal((await get(running.server, running.server.key, '/profiles?user_id=1005')).status, 404);
    await dialog().getByRole('button', { name: 'Resubmit 212' }).click();
    await sees(dialog(), 'Accepted: 212 users are stored now.');
    await sees(dialog(), '1 stayed rejected');
    await screenshot(page, 'fix-done');
    await dialog().getByRole('button', { name: 'Close', exact: true }).last().click();
    await sees(page, /214 users, 213 fixed/);
    await sees(page, 'That is every user that is left to fix.');
    assert.equal(await page.getByRole('region', { name: 'Rejected users' }).locator('details').count(), 1);
    await screenshot(page, 'fix-left');

    const { body } = await get(running.server, running.server.key, `/traces/${trace}`);
    const { users_accepted, users_rejected } = body as Record<string, unknown>;
    assert.deepEqual([users_accepted, users_rejected], [214, 1]);
    const ledger = await bodyOf('/ledger');
    const [hour] = ledger['hours'] as Record<string, unknown>[];
    assert.deepEqual([ledger['balanced'], hour?.['users_rejected'], hour?.['users_resubmitted']], [true, 214, 213]);
    for (const range of ['1h', '24h', '7d', '30d']) {
      await page.goto(`/dashboard/development?clock=receipt&range=${range}`);
      await sees(page.locator('.figure').filter({ hasText: 'User entries accepted' }), /^1$/);
      await sees(page.locator('.figure').filter({ hasText: 'User entries rejected' }), /^214$/);
      // The events of the hours are those of the ledger.
      if (range !== '1h') await sees(page, 'Events received include those of 213 user entries');
    }
    await page.goto(`/dashboard/development/traces/${trace}`);
    await sees(page, 'Rejected at first, then resubmitted');
    await page.goto('/dashboard/development/audit');
    await sees(page, '213 rejected users');
    assertNoComplaints(watched);
  });

  /** Rows that a bug would have left, in the store of the running server. */
  function inStore<T>(work: (database: DatabaseSync) => T): T {
    const database = new DatabaseSync(storeFileOf(running.server.dataFolder), { timeout: 10_000 });
    try {
      return work(database);
    } finally {
      database.close();
    }
  }

  function addDeadLetter(n: number, userCount: number, cause: string): string {
    const body = Buffer.from(JSON.stringify({ users: [user(`dead-${n}`)] }));
    return inStore((database) => {
      const { tenant, id, hour } = database
        .prepare('SELECT tenant, id, hour FROM ledger JOIN tenants ON no = tenant ORDER BY hour DESC LIMIT 1')
        .get() as { tenant: number; id: string; hour: number };
      const [traceId, keyId] = [randomUUID(), 'key_test'];
      const record = {
        ...{ partition: 7, position: n, firstUserIndex: 0, tenantId: id, traceId, receivedAt: hour, keyId },
        ...{ keyKind: 'secret', idempotencyKey: null, userCount, eventCount: 1, rejections: [] },
      };
      database
        .prepare(
          `INSERT INTO dead_letters (tenant, log, partition, position, received_at, trace_id, failed_at, cause,
             first_user_index, users, events, key_id, header, body)
           VALUES (?, 'test', 7, ?, ?, ?, ?, ?, 0, ?, 1, ?, ?, ?)`,
        )
        .run(tenant, n, hour, traceId, hour, cause, userCount, keyId, JSON.stringify(record), body);
      database
        .prepare(
          `UPDATE ledger SET users_received = users_received + ?1, users_dead_letters = users_dead_letters + ?1,
             events_received = events_received + 1, events_dead_letters = events_dead_letters + 1
           WHERE tenant = ?2 AND hour = ?3`,
        )
        .run(userCount, tenant, hour);
      return traceId;
    });
  }

  test('dead letters are listed with their cause, and retried, one or all', async () => {
    addDeadLetter(1, 1, 'TypeError: at prepareUser (src/processor/prepare.ts:140:31)');
    addDeadLetter(2, 1, 'TypeError: at prepareUser (src/processor/prepare.ts:140:31)');
    const hopeless = addDeadLetter(3, 5, 'Error: the body has 1 users where the edge counted 5');
    await page.goto(REJECTED);
    const letters = page.getByRole('region', { name: 'Dead letters' });
    await sees(letters, 'where the edge counted 5');
    await screenshot(page, 'dead-letters');
    await letters.getByRole('button', { name: 'Retry', exact: true }).nth(1).click();
    await sees(letters, 'Accepted: 1 request is stored now.');
    await eventually('two are left', async () => (await letters.getByRole('row').count()) === 3 || undefined);
    await letters.getByRole('button', { name: 'Retry all' }).click();
    await sees(letters, '1 failed again:');
    await eventually('one is left', async () => (await letters.getByRole('row').count()) === 2 || undefined);
    assert.equal((await bodyOf('/profiles?user_id=dead-1'))['event_count'], 1);
    assert.equal((await bodyOf('/ledger'))['balanced'], true);
    const jobs = page.getByRole('region', { name: 'Jobs' });
    await sees(jobs, 'Retry of 2 dead letters');
    await sees(jobs, '1 stored, 1 failed');
    await screenshot(page, 'dead-letters-retried');
    await page.goto(`/dashboard/development/traces/${hopeless}`);
    await sees(page, 'It could not be processed and became a dead letter.');
    await screenshot(page, 'trace-of-dead-letter');
    assertNoComplaints(watched);
  });

  test('a job is stopped and resumed', async () => {
    await deliver(running.server, running.server.key, [
      user('fine'),
      ...[1, 2].map((id) => ({ identifiers: { user_id: id }, events: [{ event_name: 'stopped' }] })),
    ]);
    const id = randomUUID();
    const filter = { reason: null, eventName: 'stopped', keyId: null, from: null, to: null };
    const patch = [{ op: 'replace', path: '/identifiers/user_id', value: 'resumed' }];
    inStore((database) =>
      database
        .prepare(
          `INSERT INTO jobs (id, tenant, kind, status, created_at, stepped_at, called_by, filter, patch, after_time,
             after_no, matched)
           SELECT ?, tenant, 'resubmit', 'stopped', created_at + 1, stepped_at, called_by, ?, ?, -9007199254740991, 0, 2
           FROM jobs ORDER BY no DESC LIMIT 1`,
        )
        .run(id, JSON.stringify(filter), JSON.stringify(patch)),
    );
    // As it was before it was stopped: what runs here is done too soon.
    await page.route('**/jobs?limit=5', async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, body: (await response.text()).replace('"stopped"', '"running"') });
    });
    await page.goto(REJECTED);
    const row = page.getByRole('region', { name: 'Jobs' }).getByRole('row').nth(1);
    await sees(row, 'Resubmit of 2 rejected users');
    await screenshot(page, 'jobs-running');
    const stopping = page.waitForResponse((response) => response.url().endsWith(`/jobs/${id}/stop`));
    await row.getByRole('button', { name: 'Stop' }).click();
    assert.equal((await stopping).status(), 200);
    await page.unrouteAll({ behavior: 'ignoreErrors' });
    await sees(row, '0 of 2, stopped');
    await screenshot(page, 'jobs');
    await page.setViewportSize(PHONE);
    await screenshot(page, 'jobs-phone');
    await page.emulateMedia({ colorScheme: 'dark' });
    await screenshot(page, 'jobs-phone-dark');
    await page.setViewportSize(DESKTOP);
    await screenshot(page, 'jobs-dark');
    await page.emulateMedia({ colorScheme: 'light' });
    await row.getByRole('button', { name: 'Resume' }).click();
    await sees(row, '2 stored');
    assert.equal((await bodyOf('/profiles?user_id=resumed'))['event_count'], 2);
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
    await page.setViewportSize(PHONE);
    await screenshot(page, 'fix-warning-phone-dark');
    assertNoComplaints(watched);
  });
});
