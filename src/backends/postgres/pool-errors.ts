/**
 * The one mapping from the errors of `pg`, the network and the server to those that the rest of Sluice handles:
 * `StoreConflictError` (retry at once), `StoreUnavailableError` (retry later), and everything else, which is a bug and
 * thrown unchanged. Neither contains values of rows: the server puts them into `detail` and similar fields, which are
 * removed here, so that no e-mail address gets into a log through a constraint. No message contains a password.
 */

import { DatabaseError } from 'pg';
import { StoreConflictError, StoreUnavailableError } from '../../store-writer.ts';

/**
 * Serialisation, deadlock, and a row that another transaction wrote first. A statement whose unique violation is not a
 * race, and would repeat each time, uses ON CONFLICT itself.
 */
const CONFLICTS = new Set(['40001', '40P01', '23505']);
const LOCK_TIMEOUT = '55P03';
/**
 * Connection lost (08), out of resources (53), stopped or cancelled by operator or timeout (57), files of the server
 * (58), access refused (28) and no such database (3D): while running, these last two mean that an operator is changing
 * it.
 */
const UNAVAILABLE_CLASSES = new Set(['08', '28', '3D', '53', '57', '58']);
/** A standby after a failover; a transaction that was idle or took too long. */
const UNAVAILABLE = new Set(['25006', '25P03', '25P04']);

/** Fields of an error that quote rows or statements. */
const REVEALING = ['detail', 'where', 'hint', 'internalQuery', 'dataType', 'query', 'parameters'] as const;

/** What an error of `pg` means to the caller of a store. Our own errors stay unchanged. */
export function asStoreError(error: unknown): unknown {
  if (error instanceof StoreConflictError || error instanceof StoreUnavailableError) return error;
  if (error instanceof DatabaseError) {
    for (const column of REVEALING) Reflect.deleteProperty(error, column);
    const code = error.code ?? '';
    if (code === LOCK_TIMEOUT) return new LockTimeoutError('others hold a lock on the same rows or table (55P03)');
    if (CONFLICTS.has(code))
      return new StoreConflictError(`another transaction wrote the same rows meanwhile (${code})`);
    if (UNAVAILABLE.has(code) || UNAVAILABLE_CLASSES.has(code.slice(0, 2))) {
      return new StoreUnavailableError(`PostgreSQL answers: ${error.message} (${code})`, { cause: error });
    }
    return error;
  }
  // A malformed statement is a bug; every other error without an SQLSTATE is the connection's.
  if (error instanceof TypeError || error instanceof RangeError || !(error instanceof Error)) return error;
  return new StoreUnavailableError(`PostgreSQL cannot be reached: ${wordsOf(error)}`, { cause: error });
}

/**
 * Another transaction holds a lock for longer than a statement waits: within a transaction this is a conflict like any
 * other.
 */
class LockTimeoutError extends StoreConflictError {}

/** For a single statement, which cannot conflict: the rows cannot be read or written while the lock is held. */
export function asErrorOfStatement(error: unknown): unknown {
  return error instanceof LockTimeoutError ? new StoreUnavailableError(error.message, { cause: error }) : error;
}

/** The SQLSTATE or system code behind an error, also of a mapped one. */
export function codeOf(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  if ('code' in error && typeof error.code === 'string') return error.code;
  return codeOf(error.cause);
}

/** A host name with several addresses fails with one error for each, and no message of its own. */
function wordsOf(error: Error): string {
  if (error.message !== '') return error.message;
  const first: unknown = error instanceof AggregateError ? error.errors[0] : undefined;
  return first instanceof Error ? first.message : (codeOf(error) ?? 'the connection failed');
}
