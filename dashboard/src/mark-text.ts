/**
 * A text cut into parts that are marked and parts that are not. Pure; the parts together are the text.
 */

import type { TextRange } from './json-ranges.ts';

interface Part {
  readonly part: string;
  readonly start: number;
  readonly isMarked: boolean;
}

/** Marks within marks are one. */
export function markedParts(text: string, marks: readonly TextRange[]): Part[] {
  const parts: Part[] = [];
  let at = 0;
  for (const { start, end } of marks.toSorted((a, b) => a.start - b.start)) {
    if (end <= at) continue;
    const from = Math.max(start, at);
    if (from > at) parts.push({ part: text.slice(at, from), start: at, isMarked: false });
    parts.push({ part: text.slice(from, end), start: from, isMarked: true });
    at = end;
  }
  parts.push({ part: text.slice(at), start: at, isMarked: false });
  return parts;
}
