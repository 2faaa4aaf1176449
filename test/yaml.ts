/**
 * Reads the YAML that the files in `deploy/` are written in: mappings, lists, flow collections on one line, quoted and plain
 * scalars, literal blocks, comments, several documents. No anchors, tags or folded text: throws at what it does not know.
 */

import assert from 'node:assert/strict';

export type Yaml = string | number | boolean | null | readonly Yaml[] | { readonly [key: string]: Yaml };

interface Line {
  readonly indent: number;
  readonly text: string;
  readonly number: number;
}

/** One value a document; empty documents are left out. */
export function parseYaml(text: string): Yaml[] {
  return text
    .split(/^---$/m)
    .map((document) => new Reader(document).document())
    .filter((value) => value !== null);
}

/** The value at a path of keys and indices; undefined where there is none. */
export function at(value: Yaml | undefined, ...path: readonly (string | number)[]): Yaml | undefined {
  let here: Yaml | undefined = value;
  for (const step of path) {
    if (typeof here !== 'object' || here === null) return undefined;
    here = (here as { readonly [key: string]: Yaml })[step];
  }
  return here;
}

const ENTRY = /^((?:"[^"]*"|[^\s"'{[#&*!|>%@`][^:#]*?))\s*:(?:\s+(.*))?$/;

class Reader {
  readonly #lines: Line[];
  readonly #raw: readonly string[];
  #at = 0;

  constructor(text: string) {
    this.#raw = text.split('\n');
    this.#lines = this.#raw.flatMap((line, number) => {
      const bare = withoutComment(line).trimEnd();
      return bare.trim() === '' ? [] : [{ indent: bare.search(/\S/), text: bare.trimStart(), number }];
    });
  }

  document(): Yaml {
    if (this.#lines.length === 0) return null;
    const value = this.#block(this.#lines[0]?.indent ?? 0);
    assert.equal(this.#at, this.#lines.length, `not understood: ${this.#lines[this.#at]?.text}`);
    return value;
  }

  #block(indent: number): Yaml {
    return this.#peek(indent)?.text.match(/^-( |$)/) ? this.#list(indent) : this.#mapping(indent);
  }

  #list(indent: number): Yaml[] {
    const items: Yaml[] = [];
    for (let line = this.#peek(indent); line?.text.match(/^-( |$)/); line = this.#peek(indent)) {
      const rest = line.text.slice(1).trimStart();
      const inner = line.indent + line.text.length - rest.length;
      if (!ENTRY.test(rest)) {
        this.#at += 1;
        items.push(scalar(rest));
      } else {
        // The first entry of a mapping stands beside the dash.
        this.#lines[this.#at] = { ...line, indent: inner, text: rest };
        items.push(this.#mapping(inner));
      }
    }
    return items;
  }

  #mapping(indent: number): Yaml {
    const entries: [string, Yaml][] = [];
    for (let line = this.#peek(indent); line !== undefined; line = this.#peek(indent)) {
      const entry = ENTRY.exec(line.text);
      assert.ok(entry, `not an entry: ${line.text}`);
      this.#at += 1;
      const [, key = '', value = ''] = entry;
      const name = key.startsWith('"') ? (JSON.parse(key) as string) : key;
      entries.push([name, this.#value(line, value)]);
    }
    return Object.fromEntries(entries);
  }

  #value(line: Line, value: string): Yaml {
    if (/^\|-?$/.test(value)) return this.#literal(line, value === '|');
    if (value !== '') return scalar(value);
    const next = this.#lines[this.#at];
    if (next === undefined || next.indent < line.indent) return null;
    // A list may stand as far left as its key.
    if (next.indent === line.indent && !/^-( |$)/.test(next.text)) return null;
    return this.#block(next.indent);
  }

  #literal({ indent, number }: Line, endsLine: boolean): string {
    const lines: string[] = [];
    for (let next = number + 1; next < this.#raw.length; next++) {
      const text = this.#raw[next] ?? '';
      if (text.trim() !== '' && text.search(/\S/) <= indent) break;
      lines.push(text);
    }
    while (this.#lines[this.#at] !== undefined && (this.#lines[this.#at]?.indent ?? 0) > indent) this.#at += 1;
    const left = lines[0]?.search(/\S/) ?? 0;
    const text = lines
      .map((one) => one.slice(left))
      .join('\n')
      .trimEnd();
    return endsLine ? `${text}\n` : text;
  }

  #peek(indent: number): Line | undefined {
    const line = this.#lines[this.#at];
    if (line === undefined || line.indent < indent) return undefined;
    assert.equal(line.indent, indent, `indented oddly: ${line.text}`);
    return line;
  }
}

function withoutComment(line: string): string {
  let quote = '';
  for (let index = 0; index < line.length; index++) {
    const character = line[index] ?? '';
    if (quote !== '') {
      if (character === '\\' && quote === '"') index += 1;
      else if (character === quote) quote = '';
    } else if (character === '"') quote = character;
    else if (character === '#' && (index === 0 || /\s/.test(line[index - 1] ?? ''))) return line.slice(0, index);
  }
  return line;
}

function scalar(text: string): Yaml {
  if (/^[{[]/.test(text)) return flow(text);
  if (text.startsWith('"')) return JSON.parse(text) as string;
  if (/^(true|false)$/.test(text)) return text === 'true';
  if (text === 'null' || text === '~') return null;
  assert.doesNotMatch(text, /^['&*!|>%@`]/, `not understood: ${text}`);
  return /^-?\d+(\.\d+)?$/.test(text) ? Number(text) : text;
}

/** `{ a: b, c: [d, "e"] }`: made JSON by quoting what is plain. */
function flow(text: string): Yaml {
  const json = text.replace(/"(?:[^"\\]|\\.)*"|[^\s{}[\],:"][^{}[\],"]*?(?=\s*(?::\s|[{}[\],]|$))|:\s/g, (token) => {
    if (token.startsWith('"') || /^:\s$/.test(token)) return token;
    return JSON.stringify(scalar(token));
  });
  return JSON.parse(json.replace(/([{,]\s*)(-?[\d.]+|true|false|null)(\s*:)/g, '$1"$2"$3')) as Yaml;
}
