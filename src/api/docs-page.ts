/**
 * The page at `/docs`: the OpenAPI document for people. Rendered on the server, once; no script, nothing from another
 * host, and every text is escaped on its way in. Its Content-Security-Policy allows its own style sheet and nothing else.
 */

import { createHash } from 'node:crypto';
import {
  type Cell,
  codeBlock,
  type Html,
  html,
  inline,
  jsonBlock,
  type Part,
  prose,
  render,
  table,
} from './docs-html.ts';
import { DOCS_STYLE } from './docs-style.ts';
import { SMALL_REQUEST, SMALL_RESPONSE } from './examples.ts';
import type { OpenApiDocument } from './openapi-document.ts';
import { follow, type JsonSchema, type MediaType, type Operation, type Response } from './openapi-types.ts';

/** Shown where the document does not know its own address. */
const DEFAULT_SERVER_URL = 'http://127.0.0.1:8080';

export function docsPolicy(): string {
  const hash = createHash('sha256').update(DOCS_STYLE).digest('base64');
  return `default-src 'none'; style-src 'sha256-${hash}'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`;
}

interface Endpoint {
  readonly path: string;
  readonly method: string;
  readonly operation: Operation;
}

/** The label is for the contents: the title unless given. */
type Section = readonly [id: string, title: string, body: Part, label?: string];

/** Sections under one heading of the contents, which lists them unless other links are given. */
type Group = readonly [name: string, sections: readonly Section[], links?: readonly (readonly [string, string])[]];

export function docsPage(document: OpenApiDocument): string {
  const { info } = document;
  const groups = groupsOf(document);
  const contents = groups.map(([name, sections, links]) => {
    const shown = links ?? sections.map(([id, title, , label = title]) => [id, label] as const);
    const items = shown.map(([id, label]) => html`<li><a href="#${id}">${label}</a></li>`);
    return html`<h2>${name}</h2><ul>${items}</ul>`;
  });
  const sections = groups
    .flatMap(([, ofGroup]) => ofGroup)
    .map(([id, title, body]) => html`<section id="${id}"><h2>${title}</h2>${body}</section>`);
  const body = html`
<a class="skip" href="#main">Skip to the text</a>
<div class="shell">
<nav aria-label="Contents">
  <a class="brand" href="#main">${GATE}${info.title}</a>
  ${contents}
</nav>
<main id="main">
  <h1>${info.summary}</h1>
  <p class="lead">${info.description}</p>
  <p class="meta">${info.title} ${info.version}. For tools: <a href="openapi.json">openapi.json</a> (OpenAPI 3.1).</p>
  ${sections}
  <footer>${info.title} ${info.version}, licensed under ${info.license.name}.</footer>
</main>
</div>`;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${render(`${info.title} API`)}</title>
<link rel="icon" href="${ICON}">
<style>${DOCS_STYLE}</style>
</head>
<body>${render(body)}
</body>
</html>
`;
}

/** A gate that is half open, with water running through. */
const GATE = html`<svg viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" aria-hidden="true"><path d="M5 3v18M19 3v18M5 7h14M5 11h14"/><path d="M8.5 16.5q1.75-1.5 3.5 0t3.5 0"/></svg>`;
const ICON =
  "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24' fill='none' stroke='%230a8791' stroke-width='2.5' stroke-linecap='round'%3E%3Cpath d='M5 3v18M19 3v18M5 7h14M5 11h14M8.5 16.5q1.75-1.5 3.5 0t3.5 0'/%3E%3C/svg%3E";

function groupsOf(document: OpenApiDocument): readonly Group[] {
  const url = document.servers[0]?.url ?? '/';
  const introduction = (name: string): Html => prose(document.tags.find((tag) => tag.name === name)?.description ?? '');
  const sectionsOf = (tag: string): Section[] =>
    endpointsOf(document, tag).map((endpoint) => {
      const { operationId, summary } = endpoint.operation;
      return [operationId, summary, fullBody(document, endpoint)];
    });
  const operations = endpointsOf(document, 'Operations');
  const operationBodies = operations.map((endpoint) => shortBody(document, endpoint));
  return [
    [
      'Start',
      [
        ['quick-start', 'Quick start', quickStart(url === '/' ? DEFAULT_SERVER_URL : url)],
        ['authentication', 'Keys', authentication(document)],
      ],
    ],
    ['Events', [...sectionsOf('Events'), ...referenceSections(document)]],
    [
      'Reading back',
      [['reading-back', 'Reading back', introduction('Reading back'), 'Conventions'], ...sectionsOf('Reading back')],
    ],
    ['Dashboard', [['dashboard', 'Dashboard', introduction('Dashboard'), 'Overview'], ...sectionsOf('Dashboard')]],
    [
      'Operations',
      [['operations', 'Operations', [introduction('Operations'), operationBodies]]],
      operations.map(({ path, operation }) => [operation.operationId, path]),
    ],
  ];
}

/** The id is also in the style sheet. */
type Way = readonly [id: string, label: string, panel: Html];

/**
 * A key, then one event from a terminal, a web page, a program, or with Segment's SDKs. The page has no script, so its tabs
 * are radio buttons: arrows go from one to the next, and the style sheet shows the panel of the one that is checked. The
 * dashboard shows the same snippets to newcomers (dashboard/src/snippets.ts).
 */
function quickStart(url: string): Html {
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

function endpointsOf(document: OpenApiDocument, tag: string): Endpoint[] {
  return Object.entries(document.paths).flatMap(([path, item]) =>
    Object.entries(item)
      .filter(([, operation]) => operation.tags.includes(tag))
      .map(([method, operation]) => ({ path, method, operation })),
  );
}

function authentication(document: OpenApiDocument): Html {
  const how = {
    bearer: 'Authorization: Bearer <key>',
    basic: 'Authorization: Basic <base64 of key:>',
    query: '/ingest/events?key=<key>',
    cookie: 'Cookie: sluice_session=…',
  };
  const rows = Object.values(document.components.securitySchemes).map(
    ({ in: location, scheme = 'bearer', description }) => [
      html`<code>${how[location ?? scheme]}</code>`,
      inline(description),
    ],
  );
  return html`
  <p>The key names the account and the environment; there is no other header for that. Several keys can be active at
  once, so a key can be replaced without a pause. A key is shown once, when it is made; a lost one is revoked and
  replaced. Revoking takes effect within two seconds.</p>
  ${table(['Sent as', 'Key'], rows)}`;
}

/** What is of the whole API: what makes a user valid, the errors, the limits. */
function referenceSections(document: OpenApiDocument): readonly Section[] {
  const rules = document['x-user-rules'].map(({ rule, message }): Cell[] => [
    inline(rule),
    { className: 'message', text: html`<code>${message}</code>` },
  ]);
  const errors = document['x-errors'].map(({ status, error, retry, when }): Cell[] => [
    { className: `status ${tone(status)}`, text: status },
    html`<code>${error}</code>`,
    html`${inline(when)}${retry ? html` <strong>Try again</strong> after <code>Retry-After</code> seconds.` : ''}`,
  ]);
  const limits = document['x-limits'].map(({ what, limit, beyond }) => [
    html`<strong>${inline(what)}</strong>`,
    inline(limit),
    inline(beyond),
  ]);
  const ofRules = html`
  <p>Rules are checked in this order; the first one that a user breaks is its <code>message</code>.</p>
  ${table(['Rule', 'Message otherwise'], rules)}`;
  const ofErrors = html`
  <p>Every error is JSON with <code>error</code> and <code>trace_id</code>; a 401 has <code>error</code> alone. Every
  response has the trace_id in <code>X-Trace-Id</code>.</p>
  ${table(['Status', 'error', 'When'], errors)}`;
  return [
    ['user-rules', 'What makes a user valid', ofRules],
    ['errors', 'Errors', ofErrors],
    ['limits', 'Limits', table(['What', 'Limit', 'Beyond it'], limits)],
  ];
}

function tone(status: string | number): string {
  const first = String(status)[0];
  return first === '2' ? 'good' : first === '4' ? 'warn' : 'bad';
}

function endpointLine({ method, path }: Endpoint): Html {
  return html`<p class="endpoint"><span class="method ${method}">${method.toUpperCase()}</span><code>${path}</code></p>`;
}

function fullBody(document: OpenApiDocument, endpoint: Endpoint): Html {
  const { operation } = endpoint;
  const body = operation.requestBody;
  const main = body?.content['application/json'];
  return html`
  ${endpointLine(endpoint)}
  ${prose(operation.description)}
  ${parameters(document, operation)}
  ${body === undefined ? '' : html`<h3>Body</h3><p>${inline(body.description)}</p>`}
  ${main === undefined ? '' : [schemaTable(document, main.schema, 'request'), exampleBlocks(main)]}
  <h3>Responses</h3>
  ${responses(document, operation)}`;
}

/** Without parameters and a body, which calls of operators do not have. */
function shortBody(document: OpenApiDocument, endpoint: Endpoint): Html {
  const { operation } = endpoint;
  return html`
  <h3 id="${operation.operationId}">${operation.summary}</h3>
  ${endpointLine(endpoint)}
  ${prose(operation.description)}
  ${responses(document, operation)}`;
}

const PARAMETER_LOCATIONS = [
  ['path', 'In the path'],
  ['query', 'Parameters'],
  ['header', 'Headers'],
] as const;

function parameters(document: OpenApiDocument, operation: Operation): Part {
  return PARAMETER_LOCATIONS.map(([location, heading]) => {
    const here = (operation.parameters ?? []).filter((parameter) => parameter.in === location);
    const rows = here.map(({ name, schema, description }): Cell[] => [
      { className: 'field', text: html`<code>${name}</code>` },
      { className: 'type', text: typeText(document, schema) },
      inline(description),
    ]);
    return rows.length === 0 ? '' : html`<h3>${heading}</h3>${table(['Name', 'Type', 'Meaning'], rows)}`;
  });
}

function responses(document: OpenApiDocument, operation: Operation): Part {
  return Object.entries(operation.responses).map(([status, given]) => {
    const response = '$ref' in given ? follow(document.components.responses, given) : given;
    return html`
  <details${status.startsWith('2') && operation.tags.every((tag) => tag !== 'Operations') ? html` open` : ''}>
    <summary><strong class="${tone(status)}">${status}</strong> <span>${inline(response.description)}</span></summary>
    <div class="inside">${responseBody(document, response)}</div>
  </details>`;
  });
}

function responseBody(document: OpenApiDocument, response: Response): Html {
  const headers = Object.keys(response.headers).map((name) => html` <code>${name}</code>`);
  const content = Object.entries(response.content ?? {}).map(([type, media]) =>
    type === 'application/json' && (media.examples || media.schema.$ref)
      ? html`${(media.schema.anyOf ?? [media.schema]).map((shape) => schemaTable(document, shape, 'response'))}${exampleBlocks(media)}`
      : html`<p><code>${type}</code></p>`,
  );
  return html`${content}<p class="meta">Headers:${headers}</p>`;
}

function exampleBlocks(media: MediaType): Part {
  return Object.values(media.examples ?? {}).map(({ summary, value }) => html`<h4>${summary}</h4>${jsonBlock(value)}`);
}

/** What is worth a note differs: in a request the fields that must be there, in a response those that may be missing. */
type Note = 'required' | 'not always';

/**
 * A JSON Schema as a table that a person can read: one row per field, fields of fields indented under them, references
 * followed. Knows the keywords that the schemas here use. Schemas here do not refer to themselves, so this ends.
 */
function schemaTable(document: OpenApiDocument, schema: JsonSchema, of: 'request' | 'response'): Part {
  const rows = fieldRows(document, schema, 0, of === 'request' ? 'required' : 'not always');
  return rows.length === 0 ? '' : table(['Field', 'Type', 'Meaning'], rows);
}

function fieldRows(document: OpenApiDocument, schema: JsonSchema, depth: number, note: Note): (readonly Cell[])[] {
  const { properties = {}, required = [], additionalProperties: others } = fieldsOf(document, schema);
  // Those that have no name of their own come last.
  const fields = Object.entries<JsonSchema>(properties).concat(typeof others === 'object' ? [['', others]] : []);
  return fields.flatMap(([name, field]) => {
    const resolved = resolve(document, field);
    const inner = optionalOf(resolved);
    const description = resolved.description ?? (inner && resolve(document, inner).description) ?? '';
    const isNoted = required.includes(name) ? note === 'required' : note === 'not always' && name !== '';
    const cells: readonly Cell[] = [
      { className: `field depth-${depth}`, text: name === '' ? html`<i>any other</i>` : html`<code>${name}</code>` },
      { className: 'type', text: [typeText(document, resolved), isNoted ? html` <em>${note}</em>` : ''] },
      inline(description),
    ];
    return [cells].concat(fieldRows(document, field, depth + 1, note));
  });
}

/** The object whose fields are shown below a field: its own, that of its items, or that of its one choice but null. */
function fieldsOf(document: OpenApiDocument, schema: JsonSchema): JsonSchema {
  const resolved = resolve(document, schema);
  const inner = resolved.items ?? optionalOf(resolved);
  return inner === undefined ? resolved : fieldsOf(document, inner);
}

function optionalOf(schema: JsonSchema): JsonSchema | undefined {
  if (schema.type !== undefined) return undefined;
  return schema.anyOf?.find((choice) => choice.type !== 'null');
}

function resolve(document: OpenApiDocument, schema: JsonSchema): JsonSchema {
  return schema.$ref === undefined ? schema : follow(document.components.schemas, { $ref: schema.$ref });
}

/** In words: `string, 1 to 255 characters` or `array of objects, at least 1`. That null may stand for nothing goes unsaid. */
function typeText(document: OpenApiDocument, schema: JsonSchema): string {
  const { type, items, anyOf, format } = resolve(document, schema);
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum !== undefined) return schema.enum.map(String).join(', ');
  if (type === undefined && anyOf !== undefined) {
    const choices = anyOf.filter((choice) => choice.type !== 'null');
    return choices.map((choice) => typeText(document, choice)).join(' or ');
  }
  if (type === 'array') {
    const plural = items === undefined ? 'values' : `${resolve(document, items).type ?? 'value'}s`;
    return `array of ${plural}${range(schema.minItems, schema.maxItems, '')}`;
  }
  if (type === 'string' && format === 'uuid') return 'string, UUID';
  if (type === 'string' && format === 'date-time') return 'string, ISO 8601';
  if (type === 'string') return `string${range(schema.minLength, schema.maxLength, ' characters')}`;
  return type ?? 'any JSON value';
}

function range(min: number | undefined, max: number | undefined, unit: string): string {
  if (min !== undefined && max !== undefined) return `, ${min} to ${max.toLocaleString('en')}${unit}`;
  if (max !== undefined) return `, at most ${max.toLocaleString('en')}${unit}`;
  return min === undefined ? '' : `, at least ${min}${unit}`;
}
