/**
 * The page at `/docs`: the OpenAPI document for people. Rendered on the server, once; no script, nothing from another
 * host, and every text is escaped on its way in. Its Content-Security-Policy allows its own style sheet and nothing else.
 */

import { createHash } from 'node:crypto';
import { type Html, html, inline, jsonBlock, prose, render } from './docs-html.ts';
import { quickStart } from './docs-quick-start.ts';
import { schemaTable, table, typeText } from './docs-schema.ts';
import { DOCS_STYLE } from './docs-style.ts';
import { errorTable, limitTable, tone, userRules } from './docs-tables.ts';
import { follow, type MediaType, type OpenApiDocument, type Operation, type Response } from './openapi-types.ts';

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

export function docsPage(document: OpenApiDocument): string {
  const { info } = document;
  const body = html`
<a class="skip" href="#main">Skip to the text</a>
<div class="shell">
${contents(document)}
<main id="main">
  <h1>${info.summary}</h1>
  <p class="lead">${info.description}</p>
  <p class="meta">${info.title} ${info.version}. For tools: <a href="openapi.json">openapi.json</a> (OpenAPI 3.1).</p>
  ${quickStart(serverUrlOf(document))}
  ${authentication(document)}
  ${endpointsOf(document, 'Events').map((endpoint) => fullSection(document, endpoint))}
  ${userRules(document)}
  ${errorTable(document)}
  ${limitTable(document)}
  ${introduction(document, 'reading-back', 'Reading back')}
  ${endpointsOf(document, 'Reading back').map((endpoint) => fullSection(document, endpoint))}
  ${introduction(document, 'dashboard', 'Dashboard')}
  ${endpointsOf(document, 'Dashboard').map((endpoint) => fullSection(document, endpoint))}
  ${operations(document)}
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

function endpointsOf(document: OpenApiDocument, tag: string): Endpoint[] {
  return Object.entries(document.paths).flatMap(([path, item]) =>
    Object.entries(item)
      .filter(([, operation]) => operation.tags.includes(tag))
      .map(([method, operation]) => ({ path, method, operation })),
  );
}

function contents(document: OpenApiDocument): Html {
  const links = (items: readonly [string, string][]) =>
    html`<ul>${items.map(([id, text]) => html`<li><a href="#${id}">${text}</a></li>`)}</ul>`;
  const linksTo = (tag: string, label: (endpoint: Endpoint) => string) =>
    endpointsOf(document, tag).map((endpoint): [string, string] => [endpoint.operation.operationId, label(endpoint)]);
  return html`
<nav aria-label="Contents">
  <a class="brand" href="#main">${GATE}${document.info.title}</a>
  <h2>Start</h2>
  ${links([
    ['quick-start', 'Quick start'],
    ['authentication', 'Keys'],
  ])}
  <h2>Events</h2>
  ${links([
    ...linksTo('Events', ({ operation }) => operation.summary),
    ['user-rules', 'What makes a user valid'],
    ['errors', 'Errors'],
    ['limits', 'Limits'],
  ])}
  <h2>Reading back</h2>
  ${links([['reading-back', 'Conventions'], ...linksTo('Reading back', ({ operation }) => operation.summary)])}
  <h2>Dashboard</h2>
  ${links([['dashboard', 'Overview'], ...linksTo('Dashboard', ({ operation }) => operation.summary)])}
  <h2>Operations</h2>
  ${links(linksTo('Operations', ({ path }) => path))}
</nav>`;
}

function serverUrlOf({ servers }: OpenApiDocument): string {
  const url = servers[0]?.url ?? '/';
  return url === '/' ? DEFAULT_SERVER_URL : url;
}

function authentication(document: OpenApiDocument): Html {
  const how = {
    header: 'Authorization: Bearer <key>',
    query: '/ingest/events?key=<key>',
    cookie: 'Cookie: sluice_session=…',
  };
  const rows = Object.values(document.components.securitySchemes).map(
    ({ in: location, description }) =>
      html`<tr><td><code>${how[location ?? 'header']}</code></td><td>${inline(description)}</td></tr>`,
  );
  return html`
<section id="authentication">
  <h2>Keys</h2>
  <p>The key names the account and the environment; there is no other header for that. Several keys can be active at
  once, so a key can be replaced without a pause. A key is shown once, when it is made; a lost one is revoked and
  replaced. Revoking takes effect within two seconds.</p>
  ${table(['Sent as', 'Key'], rows)}
</section>`;
}

function endpointLine({ method, path }: Endpoint): Html {
  return html`<p class="endpoint"><span class="method ${method}">${method.toUpperCase()}</span><code>${path}</code></p>`;
}

function fullSection(document: OpenApiDocument, endpoint: Endpoint): Html {
  const { operation } = endpoint;
  const body = operation.requestBody;
  const main = body?.content['application/json'];
  return html`
<section id="${operation.operationId}">
  <h2>${operation.summary}</h2>
  ${endpointLine(endpoint)}
  ${prose(operation.description)}
  ${parameters(document, operation)}
  ${
    body === undefined
      ? ''
      : html`<h3>Body</h3>
  <p>${inline(body.description)}</p>
  ${main ? schemaTable(document, main.schema, 'request') : ''}
  ${main ? exampleBlocks(main) : ''}`
  }
  <h3>Responses</h3>
  ${responses(document, operation)}
</section>`;
}

const PARAMETER_LOCATIONS = [
  ['path', 'In the path'],
  ['query', 'Parameters'],
  ['header', 'Headers'],
] as const;

function parameters(document: OpenApiDocument, operation: Operation): Html {
  const blocks = PARAMETER_LOCATIONS.map(([location, heading]) => {
    const here = (operation.parameters ?? []).filter((parameter) => parameter.in === location);
    const rows = here.map(
      (parameter) => html`
      <tr>
        <td class="field"><code>${parameter.name}</code></td>
        <td class="type">${typeText(document, parameter.schema)}</td>
        <td>${inline(parameter.description)}</td>
      </tr>`,
    );
    return rows.length === 0 ? '' : html`<h3>${heading}</h3>${table(['Name', 'Type', 'Meaning'], rows)}`;
  });
  return html`${blocks}`;
}

function responses(document: OpenApiDocument, operation: Operation): Html {
  const blocks = Object.entries(operation.responses).map(([status, given]) => {
    const response = '$ref' in given ? follow(document.components.responses, given) : given;
    return html`
  <details${status.startsWith('2') && operation.tags.every((tag) => tag !== 'Operations') ? html` open` : ''}>
    <summary><strong class="${tone(status)}">${status}</strong> ${inline(response.description)}</summary>
    <div class="inside">${answerBody(document, response)}</div>
  </details>`;
  });
  return html`${blocks}`;
}

function answerBody(document: OpenApiDocument, response: Response): Html {
  const headers = Object.keys(response.headers).map((name) => html` <code>${name}</code>`);
  const content = Object.entries(response.content ?? {}).map(([type, media]) =>
    type === 'application/json' && (media.examples || media.schema.$ref)
      ? html`${(media.schema.anyOf ?? [media.schema]).map((shape) => schemaTable(document, shape, 'response'))}${exampleBlocks(media)}`
      : html`<p><code>${type}</code></p>`,
  );
  return html`${content}<p class="meta">Headers:${headers}</p>`;
}

function exampleBlocks(media: MediaType): Html {
  const blocks = Object.values(media.examples ?? {}).map(
    ({ summary, value }) => html`<h4>${summary}</h4>${jsonBlock(value)}`,
  );
  return html`${blocks}`;
}

function introduction(document: OpenApiDocument, id: string, name: string): Html {
  const tag = document.tags.find((one) => one.name === name);
  return html`
<section id="${id}">
  <h2>${name}</h2>
  ${prose(tag?.description ?? '')}
</section>`;
}

function operations(document: OpenApiDocument): Html {
  const tag = document.tags.find(({ name }) => name === 'Operations');
  const blocks = endpointsOf(document, 'Operations').map(
    (endpoint) => html`
  <h3 id="${endpoint.operation.operationId}">${endpoint.operation.summary}</h3>
  ${endpointLine(endpoint)}
  ${prose(endpoint.operation.description)}
  ${responses(document, endpoint.operation)}`,
  );
  return html`
<section id="operations">
  <h2>Operations</h2>
  <p>${tag?.description ?? ''}</p>
  ${blocks}
</section>`;
}
