/**
 * Which errors pass: what failed may succeed later without a change to the request or the program. All other errors are
 * bugs, or need an operator before anything can start.
 */

import { LogCorruptError, LogUnavailableError, LogUnreachableError } from '../log.ts';
import { StoreConflictError, StoreUnavailableError } from '../store-writer.ts';
import { isTooManyOpenFiles } from './open-files.ts';

/** The store or the log does not respond at the moment. */
export function isUnavailable(error: unknown): error is Error {
  return (
    error instanceof StoreUnavailableError ||
    error instanceof LogUnavailableError ||
    error instanceof LogUnreachableError
  );
}

/** Unavailable, in conflict with another writer, short of files, or a damaged log, which an operator can fix meanwhile. */
export function isRetryable(error: unknown): error is Error {
  return (
    isUnavailable(error) ||
    error instanceof StoreConflictError ||
    error instanceof LogCorruptError ||
    isTooManyOpenFiles(error)
  );
}
