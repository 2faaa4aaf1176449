/**
 * Says where and why a text is not JSON. Runs only after `JSON.parse` has refused the text, because the engine's own
 * messages do not always have a position and quote the text, which may be personal data and must not get into logs.
 *
 * Invariant: an error is found exactly when `JSON.parse` throws, at the first character that no JSON text could have there.
 */

import { type JsonError, JsonScanner } from './scanner.ts';

const LINE_FEED = 0x0a;
const BYTE_ORDER_MARK = 0xfeff;

/** For example `unexpected character at line 3, column 17, expected a value`. Columns count characters from 1. */
export function describeJsonError(text: string): string | undefined {
  const error = findJsonError(text);
  if (error === undefined) return undefined;
  let line = 1;
  let column = 1;
  for (let at = 0; at < error.offset; at++) {
    const code = text.charCodeAt(at);
    if (code === LINE_FEED) {
      line++;
      column = 1;
    } else if (code < 0xdc00 || code > 0xdfff) {
      // The second half of a surrogate pair is not a character of its own.
      column++;
    }
  }
  const expected = error.expected === null ? '' : `, expected ${error.expected}`;
  return `${error.problem} at line ${line}, column ${column}${expected}`;
}

export function findJsonError(text: string): JsonError | undefined {
  if (text.charCodeAt(0) === BYTE_ORDER_MARK) {
    return { offset: 0, problem: 'byte order mark', expected: 'JSON to start without one' };
  }
  // Half of a surrogate pair becomes U+FFFD, which takes one unit as well, and can be in the same places.
  const scanner = new JsonScanner(Buffer.from(text));
  scanner.skipValue();
  scanner.finish();
  return scanner.error ?? undefined;
}
