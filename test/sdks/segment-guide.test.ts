/** Every snippet of docs/segment.md is run as it is printed, each in a program of its own, and its event is stored. */

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { openBrowser, whyNoBrowser } from '../dashboard/browser.ts';
import { makeKey, useServer } from '../edge/fixture.ts';
import { openSite, visit } from '../sdk/site.ts';
import { removeFolder, temporaryFolder } from '../server.ts';
import { browserBundle } from './browser-bundle.ts';
import { javaCommand, nodeCommand, pythonCommand } from './clients.ts';
import { isStored, runSnippet, SNIPPETS, snippetWith } from './guide.ts';
import { whyNot } from './registries.ts';

const URL_OF_GUIDE = 'https://sluice.example.com';

suite('The guide for Segment’s SDKs', () => {
  const server = useServer();

  test('has no snippet that is not run', () => {
    assert.deepEqual(
      SNIPPETS.map(({ language }) => language),
      // The one for Go is run by go-sdk.ts.
      ['js', 'js', 'js', 'python', 'java', 'go', 'js', 'sh', 'json'],
    );
  });

  for (const [sdk, event] of [
    ['@segment/analytics-node', 'Order Completed'],
    ['@rudderstack/rudder-sdk-node', 'Order Shipped'],
  ] as const) {
    test(`shows how to use ${sdk}`, async () => {
      await runSnippet(server(), await nodeCommand(snippetWith('js', sdk)));
      await isStored(server(), event);
    });
  }

  for (const [sdk, event] of [
    ['@segment/analytics-next', 'Cart Opened'],
    ['@rudderstack/analytics-js', 'Cart Emptied'],
  ] as const) {
    test(`shows how to use ${sdk}`, { skip: whyNoBrowser() }, async (context) => {
      const { key } = await makeKey(server().dataFolder, { kind: 'publishable' });
      const text = snippetWith('js', sdk).replaceAll(URL_OF_GUIDE, server().baseUrl).replace('pk_…', key);
      const [script, site, browser] = await Promise.all([
        browserBundle(text),
        openSite(server().baseUrl, key),
        openBrowser(),
      ]);
      context.after(() => Promise.all([browser.close(), site.close()]));
      site.html = `<body><script>${script.replaceAll('</script', '<\\/script')}</script>`;
      await visit(await browser.newContext(), site.url);
      await isStored(server(), event);
    });
  }

  test('shows how to use Segment’s SDK for Python', { skip: whyNot('python3', 'pip3') }, async () => {
    await runSnippet(server(), await pythonCommand('-c', snippetWith('python', 'segment.analytics')));
    await isStored(server(), 'Order Returned');
  });

  test('shows how to use Segment’s SDK for Java', { skip: whyNot('java', 'mvn') }, async (context) => {
    const folder = temporaryFolder();
    context.after(() => removeFolder(folder));
    const file = join(folder, 'Example.java');
    writeFileSync(file, snippetWith('java', 'com.segment.analytics'));
    await runSnippet(server(), await javaCommand(file, folder));
    await isStored(server(), 'Order Refunded');
  });

  test('shows what the server responds', async () => {
    const args = ['-euo', 'pipefail', '-c', snippetWith('sh', 'curl')];
    const printed = await runSnippet(server(), { program: 'bash', args });
    const withoutId = (text: string): string => text.trim().replace(/"trace_id":"[^"]+"/, '');
    assert.equal(withoutId(printed), withoutId(snippetWith('json', 'trace_id')));
    await isStored(server(), 'Order Cancelled');
  });
});
