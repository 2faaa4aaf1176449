/**
 * Maps the errors of `pg`, the network and the server to those that the rest of Sluice handles: `StoreConflictError`
 * (retry immediately), `StoreValueError` (never retry: a record is the cause) and `StoreUnavailableError` (retry later:
 * every other refusal of the server, which an operator can end). Anything else is a bug and rethrown. The server quotes
 * row values in messages, `detail` and similar fields; these are removed here, so that no e-mail address reaches a log.
 * No message contains a password.
 */

import { DatabaseError } from 'pg';
import { StoreConflictError, StoreUnavailableError, StoreValueError, TABLES_CHANGED } from '../../store-writer.ts';

/**
 * Serialization failure, deadlock, unique violation: another transaction wrote the row first. A statement whose unique
 * violation is not a race, and would repeat on every retry, uses ON CONFLICT itself.
 */
const CONFLICTS = new Set(['40001', '40P01', '23505']);
const LOCK_TIMEOUT = '55P03';
/** Number of rows, values, constraints, limits (as of an index's row). */
const VALUE_CLASSES = new Set(['21', '22', '23', '54']);
/** Our rows have a value for each column that needs one, so someone has added a column, and no row is accepted. */
const NOT_NULL_VIOLATION = '23502';

/** Fields of an error that quote rows or statements. */
const REVEALING = ['detail', 'where', 'hint', 'internalQuery', 'dataType', 'query', 'parameters'] as const;

/** What an error of `pg` means to the caller of a store. Our own errors stay unchanged. */
export function asStoreError(error: unknown): unknown {
  if (error instanceof StoreConflictError || error instanceof StoreUnavailableError) return error;
  if (error instanceof DatabaseError) {
    for (const column of REVEALING) Reflect.deleteProperty(error, column);
    const code = error.code ?? '';
    if (code === LOCK_TIMEOUT)
      return new LockTimeoutError('lock timeout: another transaction holds a lock on these rows (55P03)');
    if (CONFLICTS.has(code))
      return new StoreConflictError(`another transaction wrote the same rows meanwhile (${code})`);
    if (VALUE_CLASSES.has(code.slice(0, 2)) && code !== NOT_NULL_VIOLATION) return valueErrorOf(error, code);
    return new StoreUnavailableError(`PostgreSQL reports: ${error.message} (${code})`, { cause: error });
  }
  // A malformed statement is a bug; every other error without an SQLSTATE is the connection's.
  if (error instanceof TypeError || error instanceof RangeError || !(error instanceof Error)) return error;
  return new StoreUnavailableError(`PostgreSQL cannot be reached: ${wordsOf(error)}`, { cause: error });
}

/** With the code, and the names in the schema that the server gives. */
function valueErrorOf({ table, column, constraint }: DatabaseError, code: string): StoreValueError {
  const where = [table, column, constraint].filter((name) => name !== undefined).join(', ');
  // A row of a day without a table breaks no constraint that has a name.
  const isConstraint = code.startsWith('23') && constraint !== undefined;
  const what = isConstraint ? TABLES_CHANGED : 'PostgreSQL does not accept a value';
  const message = `${what}${where === '' ? '' : ` (${where})`}: ${code}`;
  return Object.assign(new StoreValueError(message), { code, constraint });
}

/** Another transaction held a lock for longer than lock_timeout. Within a transaction this is an ordinary conflict. */
class LockTimeoutError extends StoreConflictError {}

/**
 * For a single statement, where a lock timeout is not a conflict to retry: the rows are unavailable while the lock is
 * held.
 */
export function asErrorOfStatement(error: unknown): unknown {
  return error instanceof LockTimeoutError ? new StoreUnavailableError(error.message, { cause: error }) : error;
}

/** The SQLSTATE or system code behind an error, also of a mapped one. */
export function codeOf(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  if ('code' in error && typeof error.code === 'string') return error.code;
  return codeOf(error.cause);
}

const CHECK_VIOLATION = '23514';

/** A row of a day without a table. PostgreSQL has the same code for a broken constraint, which it names. */
export function isMissingPartition(error: unknown): boolean {
  return (
    error instanceof StoreValueError &&
    codeOf(error) === CHECK_VIOLATION &&
    Reflect.get(error, 'constraint') === undefined
  );
}

/**
 * A host name with several addresses fails with one error for each, and no message of its own. The message of an error of
 * OpenSSL has places in its source and line breaks; only its reason is for people.
 */
function wordsOf(error: Error): string {
  const reason: unknown = 'library' in error ? Reflect.get(error, 'reason') : undefined;
  if (typeof reason === 'string') return reason;
  if (error.message !== '') return error.message;
  const first: unknown = error instanceof AggregateError ? error.errors[0] : undefined;
  return first instanceof Error ? first.message : (codeOf(error) ?? 'the connection failed');
}
