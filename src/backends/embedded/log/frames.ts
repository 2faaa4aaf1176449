/**
 * The format of a log segment: a text file of frames, one after the other. A frame is a line with a header in JSON, and a
 * body:
 *
 *   checksum of the lengths ␣ bytes of the header ␣ bytes of the body ␣ checksum of both ␣ header ⏎ body ⏎
 *
 * The four numbers have eight hexadecimal digits each, so a reader knows the length of a frame from its first 36 bytes and
 * can skip its body. Checksums are CRC-32 and start from a seed that only this segment has, so a client cannot write a body
 * that a search for the next frame in a damaged segment would take for one. The header of a record is an array with
 * everything that is known of a request but its body: the edge encodes what it knows, and the writer adds the rest. Pure.
 */

import { crc32 } from 'node:zlib';
import { jsonIn } from '../../../json/parse.ts';
import { LOCAL_PARTITION, type LogEntry, type LogHeader } from '../../../log.ts';
import type { ForeignFormat, KeyKind, Rejection } from '../../../model.ts';

export interface FrameBounds {
  readonly start: number;
  readonly headerStart: number;
  readonly bodyStart: number;
  readonly bodyEnd: number;
  readonly end: number;
}

const DIGITS = 8;
/** A number and the space after it. */
const FIELD_BYTES = DIGITS + 1;
const LENGTHS_AT = FIELD_BYTES;
const CHECKSUM_AT = 3 * FIELD_BYTES;
export const PREFIX_BYTES = 4 * FIELD_BYTES;
const LINE_FEED = 0x0a;
const SPACE = 0x20;
const END = Buffer.of(LINE_FEED);

/** The bytes of a frame in order; the body is not copied. */
export function encodeFrame(header: string, body: Uint8Array, seed: number): Uint8Array[] {
  const lengths = `${hex(Buffer.byteLength(header))} ${hex(body.byteLength)} `;
  const checksum = hex(crc32(body, crc32(header, seed)));
  return [Buffer.from(`${hex(crc32(lengths, seed))} ${lengths}${checksum} ${header}\n`), body, END];
}

/** The frame that begins at `start`; null if none does. It may end after these bytes, and its content may be damaged. */
export function frameAt(bytes: Uint8Array, start: number, seed: number): FrameBounds | null {
  const lengths = bytes.subarray(start + LENGTHS_AT, start + CHECKSUM_AT);
  const headerBytes = numberAt(bytes, start + LENGTHS_AT);
  const bodyBytes = numberAt(bytes, start + LENGTHS_AT + FIELD_BYTES);
  if (headerBytes < 0 || bodyBytes < 0 || numberAt(bytes, start) !== crc32(lengths, seed)) return null;
  const headerStart = start + PREFIX_BYTES;
  const bodyStart = headerStart + headerBytes + 1;
  const bodyEnd = bodyStart + bodyBytes;
  return { start, headerStart, bodyStart, bodyEnd, end: bodyEnd + 1 };
}

/** Requires the complete frame in `bytes`. */
export function isIntact(bytes: Uint8Array, frame: FrameBounds, seed: number): boolean {
  const { start, headerStart, bodyStart, bodyEnd } = frame;
  const header = bytes.subarray(headerStart, bodyStart - 1);
  const checksum = crc32(bytes.subarray(bodyStart, bodyEnd), crc32(header, seed));
  const areLines = bytes[bodyStart - 1] === LINE_FEED && bytes[bodyEnd] === LINE_FEED;
  return areLines && numberAt(bytes, start + CHECKSUM_AT) === checksum;
}

/** Requires all of the header in `bytes`. */
export function headerIn(bytes: Buffer, { headerStart, bodyStart }: FrameBounds): string {
  return bytes.toString('utf8', headerStart, bodyStart - 1);
}

/** Whether a line other than the first looks like the beginning of a frame, whatever its seed. */
export function mayHaveSecondFrame(bytes: Buffer): boolean {
  return /\n[0-9a-f ]{36}\[/.test(bytes.toString('latin1'));
}

/** The next place, from `start` on, where a frame may begin: after the end of a line. -1 if there is none. */
export function nextLine(bytes: Uint8Array, start: number): number {
  const end = bytes.indexOf(LINE_FEED, start);
  return end < 0 ? -1 : end + 1;
}

/** Different for each segment. */
export function seedOf(segmentId: string): number {
  return crc32(segmentId);
}

function hex(number: number): string {
  return number.toString(16).padStart(DIGITS, '0');
}

/** Lower-case digits and the space after them; -1 if something else is there. */
function numberAt(bytes: Uint8Array, start: number): number {
  let number = 0;
  for (let at = start; at < start + DIGITS; at++) {
    const code = bytes[at] as number;
    const digit = code <= 0x39 ? code - 0x30 : code >= 0x61 && code <= 0x66 ? code - 0x57 : -1;
    if (digit < 0) return -1;
    number = number * 16 + digit;
  }
  return bytes[start + DIGITS] === SPACE ? number : -1;
}

/** The values of a record's header, in order. */
export const COLUMNS = [
  'position',
  // The first position of the commit that it was written in: a crash can only cut the last commit short.
  'commit',
  'received_at',
  'trace_id',
  'tenant_id',
  'key_id',
  'key_kind',
  'idempotency_key',
  'user_count',
  'event_count',
  'rejections',
  'format',
  'dropped_by_client',
] as const;

type HeaderValues = [
  position: number,
  commit: number,
  receivedAt: number,
  traceId: string,
  tenantId: string,
  keyId: string,
  keyKind: KeyKind,
  idempotencyKey: string | null,
  userCount: number,
  eventCount: number,
  rejections: Rejection[] | null,
  format: ForeignFormat | null,
  droppedByClient: number | null,
];

/** The values from `trace_id` on, as JSON, with the bracket that ends a header. */
export function encodeEntry(entry: LogEntry): string {
  const values = [
    entry.traceId,
    entry.tenantId,
    entry.keyId,
    entry.keyKind,
    entry.idempotencyKey,
    entry.userCount,
    entry.eventCount,
    entry.rejections.length === 0 ? null : entry.rejections,
    entry.format ?? null,
    entry.droppedByClient ?? null,
  ];
  return JSON.stringify(values).slice(1);
}

export function encodeHeader(position: number, commit: number, receivedAt: number, encodedEntry: string): string {
  return `[${position},${commit},${receivedAt},${encodedEntry}`;
}

export interface DecodedHeader {
  readonly commit: number;
  readonly header: LogHeader;
}

/** Undefined if it is not the header of a record. */
export function decodeHeader(text: string): DecodedHeader | undefined {
  const values = jsonIn(text, JSON.parse);
  if (!Array.isArray(values) || values.length !== COLUMNS.length) return undefined;
  const [position, commit, receivedAt, traceId, tenantId, keyId, keyKind, idempotencyKey, ...counts] =
    values as HeaderValues;
  const [userCount, eventCount, rejections, format, droppedByClient] = counts;
  const header = {
    partition: LOCAL_PARTITION,
    position,
    firstUserIndex: 0,
    traceId,
    tenantId,
    receivedAt,
    keyId,
    keyKind,
    idempotencyKey,
    userCount,
    eventCount,
    rejections: rejections ?? [],
    ...(format !== null && { format }),
    ...(droppedByClient !== null && { droppedByClient }),
  };
  return { commit, header };
}
