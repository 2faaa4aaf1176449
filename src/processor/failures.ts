/**
 * Classifies errors by cause: the store or the log, which may work again later, or a record, which will not. Any other
 * error ends the processor.
 */

import { LockLostError } from '../data-folder/held-lock.ts';
import { LogCorruptError, LogUnavailableError } from '../log.ts';
import { isTooManyOpenFiles } from '../runtime/open-files.ts';
import { SQLITE, sqliteCodeOf } from '../runtime/sqlite-errors.ts';
import { StoreConflictError, StoreUnavailableError } from '../store-writer.ts';

/**
 * A store or log that is unavailable or conflicting (within a transaction the processor handles these itself). A
 * damaged log waits for an operator, and so does a database that refuses to work (a revoked permission, a missing
 * table). Events are accepted meanwhile.
 */
export function isRetryable(error: unknown): error is Error {
  return (
    error instanceof StoreUnavailableError ||
    error instanceof StoreConflictError ||
    error instanceof LogUnavailableError ||
    error instanceof LogCorruptError ||
    isRefusalToWork(error) ||
    isTooManyOpenFiles(error)
  );
}

/** By the five characters (SQLSTATE) that PostgreSQL gives for every error, the first two of which are its class. */
function isRefusalToWork(error: unknown): error is Error {
  if (!(error instanceof Error) || !('code' in error) || typeof error.code !== 'string') return false;
  return SQLSTATE.test(error.code) && !VALUE_CLASSES.has(error.code.slice(0, 2));
}

/** Codes of the system (EPIPE) have no digits. */
const SQLSTATE = /^(?=.*[0-9])[0-9A-Z]{5}$/;
/** Number of rows, values, constraints, limits (as of an index's row). */
const VALUE_CLASSES = new Set(['21', '22', '23', '54']);

/**
 * Whether a record may be the cause. Not if the database says that it cannot work (its own codes, but for those about
 * values and constraints), not if another one wrote meanwhile, not if the log is damaged, and not if the data folder may be
 * another server's.
 */
export function isPoison(error: unknown): boolean {
  if (isRetryable(error) || error instanceof LockLostError) return false;
  const code = sqliteCodeOf(error);
  return code === undefined || VALUE_ERRORS.has(code);
}

const VALUE_ERRORS: ReadonlySet<number> = new Set([SQLITE.toobig, SQLITE.constraint, SQLITE.mismatch, SQLITE.range]);
