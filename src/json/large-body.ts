/**
 * Looks at a large body before anything parses it. Pure.
 *
 * It leaves out what is nested very deeply: no valid user has it, but a body of 10 kB, compressed, can have five million
 * levels, and parsing them or writing them again takes many seconds and most of the memory of a thread.
 *
 * It counts users (or messages), because too many are refused whatever they are: three million empty objects take ten
 * times as long to parse as to count, most of it to collect the garbage.
 */

import {
  BACKSLASH,
  CLOSE_BRACE,
  CLOSE_BRACKET,
  END,
  JsonScanner,
  type KnownKeys,
  OPEN_BRACE,
  OPEN_BRACKET,
  OTHER,
  QUOTE,
} from './scanner.ts';

/** Far more than a user may have (`LIMITS.nestingDepthMax`), so validation says the same. */
const LEVELS_KEPT = 1_000;
/** In fewer bytes there are not enough levels or elements to take long. Looking at them takes half as long as parsing them. */
const BYTES_MIN = 256 * 1024;
/** Those of the body and of the array, which are not among the levels that the scanner skips. */
const OUTER_LEVELS = 2;

interface ScannedBody<Bytes> {
  /**
   * The same bytes, or a part of the same memory: in a large text, arrays and objects at level 1,000 lose their content.
   * Null if a text that has such is not JSON.
   */
  readonly kept: Bytes | null;
  /** How many elements the counted array has; 0 if there is none, in a small text, and if the text is not JSON. */
  readonly elements: number;
}

/**
 * `counted` is the name of the member of the outermost object whose elements are counted. For bytes that the caller owns:
 * they are overwritten.
 */
export function scanLargeBody<Bytes extends Uint8Array>(bytes: Bytes, counted: KnownKeys): ScannedBody<Bytes> {
  if (bytes.length < BYTES_MIN) return { kept: bytes, elements: 0 };
  const scanner = new JsonScanner(bytes);
  const count = countElements(scanner, counted);
  const isJson = scanner.finish();
  const elements = isJson ? count : 0;
  if (scanner.deepest + OUTER_LEVELS <= LEVELS_KEPT) return { kept: bytes, elements };
  return { kept: isJson ? (bytes.subarray(0, keepLevels(bytes)) as Bytes) : null, elements };
}

/** If the name occurs twice, the last value counts. */
function countElements(scanner: JsonScanner, counted: KnownKeys): number {
  let elements = 0;
  if (!scanner.openObject()) {
    scanner.skipValue();
    return elements;
  }
  for (let key = scanner.nextKey(counted); key !== END; key = scanner.nextKey(counted)) {
    if (key !== OTHER) elements = 0;
    if (key === OTHER || !scanner.openArray()) scanner.skipValue();
    else for (; scanner.nextElement(); scanner.skipValue()) elements += 1;
  }
  return elements;
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
