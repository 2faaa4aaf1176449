/**
 * A web site of its own origin whose pages load the SDK from the server, as a customer's pages do, and a Chromium that
 * visits it. `window.sluice` of a page is reached through `called`.
 */

import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { BrowserContext, Page } from 'playwright-core';

export interface Site {
  readonly url: string;
  /** Attributes of the script tag of the next page. */
  attributes: string;
  /** HTML before the script tag of the next page. */
  head: string;
  /** If set, instead of all that. */
  html: string;
  close(): Promise<void>;
}

export async function openSite(serverUrl: string, key: string): Promise<Site> {
  const server = createServer((_request, response) => {
    const script = `<script src="${serverUrl}/ingest/sluice.js" data-key="${key}" ${site.attributes}></script>`;
    response.setHeader('content-type', 'text/html');
    const html = site.html || site.head + script;
    response.end(`<!doctype html><title>A shop</title><link rel="icon" href="data:,">${html}`);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const site: Site = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    attributes: '',
    head: '',
    html: '',
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
  return site;
}

export async function visit(context: BrowserContext, url: string): Promise<Page> {
  const page = await context.newPage();
  await page.goto(url);
  return page;
}

/** Calls a method of the client of a page and returns what it returned. */
export function called<Result>(page: Page, method: string, ...args: unknown[]): Promise<Result> {
  const list = args.map((arg) => JSON.stringify(arg)).join();
  return page.evaluate<Result>(`window.sluice.${method}(${list})`);
}

/** Calls `track(name, { n })` with each number. */
export function trackEach(page: Page, name: string, from: number, to: number, filling = 0): Promise<void> {
  const text = `'x'.repeat(${filling})`;
  return page.evaluate(
    `for (let n = ${from}; n < ${to}; n++) window.sluice.track(${JSON.stringify(name)}, { n, text: ${text} })`,
  );
}

/** How many calls the pages of the site have kept in localStorage. */
export function keptCalls(page: Page): Promise<number> {
  return page.evaluate<number>("Object.keys(localStorage).filter((name) => name.includes('.q.')).length");
}
