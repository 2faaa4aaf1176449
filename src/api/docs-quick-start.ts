/**
 * The first section of the docs page: a key, then one event from a terminal, a web page, a program, or with Segment's SDKs.
 * The page has no script, so its tabs are radio buttons: arrows go from one to the next, and the style sheet shows the panel
 * of the one that is checked. The dashboard shows the same snippets to newcomers (dashboard/src/snippets.ts).
 */

import { codeBlock, type Html, html, jsonBlock } from './docs-html.ts';
import { SMALL_REQUEST, SMALL_RESPONSE } from './examples.ts';

/** The id is also in the style sheet. */
type Way = readonly [id: string, label: string, panel: Html];

export function quickStart(url: string): Html {
  const newKey = 'npx sluice keys create --name quick-start --kind secret --env development';
  return html`
  <p>The first start of a server prints a secret key for development. This makes another one:</p>
  ${codeBlock(newKey)}
  <p>Send one event of one person:</p>
  ${tabs([
    ['from-curl', 'curl', fromCurl(url)],
    ['from-browser', 'Browser', fromBrowser(url)],
    ['from-node', 'Node.js', fromNode(url)],
    ['from-segment', 'Segment SDKs', fromSegment(url)],
  ])}
  <p>The response is a 202. From now on the event survives a crash and a power cut:</p>
  ${jsonBlock(SMALL_RESPONSE)}`;
}

/** Radio buttons before their panels, which is what the style sheet needs. */
function tabs(ways: readonly Way[]): Html {
  const choices = ways.map(
    ([id, label], index) =>
      html`<input type="radio" name="from" id="${id}"${index === 0 ? html` checked` : ''}><label for="${id}">${label}</label>`,
  );
  const panels = ways.map(([id, , panel]) => html`<div class="panel ${id}">${panel}</div>`);
  return html`<fieldset class="tabs"><legend>Send it from</legend>${choices}${panels}</fieldset>`;
}

function fromCurl(url: string): Html {
  const exports = `export SLUICE_URL=${url}
export SLUICE_KEY=sk_dev_…`;
  const send = `curl "$SLUICE_URL/ingest/events" \\
  -H "Authorization: Bearer $SLUICE_KEY" \\
  -H "Content-Type: application/json" \\
  -d '${JSON.stringify(SMALL_REQUEST)}'`;
  return html`<p>Set the server and the key:</p>${codeBlock(exports)}<p>Send:</p>${codeBlock(send)}`;
}

function fromBrowser(url: string): Html {
  const script = `<script async src="${url}/ingest/sluice.js"
  data-key="pk_…" data-auto-page></script>`;
  const track = `(window.sluice ||= []).push(['track', 'cart_opened', { items: 2 }]);`;
  const beacon = `const body = JSON.stringify({ users: [{ identifiers, events }] });
navigator.sendBeacon('${url}/ingest/events?key=pk_…', body);`;
  return html`<p>With a publishable key (<code>--kind publishable</code>). The server serves the script, which sends page
  views by itself:</p>
  ${codeBlock(script)}
  <p>Everything else:</p>
  ${codeBlock(track)}
  <p>Without the script, even while the page is closing:</p>
  ${codeBlock(beacon)}`;
}

function fromNode(url: string): Html {
  const program = `import { Sluice } from '@sluice/sdk';

const sluice = new Sluice({ url: '${url}', key: 'sk_dev_…' });
sluice.user({ user_id: 'grace' }).track('signed_up', { plan: 'free' });
await sluice.close(); // at the end: sends what is queued`;
  return html`<p>Install <code>@sluice/sdk</code>, which also works in Bun, Deno and Workers:</p>${codeBlock(program)}`;
}

function fromSegment(url: string): Html {
  const program = `import { Analytics } from '@segment/analytics-node';

const analytics = new Analytics({
  writeKey: 'sk_dev_…',
  host: '${url}',
  path: '/ingest/v1/batch',
});
analytics.track({ userId: 'grace', event: 'signed_up', properties: { plan: 'free' } });
await analytics.closeAndFlush();`;
  return html`<p>Segment’s and RudderStack’s SDKs send to Sluice once host and key are changed. With
  <code>@segment/analytics-node</code>:</p>${codeBlock(program)}`;
}
