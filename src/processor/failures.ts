/**
 * Classifies errors by cause: the store or the log, which may work again later, or a record, which will not. Any other
 * error ends the processor. What is said of an error that a record causes is without personal data.
 */

import { LockLostError } from '../data-folder/held-lock.ts';
import { LogCorruptError, LogUnavailableError } from '../log.ts';
import { isTooManyOpenFiles } from '../runtime/open-files.ts';
import { StoreConflictError, StoreUnavailableError } from '../store-writer.ts';

/**
 * A store or log that is unavailable or conflicting (within a transaction the processor handles these itself). A
 * damaged log waits for an operator, and so does a database that refuses to work (a revoked permission, a missing
 * table). Events are accepted meanwhile.
 */
export function isWorthWaiting(error: unknown): error is Error {
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
  if (isWorthWaiting(error) || error instanceof LockLostError) return false;
  if (!(error instanceof Error)) return true;
  if ('errcode' in error && typeof error.errcode === 'number') return VALUE_ERRORS.has(error.errcode & 0xff);
  return true;
}

/** What is kept and logged of an error that a record causes. */
export interface Failure {
  readonly cause: string;
  /** Without the message. */
  readonly stack: string;
}

/**
 * The messages of the language, of Node and of PostgreSQL may quote what a client sent ("Unexpected token … in …"), so the
 * cause says where it happened instead. Our own errors and those of SQLite quote nothing.
 */
export function failureOf(error: unknown): Failure {
  if (!(error instanceof Error)) return { cause: `a ${typeof error} was thrown`, stack: '' };
  const { name, message, stack = '' } = error;
  const frames = stack
    .slice(stack.indexOf(message) + message.length)
    .split('\n')
    .filter((line) => FRAME.test(line))
    .map((line) => line.trim().replace(SOURCE, ''));
  const code = 'code' in error && typeof error.code === 'string' ? error.code : '';
  const isQuoting = QUOTING.some((type) => error instanceof type) || NODE_CODE.test(code);
  const place = frames.find((frame) => OWN_FRAME.test(frame)) ?? frames[0] ?? 'at an unknown place';
  const said = SQLSTATE.test(code) ? `${code} ${place}` : isQuoting ? place : message;
  return { cause: `${name}: ${said}`, stack: frames.join('\n') };
}

const QUOTING = [SyntaxError, TypeError, RangeError, ReferenceError, URIError, EvalError, DOMException];
const NODE_CODE = /^ERR_(?!SQLITE_)/;
const FRAME = /^ {4}at /;
const OWN_FRAME = /(?:^at |\()(?:src|dist)\//;
/** Paths of this installation. */
const SOURCE = /(?:file:\/\/)?\/[^ ()]*\/(?=(?:src|dist|node_modules|test)\/)/;

/** SQLITE_TOOBIG, SQLITE_CONSTRAINT, SQLITE_MISMATCH, SQLITE_RANGE. */
const VALUE_ERRORS = new Set([18, 19, 20, 25]);
