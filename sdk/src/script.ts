/**
 * The script that the server serves as `/ingest/sluice.js`, for pages without a bundler. `data-key` on its tag starts
 * it: the client is `window.sluice`, and the server is the one that served the script. Calls made before it has loaded
 * wait in an array: `(window.sluice ||= []).push(['track', 'signed_up'])`. `window.Sluice` is the class.
 */

import { Sluice } from './browser.ts';

const METHODS = /^(identify|track|user|page|reset|opt(In|Out)|on|flush|close)$/;

const page = window as unknown as Record<string, unknown>;
page['Sluice'] = Sluice;

const script = document.currentScript as HTMLScriptElement | null;
const { key, autoPage } = script?.dataset ?? {};
if (script && key) {
  const url = script.src.replace(/\/ingest\/[^/]*$/, '');
  const client = new Sluice({ url, key, autoPage: autoPage !== undefined });
  const waiting = page['sluice'];
  const methods = client as unknown as Record<string, (...args: unknown[]) => unknown>;
  /** What is wrong with one entry must not stop the others. */
  const push = (entry: unknown): unknown => {
    try {
      const [method, ...args] = entry as [string, ...unknown[]];
      return METHODS.test(method) && methods[method]?.(...args);
    } catch (error) {
      console.error(error);
      return undefined;
    }
  };
  page['sluice'] = Object.assign(client, { push });
  if (Array.isArray(waiting)) waiting.forEach(push);
}
