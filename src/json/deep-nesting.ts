/**
 * Leaves out what is nested very deeply. No valid user has it, but a body of 10 kB, compressed, can have five million
 * levels, and parsing them or writing them again takes many seconds and most of the memory of a thread. Pure.
 */

import { BACKSLASH, CLOSE_BRACE, CLOSE_BRACKET, OPEN_BRACE, OPEN_BRACKET, QUOTE } from './scanner.ts';

/** Far more than a user may have (`LIMITS.nestingDepthMax`), so validation says the same. */
const LEVELS_KEPT = 1_000;

/**
 * The same bytes, or a part of the same memory: arrays and objects at level 1,000 lose their content. Null if they are
 * nested that deeply and are not JSON, because something is not closed. For bytes that the caller owns: they are
 * overwritten.
 */
export function withoutDeepNesting<Bytes extends Uint8Array>(bytes: Bytes): Bytes | null {
  const { deepest, isClosed } = nestingOf(bytes);
  if (deepest <= LEVELS_KEPT) return bytes;
  return isClosed ? (bytes.subarray(0, keepLevels(bytes)) as Bytes) : null;
}

function nestingOf(bytes: Uint8Array): { readonly deepest: number; readonly isClosed: boolean } {
  let [level, deepest, isInString] = [0, 0, false];
  for (let at = 0; at < bytes.length; at++) {
    const code = bytes[at] as number;
    if (isInString) {
      if (code === BACKSLASH) at += 1;
      else if (code === QUOTE) isInString = false;
    } else if (code === QUOTE) {
      isInString = true;
    } else if (code === OPEN_BRACKET || code === OPEN_BRACE) {
      level += 1;
      if (level > deepest) deepest = level;
    } else if (code === CLOSE_BRACKET || code === CLOSE_BRACE) {
      level -= 1;
    }
  }
  return { deepest, isClosed: level === 0 && !isInString };
}

/** Moves what is kept to the front, and returns how many bytes that is. */
function keepLevels(bytes: Uint8Array): number {
  let [level, isInString, to] = [0, false, 0];
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
    } else if (code === QUOTE) {
      isInString = true;
    } else if (code === OPEN_BRACKET || code === OPEN_BRACE) {
      level += 1;
    } else if (code === CLOSE_BRACKET || code === CLOSE_BRACE) {
      level -= 1;
    }
    // Also the bracket that opens the first level that is not kept, and the one that closes it.
    if (wasKept || level <= LEVELS_KEPT) bytes[to++] = bytes[at] as number;
  }
  return to;
}
