/** A person who has never seen it, from the first start of the server to their first event, and signing in again. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, before, suite, test } from 'node:test';
import { promisify } from 'node:util';
import type { Browser, Locator } from 'playwright-core';
import { ensureBuiltScript } from '../sdk/built-script.ts';
import { called, openSite, visit } from '../sdk/site.ts';
import { storedEvents } from '../sdk/stored.ts';
import { removeFolder, startServer, type TestServer } from '../server.ts';
import { findTool } from '../tools.ts';
import { openBrowser, openPage, type WatchedPage, welcomeLinkOf, whyNoBrowser } from './browser.ts';
import { ensureBuiltPage } from './built-page.ts';
import { assertNoComplaints, EMAIL, heading, PASSWORD, sees } from './member-page.ts';

suite('From the first start to the first event', { skip: whyNoBrowser() }, () => {
  let server: TestServer;
  let browser: Browser;
  let watched: WatchedPage;

  before(async () => {
    await ensureBuiltPage();
    [server, browser] = await Promise.all([startServer(), openBrowser()]);
    watched = await openPage(browser, server.baseUrl);
  });
  after(async () => {
    await browser.close();
    await server.stop();
    removeFolder(server.dataFolder);
  });

  test('the printed link leads to choosing e-mail and password, and its token leaves the address bar', async () => {
    const { page } = watched;
    const link = welcomeLinkOf(server.stdout());
    await page.goto(link);
    await heading(page, 'Welcome to Sluice');
    await sees(page, 'sign in to the account “default”');
    const token = new URL(link).hash.slice(1);
    assert.ok(!page.url().includes(token), 'the token is still in the address');

    await page.getByLabel('E-mail').fill(EMAIL);
    await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
    await page.getByRole('button', { name: 'Go to the dashboard' }).click();
    await heading(page, 'Send your first event');
    assert.equal(new URL(page.url()).pathname, '/dashboard/development');
    assertNoComplaints(watched);
  });

  test('the page cannot get at the session cookie', async () => {
    assert.equal(await watched.page.evaluate('document.cookie'), '');
    const [cookie] = await watched.context.cookies();
    assert.equal(cookie?.name, 'sluice_session');
    assert.equal(cookie?.httpOnly, true);
    assert.equal(cookie?.sameSite, 'Lax');
  });

  test('a key made with the button, and the line as it was copied, bring the first event to the page', async () => {
    const { page } = watched;
    await sees(page, 'Waiting for your first event');
    await page.getByRole('button', { name: 'Make a development secret key' }).click();
    await sees(page, 'Your key. Shown only once');
    await page.getByRole('button', { name: 'Copy', exact: true }).click();
    const line = await page.evaluate<string>('navigator.clipboard.readText()');
    assert.match(line, /^curl /);
    assert.ok(line.includes(`${server.baseUrl}/ingest/events`), 'it has the address of this server');
    assert.match(line, /Bearer sk_dev_[0-9A-Za-z]{38}/);

    assert.match(await paste(line), /^HTTP\/1\.1 202/);
    await sees(page, 'Your first event is here');
    await sees(page.locator('.first-arrived'), 'signed_up');
    assertNoComplaints(watched);
  });

  test('tabs go by keyboard; the script tag and the program work as they were copied, with a key of the right kind', async (context) => {
    const { page } = watched;
    const tab = (name: string): Locator => page.getByRole('tab', { name, exact: true });
    const copied = async (name: string): Promise<string> => {
      assert.equal(await tab(name).getAttribute('aria-selected'), 'true');
      await page.getByRole('tabpanel', { name }).getByRole('button', { name: 'Copy', exact: true }).click();
      return page.evaluate<string>('navigator.clipboard.readText()');
    };
    assert.equal(await page.getByRole('tab').count(), 4);
    await tab('curl').focus();
    await page.keyboard.press('ArrowRight');
    assert.match(await copied('Browser'), /data-key="YOUR_PUBLISHABLE_KEY"/);
    await page.getByRole('button', { name: 'Make a development publishable key' }).click();
    await sees(page, 'Your key. Shown only once');
    const script = await copied('Browser');
    assert.match(script, /data-key="pk_[0-9A-Za-z]{38}"/);
    await tab('Browser').focus();
    await page.keyboard.press('End');
    const segment = await copied('Segment SDKs');
    assert.match(segment, /writeKey: 'sk_dev_[0-9A-Za-z]{38}'/);
    assert.ok(segment.includes(`host: '${server.baseUrl}',\n  path: '/ingest/v1/batch'`), segment);
    await tab('Segment SDKs').focus();
    await page.keyboard.press('ArrowLeft');
    const program = await copied('Node.js');
    assertNoComplaints(watched);

    await ensureBuiltScript();
    const site = await openSite(server.baseUrl, '');
    context.after(() => site.close());
    site.html = script;
    const visitor = await browser.newContext();
    const visited = await visit(visitor, site.url);
    await visited.waitForFunction('window.sluice?.flush');
    await called(visited, 'flush');
    await visitor.close();
    assert.equal((await storedEvents(server, 'page_viewed')).length, 1);

    const sdk = new URL('../../sdk/src/server.ts', import.meta.url).href;
    const module = program.replace("'@sluice/sdk'", JSON.stringify(sdk));
    await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', module]);
    // The first one was sent with curl.
    assert.equal((await storedEvents(server, 'signed_up')).length, 2);
  });

  test('the tabs of the reference go by keyboard, without a script', async (context) => {
    const { page, context: window } = await openPage(browser, server.baseUrl);
    context.after(() => window.close());
    await page.goto('/docs');
    const from = page.getByRole('group', { name: 'Send it from' });
    await from.getByRole('radio', { name: 'curl' }).focus();
    await from.getByText('curl "$SLUICE_URL/ingest/events"').waitFor();
    for (const [name, words] of [
      ['Browser', '/ingest/sluice.js"'],
      ['Node.js', "from '@sluice/sdk'"],
      ['Segment SDKs', "from '@segment/analytics-node'"],
    ] as const) {
      await page.keyboard.press('ArrowRight');
      assert.ok(await from.getByRole('radio', { name }).isChecked(), name);
      await from.getByText(words).waitFor();
      assert.equal(await from.locator('.panel:visible').count(), 1);
    }
    await from.getByText('curl', { exact: true }).click();
    await from.getByText('curl "$SLUICE_URL/ingest/events"').waitFor();
  });

  test('the event is on the Live page, and on the overview', async () => {
    const { page } = watched;
    await page.getByRole('link', { name: 'See it on Live' }).click();
    await heading(page, 'Live');
    await page
      .getByRole('list', { name: 'Events, newest first' })
      .getByRole('button', { name: 'signed_up' })
      .first()
      .waitFor();
    await page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: 'Overview' }).click();
    await heading(page, 'Overview');
    await page.locator('.ranking').getByText('signed_up').waitFor();
    await page.locator('.figure', { hasText: 'People' }).getByText('2', { exact: true }).waitFor();
    assertNoComplaints(watched);
  });

  test('the link does not work twice', async () => {
    const other = await openPage(browser, server.baseUrl);
    await other.page.goto(welcomeLinkOf(server.stdout()));
    await heading(other.page, 'This link does not work any more');
    assert.deepEqual(await other.context.cookies(), []);
    await other.context.close();
  });

  test('signed out, the pages are closed; a wrong password is said to be wrong, the right one leads back', async () => {
    const { page } = watched;
    await page.goto('/dashboard/development/live?name=signed_up');
    await heading(page, 'Live');
    await page.getByRole('banner').getByRole('button', { name: 'Sign out' }).click();
    await heading(page, /^Sign in/);
    assert.deepEqual(await watched.context.cookies(), []);

    await page.goto('/dashboard/development/live?name=signed_up');
    await heading(page, /^Sign in/);
    await page.getByLabel('E-mail').fill(EMAIL);
    await page.getByLabel('Password', { exact: true }).fill(`${PASSWORD} not`);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await sees(page, /wrong e-mail address or password/i);
    assert.deepEqual(await watched.context.cookies(), []);

    await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await heading(page, 'Live');
    assert.equal(page.url(), `${server.baseUrl}/dashboard/development/live?name=signed_up`);
    await page.getByRole('button', { name: 'signed_up' }).first().waitFor();
    // What the browser itself logs for a 401.
    assertNoComplaints(watched, /status of 401/);
  });
});

/** What a person sees who pastes the line into a terminal; without curl, what curl would have sent. */
async function paste(line: string): Promise<string> {
  if (findTool('curl') !== undefined) return (await promisify(execFile)('sh', ['-c', line])).stdout;
  const [, url = '', authorization = '', body = ''] =
    /'(http[^']+)'.*'Authorization: ([^']+)'.*-d '(.+)'/s.exec(line) ?? [];
  const headers = { authorization, 'content-type': 'application/json' };
  const { status } = await fetch(url, { method: 'POST', headers, body });
  return `HTTP/1.1 ${status}`;
}
