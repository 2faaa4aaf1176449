/**
 * From the bytes of an NDJSON file to batches of users. Lines are checked (UTF-8, JSON, size) and kept as the bytes that
 * they are, never re-serialised, so numbers keep their digits. A line is checked on its own before it is spliced into a
 * body: `{}, {}` would otherwise become two users. Where a batch ends depends on the bytes alone, so that an import
 * which starts again at the end of a batch makes the same batches. Memory: one batch and one chunk.
 */

import { isUtf8 } from 'node:buffer';
import { LIMITS } from '../model.ts';
import { describeJsonError } from '../validation/json-error.ts';

const BATCH_USERS_MAX = 500;
const BATCH_BYTES_MAX = 4 * 1_024 * 1_024;
const BODY_START = Buffer.from('{"users":[');
const BODY_END = Buffer.from(']}');
const COMMA = Buffer.from(',');
const LINE_BYTES_MAX = LIMITS.bodyBytesMax - BODY_START.length - BODY_END.length;
/** Of a line that is too long, kept to show which it was. */
const SHOWN_BYTES = 1_024;
const LINE_FEED = 0x0a;
const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf]);

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
  /** Where the file goes on after this batch. */
  readonly next: Place;
}

export interface Place {
  readonly offset: number;
  /** How many lines come before it. */
  readonly lines: number;
}

interface RawLine extends Line {
  readonly isCut: boolean;
  readonly end: number;
}

export async function* batchesOf(source: AsyncIterable<Uint8Array>, start: Place): AsyncGenerator<Batch> {
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
    const reason = mistakeIn(line);
    if (reason === null) {
      lines.push({ number: line.number, bytes: line.bytes });
      bytes += line.bytes.length + COMMA.length;
    } else if (reason !== '') {
      badLines.push({ number: line.number, bytes: line.bytes, reason, isJson: false });
    }
    next = { offset: line.end, lines: line.number };
  }
  if (next.offset > start.offset) yield { lines, badLines, next };
}

export function bodyOf(lines: readonly Line[]): Buffer {
  const parts: Buffer[] = [BODY_START];
  for (const [index, { bytes }] of lines.entries()) {
    if (index > 0) parts.push(COMMA);
    parts.push(bytes);
  }
  parts.push(BODY_END);
  return Buffer.concat(parts);
}

/** Why a line cannot be sent; null when it can, nothing for a blank one, which is passed over. */
function mistakeIn({ bytes, isCut }: RawLine): string | null {
  if (isCut) return `the line is longer than ${LINE_BYTES_MAX} bytes, which is all that a request can carry`;
  if (!isUtf8(bytes)) return 'the line is not UTF-8';
  const text = bytes.toString('utf8');
  if (text.trim() === '') return '';
  try {
    JSON.parse(text);
    return null;
  } catch {
    // The engine's own message would quote the line.
    return `the line is not JSON: ${describeJsonError(text)?.replace(' line 1,', '') ?? 'it cannot be read'}`;
  }
}

async function* linesOf(source: AsyncIterable<Uint8Array>, start: Place): AsyncGenerator<RawLine> {
  let number = start.lines;
  let end = start.offset;
  let pending: Buffer[] = [];
  let pendingBytes = 0;
  let isCut = false;
  const add = (piece: Buffer): void => {
    end += piece.length;
    if (pendingBytes + piece.length > LINE_BYTES_MAX) isCut = true;
    // Of a line without an end only its beginning is held.
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
