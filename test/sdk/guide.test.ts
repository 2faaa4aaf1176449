/** Every snippet of docs/sdk.md is run as it is printed: programs with the package as npm would install it, HTML in Chromium. */

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { promisify } from 'node:util';
import { openBrowser, whyNoBrowser } from '../dashboard/browser.ts';
import { makeKey, useServer } from '../edge/fixture.ts';
import { removeFolder, temporaryFolder } from '../server.ts';
import { ensureBuiltScript, SDK } from './built-script.ts';
import { called, openSite, visit } from './site.ts';
import { storedEvents } from './stored.ts';

const GUIDE = readFileSync(new URL('../../docs/sdk.md', import.meta.url), 'utf8');
const URL_OF_GUIDE = 'https://events.example.com';
const run = promisify(execFile);

const snippets = Array.from(GUIDE.matchAll(/^```(\w+)\n(.*?)^```$/gms), ([, language = '', text = '']) => ({
  language,
  text,
}));

suite('The guide to the SDK', () => {
  const server = useServer();

  test('its programs print what is shown below them', async (context) => {
    const folder = temporaryFolder();
    context.after(() => removeFolder(folder));
    const installed = join(folder, 'node_modules/@sluice/sdk');
    mkdirSync(installed, { recursive: true });
    cpSync(join(SDK, 'package.json'), join(installed, 'package.json'));
    const tsc = join(SDK, '../node_modules/.bin/tsc');
    await run(tsc, ['-p', join(SDK, 'tsconfig.build.json'), '--outDir', join(installed, 'dist')]);
    let programs = 0;
    for (const [index, { language, text }] of snippets.entries()) {
      if (language !== 'ts') continue;
      const file = join(folder, `program-${++programs}.mts`);
      writeFileSync(file, text.replace(URL_OF_GUIDE, server().baseUrl));
      const env = { ...process.env, SLUICE_KEY: server().key };
      const { stdout, stderr } = await run(process.execPath, [file], { env });
      assert.equal(stderr + stdout, snippets[index + 1]?.text);
    }
    assert.equal(programs, 3);
    const paid = await storedEvents(server(), 'invoice_paid');
    assert.deepEqual(
      paid.map(({ properties }) => properties['currency']),
      ['EUR'],
    );
  });

  test('its HTML and the calls on the page bring visits, a sign-in and an order', {
    skip: whyNoBrowser(),
  }, async (context) => {
    await ensureBuiltScript();
    const { key } = await makeKey(server().dataFolder, { kind: 'publishable' });
    const [html = '', ...noMore] = snippets.filter(({ language }) => language === 'html').map(({ text }) => text);
    const [early = '', later = '', ...noCalls] = snippets
      .filter(({ language }) => language === 'js')
      .map(({ text }) => text);
    assert.deepEqual([noMore, noCalls], [[], []]);
    const site = await openSite(server().baseUrl, key);
    const browser = await openBrowser();
    context.after(() => Promise.all([browser.close(), site.close()]));
    site.html = `<script>${early}</script>${html.replace(URL_OF_GUIDE, server().baseUrl).replace('pk_…', key)}`;
    const page = await visit(await browser.newContext(), site.url);
    await page.waitForFunction('window.sluice.flush');
    await page.evaluate(later);
    await called(page, 'flush');
    const events = await Promise.all(
      ['cart_opened', 'order_placed', '$identify'].map((name) => storedEvents(server(), name)),
    );
    assert.deepEqual(
      events.map((list) => list.some(({ properties }) => 'page_url' in properties)),
      [true, true, true],
    );
    assert.equal((await storedEvents(server(), 'page_viewed')).length, 2);
  });

  test('has no snippet that is not run', () => {
    assert.deepEqual(new Set(snippets.map(({ language }) => language)), new Set(['html', 'js', 'ts', 'text']));
  });
});
