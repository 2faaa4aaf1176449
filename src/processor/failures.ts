/**
 * Classifies errors by cause: the store or the log, which may work again later, or a record, which will not. Any other
 * error ends the processor. What is kept of an error that a record causes has no personal data.
 */

import { LockLostError } from '../data-folder/held-lock.ts';
import { isRetryable } from '../runtime/unavailable.ts';
import { StoreFailedError } from '../store-writer.ts';

/**
 * Whether a record may be the cause. Not if the store or the log is unavailable, damaged, conflicting or failed, and not
 * if the data folder may be another server's.
 */
export function isPoison(error: unknown): boolean {
  return !isRetryable(error) && !(error instanceof StoreFailedError) && !(error instanceof LockLostError);
}

const TRIES_MAX = 3;

/** How often what may cause such an error was tried, by its name. */
export class FailedTries {
  readonly #counts = new Map<string, number>();

  /** Counts one more. True for the last of `TRIES_MAX`, after which it is forgotten. */
  isLast(name: string): boolean {
    const count = (this.#counts.get(name) ?? 0) + 1;
    if (count < TRIES_MAX) this.#counts.set(name, count);
    else this.#counts.delete(name);
    return count >= TRIES_MAX;
  }

  forget(name: string): void {
    this.#counts.delete(name);
  }
}

/** What is kept and logged of an error that a record causes. */
interface Failure {
  readonly cause: string;
  /** Without the message. */
  readonly stack: string;
}

/**
 * The messages of the language and of Node may quote what a client sent ("Unexpected token … in …"), so the cause says where
 * it happened instead. Our own errors and those of SQLite quote nothing.
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
  return { cause: `${name}: ${isQuoting ? place : message}`, stack: frames.join('\n') };
}

const QUOTING = [SyntaxError, TypeError, RangeError, ReferenceError, URIError, EvalError, DOMException];
const NODE_CODE = /^ERR_/;
const FRAME = /^ {4}at /;
const OWN_FRAME = /(?:^at |\()(?:src|dist)\//;
/** Paths of this installation. */
const SOURCE = /(?:file:\/\/)?\/[^ ()]*\/(?=(?:src|dist|node_modules|test)\/)/;
