/**
 * CSV as in RFC 4180: CRLF line ends, cells with a comma, quote or line break are quoted, quotes are doubled. Null is
 * an empty cell, an empty string is `""`.
 *
 * Events contain untrusted input, and spreadsheets run cells that begin with `=`, `+`, `-` or `@` as formulas. So text
 * is neutralized unless --raw is given: an apostrophe is put before such a character, and control and bidirectional
 * characters, which disguise what a cell contains, are escaped. JSON stays JSON with the same values, except for
 * apostrophes after a semicolon. Numbers and times are never changed.
 */

import type { Column } from './export-shape.ts';
import { isoTime } from './local-time.ts';

const LINE_END = '\r\n';

/**
 * Where a formula may begin: at the start of a cell, and behind what some spreadsheets take for the end of one (a semicolon,
 * where commas are for decimals). They skip blanks and invisible characters, and know the wide forms of the signs.
 */
const FORMULA = /(?<=^|[;\t\r\n])(?=[\s\p{Cf}]*[=+\-@＝＋－＠])|^(?=[\t\r\n])/gu;
const HIDDEN = /(?![\t\r\n])\p{Cc}|\p{Bidi_Control}|[\u2028\u2029]/gu;

export function csvHeader(columns: readonly { readonly name: string }[]): string {
  return `${columns.map(({ name }) => quoted(name)).join(',')}${LINE_END}`;
}

export function csvLine<Row>(columns: readonly Pick<Column<Row>, 'kind' | 'cell'>[], row: Row, isRaw: boolean): string {
  const cells = columns.map(({ kind, cell }) => {
    const value = cell(row);
    if (value === null) return '';
    if (typeof value === 'number') return isoTime(value);
    return quoted(isRaw || kind !== 'text' ? value : neutralised(value));
  });
  return `${cells.join(',')}${LINE_END}`;
}

function neutralised(text: string): string {
  const visible = text.replace(HIDDEN, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);
  return visible.replace(FORMULA, "'");
}

function quoted(text: string): string {
  return text === '' || /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
