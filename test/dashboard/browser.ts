/**
 * A real Chromium for the tests of the page, and what they all watch for: errors on the console, exceptions, and
 * requests to any host but the server's. With TEST_SCREENSHOTS set, screenshots go to `test/output/dashboard/`, where a
 * person can look at them; no test looks at them, and each takes the time of several checks.
 *
 * Without a Chromium the tests say so and are skipped; on a CI machine that is a failure.
 */

import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core';
import { BROWSER, findTool } from '../tools.ts';

const OUTPUT = fileURLToPath(new URL('../output/dashboard', import.meta.url));
const CHROMIUM_ARGUMENTS = ['--no-sandbox', '--disable-gpu', '--disable-background-networking'];
/** The machine may be busy with other tests. */
const ACTION_MS_MAX = 20_000;

export const DESKTOP = { width: 1_280, height: 800 };
export const PHONE = { width: 360, height: 740 };

/** Where Chromium is: TEST_CHROMIUM, or the one that is installed. */
function chromiumFile(): string | undefined {
  return process.env['TEST_CHROMIUM'] ?? findTool(BROWSER);
}

/** For `suite(name, { skip })`: false, or why these tests cannot run here. */
export function whyNoBrowser(): string | false {
  if (chromiumFile() !== undefined) return false;
  const reason = 'needs Chromium: install it, or name it in TEST_CHROMIUM';
  if (process.env['CI'] !== undefined) throw new Error(`cannot run in CI: ${reason}`);
  return reason;
}

export async function openBrowser(): Promise<Browser> {
  const executablePath = chromiumFile();
  assert.ok(executablePath !== undefined, 'there is no Chromium');
  return chromium.launch({ executablePath, args: CHROMIUM_ARGUMENTS });
}

export interface WatchedPage {
  readonly context: BrowserContext;
  readonly page: Page;
  /** What the browser complained about so far. Each one is a bug, unless the test provoked it. */
  readonly complaints: string[];
}

export interface PageOptions {
  readonly viewport?: { readonly width: number; readonly height: number };
  readonly colorScheme?: 'light' | 'dark';
}

/** A browser window of its own, with its own cookies. */
export async function openPage(browser: Browser, baseUrl: string, options: PageOptions = {}): Promise<WatchedPage> {
  const context = await browser.newContext({
    baseURL: baseUrl,
    viewport: options.viewport ?? DESKTOP,
    colorScheme: options.colorScheme ?? 'light',
    reducedMotion: 'reduce',
    timezoneId: 'Europe/Berlin',
    locale: 'en-GB',
    permissions: ['clipboard-read', 'clipboard-write'],
  });
  context.setDefaultTimeout(ACTION_MS_MAX);
  const complaints: string[] = [];
  const { host } = new URL(baseUrl);
  context.on('request', (request) => {
    const url = new URL(request.url());
    if (url.protocol.startsWith('http') && url.host !== host) complaints.push(`a request left for ${url.host}`);
  });
  const page = await context.newPage();
  page.on('pageerror', (error) => complaints.push(`exception: ${error.message}`));
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(`console: ${message.text()} (${message.location().url})`);
  });
  page.on('dialog', (dialog) => {
    complaints.push(`a dialog of the browser opened: ${dialog.message()}`);
    void dialog.dismiss();
  });
  return { context, page, complaints };
}

/** The one-time link that the first start printed. */
export function welcomeLinkOf(stdout: string): string {
  const link = /https?:\/\/\S+\/dashboard\/welcome#\S+/.exec(stdout)?.[0];
  assert.ok(link !== undefined, `no link in what the server printed:\n${stdout}`);
  return link;
}

export async function screenshot(page: Page, name: string): Promise<void> {
  if (process.env['TEST_SCREENSHOTS'] === undefined) return;
  mkdirSync(OUTPUT, { recursive: true });
  await page.screenshot({ path: `${OUTPUT}/${name}.png`, fullPage: true, animations: 'disabled' });
}
