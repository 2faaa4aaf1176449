/**
 * Where a value stands in a JSON text, by its path as the server writes it: `users[1].events[0].timestamp`,
 * `user_properties["odd name"]`. For marking mistakes in an editor. Pure. Of a name that is there twice the last counts,
 * as for the server. A text that is not JSON is walked as far as it goes.
 */

export interface TextRange {
  readonly start: number;
  readonly end: number;
}

type Segment = string | number;

const PATH_PART = /\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]|\.?([^.[]+)/gy;

function segmentsOf(path: string): Segment[] {
  return Array.from(path.matchAll(PATH_PART), ([, index, quoted, name = '']) => {
    if (index !== undefined) return Number(index);
    return quoted === undefined ? name : (JSON.parse(`"${quoted}"`) as string);
  });
}

/** The value with its name, or the innermost part of the path that is there; null for a text without any value. */
export function rangeOf(text: string, path: string): TextRange | null {
  let at = skipSpace(text, 0);
  if (at >= text.length) return null;
  let range: TextRange = { start: at, end: skipValue(text, at) };
  for (const segment of segmentsOf(path)) {
    const found = text[at] === '[' ? elementOf(text, at, segment) : memberOf(text, at, segment);
    if (found === null) return range;
    range = { start: found.start, end: found.end };
    at = found.value;
  }
  return range;
}

/** Of a position that the server names, counted from 1: from there to the end of its line, at least one character. */
export function rangeAt(text: string, line: number, column: number): TextRange {
  let lineStart = 0;
  for (let before = 1; before < line && lineStart >= 0; before++) lineStart = text.indexOf('\n', lineStart) + 1;
  // Columns count characters; those beyond the basic plane take two places.
  const characters = Array.from(text.slice(lineStart)).slice(0, column - 1);
  const start = Math.min(lineStart + characters.join('').length, Math.max(0, text.length - 1));
  const lineEnd = text.indexOf('\n', start);
  return { start, end: Math.max(start + 1, lineEnd < 0 ? text.length : lineEnd) };
}

interface Found extends TextRange {
  /** Where the value itself begins. */
  readonly value: number;
}

function elementOf(text: string, open: number, segment: Segment): Found | null {
  let index = 0;
  let at = skipSpace(text, open + 1);
  while (at < text.length && text[at] !== ']') {
    const end = skipValue(text, at);
    if (index === segment) return { start: at, end, value: at };
    index++;
    at = skipComma(text, end);
  }
  return null;
}

function memberOf(text: string, open: number, segment: Segment): Found | null {
  if (text[open] !== '{') return null;
  let found: Found | null = null;
  let at = skipSpace(text, open + 1);
  while (text[at] === '"') {
    const start = at;
    const nameEnd = skipString(text, at);
    const colon = skipSpace(text, nameEnd);
    if (text[colon] !== ':') return found;
    const value = skipSpace(text, colon + 1);
    const end = skipValue(text, value);
    if (nameIn(text.slice(start, nameEnd)) === segment) found = { start, end, value };
    at = skipComma(text, end);
  }
  return found;
}

function nameIn(quoted: string): string | null {
  try {
    return JSON.parse(quoted) as string;
  } catch {
    return null;
  }
}

function skipSpace(text: string, from: number): number {
  let at = from;
  while (at < text.length && ' \t\r\n'.includes(text[at] ?? '')) at++;
  return at;
}

function skipComma(text: string, from: number): number {
  const at = skipSpace(text, from);
  return text[at] === ',' ? skipSpace(text, at + 1) : at;
}

function skipString(text: string, from: number): number {
  for (let at = from + 1; at < text.length; at++) {
    if (text[at] === '\\') at++;
    else if (text[at] === '"') return at + 1;
  }
  return text.length;
}

/** To the end of the value; always at least one character further. */
function skipValue(text: string, from: number): number {
  let depth = 0;
  let at = from;
  while (at < text.length) {
    const character = text[at] ?? '';
    if (character === '"') at = skipString(text, at);
    else if ('{['.includes(character)) {
      depth++;
      at++;
    } else if ('}]'.includes(character)) {
      if (depth === 0) return Math.max(at, from + 1);
      depth--;
      at++;
    } else if (depth === 0 && ', \t\r\n:'.includes(character)) return Math.max(at, from + 1);
    else {
      at++;
      continue;
    }
    if (depth === 0) return at;
  }
  return at;
}
