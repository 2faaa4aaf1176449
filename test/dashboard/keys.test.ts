/** Settings, API keys: made, copied, used, rolled and revoked in the page, and what is marked about them. */

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, before, suite, test } from 'node:test';
import type { Locator, Page } from 'playwright-core';
import { DAY_MS } from '../../src/model.ts';
import { ensureBuiltScript } from '../sdk/built-script.ts';
import { eventually, post, user } from '../server.ts';
import { type WatchedPage, whyNoBrowser } from './browser.ts';
import { askAs, assertNoComplaints, heading, type MemberServer, sees, startMemberServer } from './member-page.ts';

const KEYS = '/dashboard/development/settings/keys';
/** What the dialog promises: requests that are sent later than this are refused. */
const REVOKED_MS_MAX = 2_000;

suite('API keys in the page', { skip: whyNoBrowser() }, () => {
  let running: MemberServer;
  let watched: WatchedPage;
  let page: Page;
  let otherSite: Server;
  let otherOrigin: string;

  before(async () => {
    running = await startMemberServer();
    watched = await running.open();
    page = watched.page;
    otherSite = createServer((_request, response) => {
      response.setHeader('content-type', 'text/html').end('<title>A shop</title>');
    }).listen(0, '127.0.0.1');
    await once(otherSite, 'listening');
    otherOrigin = `http://127.0.0.1:${(otherSite.address() as AddressInfo).port}`;
  });
  after(async () => {
    await running.close();
    otherSite.close();
  });

  const row = (name: string, which = 0): Locator => page.getByRole('row').filter({ hasText: name }).nth(which);

  async function send(key: string): Promise<number> {
    return (await post(running.server, key, { users: [user('ada')] })).status;
  }

  /** Makes a key in the page, and gives what its copy button copied. */
  async function make(name: string, choose: (dialog: Locator) => Promise<void> = async () => {}): Promise<string> {
    await page.goto(KEYS);
    await page.getByRole('button', { name: 'Create key' }).click();
    const dialog = page.getByRole('dialog', { name: 'Create an API key' });
    await dialog.getByLabel('Name').fill(name);
    await choose(dialog);
    await dialog.getByRole('button', { name: 'Create key' }).click();
    return copied(page.getByRole('dialog', { name: 'Your new key' }));
  }

  async function copied(dialog: Locator, label = 'Copy key'): Promise<string> {
    await dialog.getByRole('button', { name: label, exact: true }).click();
    return page.evaluate<string>('navigator.clipboard.readText()');
  }

  /** With a page of another site, in a window of its own. */
  async function onOtherSite<T>(run: (shop: Page) => Promise<T>): Promise<T> {
    const context = await running.browser.newContext();
    try {
      const shop = await context.newPage();
      await shop.goto(otherOrigin);
      return await run(shop);
    } finally {
      await context.close();
    }
  }

  test('a key that was made and copied works, and the list says when it was used', async () => {
    const key = await make('checkout server');
    assert.match(key, /^sk_dev_[0-9A-Za-z]{38}$/);
    const line = await copied(page.getByRole('dialog'), 'Copy');
    assert.ok(line.includes(key) && line.includes(`${running.server.baseUrl}/ingest/events`));
    await page.getByRole('button', { name: 'I have saved it' }).click();
    await sees(row('checkout server'), 'never');

    assert.equal(await send(key), 202);
    await row('checkout server').getByText('never').waitFor({ state: 'detached' });
    assertNoComplaints(watched);
  });

  test('a key is shown once: not in the page after closing, nor after reloading, nor in a response', async () => {
    const key = await make('shown once');
    assert.ok((await page.content()).includes(key), 'it is shown now');
    await page.getByRole('dialog').getByRole('button', { name: 'Close', exact: true }).click();
    await page.getByRole('button', { name: 'Close without saving' }).click();
    await page.getByRole('dialog').waitFor({ state: 'hidden' });
    assert.ok(!(await page.content()).includes(key));
    await page.reload();
    await sees(row('shown once'), key.slice(-4));
    assert.ok(!(await page.content()).includes(key));
    assert.ok(!page.url().includes(key));
    const { status, text } = await askAs(running.server, running.session, '/keys');
    assert.equal(status, 200);
    assert.ok(text.includes('shown once') && !text.includes(key.slice(8)));
    assert.ok(!`${running.server.stdout()}${running.server.stderr()}`.includes(key));
    assertNoComplaints(watched);
  });

  test('Escape does not close a key that is shown only once, however often: it asks', async () => {
    const key = await make('asked first');
    const dialog = page.getByRole('dialog', { name: 'Your new key' });
    const question = dialog.getByText('Have you saved the key?');
    for (const isAsked of [true, false, true, false]) {
      await page.keyboard.press('Escape');
      await question.waitFor({ state: isAsked ? 'visible' : 'detached' });
      await sees(dialog, key);
    }
    await page.keyboard.press('Escape');
    await dialog.getByRole('button', { name: 'Keep it open' }).click();
    await sees(dialog, key);
    await page.mouse.click(5, 5);
    await sees(dialog, key);
    await dialog.getByRole('button', { name: 'I have saved it' }).click();
    await dialog.waitFor({ state: 'hidden' });
    await page.getByRole('button', { name: 'Create key' }).click();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'hidden' });
    assertNoComplaints(watched);
  });

  test('a key is edited in the page: name, origins and rate limit, and the list shows what it received', async () => {
    const key = await make('web shop', async (dialog) => {
      await dialog.getByLabel('Kind').selectOption('publishable');
      await dialog.getByLabel('Users per second').fill('1');
      await dialog.getByLabel('Burst').fill('60');
    });
    await page.getByRole('button', { name: 'I have saved it' }).click();
    await sees(row('web shop'), 'At most 1 users per second, 60 at once');
    await sees(row('web shop'), 'nothing received');
    const users = [...Array.from({ length: 999 }, (_, n) => user(`u${n}`)), {}];
    assert.equal((await post(running.server, key, { users }, { origin: 'https://shop.example' })).status, 202);
    assert.equal(await send(key), 503);
    await sees(row('web shop'), '999 users, 999 events');
    for (const text of ['1 rejected', '1 over the limit', 'last page: https://shop.example']) {
      await sees(row('web shop'), text);
    }

    await row('web shop')
      .getByRole('button', { name: /^Edit / })
      .click();
    const dialog = page.getByRole('dialog', { name: 'Edit web shop' });
    await dialog.getByLabel('Name').fill('web shop, new');
    await dialog.getByLabel('Allowed origins').fill('https://shop.example/path');
    await dialog.getByLabel('Users per second').fill('');
    await dialog.getByRole('button', { name: 'Save' }).click();
    await sees(dialog, 'The origin "https://shop.example/path" is not of the form');
    await dialog.getByLabel('Allowed origins').fill('https://shop.example');
    await dialog.getByRole('button', { name: 'Save' }).click();
    await dialog.waitFor({ state: 'hidden' });
    await sees(row('web shop, new'), 'Only from https://shop.example');
    await row('web shop, new').getByText('At most').waitFor({ state: 'detached' });
    await eventually('the limit is gone', async () => (await send(key)) === 202);
    assertNoComplaints(watched, /400 \(Bad Request\)/);
    watched.complaints.splice(0);
  });

  test('what another member changes while a key is edited is kept, unless it was changed here too', async () => {
    const key = await make('edited by two', async (dialog) => {
      await dialog.getByLabel('Kind').selectOption('publishable');
    });
    await page.getByRole('button', { name: 'I have saved it' }).click();
    const edit = row('edited by two').getByRole('button', { name: /^Edit / });
    await edit.click();
    const listed = await askAs(running.server, running.session, '/keys');
    const { keys } = listed.body as { keys: { id: string; last_four: string }[] };
    const id = keys.find(({ last_four: lastFour }) => lastFour === key.slice(-4))?.id;
    const body = { name: 'edited', origins: ['https://shop.example'], rate_limit: { users_per_second: 5, burst: 9 } };
    const changed = await askAs(running.server, running.session, `/keys/${id}`, { method: 'PATCH', body });
    assert.equal(changed.status, 200, changed.text);
    const dialog = page.getByRole('dialog', { name: 'Edit edited by two' });
    await dialog.getByLabel('Name').fill('edited by two, at last');
    await dialog.getByRole('button', { name: 'Save' }).click();
    await dialog.waitFor({ state: 'hidden' });
    await sees(row('edited by two, at last'), 'Only from https://shop.example');
    await sees(row('edited by two, at last'), 'At most 5 users per second, 9 at once');
    await edit.click();
    await page.getByRole('dialog', { name: 'Edit edited by two' }).getByRole('button', { name: 'Save' }).click();
    await page.getByRole('dialog').waitFor({ state: 'hidden' });
    await sees(row('edited by two, at last'), 'Only from https://shop.example');
    assertNoComplaints(watched);
  });

  test('rolled with an overlap, the old key and the new one both work', async () => {
    const old = await make('rolled');
    await page.getByRole('button', { name: 'I have saved it' }).click();
    await row('rolled')
      .getByRole('button', { name: /^Roll / })
      .click();
    const dialog = page.getByRole('dialog', { name: 'Roll rolled' });
    await dialog.getByLabel('The old key expires').selectOption('After a day');
    await dialog.getByRole('button', { name: 'Roll key' }).click();
    const fresh = await copied(page.getByRole('dialog', { name: 'The new key of rolled' }));
    assert.notEqual(fresh, old);
    assert.equal(await send(old), 202);
    assert.equal(await send(fresh), 202);

    await page.getByRole('button', { name: 'I have saved it' }).click();
    await sees(row('rolled', 1), 'Expires');
    await sees(row('rolled', 1), old.slice(-4));
    await sees(row('rolled', 1), /key_\w+ · oldest of 2 with this name/);
    await sees(row('rolled', 0), fresh.slice(-4));
    await sees(row('rolled', 0), /key_\w+ · newest of 2 with this name/);
    await row('rolled', 1)
      .getByRole('button', { name: /^Revoke / })
      .click();
    await page.getByRole('dialog', { name: `Revoke rolled (…${old.slice(-4)})` }).waitFor();
    await page.keyboard.press('Escape');
    assertNoComplaints(watched);
  });

  test('rolled at once, the old key is refused and the new one works', async () => {
    const old = await make('rolled at once');
    await page.getByRole('button', { name: 'I have saved it' }).click();
    await row('rolled at once')
      .getByRole('button', { name: /^Roll / })
      .click();
    const dialog = page.getByRole('dialog', { name: 'Roll rolled at once' });
    await dialog.getByLabel('The old key expires').selectOption('At once');
    await dialog.getByRole('button', { name: 'Roll key' }).click();
    const fresh = await copied(page.getByRole('dialog', { name: 'The new key of rolled at once' }));
    await eventually('the old key is refused', async () => (await send(old)) === 401);
    assert.equal(await send(fresh), 202);
  });

  test('revoking asks for the name, and the key is refused within two seconds', async (context) => {
    const key = await make('to be revoked');
    await page.getByRole('button', { name: 'I have saved it' }).click();
    assert.equal(await send(key), 202);
    await row('to be revoked')
      .getByRole('button', { name: /^Revoke / })
      .click();
    const dialog = page.getByRole('dialog', { name: 'Revoke to be revoked' });
    const revoke = dialog.getByRole('button', { name: 'Revoke key' });
    assert.ok(await revoke.isDisabled());
    await dialog.getByRole('textbox').fill('to be');
    assert.ok(await revoke.isDisabled());
    await dialog.getByRole('textbox').fill('to be revoked');
    const responded = page.waitForResponse((response) => response.url().endsWith('/revoke'));
    await revoke.click();
    assert.equal((await responded).status(), 200);

    const revokedAt = performance.now();
    let lastAccepted = 0;
    await eventually('the key is refused', async () => {
      const sentAt = performance.now();
      if ((await send(key)) === 401) return true;
      lastAccepted = sentAt - revokedAt;
      return false;
    });
    context.diagnostic(`last accepted ${lastAccepted.toFixed(0)} ms after the response`);
    assert.ok(lastAccepted <= REVOKED_MS_MAX, `${lastAccepted} ms`);

    await row('to be revoked').waitFor({ state: 'detached' });
    await page.getByLabel('Show', { exact: true }).selectOption('all');
    await sees(row('to be revoked'), 'Revoked');
    await page.reload();
    await sees(row('to be revoked'), 'Revoked');
    assertNoComplaints(watched);
  });

  test('the snippet of a publishable key works on a page of an allowed origin, and only there', async () => {
    const key = await make('shop front', async (dialog) => {
      await dialog.getByLabel('Kind').selectOption('publishable');
      await dialog.getByLabel('Allowed origins').fill(`${otherOrigin} https://shop.example.com`);
    });
    assert.match(key, /^pk_/);
    const snippet = await copied(page.getByRole('dialog'), 'Copy');
    assert.ok(snippet.includes(`src="${running.server.baseUrl}/ingest/sluice.js"`), snippet);
    await ensureBuiltScript();
    const status = await onOtherSite(async (shop) => {
      const responded = shop.waitForResponse((response) => response.request().method() === 'POST');
      await shop.setContent(snippet);
      return (await responded).status();
    });
    assert.equal(status, 202);
    const fromElsewhere = await post(
      running.server,
      key,
      { users: [user('ada')] },
      { origin: 'https://elsewhere.example' },
    );
    assert.notEqual(fromElsewhere.status, 202);

    await page.goto(KEYS);
    await sees(row('shop front'), `Only from ${otherOrigin}, https://shop.example.com`);
    assertNoComplaints(watched);
  });

  test('a secret key that was used on a page of another site is marked as probably leaked', async () => {
    const key = await make('leaked');
    await page.getByRole('button', { name: 'I have saved it' }).click();
    const line = { method: 'POST', headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' } };
    const request = JSON.stringify({ ...line, body: JSON.stringify({ users: [user('eve')] }) });
    const url = `${running.server.baseUrl}/ingest/events`;
    // The response has no CORS headers: the page does not get to see it.
    const script = `fetch('${url}', ${request}).then(() => 'seen', () => 'kept from the page')`;
    assert.equal(await onOtherSite((shop) => shop.evaluate(script)), 'kept from the page');
    await eventually('the server has noted it', async () => {
      const { text } = await askAs(running.server, running.session, '/keys');
      return text.includes(`"leak_origin":"${otherOrigin}"`);
    });
    await page.goto(KEYS);
    await sees(row('leaked'), 'Probably leaked');
    await sees(row('leaked'), otherOrigin);
    assertNoComplaints(watched);
  });

  test('a key that was not used for 30 days is marked', async () => {
    await make('forgotten');
    await page.getByRole('button', { name: 'I have saved it' }).click();
    await sees(row('forgotten'), 'Active');
    assert.equal(await row('forgotten').getByText('Unused for 30 days').count(), 0);
    const database = new DatabaseSync(join(running.server.dataFolder, 'keys.db'), { timeout: 5_000 });
    database.prepare("UPDATE keys SET created_at = ? WHERE name = 'forgotten'").run(Date.now() - 31 * DAY_MS);
    database.close();
    await page.reload();
    await sees(row('forgotten'), 'Unused for 30 days');
    assertNoComplaints(watched);
  });

  test('a mistake is said in the dialog, which stays', async () => {
    await page.goto(`${KEYS}?dialog=create`);
    await heading(page, 'API keys');
    const dialog = page.getByRole('dialog', { name: 'Create an API key' });
    await dialog.getByLabel('Name').fill('wrong origin');
    await dialog.getByLabel('Kind').selectOption('publishable');
    await dialog.getByLabel('Allowed origins').fill('https://shop.example.com/a/path');
    await dialog.getByRole('button', { name: 'Create key' }).click();
    await sees(dialog.getByRole('alert'), /origin/i);
    assert.equal(await dialog.getByLabel('Name').inputValue(), 'wrong origin');
    assertNoComplaints(watched, /status of 400/);
  });
});
