/**
 * The result codes of SQLite. An error of `node:sqlite` carries an extended code, whose low byte is the primary one.
 */

export const SQLITE = {
  perm: 3,
  busy: 5,
  readonly: 8,
  ioerr: 10,
  corrupt: 11,
  full: 13,
  cantopen: 14,
  toobig: 18,
  constraint: 19,
  mismatch: 20,
  range: 25,
  notadb: 26,
} as const;

/** The primary code; undefined for an error that is not SQLite's. */
export function sqliteCodeOf(error: unknown): number | undefined {
  const isSqlite = error instanceof Error && 'errcode' in error && typeof error.errcode === 'number';
  return isSqlite ? (error.errcode as number) & 0xff : undefined;
}
