/**
 * Text laid out for a terminal: tables with aligned columns, wrapped paragraphs, a little colour. Control characters in
 * cells are replaced, since some cells hold what strangers sent. Widths count characters, so wide scripts (CJK, emoji)
 * may stand out of line.
 */

import { styleText } from 'node:util';
import { processEnvironment } from '../config/config.ts';

/** Plain where stdout is no terminal, whatever FORCE_COLOR says, or its user wants no colour (https://no-color.org). */
export function bold(text: string): string {
  return styled('bold', text);
}

export function dim(text: string): string {
  return styled('dim', text);
}

function styled(format: 'bold' | 'dim', text: string): string {
  const { NO_COLOR: noColor = '', TERM: terminal } = processEnvironment();
  if (!process.stdout.isTTY || noColor !== '' || terminal === 'dumb') return text;
  return styleText(format, text, { validateStream: false });
}

const GAP = '  ';

export function renderTable(headers: readonly string[], rows: readonly (readonly string[])[]): string {
  const cells = rows.map((row) => row.map(printable));
  const widths = headers.map((header, column) =>
    Math.max(header.length, ...cells.map((row) => (row[column] ?? '').length)),
  );
  const line = (row: readonly string[]): string =>
    widths
      .map((width, column) => (row[column] ?? '').padEnd(width))
      .join(GAP)
      .trimEnd();
  return [bold(line(headers)), ...cells.map(line)].join('\n');
}

/** Breaks a text into lines of at most `columns` characters, between words. */
export function wrap(text: string, columns: number): string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    if (line !== '' && line.length + 1 + word.length > columns) {
      lines.push(line);
      line = word;
    } else {
      line = line === '' ? word : `${line} ${word}`;
    }
  }
  return [...lines, line];
}

export function shorten(text: string, columns: number): string {
  return text.length <= columns ? text : `${text.slice(0, columns - 1)}…`;
}

/** Cc: control characters, which could drive the terminal. Cf: invisible ones, which could turn the text around. */
export function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}]/gu, '\u{fffd}');
}

/** JSON for programs that people read, too. */
export function indented(value: unknown): string {
  return `${JSON.stringify(value, undefined, 2)}\n`;
}
