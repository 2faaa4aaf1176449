/**
 * CSV by RFC 4180: lines end with CRLF, cells with a comma, a quote or a line break are quoted, quotes are doubled.
 * Cells are the data as it is: one that begins with `=`, `+`, `-` or `@` is not altered, though spreadsheets may run it
 * as a formula when they open the file. Nothing and an empty text are told apart: nothing is an empty cell, an empty
 * text is `""`.
 */

import type { Cell, Column } from './export-shape.ts';
import { isoTime } from './local-time.ts';

const LINE_END = '\r\n';

export function csvHeader(columns: readonly Column[]): string {
  return `${columns.map(({ name }) => quoted(name)).join(',')}${LINE_END}`;
}

export function csvLine(cells: readonly Cell[]): string {
  return `${cells.map(csvCell).join(',')}${LINE_END}`;
}

function csvCell(cell: Cell): string {
  if (cell === null) return '';
  return cell.kind === 'time' ? isoTime(cell.time) : quoted(cell.text);
}

function quoted(text: string): string {
  return text === '' || /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
