/**
 * A running server with its first member signed in, and windows of the browser that show it. The member joins through
 * the API, as the page would; how the page does it is tested in `first-event.test.ts`.
 */

import assert from 'node:assert/strict';
import type { Browser, Locator, Page } from 'playwright-core';
import {
  eventually,
  type HttpResponse,
  post,
  processed,
  readResponse,
  removeFolder,
  type ServerOptions,
  startServer,
  type TestServer,
} from '../server.ts';
import { openBrowser, openPage, type PageOptions, type WatchedPage, welcomeLinkOf } from './browser.ts';
import { ensureBuiltPage } from './built-page.ts';

export const EMAIL = 'ada@example.com';
export const PASSWORD = 'correct horse battery';

export interface MemberServer {
  readonly server: TestServer;
  readonly browser: Browser;
  /** The value of the first member's session cookie. */
  readonly session: string;
  /** A window in which the member, or the holder of the given session, is signed in. */
  readonly open: (options?: PageOptions & { session?: string | null }) => Promise<WatchedPage>;
  readonly close: () => Promise<void>;
}

export async function startMemberServer(options: ServerOptions = {}): Promise<MemberServer> {
  await ensureBuiltPage();
  const [server, browser] = await Promise.all([startServer(options), openBrowser()]);
  const session = await join(server, welcomeLinkOf(server.stdout()), EMAIL);
  return {
    server,
    browser,
    session,
    open: (pageOptions = {}) => openWith(browser, server, { session, ...pageOptions }),
    close: async () => {
      await browser.close();
      await server.stop();
      removeFolder(server.dataFolder);
    },
  };
}

async function openWith(
  browser: Browser,
  { baseUrl }: TestServer,
  { session, ...options }: PageOptions & { session?: string | null },
): Promise<WatchedPage> {
  const watched = await openPage(browser, baseUrl, options);
  if (typeof session === 'string') {
    await watched.context.addCookies([{ name: 'sluice_session', value: session, url: baseUrl, httpOnly: true }]);
  }
  return watched;
}

/** Uses a one-time link; gives the session. */
export async function join(server: TestServer, link: string, email: string, password = PASSWORD): Promise<string> {
  const token = new URL(link).hash.slice(1);
  const response = await fetch(`${server.baseUrl}/invitations/accept`, {
    method: 'POST',
    headers: { origin: server.baseUrl, 'content-type': 'application/json' },
    body: JSON.stringify({ token, email, password }),
  });
  assert.equal(response.status, 200, await response.text());
  const session = /sluice_session=([^;]+)/.exec(response.headers.get('set-cookie') ?? '')?.[1];
  assert.ok(session !== undefined);
  return session;
}

/** As the page asks. */
export async function askAs(
  { baseUrl }: TestServer,
  session: string,
  path: string,
  options: { method?: string; environment?: string; body?: unknown } = {},
): Promise<HttpResponse> {
  const { method = 'GET', environment = 'development', body } = options;
  const response = await fetch(baseUrl + path, {
    method,
    headers: {
      cookie: `sluice_session=${session}`,
      origin: baseUrl,
      'sluice-environment': environment,
      ...(body !== undefined && { 'content-type': 'application/json' }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  return readResponse(response);
}

/** Sends users, which must be accepted, and gives their trace_id when they can be read back. */
export async function deliver(server: TestServer, key: string, users: readonly unknown[]): Promise<string> {
  const { status, body, text } = await post(server, key, { users });
  assert.equal(status, 202, text);
  const { trace_id: traceId } = body as { trace_id: string };
  await processed(server, key, traceId);
  return traceId;
}

/** Of one person, a hundred to a user, newest first: `no` is the place of each. */
export function eventsInTheirOrder(userId: string, count: number): object[] {
  const now = Date.now();
  const events = Array.from({ length: count }, (_, no) => {
    return { event_name: 'counted', no, timestamp: new Date(now - 1_000 * no).toISOString() };
  });
  return Array.from({ length: Math.ceil(count / 100) }, (_, n) => {
    return { identifiers: { user_id: userId }, events: events.slice(100 * n, 100 * (n + 1)) };
  });
}

/** Waits until it can be seen without scrolling. */
export async function inView(locator: Locator): Promise<void> {
  await locator.waitFor();
  const top = await eventually('it is there', async () => (await locator.boundingBox())?.y);
  const height = locator.page().viewportSize()?.height ?? 0;
  assert.ok(top >= 0 && top < height, `at ${top} of ${height}`);
}

/** What the browser complained about must be what the test provoked, and nothing else. */
export function assertNoComplaints({ complaints }: WatchedPage, provoked?: RegExp): void {
  assert.deepEqual(
    complaints.filter((complaint) => provoked === undefined || !provoked.test(complaint)),
    [],
  );
}

export async function heading(page: Page, name: string | RegExp): Promise<void> {
  await page.getByRole('heading', { level: 1, name }).waitFor();
}

/** Waits until it can be seen. */
export async function sees(page: Page | Locator, text: string | RegExp): Promise<void> {
  await page.getByText(text).filter({ visible: true }).first().waitFor();
}

/** Waits until the view has its heading and nothing in it is loading. */
export async function settled(page: Page): Promise<void> {
  await page.getByRole('heading', { level: 1 }).waitFor();
  await eventually('nothing is loading', async () => (await page.locator('.loading').count()) === 0);
}
