/** The shop of examples/, started as its README says, in Chromium: a visitor becomes a customer, and is one person on the page. */

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { after, before, suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { BrowserContext, Page } from 'playwright-core';
import { screenshot, type WatchedPage, whyNoBrowser } from '../dashboard/browser.ts';
import { assertNoComplaints, heading, type MemberServer, sees, startMemberServer } from '../dashboard/member-page.ts';
import { eventually, get } from '../server.ts';
import { ensureBuiltScript } from './built-script.ts';
import { called } from './site.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const README = readFileSync(new URL('../../examples/shop/README.md', import.meta.url), 'utf8');

interface Profile {
  readonly id: string;
  readonly identifiers: Readonly<Record<string, readonly string[]>>;
  readonly user_properties: Readonly<Record<string, unknown>>;
}

interface TimelineEvent {
  readonly event_name: string;
  readonly revenue: number | null;
  readonly properties: Readonly<Record<string, unknown>>;
}

suite('The example shop', { skip: whyNoBrowser() }, () => {
  let running: MemberServer;
  let program: ChildProcess;
  let shopUrl = '';
  let visitor: BrowserContext;
  let shop: Page;
  let dashboard: WatchedPage;
  let anonymousId = '';
  const exceptions: string[] = [];

  before(async () => {
    await ensureBuiltScript();
    running = await startMemberServer();
    [program, shopUrl] = await startAsDescribed(running.server.baseUrl, running.server.dataFolder);
    visitor = await running.browser.newContext();
    shop = await visitor.newPage();
    shop.on('pageerror', ({ message }) => exceptions.push(message));
    dashboard = await running.open();
  });
  after(async () => {
    const ended = once(program, 'close');
    program.kill('SIGTERM');
    await ended;
    await running.close();
  });

  /** Once all that the shop has sent is processed. */
  async function profileOf(query: string, events: number): Promise<{ profile: Profile; timeline: TimelineEvent[] }> {
    const { server } = running;
    return eventually(`${query} has ${events} events`, async () => {
      const found = await get(server, server.key, `/profiles?${query}`);
      if (found.status !== 200) return null;
      const profile = found.body as Profile;
      const { body } = await get(server, server.key, `/profiles/${profile.id}/events`);
      const { events: newestFirst } = body as { events: TimelineEvent[] };
      return newestFirst.length < events ? null : { profile, timeline: newestFirst.toReversed() };
    });
  }

  test('a first visit is on Live, and has an anonymous id alone', async () => {
    const { page } = dashboard;
    await page.goto('/dashboard/development/live');
    await heading(page, 'Live');
    await shop.goto(shopUrl);
    const live = page.getByRole('list', { name: 'Events, newest first' });
    await live.getByRole('button', { name: 'page_viewed' }).waitFor();

    await shop.getByRole('button', { name: 'Add coffee' }).click();
    await live.getByRole('button', { name: 'product_added' }).waitFor();
    anonymousId = await shop.evaluate<string>('window.sluice.anonymousId');
    const { profile } = await profileOf(`anon_id=${anonymousId}`, 2);
    assert.deepEqual(profile.identifiers, { user_id: [], email: [], phone_number: [], anon_id: [anonymousId] });
  });

  test('after sign-in and order it is one person with one timeline, in the API and on the page', async () => {
    await shop.getByLabel('User name').fill('grace');
    await shop.getByLabel('E-mail').fill('grace@example.com');
    await shop.getByRole('button', { name: 'Sign in' }).click();
    await sees(shop, /^Hello, grace/);
    assert.equal(await shop.getByLabel('User name').isVisible(), false);
    await shop.getByRole('button', { name: 'Add mug' }).click();
    await shop.getByRole('button', { name: 'Order' }).click();
    await screenshot(shop, 'example-shop');
    await called(shop, 'flush');

    const { profile, timeline } = await profileOf('user_id=grace', 5);
    assert.deepEqual(profile.identifiers, {
      user_id: ['grace'],
      email: ['grace@example.com'],
      phone_number: [],
      anon_id: [anonymousId],
    });
    assert.deepEqual(profile.user_properties, { newsletter: false });
    const names = ['page_viewed', 'product_added', '$identify', 'product_added', 'order_placed'];
    assert.deepEqual(
      timeline.map(({ event_name }) => event_name),
      names,
    );
    const order = timeline.at(-1);
    assert.deepEqual([order?.revenue, order?.properties['items']], [27.5, 2]);

    const { page } = dashboard;
    await page.goto('/dashboard/development/people');
    await sees(page, '1 person. That is everyone.');
    await page.goto(`/dashboard/development/people/${profile.id}?tab=timeline`);
    await heading(page, /grace/);
    for (const name of names) await sees(page, name);
    await screenshot(page, 'example-shop-person');
    await page.goto('/dashboard/development');
    await sees(page, /27\.50/);
    assertNoComplaints(dashboard);
  });

  test('after sign-out the next visitor on the device is another person', async () => {
    await shop.getByRole('button', { name: 'Sign out' }).click();
    await shop.getByRole('button', { name: 'Add tea' }).click();
    const another = await shop.evaluate<string>('window.sluice.anonymousId');
    assert.notEqual(another, anonymousId);
    const { profile } = await profileOf(`anon_id=${another}`, 1);
    assert.deepEqual(profile.identifiers['user_id'], []);
    assert.deepEqual(exceptions, []);
  });
});

/** Runs the two commands of the README as they are printed; they differ in the server, its data and the port alone. */
async function startAsDescribed(serverUrl: string, dataFolder: string): Promise<[ChildProcess, string]> {
  const [, commands = ''] = /^```sh\n(.*?)^```$/ms.exec(README) ?? [];
  // The shell becomes the last command, so that ending one ends the other.
  const script = commands.replace(/^node /m, 'exec node ');
  const child = spawn('bash', ['-euo', 'pipefail', '-c', script], {
    cwd: ROOT,
    env: { ...process.env, SLUICE_DATA: dataFolder, SLUICE_URL: serverUrl, PORT: '0' },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let printed = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    printed += text;
  });
  const url = await eventually('the shop is open', () => /http:\S+/.exec(printed)?.[0], 60_000);
  return [child, url];
}
