/**
 * JSON as lines, each with the path that it stands for: `identifiers.email`, `events[0].timestamp`. Pure; what is shown
 * is always text. Names are data: `__proto__` is one like any other.
 */

import { ExactNumber } from '../exact-json.ts';

export interface JsonLine {
  readonly depth: number;
  readonly path: string;
  /** The name in front of the value; null in arrays, at the top and on closing lines. */
  readonly name: string | null;
  readonly kind: 'text' | 'number' | 'word' | 'bracket';
  readonly text: string;
  /** Whether a comma follows. */
  readonly isFollowed: boolean;
}

interface Place {
  readonly depth: number;
  readonly path: string;
  readonly name: string | null;
  readonly isFollowed: boolean;
}

export function jsonLines(value: unknown): JsonLine[] {
  const lines: JsonLine[] = [];
  addLines(lines, value, { depth: 0, path: '', name: null, isFollowed: false });
  return lines;
}

/** As JSON text, two spaces deep; for copying. */
export function jsonSource(value: unknown): string {
  return JSON.stringify(value, null, 2) ?? 'null';
}

/** The path to mark: the wanted one, or the longest part of it that is there; null when nothing is wanted. */
export function markedPath(lines: readonly JsonLine[], wanted: string | undefined): string | null {
  if (wanted === undefined || wanted === '') return null;
  const around = lines.map(({ path }) => path).filter((path) => path !== '' && isWithin(wanted, path));
  return around.toSorted((a, b) => b.length - a.length)[0] ?? null;
}

/** Whether a path is the other one, or leads into it. */
export function isWithin(path: string, outer: string): boolean {
  if (!path.startsWith(outer)) return false;
  const next = path.charAt(outer.length);
  return outer === '' || next === '' || next === '.' || next === '[';
}

function addLines(lines: JsonLine[], value: unknown, place: Place): void {
  if (typeof value !== 'object' || value === null || value instanceof ExactNumber) {
    lines.push({ ...place, ...scalar(value) });
    return;
  }
  const isArray = Array.isArray(value);
  const entries: [string | number, unknown][] = isArray ? [...value.entries()] : Object.entries(value);
  const [open, close] = isArray ? ['[', ']'] : ['{', '}'];
  if (entries.length === 0) {
    lines.push({ ...place, kind: 'bracket', text: open + close });
    return;
  }
  lines.push({ ...place, kind: 'bracket', text: open, isFollowed: false });
  for (const [index, [name, inner]] of entries.entries()) {
    addLines(lines, inner, {
      depth: place.depth + 1,
      path: typeof name === 'number' ? `${place.path}[${name}]` : joined(place.path, name),
      name: typeof name === 'number' ? null : name,
      isFollowed: index < entries.length - 1,
    });
  }
  lines.push({ ...place, name: null, kind: 'bracket', text: close });
}

/** Names without anything that could be taken for a part of a path. */
const PLAIN_NAME = /^[A-Za-z_$][A-Za-z0-9_$]*$/;

/** As the server writes paths in its messages. */
function joined(path: string, name: string): string {
  if (!PLAIN_NAME.test(name)) return `${path}[${JSON.stringify(name)}]`;
  return path === '' ? name : `${path}.${name}`;
}

function scalar(value: unknown): Pick<JsonLine, 'kind' | 'text'> {
  if (value instanceof ExactNumber) return { kind: 'number', text: value.text };
  if (typeof value === 'number') return { kind: 'number', text: String(value) };
  if (typeof value === 'string') return { kind: 'text', text: JSON.stringify(value) };
  return { kind: 'word', text: String(value) };
}
