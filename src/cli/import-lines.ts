/**
 * Splits the bytes of an NDJSON file into batches of users. Lines are kept byte for byte, so numbers keep their digits.
 * Each is validated on its own before it is spliced into a body: `{}, {}` would otherwise become two users. Batch boundaries
 * depend on the bytes alone, so an import that resumes at a boundary produces the same batches. Memory: one batch and one
 * chunk. Lines of a `FILE.rejected.ndjson` are unwrapped first, so that the file can be fixed and imported.
 */

import { isUtf8 } from 'node:buffer';
import { OperatorError } from '../errors.ts';
import { LIMITS } from '../model.ts';
import { parseExact } from '../json/exact-numbers.ts';
import { describeJsonError } from '../json/error.ts';
import { parseJson } from '../json/parse.ts';
import { isObject } from '../validation/shape.ts';

const BATCH_USERS_MAX = 500;
const BATCH_BYTES_MAX = 4 * 1_024 * 1_024;
const BODY_START = Buffer.from('{"users":[');
const BODY_END = Buffer.from(']}');
const COMMA = Buffer.from(',');
const LINE_BYTES_MAX = LIMITS.bodyBytesMax - BODY_START.length - BODY_END.length;
/** Bytes kept of a line that is too long, to show which it was. */
const SHOWN_BYTES = 1_024;
const LINE_FEED = 0x0a;
const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf]);
const GZIP_START = Buffer.from([0x1f, 0x8b]);
const EXPECTED = 'expected one user object per line';

export interface Line {
  /** Counted from 1. */
  readonly number: number;
  readonly bytes: Buffer;
}

export interface BadLine extends Line {
  readonly reason: string;
  /** Whether the bytes are a JSON text. */
  readonly isJson: boolean;
}

export interface Batch {
  readonly lines: readonly Line[];
  /** Lines among them that cannot be sent. */
  readonly badLines: readonly BadLine[];
  /** Where the file continues after this batch. */
  readonly next: FilePosition;
}

export interface FilePosition {
  readonly offset: number;
  /** How many lines come before it. */
  readonly lines: number;
}

interface RawLine extends Line {
  readonly isCut: boolean;
  readonly end: number;
}

export async function* batchesOf(source: AsyncIterable<Uint8Array>, start: FilePosition): AsyncGenerator<Batch> {
  let lines: Line[] = [];
  let badLines: BadLine[] = [];
  let bytes = 0;
  let next = start;
  for await (const line of linesOf(source, start)) {
    const isFull = lines.length >= BATCH_USERS_MAX || badLines.length >= BATCH_USERS_MAX;
    if (isFull || (lines.length > 0 && bytes + line.bytes.length > BATCH_BYTES_MAX)) {
      yield { lines, badLines, next };
      [lines, badLines, bytes] = [[], [], 0];
    }
    const read = readLine(line);
    if (read !== null && 'reason' in read) {
      badLines.push(read);
    } else if (read !== null) {
      lines.push(read);
      bytes += read.bytes.length + COMMA.length;
    }
    next = { offset: line.end, lines: line.number };
  }
  if (next.offset > start.offset) yield { lines, badLines, next };
}

export function bodyOf(lines: readonly Line[]): Buffer<ArrayBuffer> {
  const parts: Buffer[] = [BODY_START];
  for (const [index, { bytes }] of lines.entries()) {
    if (index > 0) parts.push(COMMA);
    parts.push(bytes);
  }
  parts.push(BODY_END);
  return Buffer.concat(parts);
}

/** Null for a blank one. */
function readLine({ number, bytes, isCut }: RawLine): Line | BadLine | null {
  if (number === 1 && bytes.indexOf(GZIP_START) === 0) {
    throw new OperatorError(
      `This file is compressed with gzip; ${EXPECTED}. Decompress it first: zcat FILE | sluice import -`,
    );
  }
  const line = { number, bytes };
  if (isCut) return bad(line, `the line is longer than ${LINE_BYTES_MAX} bytes, which is all that a request can carry`);
  if (!isUtf8(bytes)) return bad(line, `the line is not UTF-8; ${EXPECTED}`);
  return readText(bytes.toString('utf8'), line);
}

function bad(line: Line, reason: string, isJson = false): BadLine {
  return { ...line, reason, isJson };
}

function readText(text: string, line: Line): Line | BadLine | null {
  if (text.trim() === '') return null;
  let value: unknown;
  try {
    value = parseJson(text);
  } catch {
    return bad(line, notJson(text));
  }
  if (isRejectedLine(value, 'user')) return readRejectedUser(text, line);
  if (isRejectedLine(value, 'text') && typeof value['text'] === 'string') {
    return readText(value['text'], { ...line, bytes: Buffer.from(value['text']) });
  }
  return readValue(value, line);
}

/** Where the line stops being JSON, and why. */
export function problemOfLine(text: string): string {
  return describeJsonError(text)?.replace('at line 1, column', 'at column') ?? '';
}

function notJson(text: string): string {
  const start = text.trimStart().charAt(0);
  if (start === '[') return `the line is the beginning of an array; ${EXPECTED} (jq -c ".[]" makes them)`;
  return `the line is not JSON: ${problemOfLine(text)}${start === '{' ? '' : `; ${EXPECTED}`}`;
}

function readValue(value: unknown, line: Line): Line | BadLine {
  if (Array.isArray(value)) return bad(line, `the line is an array; ${EXPECTED} (jq -c ".[]" makes them)`, true);
  if (isObject(value) && Array.isArray(value['users']) && !Object.hasOwn(value, 'identifiers')) {
    const reason = `the line is a whole request, {"users":[…]}; ${EXPECTED} (jq -c ".users[]" makes them)`;
    return bad(line, reason, true);
  }
  return line;
}

/** Whether an import before this one wrote it into its `FILE.rejected.ndjson`. No valid user looks like that. */
function isRejectedLine(value: unknown, sent: 'user' | 'text'): value is Readonly<Record<string, unknown>> {
  if (!isObject(value) || Object.keys(value).length !== 3 || !Object.hasOwn(value, sent)) return false;
  return typeof value['line'] === 'number' && typeof value['reason'] === 'string';
}

function readRejectedUser(text: string, line: Line): Line | BadLine {
  const rejected = parseExact(text);
  const user = isObject(rejected) ? rejected['user'] : undefined;
  try {
    return readValue(user, { ...line, bytes: Buffer.from(JSON.stringify(user)) });
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return bad(line, 'the user in the line is nested too deep');
  }
}

async function* linesOf(source: AsyncIterable<Uint8Array>, start: FilePosition): AsyncGenerator<RawLine> {
  let number = start.lines;
  let end = start.offset;
  let pending: Buffer[] = [];
  let pendingBytes = 0;
  let isCut = false;
  const add = (piece: Buffer): void => {
    end += piece.length;
    if (pendingBytes + piece.length > LINE_BYTES_MAX) isCut = true;
    // Only the beginning of a line without an end is held.
    const kept = isCut ? piece.subarray(0, Math.max(0, SHOWN_BYTES - pendingBytes)) : piece;
    pendingBytes += kept.length;
    if (kept.length > 0) pending.push(kept);
  };
  const take = (): RawLine => {
    number += 1;
    let bytes = pending.length === 1 ? (pending[0] ?? Buffer.alloc(0)) : Buffer.concat(pending);
    if (isCut) bytes = bytes.subarray(0, SHOWN_BYTES);
    if (number === 1 && bytes.indexOf(BYTE_ORDER_MARK) === 0) bytes = bytes.subarray(BYTE_ORDER_MARK.length);
    const line = { number, bytes, isCut, end };
    [pending, pendingBytes, isCut] = [[], 0, false];
    return line;
  };
  for await (const chunk of source) {
    const buffer = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    let from = 0;
    for (let at = buffer.indexOf(LINE_FEED); at >= 0; at = buffer.indexOf(LINE_FEED, from)) {
      add(buffer.subarray(from, at));
      end += 1;
      from = at + 1;
      yield take();
    }
    if (from < buffer.length) add(buffer.subarray(from));
  }
  if (pendingBytes > 0 || isCut) yield take();
}
