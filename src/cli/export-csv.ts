/**
 * CSV by RFC 4180: lines end with CRLF, cells with a comma, a quote or a line break are quoted, quotes are doubled. Nothing
 * and an empty text are different: nothing is an empty cell, an empty text is `""`.
 *
 * Events hold what strangers sent, and spreadsheets run a cell that begins with `=`, `+`, `-` or `@` as a formula. So text
 * is neutralised unless the raw data is asked for: an apostrophe goes before such a beginning, and control and
 * bidirectional characters, which show a person something else than what is there, become escapes. JSON text stays JSON
 * with the same values, but for apostrophes behind a semicolon. Numbers and times are never altered.
 */

import type { Cell, Column } from './export-shape.ts';
import { isoTime } from './local-time.ts';

const LINE_END = '\r\n';

/**
 * Where a formula may begin: at the start of a cell, and behind what some spreadsheets take for the end of one (a semicolon,
 * where commas are for decimals). They skip blanks and invisible characters, and know the wide forms of the signs.
 */
const FORMULA = /(?<=^|[;\t\r\n])(?=[\s\p{Cf}]*[=+\-@＝＋－＠])|^(?=[\t\r\n])/gu;
const HIDDEN = /(?![\t\r\n])\p{Cc}|\p{Bidi_Control}|[\u2028\u2029]/gu;

export function csvHeader(columns: readonly Column[]): string {
  return `${columns.map(({ name }) => quoted(name)).join(',')}${LINE_END}`;
}

export function csvLine(cells: readonly Cell[], isRaw: boolean): string {
  return `${cells.map((cell) => csvCell(cell, isRaw)).join(',')}${LINE_END}`;
}

function csvCell(cell: Cell, isRaw: boolean): string {
  if (cell === null) return '';
  if (cell.kind === 'time') return isoTime(cell.time);
  return quoted(isRaw || cell.kind === 'number' ? cell.text : neutralised(cell.text));
}

function neutralised(text: string): string {
  const visible = text.replace(HIDDEN, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);
  return visible.replace(FORMULA, "'");
}

function quoted(text: string): string {
  return text === '' || /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
