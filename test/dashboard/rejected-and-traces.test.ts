/** Why users were rejected, with what was sent and how to fix it; and what became of a request, by its trace_id. */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, before, suite, test } from 'node:test';
import type { Locator, Page } from 'playwright-core';
import { eventually, get, post, user } from '../server.ts';
import { type WatchedPage, whyNoBrowser } from './browser.ts';
import {
  askAs,
  assertNoComplaints,
  deliver,
  heading,
  type MemberServer,
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

  const reasons = (): Locator => page.getByRole('list', { name: 'Reasons' });
  /** Opens what was sent. */
  const unfold = async (): Promise<void> => {
    await users().locator('summary').first().waitFor();
    for (const summary of await users().locator('summary').all()) await summary.click();
  };
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
      const { body } = await get(running.server, key, '/rejections');
      return (body as { rejections: unknown[] }).rejections.length === 4;
    });
    await page.goto(REJECTED);
    const buttons = reasons().getByRole('button');
    await buttons.first().waitFor();
    assert.equal(await buttons.count(), 3);
    assert.match((await buttons.first().textContent()) ?? '', new RegExp(`${NO_EVENTS}.*2 users`));
    assertNoComplaints(watched);
  });

  test('of the chosen reason it shows what was sent, with the failing part marked, and how to fix it', async () => {
    await page.goto(REJECTED);
    await reasons()
      .getByRole('button', { name: /timestamp/ })
      .click();
    await page.waitForURL(/reason=/);
    await sees(users(), 'How to fix it');
    await sees(users(), 'Send a time such as');
    await sees(users(), 'events[1].timestamp');
    assert.equal(await users().locator('mark').isVisible(), false);
    await unfold();
    assert.deepEqual(
      (await users().locator('mark').allTextContents()).map((text) => text.trim()),
      ['"timestamp": "yesterday"'],
    );
    await sees(users(), '"late"');
    await page.reload();
    await sees(users(), 'events[1].timestamp');
    await unfold();

    await users()
      .getByRole('link', { name: /^trace / })
      .click();
    await heading(page, 'Traces');
    assert.ok(page.url().endsWith(mixed));
    assertNoComplaints(watched);
  });

  test('an empty part is marked, a missing one cannot be; a name with brackets in it is marked too', async () => {
    await page.goto(`${REJECTED}?reason=${encodeURIComponent(NO_EVENTS)}`);
    await unfold();
    await sees(users(), '"also empty"');
    assert.deepEqual(
      (await users().locator('mark').allTextContents()).map((text) => text.trim()),
      ['"events": []'],
    );
    const body =
      '{"users":[{"identifiers":{"user_id":"odd"},"user_properties":{"a[b].c":"\\u0000"},"events":[{"event_name":"a"}]}]}';
    assert.equal((await post(running.server, running.server.key, body)).status, 400);
    await eventually('it is there', async () => {
      const { text } = await get(running.server, running.server.key, '/rejections');
      return text.includes('a[b].c');
    });
    await page.goto(REJECTED);
    await reasons()
      .getByRole('button', { name: /a\[b\]\.c/ })
      .click();
    await page.waitForURL(/reason=/);
    await unfold();
    await sees(users(), '"odd"');
    assert.deepEqual(
      (await users().locator('mark').allTextContents()).map((text) => text.trim()),
      ['"a[b].c": "\\u0000"'],
    );
    assertNoComplaints(watched);
  });

  test('the range stands in the address, with how many there are in it', async () => {
    await page.goto(`${REJECTED}?range=1h`);
    await sees(page, /5 users in the last hour, for 4 reasons/);
    await page.getByRole('navigation', { name: 'Range' }).getByRole('link', { name: '7 days' }).click();
    await sees(page, /5 users in the last 7 days, for 4 reasons/);
    assert.ok(page.url().endsWith(REJECTED));
    await sees(users(), 'users[0]');

    await page.goto('/dashboard/development?clock=receipt');
    await page.getByRole('link', { name: 'All rejected' }).click();
    await page.waitForURL(`**${REJECTED}?range=1h`);
    await page.goto('/dashboard/development?range=24h&clock=receipt');
    await page.getByRole('link', { name: NO_EVENTS }).click();
    await sees(users(), 'How to fix it');
    await sees(page, /in the last 24 hours/);
    assertNoComplaints(watched);
  });

  test('a group is closed again, and then none is open', async () => {
    await page.goto(REJECTED);
    const first = reasons().getByRole('button').first();
    await users().waitFor();
    await first.click();
    await users().waitFor({ state: 'hidden' });
    await page.reload();
    await first.waitFor();
    assert.equal(await first.getAttribute('aria-expanded'), 'false');
    assertNoComplaints(watched);
  });

  test('the most recent requests are listed with status and counts, and lead to their traces', async () => {
    await page.goto(TRACES);
    const table = page.getByRole('table', { name: 'Requests, newest first' });
    const row = table.getByRole('row').filter({ hasText: `${mixed.slice(0, 8)}…${mixed.slice(-4)}` });
    await sees(row, 'processed');
    const cells = await row.getByRole('cell').allTextContents();
    assert.deepEqual(cells.slice(2, 5), ['1', '3', '1']);
    assert.match(cells[5] ?? '', /\(….{4}\)$/);
    await sees(page, 'These are all requests that are kept.');
    await page.getByRole('navigation', { name: 'Status' }).getByRole('link', { name: 'Pending' }).click();
    await page.waitForURL(/status=pending/);
    await sees(page, 'Nothing is pending');
    await page.goBack();
    await row.getByRole('link').first().click();
    await page.waitForURL(`**${TRACES}/${mixed}`);
    await page.getByRole('table', { name: 'Users of the request' }).getByRole('link', { name: 'fine' }).waitFor();
    assertNoComplaints(watched);
  });

  test('the audit lists who erased whom, newest first, and leads to the entry', async () => {
    const AUDIT = '/dashboard/development/audit';
    await page.goto(AUDIT);
    await sees(page, 'Nothing was erased or unmerged');
    const { server, session } = running;
    const erase = {
      leaving: (path: string) =>
        fetch(server.baseUrl + path, { method: 'DELETE', headers: { authorization: `Bearer ${server.key}` } }),
      gone: (path: string) => askAs(server, session, path, { method: 'DELETE' }),
    };
    for (const name of ['leaving', 'gone'] as const) {
      await deliver(server, server.key, [user(name)]);
      const { body } = await get(server, server.key, `/profiles?user_id=${name}`);
      assert.equal((await erase[name](`/profiles/${(body as { id: string }).id}`)).status, 202);
    }
    await page.goto(TRACES);
    await page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: 'Audit' }).click();
    const rows = page.getByRole('table', { name: 'Audit entries, newest first' }).getByRole('row');
    await sees(rows.nth(1), 'ada@example.com');
    await sees(rows.nth(2), /key .+\(….{4}\)/);
    await sees(rows.nth(1), 'Erasure');
    await sees(rows.nth(1), /1 event/);
    await sees(page, 'That is everything in the audit.');
    await rows.nth(1).getByRole('link').click();
    await sees(page, 'Events erased');
    // A trace_id is looked for among requests first.
    assertNoComplaints(watched, /status of 404/);
    watched.complaints.length = 0;
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
    await table
      .getByRole('row')
      .filter({ hasText: 'users[2]' })
      .getByRole('link', { name: 'What was sent, and how to fix it' })
      .click();
    await heading(page, 'Rejected');
    await unfold();
    await sees(users(), '"late"');
    await page.goBack();
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

  test('a repetition says which request it repeats, instead of “not yet”', async () => {
    const { baseUrl, key } = running.server;
    const headers = {
      authorization: `Bearer ${key}`,
      'content-type': 'application/json',
      'idempotency-key': 'the same order',
    };
    const body = JSON.stringify({ users: [user('twice')] });
    const traces: string[] = [];
    for (let n = 0; n < 2; n++) {
      const response = await fetch(`${baseUrl}/ingest/events`, { method: 'POST', headers, body });
      assert.equal(response.status, 202);
      traces.push(((await response.json()) as { trace_id: string }).trace_id);
    }
    const [first = '', second = ''] = traces;
    assert.notEqual(first, second);
    await page.goto(`${TRACES}/${second}`);
    const row = page
      .getByRole('table', { name: 'Users of the request' })
      .getByRole('row')
      .filter({ hasText: 'users[0]' });
    await sees(row, 'A duplicate: nothing of it was stored again.');
    assert.equal(await row.getByText('not yet').count(), 0);
    await row.getByRole('link').click();
    await page.waitForURL(`**${TRACES}/${first}`);
    assertNoComplaints(watched);
  });

  test('a user that was stored without a profile has none, and was not erased', async () => {
    const { server } = running;
    const traceId = await deliver(server, server.key, [user('null'), user('nora')]);
    await page.goto(`${TRACES}/${traceId}`);
    const rows = page.getByRole('table', { name: 'Users of the request' }).getByRole('row');
    const row = rows.filter({ hasText: 'users[0]' });
    await sees(row, 'stored without a profile');
    await row.getByRole('cell', { name: 'no profile', exact: true }).waitFor();
    assertNoComplaints(watched);
  });

  test('an unknown request is reported, and so is something that is not a trace_id', async () => {
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
