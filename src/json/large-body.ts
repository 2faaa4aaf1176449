/**
 * Leaves out what is nested very deeply. No valid user has it, but a body of 10 kB, compressed, can have five million
 * levels, and parsing them or writing them again takes many seconds and most of the memory of a thread. Pure.
 */

import { BACKSLASH, CLOSE_BRACE, CLOSE_BRACKET, JsonScanner, OPEN_BRACE, OPEN_BRACKET, QUOTE } from './scanner.ts';

/** Far more than a user may have (`LIMITS.nestingDepthMax`), so validation says the same. */
const LEVELS_KEPT = 1_000;
/** In fewer bytes there are not enough levels to take long. Looking at them takes half as long as parsing them. */
const BYTES_MIN = 256 * 1024;

/**
 * The same bytes, or a part of the same memory: in a large text, arrays and objects at level 1,000 lose their content.
 * Null if a text that has such is not JSON. For bytes that the caller owns: they are overwritten.
 */
export function withoutDeepNesting<Bytes extends Uint8Array>(bytes: Bytes): Bytes | null {
  if (bytes.length < BYTES_MIN) return bytes;
  const scanner = new JsonScanner(bytes);
  scanner.skipValue();
  const isJson = scanner.finish();
  if (scanner.deepest <= LEVELS_KEPT) return bytes;
  return isJson ? (bytes.subarray(0, keepLevels(bytes)) as Bytes) : null;
}

/** Moves what is kept to the front, and returns how many bytes that is. */
function keepLevels(bytes: Uint8Array): number {
  let level = 0;
  let isInString = false;
  let to = 0;
  for (let at = 0; at < bytes.length; at++) {
    const code = bytes[at] as number;
    const wasKept = level <= LEVELS_KEPT;
    if (isInString) {
      if (code === BACKSLASH) {
        if (wasKept) bytes[to++] = code;
        at += 1;
      } else if (code === QUOTE) {
        isInString = false;
      }
    } else if (code === OPEN_BRACKET || code === OPEN_BRACE) {
      level += 1;
    } else if (code === CLOSE_BRACKET || code === CLOSE_BRACE) {
      level -= 1;
    } else {
      isInString = code === QUOTE;
    }
    // Also the bracket that opens the first level that is not kept, and the one that closes it.
    if (wasKept || level <= LEVELS_KEPT) bytes[to++] = bytes[at] as number;
  }
  return to;
}
