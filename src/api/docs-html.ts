/**
 * HTML that cannot be injected into: what goes into an `html` template is escaped unless it is `Html` already, and
 * `Html` is made here alone. Descriptions are written in a small part of Markdown (paragraphs, lists, `code`, **bold**)
 * and examples are JSON; both are escaped first and marked up after.
 */

const MARKUP = Symbol('markup');

export interface Html {
  readonly [MARKUP]: string;
}

export type Part = Html | string | number | readonly Part[];

export function html(strings: TemplateStringsArray, ...parts: readonly Part[]): Html {
  return { [MARKUP]: strings.reduce((text, string, index) => text + render(parts[index - 1] ?? '') + string) };
}

export function render(part: Part): string {
  if (typeof part === 'string') return escape(part);
  if (typeof part === 'number') return String(part);
  return MARKUP in part ? part[MARKUP] : part.map(render).join('');
}

const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

function escape(text: string): string {
  return text.replace(/[&<>"']/g, (character) => ESCAPES[character] ?? '');
}

export function inline(text: string): Html {
  const marked = escape(text)
    .replace(/`([^`]+)`/g, '<code>$1</code>')
    .replace(/\*\*([^*]+)\*\*/g, '<strong>$1</strong>');
  return { [MARKUP]: marked };
}

/** Paragraphs, and lists whose lines start with a dash, with an empty line between them. */
export function prose(text: string): Html {
  const blocks = text.split(/\n{2,}/).map((block) => {
    const lines = block.split('\n');
    if (!lines.every((line) => line.startsWith('- '))) return html`<p>${inline(block)}</p>`;
    return html`<ul>${lines.map((line) => html`<li>${inline(line.slice(2))}</li>`)}</ul>`;
  });
  return html`${blocks}`;
}

const JSON_TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(?:true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/** A value as indented JSON, short objects and arrays on one line, with keys, texts and the rest highlighted. */
export function jsonBlock(value: unknown): Html {
  const text = formatJson(value, '');
  const parts: Part[] = [];
  let end = 0;
  for (const match of text.matchAll(JSON_TOKEN)) {
    const [token, string, colon] = match;
    parts.push(text.slice(end, match.index));
    end = match.index + token.length;
    if (string === undefined) parts.push(html`<b class="n">${token}</b>`);
    else if (colon === undefined) parts.push(html`<b class="s">${token}</b>`);
    else parts.push(html`<b class="k">${string}</b>${colon}`);
  }
  parts.push(text.slice(end));
  return codeBlock(parts);
}

/** A cell of a table, with a class of the style sheet where it has one. */
export type Cell = Part | { readonly className: string; readonly text: Part };

/** All tables of the page look alike, and stack their cells on narrow screens. */
export function table(heads: readonly string[], rows: readonly (readonly Cell[])[]): Html {
  const cellHtml = (cell: Cell): Html =>
    typeof cell === 'object' && 'className' in cell
      ? html`<td class="${cell.className}">${cell.text}</td>`
      : html`<td>${cell}</td>`;
  return html`
    <table>
      <thead><tr>${heads.map((head) => html`<th scope="col">${head}</th>`)}</tr></thead>
      <tbody>${rows.map((cells) => html`<tr>${cells.map(cellHtml)}</tr>`)}</tbody>
    </table>`;
}

export function codeBlock(code: Part): Html {
  // A block that scrolls must be reachable by keyboard.
  return html`<pre tabindex="0"><code>${code}</code></pre>`;
}

const LINE_CHARACTERS_MAX = 76;

function formatJson(value: unknown, indent: string): string {
  const flat = flatJson(value);
  if (typeof value !== 'object' || value === null || indent.length + flat.length <= LINE_CHARACTERS_MAX) return flat;
  const deeper = `${indent}  `;
  const lines = Array.isArray(value)
    ? value.map((item) => `${deeper}${formatJson(item, deeper)}`)
    : Object.entries(value).map(([key, item]) => `${deeper}${JSON.stringify(key)}: ${formatJson(item, deeper)}`);
  const [open, close] = Array.isArray(value) ? '[]' : '{}';
  return `${open}\n${lines.join(',\n')}\n${indent}${close}`;
}

function flatJson(value: unknown): string {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return value.length === 0 ? '[]' : `[${value.map(flatJson).join(', ')}]`;
  const members = Object.entries(value).map(([key, item]) => `${JSON.stringify(key)}: ${flatJson(item)}`);
  return members.length === 0 ? '{}' : `{ ${members.join(', ')} }`;
}
