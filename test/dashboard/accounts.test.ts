/** Two accounts on one server see nothing of each other; who is taken out is out; who is invited gets in. */

import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import type { Page } from 'playwright-core';
import { createKey, get, runSluice } from '../server.ts';
import { openPage, type WatchedPage, whyNoBrowser } from './browser.ts';
import {
  askAs,
  assertNoComplaints,
  deliver,
  EMAIL,
  heading,
  join,
  type MemberServer,
  PASSWORD,
  sees,
  settled,
  startMemberServer,
} from './member-page.ts';

const BASE = '/dashboard/development';
const VIEWS = ['', '/live', '/people', '/catalogue', '/rejected', '/traces', '/settings/keys', '/settings/team'];
const RIVAL_EMAIL = 'rita@rival.example';

/** What one account has, by words that stand nowhere else. */
interface Own {
  readonly word: string;
  readonly key: string;
  readonly keyId: string;
  readonly traceId: string;
  readonly profileId: string;
}

suite('Accounts in the page', { skip: whyNoBrowser() }, () => {
  let running: MemberServer;
  let rival: string;
  let mine: Own;
  let theirs: Own;

  before(async () => {
    running = await startMemberServer();
    const { server } = running;
    const invited = await runSluice(['invite', '--account', 'rivalcompany', '--json'], {
      SLUICE_DATA: server.dataFolder,
    });
    assert.equal(invited.code, 0, invited.stderr);
    rival = await join(server, (JSON.parse(invited.stdout) as { link: string }).link, RIVAL_EMAIL);
    mine = await fill(await createKey(server.dataFolder, { account: await accountOf(running.session) }), 'zebra');
    theirs = await fill(await createKey(server.dataFolder, { account: 'rivalcompany' }), 'quagga');
  });
  after(() => running.close());

  async function accountOf(session: string): Promise<string> {
    const { body } = await askAs(running.server, session, '/session');
    return (body as { account: { name: string } }).account.name;
  }

  async function fill({ id, key }: { id: string; key: string }, word: string): Promise<Own> {
    const { server } = running;
    const traceId = await deliver(server, key, [
      {
        identifiers: { user_id: `${word}-user`, email: `${word}@example.com` },
        user_properties: { animal: `${word}-property` },
        events: [{ event_name: `${word}_seen`, note: `${word}-note` }],
      },
      { identifiers: { user_id: `${word}-rejected` }, events: [] },
    ]);
    const { body } = await get(server, key, `/profiles?user_id=${word}-user`);
    return { word, key, keyId: id, traceId, profileId: (body as { id: string }).id };
  }

  /** Everything that this page and its responses said while the views were gone through. */
  async function everythingSeen(session: string, more: readonly string[]): Promise<string> {
    const watched = await running.open({ session });
    const seen: string[] = [];
    const responses: Promise<void>[] = [];
    watched.page.on('response', (response) => {
      const { pathname } = new URL(response.url());
      if (pathname.startsWith('/dashboard') || pathname === '/live') return;
      responses.push(
        response.text().then(
          (text) => void seen.push(`${pathname} ${text}`),
          // Of requests that were dropped because the view was left.
          () => {},
        ),
      );
    });
    for (const path of [...VIEWS, ...more]) {
      await watched.page.goto(BASE + path);
      await settled(watched.page);
      seen.push(await watched.page.content());
    }
    await Promise.all(responses);
    assertNoComplaints(watched, /status of 404/);
    await watched.context.close();
    return seen.join('\n');
  }

  for (const [who, other] of [
    ['the first account', 'the second'],
    ['the second account', 'the first'],
  ] as const) {
    test(`${who} sees its own data on every page, and nothing of ${other}`, async () => {
      const isFirst = who === 'the first account';
      const [own, foreign] = isFirst ? [mine, theirs] : [theirs, mine];
      const seen = await everythingSeen(isFirst ? running.session : rival, [
        `/people/${own.profileId}`,
        `/people/${own.profileId}?tab=timeline`,
        `/live?name=${own.word}_seen`,
      ]);
      for (const text of [`${own.word}_seen`, `${own.word}-user`, `${own.word}-property`, `${own.word}-rejected`]) {
        assert.ok(seen.includes(text), `${text} is missing`);
      }
      assert.ok(!seen.includes(foreign.word), excerpt(seen, foreign.word));
      for (const id of [foreign.keyId, foreign.traceId, foreign.profileId]) assert.ok(!seen.includes(id), id);
      assert.ok(!seen.includes(isFirst ? RIVAL_EMAIL : EMAIL));
      if (isFirst) assert.ok(!seen.includes('rivalcompany'));
    });
  }

  test('ids of the other account, put into the address, lead nowhere', async () => {
    const watched = await running.open({ session: rival });
    const { page } = watched;
    await page.goto(`${BASE}/people/${mine.profileId}`);
    await sees(page, 'No such person here');
    await page.goto(`${BASE}/people/${mine.profileId}?tab=identity`);
    await sees(page, 'No such person here');
    await page.goto(`${BASE}/traces/${mine.traceId}`);
    await sees(page, 'No such request in development');
    await page.goto(`${BASE}/people?q=zebra@example.com`);
    await sees(page, 'No one found');
    for (const query of [`key=${mine.keyId}`, `person=${mine.profileId}`, 'name=zebra_seen']) {
      await page.goto(`${BASE}/live?${query}`);
      await page.locator('.live-list, .empty, .notice--bad').first().waitFor();
      assert.equal(await page.getByText('zebra-note').count(), 0, query);
    }
    assertNoComplaints(watched, /status of 404/);
    await watched.context.close();
  });

  test('nor does the API let anyone act on the data of another account', async () => {
    const { server } = running;
    const acts = [
      [`/keys/${mine.keyId}/revoke`, { name: 'test' }],
      [`/keys/${mine.keyId}/roll`, { overlap_seconds: 0 }],
      [`/profiles/${mine.profileId}/unmerge`, { trace_id: mine.traceId }],
    ] as const;
    for (const [path, body] of acts) {
      assert.equal((await askAs(server, rival, path, { method: 'POST', body })).status, 404, path);
    }
    const erased = await askAs(server, rival, `/profiles/${mine.profileId}`, { method: 'DELETE' });
    assert.equal(erased.status, 404, erased.text);
    const { body } = await askAs(server, running.session, '/members');
    const [me] = (body as { members: { id: string }[] }).members;
    assert.equal((await askAs(server, rival, `/members/${me?.id}`, { method: 'DELETE' })).status, 404);
    assert.equal((await get(server, mine.key, `/profiles/${mine.profileId}`)).status, 200);
  });

  async function inviteInPage(page: Page, email: string): Promise<string> {
    await page.goto(`${BASE}/settings/team`);
    await heading(page, 'Team');
    await page.getByRole('button', { name: 'Invite a person' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Their e-mail').fill(email);
    await dialog.getByRole('button', { name: 'Make the link' }).click();
    await dialog.getByRole('button', { name: 'Copy link' }).click();
    const link = await page.evaluate<string>('navigator.clipboard.readText()');
    await dialog.getByRole('button', { name: 'Done' }).click();
    return link;
  }

  let second: WatchedPage;

  test('a second person is invited through the Team page, and joins', async () => {
    const watched = await running.open();
    const { page } = watched;
    const link = await inviteInPage(page, 'grace@example.com');
    await page.getByRole('table', { name: 'Open invitations' }).getByText('grace@example.com').waitFor();

    second = await openPage(running.browser, running.server.baseUrl);
    await second.page.goto(link);
    await heading(second.page, /^Join /);
    await second.page.getByLabel('Password', { exact: true }).fill('another long password');
    await second.page.getByRole('button', { name: 'Go to the dashboard' }).click();
    await heading(second.page, 'Overview');
    await second.page.goto(`${BASE}/live`);
    await sees(second.page, 'zebra_seen');

    await page.reload();
    await page.getByRole('table', { name: 'Members of this account' }).getByText('grace@example.com').waitFor();
    assertNoComplaints(watched);
    assertNoComplaints(second);
    await watched.context.close();
  });

  test('an invitation that was withdrawn lets no one in', async () => {
    const watched = await running.open();
    const link = await inviteInPage(watched.page, 'nobody@example.com');
    await watched.page.getByRole('button', { name: 'Withdraw the invitation of nobody@example.com' }).click();
    await watched.page.getByRole('dialog').getByRole('button', { name: 'Withdraw' }).click();
    await watched.page.getByRole('table', { name: 'Open invitations' }).waitFor({ state: 'detached' });
    const other = await openPage(running.browser, running.server.baseUrl);
    await other.page.goto(link);
    await heading(other.page, 'This link does not work any more');
    assertNoComplaints(watched);
    await other.context.close();
    await watched.context.close();
  });

  test('a member who changes the password is signed out everywhere else at the next request', async () => {
    const { page } = second;
    const signedIn = await running.open({ session: null });
    await signedIn.page.goto(`${BASE}/settings/team`);
    await signedIn.page.getByLabel('E-mail').fill('grace@example.com');
    await signedIn.page.getByLabel('Password', { exact: true }).fill('another long password');
    await signedIn.page.getByRole('button', { name: 'Sign in' }).click();
    await heading(signedIn.page, 'Team');
    await signedIn.page.getByLabel('Current password').fill('another long password');
    await signedIn.page.getByLabel('New password').fill('a third long password');
    await signedIn.page.getByRole('button', { name: 'Change password' }).click();
    await sees(signedIn.page, 'Your password is changed.');
    await signedIn.page.reload();
    await heading(signedIn.page, 'Team');

    await goToPeople(page);
    await heading(page, 'Sign in');
    assertNoComplaints(signedIn, /status of 401/);
    await second.context.close();
    second = signedIn;
  });

  test('a member who is removed is out at the next request, and cannot sign in again', async () => {
    const watched = await running.open();
    await watched.page.goto(`${BASE}/settings/team`);
    await watched.page.getByRole('button', { name: 'Remove grace@example.com' }).click();
    await watched.page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click();
    const members = watched.page.getByRole('table', { name: 'Members of this account' });
    await members.getByText('grace@example.com').waitFor({ state: 'detached' });

    const { page } = second;
    await goToPeople(page);
    await heading(page, 'Sign in');
    await page.getByLabel('E-mail').fill('grace@example.com');
    await page.getByLabel('Password', { exact: true }).fill('a third long password');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await sees(page, /wrong e-mail address or password/i);
    assertNoComplaints(watched);
    await watched.context.close();
    await second.context.close();
  });

  test('a new password by link signs out everyone with the old one', async () => {
    const watched = await running.open({ session: rival });
    await watched.page.goto(`${BASE}/live`);
    await heading(watched.page, 'Live');
    const { stdout } = await runSluice(['invite', '--email', RIVAL_EMAIL, '--json'], {
      SLUICE_DATA: running.server.dataFolder,
    });
    const fresh = await join(
      running.server,
      (JSON.parse(stdout) as { link: string }).link,
      RIVAL_EMAIL,
      `${PASSWORD} two`,
    );
    await goToPeople(watched.page);
    await heading(watched.page, 'Sign in');
    assert.equal((await askAs(running.server, fresh, '/session')).status, 200);
    await watched.context.close();
  });
});

/** The link may be gone: a page that asks for something else meanwhile notices earlier that it is signed out. */
async function goToPeople(page: Page): Promise<void> {
  const link = page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: 'People' });
  await Promise.race([link.click().catch(() => undefined), heading(page, 'Sign in')]);
}

function excerpt(text: string, word: string): string {
  const at = text.indexOf(word);
  return at === -1 ? '' : text.slice(Math.max(0, at - 300), at + 300);
}
