/** The tracking plan in the page: written, refused with its mistakes, modes changed, violations shown. */

import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import type { Page } from 'playwright-core';
import { eventually, get, post } from '../server.ts';
import { type WatchedPage, whyNoBrowser } from './browser.ts';
import { assertNoComplaints, heading, type MemberServer, sees, startMemberServer } from './member-page.ts';

const PLAN = '/dashboard/development/plan';
const WRITTEN = {
  events: {
    order_placed: {
      mode: 'warn',
      description: 'A customer has paid.',
      schema: {
        properties: { total: { type: 'number' }, card: { type: 'string', 'x-personal': true } },
        required: ['total'],
      },
    },
  },
};

suite('The tracking plan in the page', { skip: whyNoBrowser() }, () => {
  let running: MemberServer;
  let watched: WatchedPage;
  let page: Page;

  before(async () => {
    running = await startMemberServer();
    watched = await running.open();
    page = watched.page;
  });
  after(() => running.close());

  const current = async (): Promise<{ version: number; plan: { events: Record<string, { mode: string }> } }> =>
    (await get(running.server, running.server.key, '/plan')).body as never;
  const write = async (text: string): Promise<void> => {
    const editor = page.getByLabel('The plan as JSON');
    if (!(await editor.isVisible())) await page.getByText('Edit the plan').click();
    await editor.fill(text);
    await page.getByRole('button', { name: /^Save as version/ }).click();
  };

  test('without a plan, the page says so, and a plan with mistakes is refused with their paths', async () => {
    await page.goto(PLAN);
    await heading(page, 'Plan');
    await sees(page, 'Every event is allowed');
    await write('{"events":');
    await sees(page, 'This is not JSON');
    await write('{"events":{"e":{"mode":"block"}}}');
    await sees(page, 'events.e.mode must be one of off, warn, enforce');
    assertNoComplaints(watched, /400/);
    watched.complaints.length = 0;
  });

  test('a plan is written, and its violations are counted and lead to the trace', async () => {
    await write(JSON.stringify(WRITTEN));
    await sees(page, 'Version 1 is saved');
    await sees(page, 'A customer has paid.');
    await sees(page, 'personal');
    const { key } = running.server;
    const wrong = { identifiers: { user_id: 'ada' }, events: [{ event_name: 'order_placed', total: '12' }] };
    await eventually('the processor uses the plan', async () => {
      await post(running.server, key, { users: [wrong] });
      const { body } = await get(running.server, key, '/plan/violations');
      return (body as { violations: unknown[] }).violations.length > 0;
    });
    await page.goto(PLAN);
    const row = page.getByRole('table', { name: /Violations/ }).getByRole('row', { name: /must be a number/ });
    await row.waitFor();
    await row.getByRole('link').click();
    await sees(page, 'events[0].total: must be a number (tracking plan, version 1)');
    assertNoComplaints(watched);
  });

  test('a mode is changed, and one that was overtaken is refused', async () => {
    await page.goto(PLAN);
    await page.getByLabel('Mode of order_placed').selectOption('enforce');
    await sees(page, 'Version 2 is saved');
    assert.equal((await current()).plan.events['order_placed']?.mode, 'enforce');
    const users = [{ identifiers: { user_id: 'ada' }, events: [{ event_name: 'order_placed' }] }];
    await eventually(
      'the edge enforces it',
      async () => (await post(running.server, running.server.key, { users })).status === 400,
    );
    assertNoComplaints(watched);
  });
});
