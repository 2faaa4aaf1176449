/**
 * COPY … FROM STDIN through `pg`, which has the messages but no API for it: many rows into one table, with less work on
 * both ends than INSERT. Rows are made here in PostgreSQL's text format and sent in one message, so the caller limits
 * how many there are at a time.
 */

import type { Connection, Submittable } from 'pg';

/** What `pg` has and its types lack. */
interface CopyConnection extends Connection {
  sendCopyFromChunk(chunk: Buffer): void;
  endCopyFrom(): void;
}

/** A column's value; `null` is NULL. None may hold U+0000. */
export type CopyValue = string | number | null;

const SPECIAL = /[\\\t\n\r]/;
const ALL_SPECIAL = /[\\\t\n\r]/g;
const ESCAPES: Readonly<Record<string, string>> = { '\\': '\\\\', '\t': '\\t', '\n': '\\n', '\r': '\\r' };

/** One row, as a line. */
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

/** A statement as `pg` runs it: `callback` is called once, with an error or without. */
export class CopyIn implements Submittable {
  readonly #sql: string;
  readonly #rows: Buffer;
  /** `pg` wraps it to stop its timer. */
  callback: (error?: unknown) => void;

  constructor(sql: string, rows: Buffer, callback: (error?: unknown) => void) {
    this.#sql = sql;
    this.#rows = rows;
    this.callback = callback;
  }

  submit(connection: Connection): void {
    connection.query(this.#sql);
  }

  handleCopyInResponse(connection: CopyConnection): void {
    connection.sendCopyFromChunk(this.#rows);
    connection.endCopyFrom();
  }

  /** After an error the server is ready for the next statement, as after any other. */
  handleError(error: unknown): void {
    this.callback(error);
  }

  handleReadyForQuery(): void {
    this.callback();
  }

  handleCommandComplete(): void {}

  handleRowDescription(): void {}

  handleDataRow(): void {}
}
