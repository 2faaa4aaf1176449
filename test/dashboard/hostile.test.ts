/**
 * What clients send is text, whatever it looks like: every text of it that the page shows is hostile here, and every
 * view is gone through and opened up. Nothing may run, nothing may be made of it, nothing may leave for another host.
 */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, suite, test } from 'node:test';
import type { Page } from 'playwright-core';
import { createKey, eventually, get, post, runSluice } from '../server.ts';
import { DESKTOP, PHONE, type WatchedPage, whyNoBrowser } from './browser.ts';
import {
  askAs,
  assertNoComplaints,
  deliver,
  EMAIL,
  heading,
  join,
  type MemberServer,
  PASSWORD,
  settled,
  startMemberServer,
} from './member-page.ts';

const BASE = '/dashboard/development';
const HOSTILE = [
  '<script>window.hacked = 1</script>',
  '<img src=x onerror="window.hacked = 2">',
  '"><svg onload=window.hacked=3>',
  'javascript:window.hacked=4//',
  'data:text/html,<script>window.hacked=5</script>',
  '</code></pre><iframe src="https://evil.example/"></iframe>',
  'https://evil.example/beacon.png',
  '\u202Egnp.exe',
  '__proto__',
  'constructor',
  `long${'W'.repeat(480)}`,
];
const ACCOUNT = '<img src=x onerror="window.hacked = 6">';
const MEMBER = '<img/src=x/onerror=window.hacked=7>@evil.example';
const KEY_NAME = '<script>window.hacked = 8</script>';
const LEAK_ORIGIN = 'https://evil.example';

/** Elements that only an injection could have made, and addresses that would run or leave. */
const STRANGE = [
  'script:not([src^="/dashboard/assets/"])',
  'img, iframe, object, embed, base, style, audio, video, foreignObject',
  '[onerror], [onload], [onclick], [onmouseover], [style*="url("]',
  'a:not([href^="/"], [href="#main"])',
  'a[href^="//"]',
].join(', ');

suite('Hostile texts in the page', { skip: whyNoBrowser() }, () => {
  let running: MemberServer;
  let watched: WatchedPage;
  let page: Page;
  let profileId: string;
  let traceId: string;

  before(async () => {
    running = await startMemberServer();
    const { server } = running;
    const invited = await runSluice(['invite', '--account', ACCOUNT, '--json'], { SLUICE_DATA: server.dataFolder });
    assert.equal(invited.code, 0, invited.stderr);
    const session = await join(server, (JSON.parse(invited.stdout) as { link: string }).link, MEMBER);
    const { key } = await createKey(server.dataFolder, { account: ACCOUNT });
    const made = await askAs(server, session, '/keys', {
      method: 'POST',
      body: { name: KEY_NAME, kind: 'secret', environment: 'development' },
    });
    assert.equal(made.status, 201, made.text);
    await post(server, (made.body as { key: string }).key, { users: [hostileUser('leaked')] }, { origin: LEAK_ORIGIN });
    await eventually('the leak is noted', async () =>
      (await askAs(server, session, '/keys')).text.includes(`"leak_origin":"${LEAK_ORIGIN}"`),
    );

    traceId = await deliver(server, key, [
      ...HOSTILE.map((text) => hostileUser(text)),
      { identifiers: { anon_id: HOSTILE[1] }, events: [{ event_name: HOSTILE[1] }] },
      { identifiers: { anon_id: HOSTILE[1], user_id: HOSTILE[0] }, events: [{ event_name: HOSTILE[0] }] },
      ...HOSTILE.map((text) => ({ identifiers: { user_id: text }, user_properties: texts(), events: [] })),
      ...HOSTILE.map((text) => ({
        identifiers: { user_id: text },
        user_properties: Object.fromEntries([[`${text}]`, 'not stored: \0']]),
        events: [{ event_name: text }],
      })),
    ]);
    const path = `/profiles?user_id=${encodeURIComponent(HOSTILE[0] ?? '')}`;
    profileId = ((await get(server, key, path)).body as { id: string }).id;
    await eventually('the catalogue is flushed', async () => {
      const { body } = await get(server, key, '/catalogue');
      return (body as { events: { event_name: string }[] }).events.some(({ event_name }) => event_name === HOSTILE[1]);
    });
    watched = await running.open({ session });
    page = watched.page;
  });
  after(() => running.close());

  async function assertHarmless(where: string): Promise<void> {
    assert.equal(await page.evaluate('window.hacked'), undefined, where);
    assert.equal(await page.evaluate('Object.prototype.polluted'), undefined, where);
    assert.deepEqual(
      await page.evaluate<string[]>(
        `[...document.querySelectorAll(${JSON.stringify(STRANGE)})].map((e) => e.outerHTML)`,
      ),
      [],
      where,
    );
    assertNoComplaints(watched, /status of (404|400)/);
  }

  async function openUp(): Promise<void> {
    await settled(page);
    // Opening one may close another, so each is opened by itself, in turn.
    const closed = page.locator('main [aria-expanded="false"]');
    for (let n = 0; n < Math.min(await closed.count(), 12); n++) await closed.nth(n).click();
    const more = page.getByRole('button', { name: /^(Raw|Show all)/ });
    if ((await more.count()) > 0) await more.first().click();
    await settled(page);
  }

  const views: [name: string, path: string, texts: readonly (string | undefined)[]][] = [
    ['overview', '', HOSTILE.slice(0, 2)],
    ['live', '/live', HOSTILE.slice(0, 10)],
    ['live, filtered', `/live?name=${encodeURIComponent(HOSTILE[0] ?? '')}`, HOSTILE.slice(0, 1)],
    ['people', '/people', []],
    ['people, no one found', `/people?q=${encodeURIComponent('<img src=x onerror=window.hacked=10>')}`, ['onerror']],
    ['a person', '/people/ID', HOSTILE],
    ['a timeline', '/people/ID?tab=timeline', HOSTILE.slice(0, 2)],
    ['an identity', '/people/ID?tab=identity', HOSTILE.slice(0, 2)],
    ['an identity as a list', '/people/ID?tab=identity&as=list', HOSTILE.slice(0, 2)],
    ['the catalogue', '/catalogue', HOSTILE.slice(0, 2)],
    ['an event of the catalogue', `/catalogue?event=${encodeURIComponent(HOSTILE[0] ?? '')}`, HOSTILE.slice(0, 1)],
    ['rejected', '/rejected', HOSTILE],
    ['a trace', '/traces/TRACE', []],
    ['keys', '/settings/keys?show=all', [KEY_NAME, LEAK_ORIGIN]],
    ['team', '/settings/team', [MEMBER, ACCOUNT]],
    ['health', '/health', [MEMBER]],
  ];

  for (const [name, path, expected] of views) {
    test(`${name}: shown as text, and does nothing to the page around it`, async () => {
      await page.goto(BASE + path.replace('ID', profileId).replace('TRACE', traceId));
      await openUp();
      const shown = await page.evaluate<string>(
        "document.body.innerText + [...document.querySelectorAll('svg title, option')].map((e) => e.textContent).join(' ')",
      );
      for (const text of expected) {
        const asJson = JSON.stringify(text).slice(1, -1);
        assert.ok(shown.includes(text ?? '') || shown.includes(asJson), `${name} does not show ${text}`);
      }
      await assertHarmless(name);
      assert.deepEqual(await page.evaluate<string[]>(TURNED), [], 'turned the writing of other words');
      for (const viewport of [PHONE, DESKTOP]) {
        await page.setViewportSize(viewport);
        const over = await page.evaluate<number>(OVERFLOW);
        assert.ok(over <= 0, `${over} pixels wider than a window of ${viewport.width}`);
      }
    });
  }

  test('every reason of rejection can be gone to', async () => {
    await page.goto(`${BASE}/rejected`);
    const reasons = page.locator('button.reason');
    await reasons.first().waitFor();
    const count = await reasons.count();
    assert.ok(count > HOSTILE.length, `${count} reasons`);
    for (let n = 0; n < count; n++) {
      // The first one is open from the start.
      if (n > 0) await reasons.nth(n).click();
      await settled(page);
      const sample = page.locator('.rejected-sample').first();
      await sample.locator('summary').press('Enter');
      await sample.locator('.code').waitFor();
    }
    await assertHarmless('reasons');
  });

  test('addresses that lead elsewhere are not followed after signing in', async () => {
    const outside = await running.open({ session: null });
    for (const next of ['javascript:window.hacked=11', '//evil.example/', '/\\evil.example']) {
      await outside.page.goto(`/dashboard/sign-in?next=${encodeURIComponent(next)}`);
      await outside.page.getByLabel('E-mail').fill(EMAIL);
      await outside.page.getByLabel('Password', { exact: true }).fill(PASSWORD);
      await outside.page.getByRole('button', { name: 'Sign in' }).click();
      await outside.page.waitForURL(/\/dashboard\/(development|production)/);
      assert.equal(new URL(outside.page.url()).origin, running.server.baseUrl);
      assert.equal(await outside.page.evaluate('window.hacked'), undefined);
      await settled(outside.page);
      await outside.page.getByRole('banner').getByRole('button', { name: 'Sign out' }).click();
      await heading(outside.page, 'Sign in');
    }
    assertNoComplaints(outside, /status of 401/);
    await outside.context.close();
  });

  test('no other site can put the page into a frame', async () => {
    const { headers } = await fetch(`${running.server.baseUrl}/dashboard`);
    assert.equal(headers.get('x-frame-options'), 'DENY');
    assert.match(headers.get('content-security-policy') ?? '', /frame-ancestors 'none'/);

    const site = createServer((_request, response) => {
      const frame = `<iframe src="${running.server.baseUrl}/dashboard/sign-in" onload="window.loaded = true"></iframe>`;
      response.setHeader('content-type', 'text/html').end(`<title>Elsewhere</title>${frame}`);
    }).listen(0, '127.0.0.1');
    await once(site, 'listening');
    const context = await running.browser.newContext();
    const elsewhere = await context.newPage();
    await elsewhere.goto(`http://127.0.0.1:${(site.address() as AddressInfo).port}/`);
    assert.equal(await elsewhere.evaluate('window.loaded'), true);
    const [, frame] = elsewhere.frames();
    assert.ok(frame !== undefined);
    assert.ok(!frame.url().startsWith(running.server.baseUrl), frame.url());
    assert.equal(await frame.getByLabel('Password').count(), 0);
    await context.close();
    site.close();
  });
});

function texts(): Record<string, unknown> {
  const all = HOSTILE.map((text) => [text, text] as const);
  return Object.fromEntries([...all, ['nested', { list: HOSTILE }], ['very long', 'V'.repeat(20_000)]]);
}

function hostileUser(text: string): object {
  return {
    identifiers: { user_id: text, first_name: text, [`field ${text}`.slice(0, 500)]: text },
    user_properties: texts(),
    events: [{ event_name: text, ...texts(), revenue: 1 }],
  };
}

const OVERFLOW = 'document.documentElement.scrollWidth - document.documentElement.clientWidth';

/**
 * Texts with the override that share a paragraph of writing with other words: what stands around an element is safe from
 * its direction if the element is isolated, or a block of its own.
 */
const TURNED = `(() => {
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node !== null; node = walker.nextNode()) {
    if (!node.data.includes('\\u202E')) continue;
    let box = node.parentElement;
    if (box.closest('option, title, script') !== null || box.getClientRects().length === 0) continue;
    while (getComputedStyle(box).display === 'inline' && getComputedStyle(box).unicodeBidi === 'normal') {
      box = box.parentElement;
    }
    if (box.textContent.trim() !== node.data.trim()) found.push(box.className + ': ' + box.textContent.slice(0, 80));
  }
  return found;
})()`;
