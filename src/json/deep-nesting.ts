/**
 * Leaves out what is nested very deeply. No valid user has it, but a body of 10 kB, compressed, can have five million
 * levels, and parsing them or writing them again takes many seconds and most of the memory of a thread. Pure.
 */

import { BACKSLASH, CLOSE_BRACE, CLOSE_BRACKET, OPEN_BRACE, OPEN_BRACKET, QUOTE } from './scanner.ts';

/** Far more than a user may have (`LIMITS.nestingDepthMax`), so validation says the same. */
const LEVELS_KEPT = 1_000;

/**
 * The same bytes, or a part of the same memory: arrays and objects at level 1,000 lose their content. For bytes that the
 * caller owns: they are overwritten. What is not JSON may become JSON by it, never the reverse.
 */
export function withoutDeepNesting<Bytes extends Uint8Array>(bytes: Bytes): Bytes {
  let level = 0;
  let isInString = false;
  let to = 0;
  for (let at = 0; at < bytes.length; at++) {
    const code = bytes[at] as number;
    const isKept = level <= LEVELS_KEPT;
    if (isInString) {
      if (code === BACKSLASH) {
        if (isKept) bytes[to++] = code;
        at += 1;
      } else if (code === QUOTE) {
        isInString = false;
      }
    } else if (code === QUOTE) {
      isInString = true;
    } else if (code === OPEN_BRACKET || code === OPEN_BRACE) {
      level += 1;
    } else if (code === CLOSE_BRACKET || code === CLOSE_BRACE) {
      level -= 1;
    }
    if ((isKept || level <= LEVELS_KEPT) && at < bytes.length) bytes[to++] = bytes[at] as number;
  }
  return to === bytes.length ? bytes : (bytes.subarray(0, to) as Bytes);
}
