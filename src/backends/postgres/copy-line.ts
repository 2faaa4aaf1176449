/**
 * Rows for COPY … FROM STDIN, in PostgreSQL's text format: many rows into one table, with less work on both ends than
 * INSERT. `PostgresClient.copyIn` sends them in one message, so callers bound how many there are.
 */

/** A column's value; `null` is NULL. None may hold U+0000. */
export type CopyValue = string | number | null;

const SPECIAL = /[\\\t\n\r]/;
const ALL_SPECIAL = /[\\\t\n\r]/g;
const ESCAPES: Readonly<Record<string, string>> = { '\\': '\\\\', '\t': '\\t', '\n': '\\n', '\r': '\\r' };

/** One row. */
export function copyLine(values: readonly CopyValue[]): string {
  let line = '';
  for (let column = 0; column < values.length; column++) {
    if (column > 0) line += '\t';
    const value = values[column] as CopyValue;
    if (value === null) line += '\\N';
    else if (typeof value === 'string' && SPECIAL.test(value)) {
      line += value.replace(ALL_SPECIAL, (character) => ESCAPES[character] ?? character);
    } else line += value;
  }
  return `${line}\n`;
}
