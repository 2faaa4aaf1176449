/**
 * The tables of the reference that are of the whole API: what makes a user valid, the errors, the limits. Pure.
 */

import { type Html, html, inline } from './docs-html.ts';
import { table } from './docs-schema.ts';
import type { OpenApiDocument } from './openapi-types.ts';

export function userRules(document: OpenApiDocument): Html {
  const rows = document['x-user-rules'].map(
    ({ rule, message }) => html`<tr><td>${inline(rule)}</td><td class="message"><code>${message}</code></td></tr>`,
  );
  return html`
<section id="user-rules">
  <h2>What makes a user valid</h2>
  <p>Rules are checked in this order; the first one that a user breaks is its <code>message</code>.</p>
  ${table(['Rule', 'Message otherwise'], rows)}
</section>`;
}

export function errorTable(document: OpenApiDocument): Html {
  const rows = document['x-errors'].map(
    ({ status, error, retry, when }) => html`
      <tr>
        <td class="status ${tone(status)}">${status}</td>
        <td><code>${error}</code></td>
        <td>${inline(when)}${retry ? html` <strong>Try again</strong> after <code>Retry-After</code> seconds.` : ''}</td>
      </tr>`,
  );
  return html`
<section id="errors">
  <h2>Errors</h2>
  <p>Every error is JSON with <code>error</code> and <code>trace_id</code>; a 401 has <code>error</code> alone. Every
  response has the trace_id in <code>X-Trace-Id</code>.</p>
  ${table(['Status', 'error', 'When'], rows)}
</section>`;
}

export function limitTable(document: OpenApiDocument): Html {
  const rows = document['x-limits'].map(
    ({ what, limit, beyond }) =>
      html`<tr><td><strong>${inline(what)}</strong></td><td>${inline(limit)}</td><td>${inline(beyond)}</td></tr>`,
  );
  return html`
<section id="limits">
  <h2>Limits</h2>
  ${table(['What', 'Limit', 'Beyond it'], rows)}
</section>`;
}

/** The class of a status: green, amber, red. */
export function tone(status: string | number): string {
  const first = String(status)[0];
  return first === '2' ? 'good' : first === '4' ? 'warn' : 'bad';
}
