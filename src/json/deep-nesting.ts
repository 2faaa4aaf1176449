/**
 * Leaves out what is nested very deeply. No valid user has it, but a body of 10 kB, compressed, can have five million
 * levels, and parsing them or writing them again takes many seconds and most of the memory of a thread. Pure.
 */

import { BACKSLASH, CLOSE_BRACE, CLOSE_BRACKET, OPEN_BRACE, OPEN_BRACKET, QUOTE } from './scanner.ts';

/** Far more than a user may have (`LIMITS.nestingDepthMax`), so validation says the same. */
const LEVELS_KEPT = 1_000;
/** In fewer bytes there are not enough levels to take long. Looking at them takes half as long as parsing them. */
const BYTES_MIN = 256 * 1024;

const TEXT = 0;
const STRING = 1;
const ESCAPE = 2;
const OPENING = 3;
const CLOSING = 4;
const KINDS = new Uint8Array(256);
KINDS[QUOTE] = STRING;
KINDS[BACKSLASH] = ESCAPE;
for (const code of [OPEN_BRACKET, OPEN_BRACE]) KINDS[code] = OPENING;
for (const code of [CLOSE_BRACKET, CLOSE_BRACE]) KINDS[code] = CLOSING;

/**
 * The same bytes, or a part of the same memory: from a size on, arrays and objects at level 1,000 lose their content. Null if they are
 * nested that deeply and are not JSON, because something is not closed. For bytes that the caller owns: they are
 * overwritten.
 */
export function withoutDeepNesting<Bytes extends Uint8Array>(bytes: Bytes): Bytes | null {
  if (bytes.length < BYTES_MIN) return bytes;
  const { deepest, isClosed } = nestingOf(bytes);
  if (deepest <= LEVELS_KEPT) return bytes;
  return isClosed ? (bytes.subarray(0, keepLevels(bytes)) as Bytes) : null;
}

function nestingOf(bytes: Uint8Array): { readonly deepest: number; readonly isClosed: boolean } {
  const { length } = bytes;
  let level = 0;
  let deepest = 0;
  let isInString = false;
  for (let at = 0; at < length; at++) {
    const kind = KINDS[bytes[at] as number];
    if (kind === TEXT) continue;
    if (isInString) {
      if (kind === ESCAPE) at += 1;
      else if (kind === STRING) isInString = false;
    } else if (kind === OPENING) {
      level += 1;
      if (level > deepest) deepest = level;
    } else if (kind === CLOSING) {
      level -= 1;
    } else {
      isInString = kind === STRING;
    }
  }
  return { deepest, isClosed: level === 0 && !isInString };
}

/** Moves what is kept to the front, and returns how many bytes that is. */
function keepLevels(bytes: Uint8Array): number {
  let level = 0;
  let isInString = false;
  let to = 0;
  for (let at = 0; at < bytes.length; at++) {
    const kind = KINDS[bytes[at] as number];
    const wasKept = level <= LEVELS_KEPT;
    if (isInString) {
      if (kind === ESCAPE) {
        if (wasKept) bytes[to++] = bytes[at] as number;
        at += 1;
      } else if (kind === STRING) {
        isInString = false;
      }
    } else if (kind === OPENING) {
      level += 1;
    } else if (kind === CLOSING) {
      level -= 1;
    } else {
      isInString = kind === STRING;
    }
    // Also the bracket that opens the first level that is not kept, and the one that closes it.
    if (wasKept || level <= LEVELS_KEPT) bytes[to++] = bytes[at] as number;
  }
  return to;
}
