/** Why users were rejected, with what was sent and how to mend it; and what became of a request, by its trace_id. */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, before, suite, test } from 'node:test';
import type { Locator, Page } from 'playwright-core';
import { eventually, post, user } from '../server.ts';
import { type WatchedPage, whyNoBrowser } from './browser.ts';
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
const TRACES = '/dashboard/development/traces';
const NO_EVENTS = 'events array is required and must not be empty';
const NO_TRACE = '01a1ddc0-5109-7246-bf39-3425125c6c6d';

suite('Rejected users and traces in the page', { skip: whyNoBrowser() }, () => {
  let running: MemberServer;
  let watched: WatchedPage;
  let page: Page;
  let mixed: string;

  before(async () => {
    running = await startMemberServer();
    watched = await running.open();
    page = watched.page;
  });
  after(() => running.close());

  const reasons = (): Locator => page.getByRole('navigation', { name: 'Reasons' });
  const users = (): Locator => page.getByRole('region', { name: 'Rejected users' });

  test('where nothing was rejected, the page says so', async () => {
    await page.goto(REJECTED);
    await heading(page, 'Rejected');
    await sees(page, 'Nothing was rejected');
    assertNoComplaints(watched);
  });

  test('rejected users are grouped by reason, the most frequent first', async () => {
    const { key } = running.server;
    mixed = await deliver(running.server, key, [
      user('fine'),
      { identifiers: { user_id: 'empty' }, events: [] },
      { identifiers: { user_id: 'late' }, events: [{ event_name: 'a' }, { event_name: 'b', timestamp: 'yesterday' }] },
      { identifiers: {}, events: [{ event_name: 'anonymous' }] },
    ]);
    const { status } = await post(running.server, key, { users: [{ identifiers: { user_id: 'also empty' } }] });
    assert.equal(status, 400);
    await eventually('all are there', async () => {
      const { body } = await read(running.server, key, '/rejections');
      return (body as { rejections: unknown[] }).rejections.length === 4;
    });
    await page.goto(REJECTED);
    const buttons = reasons().getByRole('button');
    await buttons.first().waitFor();
    assert.equal(await buttons.count(), 3);
    assert.match((await buttons.first().textContent()) ?? '', new RegExp(`${NO_EVENTS}.*2 users`));
    assertNoComplaints(watched);
  });

  test('of the chosen reason it shows what was sent, with the failing part marked, and how to mend it', async () => {
    await page.goto(REJECTED);
    await reasons()
      .getByRole('button', { name: /timestamp/ })
      .click();
    await page.waitForURL(/reason=/);
    await sees(users(), 'How to mend it');
    await sees(users(), 'Send a time such as');
    await sees(users(), 'events[1].timestamp must be an ISO 8601 timestamp');
    assert.deepEqual(
      (await users().locator('mark').allTextContents()).map((text) => text.trim()),
      ['"timestamp": "yesterday"'],
    );
    await sees(users(), '"late"');
    await page.reload();
    await sees(users(), 'events[1].timestamp must be an ISO 8601 timestamp');

    await users()
      .getByRole('link', { name: /^trace / })
      .click();
    await heading(page, 'Traces');
    assert.ok(page.url().endsWith(mixed));
    assertNoComplaints(watched);
  });

  test('an empty part is marked, a missing one cannot be; a name with brackets in it is marked too', async () => {
    await page.goto(`${REJECTED}?reason=${encodeURIComponent(NO_EVENTS)}`);
    await sees(users(), '"also empty"');
    assert.deepEqual(
      (await users().locator('mark').allTextContents()).map((text) => text.trim()),
      ['"events": []'],
    );
    const body =
      '{"users":[{"identifiers":{"user_id":"odd"},"user_properties":{"a[b].c":"\\u0000"},"events":[{"event_name":"a"}]}]}';
    assert.equal((await post(running.server, running.server.key, body)).status, 400);
    await eventually('it is there', async () => {
      const { text } = await read(running.server, running.server.key, '/rejections');
      return text.includes('a[b].c');
    });
    await page.goto(REJECTED);
    await reasons()
      .getByRole('button', { name: /a\[b\]\.c/ })
      .click();
    await sees(users(), '"odd"');
    assert.deepEqual(
      (await users().locator('mark').allTextContents()).map((text) => text.trim()),
      ['"a[b].c": "\\u0000"'],
    );
    assertNoComplaints(watched);
  });

  test('a trace_id that was pasted with spaces and quotes is found, with what became of each user', async () => {
    await page.goto(TRACES);
    await heading(page, 'Traces');
    await page.getByLabel('trace_id').fill(`  "${mixed.toUpperCase()}", `);
    await page.getByRole('button', { name: 'Look up' }).click();
    await page.waitForURL(`**${TRACES}/${mixed}`);
    await sees(page, 'processed');
    const table = page.getByRole('table', { name: 'Users of the request' });
    await sees(table.getByRole('row').filter({ hasText: 'users[0]' }), 'accepted');
    await sees(table.getByRole('row').filter({ hasText: 'users[1]' }), NO_EVENTS);
    await page.getByLabel('Rejected only').check();
    await page.waitForURL(/show=rejected/);
    assert.equal(await table.getByRole('row').count(), 4);
    await page.reload();
    await page.getByLabel('Rejected only').waitFor();
    assert.ok(await page.getByLabel('Rejected only').isChecked());
    assertNoComplaints(watched);
  });

  test('a request that is not processed yet is pending, and the page sees by itself when it is', async () => {
    // Keeps the store from being written, as a long checkpoint or a slow disk would.
    const holder = new DatabaseSync(join(running.server.dataFolder, 'store.db'), { timeout: 10_000 });
    holder.exec('BEGIN IMMEDIATE');
    try {
      const { body } = await post(running.server, running.server.key, { users: [user('patient')] });
      const { trace_id: traceId } = body as { trace_id: string };
      await page.goto(`${TRACES}/${traceId}`);
      await page.getByText('pending', { exact: true }).waitFor();
      await sees(page, 'It is safe on disk');
    } finally {
      holder.exec('ROLLBACK');
      holder.close();
    }
    await page.getByText('processed', { exact: true }).waitFor();
    await sees(page.getByRole('table', { name: 'Users of the request' }), 'accepted');
    assertNoComplaints(watched);
  });

  test('a request that is not known is said not to be, and what is no trace_id too', async () => {
    await page.goto(`${TRACES}/${NO_TRACE}`);
    await sees(page, 'No such request in development');
    await page.getByRole('link', { name: 'Look in production' }).click();
    await sees(page, 'No such request in production');
    await page.goto(TRACES);
    await page.getByLabel('trace_id').fill('not a trace');
    await page.getByRole('button', { name: 'Look up' }).click();
    await sees(page, 'That is not a trace_id.');
    assertNoComplaints(watched, /status of 404/);
  });
});
