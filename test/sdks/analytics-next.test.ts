/**
 * `@segment/analytics-next` as it is published, on a page of another origin in Chromium, against a real server that is
 * killed while the page sends and started again: every call is stored exactly once.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { openBrowser, whyNoBrowser } from '../dashboard/browser.ts';
import { makeKey, metric } from '../edge/fixture.ts';
import { openSite, visit } from '../sdk/site.ts';
import { storedEvents, storedNumbers } from '../sdk/stored.ts';
import { eventually, removeFolder, startServer, type TestServer } from '../server.ts';
import { browserBundle } from './browser-bundle.ts';

const COUNT = 400;
const PATIENCE_MS = 90_000;

const PAGE = `
  import { AnalyticsBrowser } from '@segment/analytics-next';
  window.analytics = AnalyticsBrowser.load({ writeKey: window.key, cdnURL: window.url + '/ingest' });
  window.trackAll = async (count) => {
    for (let n = 0; n < count; n++) {
      void window.analytics.track('analytics-next', { n });
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
  };`;

suite('analytics-next on a page', { skip: whyNoBrowser() }, () => {
  test('everything is stored exactly once, although the server is killed while it sends', async (context) => {
    const script = await browserBundle(PAGE);
    const first = await startServer();
    let server: TestServer = first;
    const { baseUrl, dataFolder, port, key: secret } = first;
    const { key } = await makeKey(dataFolder, { kind: 'publishable' });
    const site = await openSite(baseUrl, key);
    const browser = await openBrowser();
    context.after(async () => {
      await browser.close();
      await site.close();
      await server.kill();
      removeFolder(dataFolder);
    });
    site.html = `<script>window.key = '${key}'; window.url = '${baseUrl}'; ${script}</script>`;
    const page = await visit(await browser.newContext(), site.url);
    await page.evaluate("window.analytics.identify('ada', { email: 'ada@example.com', plan: 'pro' })");
    await page.evaluate('window.analytics.page()');
    const sending = page.evaluate(`window.trackAll(${COUNT})`);
    await eventually(
      'some messages are accepted',
      async () => (await metric(first, 'sluice_events_accepted_total')) >= COUNT / 4,
      PATIENCE_MS,
    );
    await first.kill();
    server = { ...(await startServer({ dataFolder, env: { PORT: String(port) } })), key: secret };
    await sending;
    await eventually(
      'everything has arrived',
      async () => (await storedNumbers(server, 'analytics-next')).length >= COUNT,
      PATIENCE_MS,
    );
    const numbers = Array.from({ length: COUNT }, (_, n) => n);
    assert.deepEqual(await storedNumbers(server, 'analytics-next'), numbers);

    const people = new Set((await storedEvents(server, 'analytics-next')).map(({ profile_id }) => profile_id));
    const [view] = await storedEvents(server, 'page_viewed');
    assert.deepEqual([...people], [view?.profile_id]);
    assert.equal(view?.properties['url'], `${site.url}/`);
  });
});
