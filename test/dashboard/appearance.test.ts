/**
 * Every page with the data of a small shop, light, dark and on a phone: pictures of each if a person wants to look at them, and
 * what a machine can tell: accessibility, width, headings and titles, the keyboard, and that an address can be shared.
 */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after, before, suite, test } from 'node:test';
import type { Page } from 'playwright-core';
import { createKey, eventually, get, runSluice, user } from '../server.ts';
import { DESKTOP, openPage, PHONE, screenshot, type WatchedPage, whyNoBrowser } from './browser.ts';
import { askAs, assertNoComplaints, deliver, type MemberServer, settled, startMemberServer } from './member-page.ts';
import { sendSampleData } from './sample-data.ts';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const BASE = '/dashboard/development';
const TRANSITIONS = 'document.getAnimations().filter((each) => each instanceof CSSTransition).length';

interface View {
  readonly name: string;
  readonly path: string;
  /** What is there when the view is. */
  readonly has: string;
  readonly isOutside?: boolean;
}

suite('The looks of every page', { skip: whyNoBrowser() }, () => {
  let running: MemberServer;
  let views: View[];

  before(async () => {
    running = await startMemberServer();
    const { server, session } = running;
    const userId = await sendSampleData(server, server.key, Date.now());
    await createKey(server.dataFolder, { kind: 'publishable', env: 'production' });
    await askAs(server, session, '/invitations', { method: 'POST', body: { email: 'grace@example.com' } });
    const { stdout } = await runSluice(['invite', '--json'], { SLUICE_DATA: server.dataFolder });
    const invitation = new URL((JSON.parse(stdout) as { link: string }).link);
    const profile = (await get(server, server.key, `/profiles?user_id=${userId}`)).body as { id: string };
    const [event] = (
      (await get(server, server.key, '/events?event_name=order_completed')).body as {
        events: { id: string; trace_id: string }[];
      }
    ).events;
    const rejections = await get(server, server.key, '/rejections');
    const [rejection] = (rejections.body as { rejections: { trace_id: string }[] }).rejections;
    assert.ok(event !== undefined && rejection !== undefined);
    await eraseOne(server);
    views = [
      { name: 'overview', path: BASE, has: '.ranking__row' },
      { name: 'overview-receipt', path: `${BASE}?range=7d&clock=receipt`, has: '.ranking__row' },
      { name: 'overview-custom', path: `${BASE}?range=custom`, has: '.notice' },
      { name: 'first-event', path: '/dashboard/production', has: '.steps' },
      { name: 'live', path: `${BASE}/live`, has: '.live-list' },
      { name: 'live-open', path: `${BASE}/live?name=order_completed&open=${event.id}`, has: '.live-detail' },
      { name: 'people', path: `${BASE}/people`, has: '.table' },
      { name: 'person', path: `${BASE}/people/${profile.id}`, has: '.property-card .table' },
      { name: 'timeline', path: `${BASE}/people/${profile.id}?tab=timeline`, has: '.timeline' },
      { name: 'identity', path: `${BASE}/people/${profile.id}?tab=identity`, has: '.identity' },
      { name: 'catalogue', path: `${BASE}/catalogue`, has: '.table' },
      { name: 'catalogue-event', path: `${BASE}/catalogue?event=order_completed`, has: '.table' },
      { name: 'rejected', path: `${BASE}/rejected`, has: '.rejected-sample' },
      { name: 'plan', path: `${BASE}/plan`, has: '.plan-mode' },
      { name: 'traces', path: `${BASE}/traces`, has: '.table' },
      { name: 'try', path: `${BASE}/try`, has: '.editor' },
      { name: 'audit', path: `${BASE}/audit`, has: '.table' },
      { name: 'trace', path: `${BASE}/traces/${rejection.trace_id}`, has: '.table' },
      { name: 'keys', path: `${BASE}/settings/keys?show=active`, has: '.table' },
      { name: 'key-dialog', path: `${BASE}/settings/keys?dialog=create`, has: 'dialog[open]' },
      { name: 'team', path: `${BASE}/settings/team`, has: '.table' },
      { name: 'health', path: `${BASE}/health`, has: '.health-bounds' },
      { name: 'nothing', path: `${BASE}/no/such/view`, has: 'h1' },
      { name: 'sign-in', path: '/dashboard/sign-in', has: '.form', isOutside: true },
      { name: 'welcome', path: `${invitation.pathname}${invitation.hash}`, has: '.form', isOutside: true },
    ];
  });
  after(() => running.close());

  /** For the audit. */
  async function eraseOne(server: MemberServer['server']): Promise<void> {
    const { baseUrl, key } = server;
    await deliver(server, key, [user('erased')]);
    const { body } = await get(server, key, '/profiles?user_id=erased');
    const headers = { authorization: `Bearer ${key}` };
    const { status } = await fetch(`${baseUrl}/profiles/${(body as { id: string }).id}`, { method: 'DELETE', headers });
    assert.equal(status, 202);
  }

  async function show(page: Page, { path, has }: View): Promise<void> {
    // An address that differs in its fragment alone would not load the page again.
    if (path.includes('#')) await page.goto('about:blank');
    await page.goto(path);
    await settled(page);
    await page.locator(has).first().waitFor();
  }

  test('no page has anything serious for axe, light or dark, or is wider than a phone', async () => {
    const inside = await running.open();
    const outside = await openPage(running.browser, running.server.baseUrl);
    const findings: string[] = [];
    const titles = new Map<string, string>();
    for (const view of views) {
      const { page } = view.isOutside === true ? outside : inside;
      await show(page, view);
      titles.set(view.name, await page.title());
      const problems = await lookAt(page, view.name);
      findings.push(...problems.map((problem) => `${view.name}: ${problem}`));
    }
    for (const watched of [inside, outside]) {
      assertNoComplaints(watched, /status of 401/);
      await watched.context.close();
    }
    assert.deepEqual(findings, []);
    for (const [name, title] of titles) assert.match(title, /^.+ · Sluice$/, name);
    const distinct = [
      'overview',
      'live',
      'people',
      'person',
      'catalogue',
      'rejected',
      'plan',
      'traces',
      'audit',
      'keys',
      'team',
      'health',
      'sign-in',
    ];
    assert.equal(new Set(distinct.map((name) => titles.get(name))).size, distinct.length, [...titles].join(', '));
  });

  /** Takes the pictures; gives what is wrong with it in any of its looks. */
  async function lookAt(page: Page, name: string): Promise<string[]> {
    const headings = await page.getByRole('heading', { level: 1, includeHidden: true }).count();
    const problems = headings === 1 ? [] : [`${headings} headings of the first level`];
    await page.evaluate(AXE);
    problems.push(...(await seriousFindings(page)));
    await screenshot(page, `${name}-light`);
    await page.setViewportSize(PHONE);
    const over = await page.evaluate<number>(
      'document.documentElement.scrollWidth - document.documentElement.clientWidth',
    );
    if (over > 0) problems.push(`${over} pixels wider than a phone`);
    await screenshot(page, `${name}-phone`);
    await page.setViewportSize(DESKTOP);
    await page.emulateMedia({ colorScheme: 'dark' });
    await coloursSettled(page);
    // The rest is the same in the dark.
    problems.push(...(await seriousFindings(page, 'color-contrast')).map((problem) => `dark: ${problem}`));
    await screenshot(page, `${name}-dark`);
    // The next view is loaded in light from its first moment on.
    await page.emulateMedia({ colorScheme: 'light' });
    return problems;
  }

  /** Colours on their way from light to dark are neither; one that is inherited starts when the other has ended. */
  async function coloursSettled(page: Page): Promise<void> {
    let quiet = 0;
    await eventually('the colours are settled', async () => {
      quiet = (await page.evaluate<number>(TRANSITIONS)) === 0 ? quiet + 1 : 0;
      return quiet === 3;
    });
  }

  async function seriousFindings(page: Page, rule?: string): Promise<string[]> {
    const options = JSON.stringify({ resultTypes: ['violations'], ...(rule !== undefined && { runOnly: [rule] }) });
    return page.evaluate<string[]>(`axe.run(${options}).then(({ violations }) =>
      violations
        .filter(({ impact }) => impact === 'serious' || impact === 'critical')
        .map(({ id, nodes }) => id + ' at ' + nodes.map(({ target }) => target.join(' ')).slice(0, 5).join(', ')))`);
  }

  async function focused(page: Page): Promise<string> {
    return page.evaluate<string>(`(() => {
      const { activeElement: e } = document;
      return (e.getAttribute('aria-label') ?? e.textContent ?? '').trim() + ' <' + e.tagName.toLowerCase() + '>';
    })()`);
  }

  let watched: WatchedPage;

  test('the tab key comes to the skip link first, which leads past the navigation to the content', async () => {
    watched = await running.open();
    const { page } = watched;
    await page.goto(`${BASE}/health`);
    await settled(page);
    await page.keyboard.press('Tab');
    assert.equal(await focused(page), 'Skip to content <a>');
    await page.keyboard.press('Enter');
    assert.equal(await page.evaluate('document.activeElement.id'), 'main');
    await page.keyboard.press('Tab');
    assert.ok(await page.evaluate('document.activeElement.closest("main") !== null'));
  });

  test('the tab key comes to every link of the navigation, in order, and Enter follows it', async () => {
    const { page } = watched;
    await page.goto(`${BASE}/health`);
    await settled(page);
    const seen: string[] = [];
    for (let presses = 0; presses < 25 && !seen.includes('Health <a>'); presses++) {
      await page.keyboard.press('Tab');
      seen.push(await focused(page));
    }
    const links = ['Overview', 'Live', 'People', 'Rejected', 'Traces', 'Audit', 'API keys', 'Team', 'Health'];
    assert.deepEqual(
      seen.filter((text) => links.some((link) => text === `${link} <a>`)),
      links.map((link) => `${link} <a>`),
    );
    await page.locator('nav').getByRole('link', { name: 'People' }).focus();
    await page.keyboard.press('Enter');
    await page.waitForURL(/\/people$/);
    await settled(page);
    assert.equal(await page.evaluate('document.activeElement.closest("main") !== null'), true);
  });

  test('a dialog keeps the focus inside, and gives it back when it is closed', async () => {
    const { page } = watched;
    for (const [path, opener] of [
      [`${BASE}/settings/keys`, 'Create key'],
      [`${BASE}/settings/team`, 'Invite a person'],
    ] as const) {
      await page.goto(path);
      await settled(page);
      await page.getByRole('button', { name: opener }).press('Enter');
      await page.getByRole('dialog').waitFor();
      assert.match(await focused(page), /<input>$/);
      for (let presses = 0; presses < 12; presses++) {
        await page.keyboard.press('Tab');
        // Between the last and the first element the browser's own controls may have it, never the page behind.
        assert.ok(
          await page.evaluate(
            'document.activeElement === document.body || document.activeElement.closest("dialog") !== null',
          ),
        );
      }
      await page.keyboard.press('Escape');
      await page.getByRole('dialog').waitFor({ state: 'hidden' });
      assert.equal(await focused(page), `${opener} <button>`);
    }
  });

  test('on a phone the menu opens, leads on, and closes', async () => {
    const phone = await running.open({ viewport: PHONE });
    const { page } = phone;
    await page.goto(BASE);
    await settled(page);
    const link = page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: 'Rejected' });
    assert.equal(await link.isVisible(), false);
    await page.getByRole('button', { name: 'Menu' }).click();
    await link.waitFor();
    await screenshot(page, 'menu-phone');
    await link.click();
    await page.waitForURL(/\/rejected/);
    await link.waitFor({ state: 'hidden' });
    assertNoComplaints(phone);
    await phone.context.close();
  });

  test('the environment is switched with the view kept, and the theme is remembered', async () => {
    const { page } = watched;
    await page.goto(`${BASE}/rejected`);
    await settled(page);
    await page.getByRole('navigation', { name: 'Environment' }).getByRole('link', { name: 'Production' }).click();
    await page.waitForURL(/\/dashboard\/production\/rejected$/);
    await page.getByText('Nothing was rejected').waitFor();
    const ground = (): Promise<string> => page.evaluate<string>('getComputedStyle(document.body).backgroundColor');
    const light = await ground();
    const theme = page.getByRole('banner').getByRole('button', { name: /^Theme/ });
    await theme.click();
    await theme.click();
    await eventually('it is dark', async () => (await ground()) !== light);
    await page.reload();
    await settled(page);
    await eventually('it is still dark', async () => (await ground()) !== light);
    await theme.click();
  });

  test('an address shows another person the same view', async () => {
    const other = await running.open();
    const shared = new Set(['live-open', 'timeline', 'identity', 'rejected', 'key-dialog']);
    for (const { path, has } of views.filter(({ name }) => shared.has(name))) {
      await watched.page.goto(path);
      await settled(watched.page);
      await watched.page.locator(has).first().waitFor();
      await other.page.goto(watched.page.url());
      await settled(other.page);
      await other.page.locator(has).first().waitFor();
      assert.equal(other.page.url(), watched.page.url());
      const heading = (page: Page) => page.getByRole('heading', { level: 1, includeHidden: true }).textContent();
      assert.equal(await heading(other.page), await heading(watched.page));
    }
    assertNoComplaints(other);
    assertNoComplaints(watched);
    await other.context.close();
    await watched.context.close();
  });
});
