/** The SDK in Chromium, on pages of another origin than the server's: what was called is stored exactly once. */

import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { openBrowser, whyNoBrowser } from '../dashboard/browser.ts';
import { makeKey, UUID_V7, useServer } from '../edge/fixture.ts';
import { eventually } from '../server.ts';
import { ensureBuiltScript } from './built-script.ts';
import { called, keptCalls, openSite, type Site, trackEach, visit } from './site.ts';
import { storedEvents, storedNumbers } from './stored.ts';

/** The machine may be busy with other tests. */
const PATIENCE_MS = 60_000;
const forbid = (name: string, object: string): string =>
  `Object.defineProperty(${object}, '${name}', { get() { throw new DOMException('denied', 'SecurityError'); }, set() { throw new DOMException('denied', 'SecurityError'); } });`;
const FORBID_STORAGE = forbid('localStorage', 'window');
const FILL_STORAGE = `for (let size = 4_000_000; size >= 1; size /= 2)
  try { for (;;) localStorage.setItem('other' + Math.random(), 'x'.repeat(size)); } catch {}`;
const numbers = (count: number): number[] => Array.from({ length: count }, (_, n) => n);

suite('The SDK on a page', { skip: whyNoBrowser() }, () => {
  const server = useServer();
  let browser: Browser;
  let site: Site;
  let context: BrowserContext;
  /** Whether requests of pages that are open fail; those of pages that are left get through. */
  let isBlocked = false;

  before(async () => {
    await ensureBuiltScript();
    const { key } = await makeKey(server().dataFolder, { kind: 'publishable' });
    [browser, site] = await Promise.all([openBrowser(), openSite(server().baseUrl, key)]);
  });
  after(async () => {
    await browser.close();
    await site.close();
  });

  /** A visitor who was never there before. */
  async function newVisitor({ script }: { script?: string } = {}): Promise<BrowserContext> {
    await context?.close();
    context = await browser.newContext({ locale: 'en-GB', userAgent: 'a browser' });
    context.setDefaultTimeout(PATIENCE_MS);
    if (script !== undefined) await context.addInitScript(script);
    isBlocked = false;
    await context.route('**/ingest/events', (route) => (isBlocked ? route.abort() : route.continue()));
    return context;
  }

  /** Everything that has the name, once it has arrived; what is sent twice is there once. */
  async function arrived(name: string, count: number): Promise<void> {
    await eventually(
      `${count} events ${name} are stored`,
      async () => {
        return (await storedNumbers(server(), name)).length >= count;
      },
      PATIENCE_MS,
    );
    assert.deepEqual(await storedNumbers(server(), name), numbers(count));
  }

  test('a first visit: pages and calls arrive with an anonymous id and their context, and sign-in joins them', async () => {
    site.attributes = 'async data-auto-page';
    site.head = "<script>(window.sluice ||= []).push(['track', 'early', { n: 0 }])</script>";
    const page = await visit(await newVisitor(), `${site.url}/pricing?utm_source=news&utm_medium=mail&q=1#top`);
    await page.waitForFunction('window.sluice.flush');
    await page.evaluate("history.pushState(null, '', '/order')");
    await page.evaluate("history.replaceState(null, '', '/order#again')");
    await page.waitForTimeout(0);
    const anonymousId = await page.evaluate<string>('window.sluice.anonymousId');
    assert.match(anonymousId, UUID_V7);
    await called(page, 'identify', { user_id: 'ada', email: 'ada@example.com' }, { plan: 'pro' });
    await called(page, 'track', 'order_placed', { revenue: 42.5, currency: 'EUR' });
    await flushed(page);
    site.attributes = '';
    site.head = '';

    const views = await storedEvents(server(), 'page_viewed');
    const [first, second] = views.map(({ properties: { $event_id: _id, ...properties } }) => properties);
    assert.deepEqual(first, {
      page_url: `${site.url}/pricing?utm_source=news&utm_medium=mail&q=1#top`,
      utm_source: 'news',
      utm_medium: 'mail',
      locale: 'en-GB',
      user_agent: 'a browser',
      title: 'A shop',
    });
    assert.equal(second?.['page_url'], `${site.url}/order`);
    assert.equal(views.length, 2);
    const [order] = await storedEvents(server(), 'order_placed');
    const [early] = await storedEvents(server(), 'early');
    assert.equal(order?.profile_id, views[0]?.profile_id);
    assert.equal(order?.profile_id, early?.profile_id);
    const profile = await fetch(`${server().baseUrl}/profiles?email=ada@example.com`, {
      headers: { authorization: `Bearer ${server().key}` },
    });
    const { identifiers } = (await profile.json()) as { identifiers: Record<string, string[]> };
    assert.deepEqual(identifiers, {
      user_id: ['ada'],
      email: ['ada@example.com'],
      phone_number: [],
      anon_id: [anonymousId],
    });
  });

  test('the visitor is known on the next page, another person is not joined with them, and reset() starts over', async () => {
    const page = await visit(await newVisitor(), site.url);
    const idOf = (): Promise<string> => page.evaluate<string>('window.sluice.anonymousId');
    const first = await idOf();
    await called(page, 'identify', { user_id: 'grace' });
    await page.reload();
    assert.equal(await idOf(), first);
    await called(page, 'track', 'returned', { n: 0 });
    await flushed(page);
    await called(page, 'identify', { user_id: 'linus' });
    const second = await idOf();
    await called(page, 'reset');
    assert.equal(new Set([first, second, await idOf()]).size, 3);
    const profile = await eventually('the profile is there', async () => {
      const response = await fetch(`${server().baseUrl}/profiles?user_id=grace`, {
        headers: { authorization: `Bearer ${server().key}` },
      });
      return response.status === 200 ? ((await response.json()) as { id: string }) : null;
    });
    const [event] = await storedEvents(server(), 'returned');
    assert.equal(event?.profile_id, profile.id);
  });

  test('two tabs: one visitor, one request at a time, and every event once', async () => {
    await newVisitor();
    let flying = 0;
    let most = 0;
    // Counted down before the page gets the response: events of two pages have no order.
    await context.route('**/ingest/events', async (route) => {
      if (route.request().method() !== 'POST') return route.continue();
      most = Math.max(most, ++flying);
      const response = await route.fetch();
      flying--;
      return route.fulfill({ response });
    });
    const [one, two] = await Promise.all([visit(context, site.url), visit(context, site.url)]);
    await Promise.all([trackEach(one, 'tabbed', 0, 250), trackEach(two, 'tabbed', 250, 500)]);
    await Promise.all([flushed(one), flushed(two)]);
    await arrived('tabbed', 500);
    assert.equal(most, 1);
    assert.equal(await keptCalls(one), 0);
    const ids = await Promise.all([one, two].map((page) => page.evaluate<string>('window.sluice.anonymousId')));
    assert.equal(ids[0], ids[1]);
  });

  test('offline: calls are kept, and sent when the network is back', async () => {
    const page = await visit(await newVisitor(), site.url);
    await context.setOffline(true);
    await trackEach(page, 'offline', 0, 20);
    const result = await called(page, 'flush', { timeoutMs: 200 });
    assert.deepEqual(result, { delivered: 0, rejected: [], dropped: 0, pending: 20 });
    assert.equal(await keptCalls(page), 20);
    await context.setOffline(false);
    await flushed(page);
    await arrived('offline', 20);
    assert.equal(await keptCalls(page), 0);
  });

  test('a tab that is left hands over what waits, before its batch was due', async () => {
    const page = await visit(await newVisitor(), site.url);
    await trackEach(page, 'left', 0, 50);
    await page.goto('about:blank');
    await arrived('left', 50);

    const older = await visit(await newVisitor({ script: 'delete Request.prototype.keepalive' }), site.url);
    await trackEach(older, 'beaconed', 0, 50);
    await older.goto('about:blank');
    await arrived('beaconed', 50);
  });

  test('without Web Locks: calls arrive, what an old page left is taken over, and nonsense in storage does no harm', async () => {
    const tab = '01900000-0000-7000-8000-000000000000';
    const left = `{"identifiers":{"anon_id":"a"},"events":[{"event_name":"lockless","n":0,"$event_id":"of-an-old-page"}]}`;
    const page = await visit(
      await newVisitor({ script: "Object.defineProperty(navigator, 'locks', { value: undefined })" }),
      site.url,
    );
    await trackEach(page, 'lockless', 1, 3);
    await flushed(page);
    await page.evaluate(`{
      const prefix = Object.keys(localStorage).find((name) => name.endsWith('anon')).replace('anon', 'q.${tab}.');
      localStorage.setItem(prefix + 'of-an-old-page', ${JSON.stringify(left)});
      localStorage.setItem(prefix + 'nonsense', '{"events":');
    }`);
    await page.reload();
    await arrived('lockless', 3);
    await eventually('the queue is empty', async () => (await keptCalls(page)) === 0);
  });

  test('closing a tab with more than it can hand over: the next page sends the rest, and all is stored once', async () => {
    const page = await visit(await newVisitor(), site.url);
    isBlocked = true;
    await trackEach(page, 'closed', 0, 300, 500);
    await page.close({ runBeforeUnload: true });
    isBlocked = false;
    const next = await visit(context, site.url);
    await arrived('closed', 300);
    await eventually('the queue is empty', async () => (await keptCalls(next)) === 0);
  });

  test('a tab that crashes: the other one takes its calls over as soon as it is looked at', async () => {
    const other = await visit(await newVisitor(), site.url);
    const page = await visit(context, site.url);
    isBlocked = true;
    await trackEach(page, 'crashed', 0, 30);
    await crash(page);
    isBlocked = false;
    // What one tab writes, another one sees a moment later.
    await eventually('its calls are kept', async () => (await keptCalls(other)) === 30);
    await eventually('the lock of the crashed tab is free', async () => {
      await other.evaluate("document.dispatchEvent(new Event('visibilitychange'))");
      return (await keptCalls(other)) === 0 || (await storedNumbers(server(), 'crashed')).length > 0;
    });
    await arrived('crashed', 30);
  });

  test('a full queue drops the oldest, and what it dropped is reported by the next page', async () => {
    const page = await visit(await newVisitor(), site.url);
    isBlocked = true;
    await page.evaluate('window.drops = 0; window.sluice.on("dropped", ({ events }) => window.drops += events)');
    await trackEach(page, 'overflowed', 0, 1_100);
    const drops = await page.evaluate<number>('window.drops');
    assert.ok(drops >= 100, `${drops} were dropped`);
    await page.close();
    isBlocked = false;
    const reported = context.waitForEvent(
      'request',
      (request) => request.postData()?.includes('dropped_by_client') ?? false,
    );
    await visit(context, site.url);
    assert.match((await reported).postData() ?? '', new RegExp(`^\\{"dropped_by_client":${drops},"users":`));
    await eventually(
      'the rest is stored',
      async () => {
        return (await storedNumbers(server(), 'overflowed')).length === 1_100 - drops;
      },
      PATIENCE_MS,
    );
  });

  test('storage forbidden: the anonymous id is in a cookie, or in memory, and calls arrive', async () => {
    const page = await visit(await newVisitor({ script: FORBID_STORAGE }), site.url);
    const first = await page.evaluate<string>('window.sluice.anonymousId');
    await called(page, 'track', 'forbidden', { n: 0 });
    await flushed(page);
    await page.reload();
    assert.equal(await page.evaluate<string>('window.sluice.anonymousId'), first);
    await called(page, 'track', 'forbidden', { n: 1 });
    await page.goto('about:blank');
    await arrived('forbidden', 2);

    const cookieless = FORBID_STORAGE + forbid('cookie', 'Document.prototype');
    const another = await visit(await newVisitor({ script: cookieless }), site.url);
    const second = await another.evaluate<string>('window.sluice.anonymousId');
    assert.equal(await another.evaluate<string>('window.sluice.anonymousId'), second);
    await called(another, 'track', 'forbidden', { n: 2 });
    await flushed(another);
    await arrived('forbidden', 3);
  });

  test('storage full: calls stay in memory and arrive', async () => {
    const page = await visit(await newVisitor({ script: FILL_STORAGE }), site.url);
    await trackEach(page, 'crammed', 0, 5);
    assert.equal(await keptCalls(page), 0);
    const id = await page.evaluate<string>('window.sluice.anonymousId');
    assert.equal(await page.evaluate<string>('window.sluice.anonymousId'), id);
    await flushed(page);
    await arrived('crammed', 5);
  });

  test('opting out, Do Not Track and Global Privacy Control: nothing is kept and nothing is sent', async () => {
    const requests: string[] = [];
    const listen = (): void =>
      void context.on('request', (request) => request.url().includes('/ingest/events') && requests.push(request.url()));
    const quiet = async (page: Page): Promise<void> => {
      const id = await page.evaluate<string>('window.sluice.anonymousId');
      assert.match(id, UUID_V7);
      assert.equal(await page.evaluate<string>('window.sluice.anonymousId'), id);
      await called(page, 'track', 'unwanted', { n: 0 });
      await called(page, 'identify', { user_id: 'ada' });
      assert.deepEqual(await called(page, 'flush'), { delivered: 0, rejected: [], dropped: 0, pending: 0 });
      assert.deepEqual(requests, []);
    };
    for (const wish of ['doNotTrack', 'globalPrivacyControl']) {
      const value = wish === 'doNotTrack' ? "'1'" : 'true';
      await newVisitor({ script: `Object.defineProperty(navigator, '${wish}', { value: ${value} })` });
      listen();
      const page = await visit(context, site.url);
      await quiet(page);
      assert.equal(await page.evaluate<number>('localStorage.length'), 0, wish);
    }
    const forbidden = await visit(
      await newVisitor({ script: `${FORBID_STORAGE} Object.defineProperty(navigator, 'doNotTrack', { value: '1' })` }),
      site.url,
    );
    await quiet(forbidden);
    await called(forbidden, 'reset');
    assert.equal(await forbidden.evaluate<string>('document.cookie'), '');
    const page = await visit(await newVisitor(), site.url);
    listen();
    await called(page, 'track', 'unwanted', { n: 1 });
    await called(page, 'optOut');
    await quiet(page);
    assert.equal(await page.evaluate<number>('localStorage.length'), 1, 'that the visitor opted out');
    await page.reload();
    await quiet(page);
    assert.equal(await page.evaluate<number>('localStorage.length'), 1);
    const other = await visit(context, site.url);
    await called(page, 'optIn');
    isBlocked = true;
    await trackEach(page, 'unwanted', 2, 5);
    await called(other, 'optOut');
    await eventually('the other page has forgotten its calls, too', async () => (await keptCalls(page)) === 0);
    isBlocked = false;
    requests.length = 0;
    await quiet(page);
    const id = await page.evaluate<string>('window.sluice.anonymousId');
    await called(page, 'optIn');
    await called(page, 'track', 'wanted again', {});
    await flushed(page);
    assert.deepEqual(await storedNumbers(server(), 'unwanted'), []);
    await page.reload();
    assert.equal(await page.evaluate<string>('window.sluice.anonymousId'), id, 'kept since optIn()');
  });

  test('opting out where storage is full: the next page and other tabs know of it', async () => {
    const page = await visit(await newVisitor({ script: FILL_STORAGE }), site.url);
    const other = await visit(context, site.url);
    await called(page, 'optOut');
    await page.reload();
    await called(page, 'track', 'unwanted too', { n: 0 });
    await called(other, 'track', 'unwanted too', { n: 1 });
    const nothing = { delivered: 0, rejected: [], dropped: 0, pending: 0 };
    assert.deepEqual(await called(page, 'flush'), nothing);
    assert.deepEqual(await called(other, 'flush'), nothing);
    await called(page, 'optIn');
    await called(page, 'track', 'wanted too', { n: 0 });
    await flushed(page);
    await arrived('wanted too', 1);
    assert.deepEqual(await storedNumbers(server(), 'unwanted too'), []);
  });

  test('opting out where storage is forbidden: what other tabs were about to send is discarded', async () => {
    const page = await visit(await newVisitor({ script: FORBID_STORAGE }), site.url);
    const retrying = await visit(context, site.url);
    const leaving = await visit(context, site.url);
    const bodies: string[] = [];
    isBlocked = true;
    await trackEach(retrying, 'no longer', 0, 5);
    const attempt = retrying.waitForRequest('**/ingest/events');
    await Promise.all([called(retrying, 'flush', { timeoutMs: 1 }), attempt]);
    await trackEach(leaving, 'no longer', 5, 10);
    await called(page, 'optOut');
    isBlocked = false;
    context.on('request', (request) => bodies.push(request.postData() ?? ''));
    await leaving.goto('about:blank');
    assert.deepEqual(await called(retrying, 'flush'), { delivered: 0, rejected: [], dropped: 0, pending: 0 });
    assert.deepEqual(
      bodies.filter((body) => body.includes('no longer')),
      [],
    );
  });

  test('a browser that begins to signal Global Privacy Control: what was kept before is removed', async () => {
    const page = await visit(await newVisitor(), site.url);
    isBlocked = true;
    await called(page, 'identify', { user_id: 'ada', email: 'ada@example.com' });
    await trackEach(page, 'before', 0, 5);
    await context.addInitScript("Object.defineProperty(navigator, 'globalPrivacyControl', { value: true })");
    const next = await visit(context, site.url);
    await page.close();
    await next.reload();
    assert.deepEqual(await next.evaluate<string[]>('Object.keys(localStorage)'), []);
  });

  test('early calls: each is run on its own, and what is no call is skipped', async () => {
    site.head = `<script>
      const { proxy, revoke } = Proxy.revocable({}, {});
      revoke();
      window.sluice = [
        ['track', 'queued', { n: 0 }],
        null, undefined, 42, 'track', () => 1, {}, [], ['constructor'], ['record', {}], ['nothing'], ['push', null],
        ['page', { get x() { throw new Error('a mistake in a getter'); } }],
        ['page', proxy], ['identify', { get email() { throw new Error('a mistake in a getter'); } }],
        ['on', 'rejected', () => (window.late = true)],
        ['track', 'queued', { n: 1 }],
      ];
    </script>`;
    const page = await visit(await newVisitor(), site.url);
    site.head = '';
    await called(page, 'push', ['track', 'queued', { n: 2 }]);
    await called(page, 'push', null);
    const { rejected } = await called<{ rejected: { status: number; event: { event_name: string } }[] }>(page, 'flush');
    assert.deepEqual(
      rejected.map(({ status, event }) => [status, event.event_name]),
      [
        [0, 'page_viewed'],
        [0, 'page_viewed'],
        [0, '$identify'],
      ],
    );
    await arrived('queued', 3);
  });

  test('a user_id that is no string is rejected, and the calls after it are anonymous, also on the next page', async () => {
    const page = await visit(await newVisitor(), site.url);
    await called(page, 'identify', { user_id: 'lovelace' });
    await called(page, 'identify', { user_id: 42 });
    await called(page, 'track', 'numbered', { n: 0 });
    const { rejected } = await called<{ rejected: { event: { event_name: string } }[] }>(page, 'flush');
    assert.deepEqual(
      rejected.map(({ event }) => event.event_name),
      ['$identify'],
    );
    const id = await page.evaluate<string>('window.sluice.anonymousId');
    await page.reload();
    assert.equal(await page.evaluate<string>('window.sluice.anonymousId'), id);
    await called(page, 'track', 'numbered', { n: 1 });
    await flushed(page);
    const [first, second] = await storedEvents(server(), 'numbered');
    assert.equal(first?.profile_id, second?.profile_id);
    const response = await fetch(`${server().baseUrl}/profiles/${first?.profile_id}`, {
      headers: { authorization: `Bearer ${server().key}` },
    });
    const { identifiers } = (await response.json()) as { identifiers: Record<string, string[]> };
    assert.deepEqual(identifiers, { user_id: [], email: [], phone_number: [], anon_id: [id] });
  });

  test('a page that comes back from the back/forward cache: each call is reported once', async () => {
    site.head = `<script>
      window.sluice = [['on', 'delivered', ({ event_ids }) => {
        localStorage.reports = (localStorage.reports ?? '') + event_ids.join(' ') + ' ';
      }]];
    </script>`;
    const visitor = await newVisitor();
    const page = await visit(visitor, site.url);
    const back = Promise.withResolvers<undefined>();
    // As for a page in the cache, the response to its last request arrives when it is back.
    await page.route('**/ingest/events?*', async (route) => {
      const response = await route.fetch();
      await back.promise;
      await route.fulfill({ response });
    });
    await trackEach(page, 'cached', 0, 50, 100);
    const left = page.waitForRequest('**/ingest/events?*');
    await page.evaluate("dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true }))");
    await left;
    const next = await visit(visitor, `${site.url}/next`);
    site.head = '';
    await next.waitForFunction('localStorage.reports');
    await flushed(next);
    await page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))");
    const answered = page.waitForResponse('**/ingest/events?*');
    back.resolve(undefined);
    await answered;
    await flushed(page);
    await arrived('cached', 50);
    await eventually('the queue is empty', async () => (await keptCalls(page)) === 0);
    const reports = (await page.evaluate<string>('localStorage.reports')).trim().split(' ');
    assert.equal(new Set(reports).size, reports.length);
    assert.equal(reports.length, 50);
  });
});

/** Some may have been delivered before. */
async function flushed(page: Page): Promise<void> {
  const { delivered: _delivered, ...rest } = await called<{ delivered: number }>(page, 'flush', {
    timeoutMs: PATIENCE_MS,
  });
  assert.deepEqual(rest, { rejected: [], dropped: 0, pending: 0 });
}

/** Kills the process of the page, as an out-of-memory would. */
async function crash(page: Page): Promise<void> {
  const crashed = page.waitForEvent('crash');
  page.goto('chrome://crash').catch(() => undefined);
  await crashed;
}
