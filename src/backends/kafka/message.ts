/**
 * A user as a Kafka message, and back. The value is a header (one line of JSON), a line feed, and the user's bytes as the
 * client sent them: a slice of the body, never serialised again.
 *
 * The key is the tenant and the strongest identifier as it was sent, so that data about one person is usually in one
 * partition, in order. Only speed depends on that: the store resolves identities. The timestamp of a message is the one in
 * its trace id, so that a request can be found by its time.
 *
 * A message that another program wrote becomes a record of no tenant and no users (`NO_TENANT`), which the processor turns
 * into a dead letter. One of another version of Sluice is an error: it may have been acknowledged.
 */

import { jsonIn } from '../../json/parse.ts';
import { END, JsonScanner, KnownKeys, OTHER, QUOTE } from '../../json/scanner.ts';
import { LogCorruptError, type LogEntry, type LogHeader, type LogRecord, NO_TENANT } from '../../log.ts';
import { bodyHashOf } from '../../log/body-hash.ts';
import {
  type ForeignFormat,
  FORMATS,
  IDENTIFIER_TYPES,
  type IdentifierType,
  KEY_KINDS,
  type KeyKind,
} from '../../model.ts';
import { keyOfUser } from '../../views/key-use.ts';
import { timeOfUuid7 } from '../../views/uuid.ts';

export interface Message {
  readonly key: Buffer;
  readonly value: Buffer;
  /** Milliseconds since 1970. */
  readonly timestamp: number;
}

/** What Kafka adds to a message, approximately. */
export const MESSAGE_OVERHEAD_BYTES = 24;

interface MessageLocation {
  readonly partition: number;
  readonly position: number;
}

const VERSION = 1;
const LINE_FEED = 0x0a;
const BODY_START = Buffer.from('{"users":[');
const BODY_END = Buffer.from(']}');
/** Between parts of a key; accepted identifiers cannot contain it. */
const SEPARATOR = '\u001f';

/** The line before the user's bytes. */
interface MessageHeader {
  readonly version: number;
  readonly trace_id: string;
  readonly tenant: string;
  readonly received_at: number;
  readonly key_id: string;
  readonly key_kind: KeyKind;
  readonly idempotency_key: string | null;
  /** Hash of the body of the whole request, if it has an Idempotency-Key. */
  readonly body_hash: string | undefined;
  readonly format: ForeignFormat | undefined;
  readonly user_index: number;
  readonly users: number;
  readonly events: number;
  readonly rejection: string | undefined;
  /** Count of the whole request, on its first accepted user, else on its first. A retry is recognised by its key. */
  readonly dropped_by_client: number | undefined;
}

export function messagesOf(entry: LogEntry): Message[] {
  const users = usersInBody(entry.body);
  if (users.length !== entry.userCount) {
    throw new Error(`a body has ${users.length} users, but its log entry says ${entry.userCount}`);
  }
  const body = Buffer.from(entry.body.buffer, entry.body.byteOffset, entry.body.byteLength);
  const rejections = new Map(entry.rejections.map(({ userIndex, message }) => [userIndex, message]));
  const timestamp = timeOfUuid7(entry.traceId) ?? entry.receivedAt;
  const bodyHash = entry.idempotencyKey === null ? undefined : bodyHashOf(body);
  const reporting = Math.max(
    users.findIndex((_user, userIndex) => !rejections.has(userIndex)),
    0,
  );
  return users.map((user, userIndex) => {
    const rejection = rejections.get(userIndex);
    const header: MessageHeader = {
      version: VERSION,
      trace_id: entry.traceId,
      tenant: entry.tenantId,
      received_at: entry.receivedAt,
      key_id: entry.keyId,
      key_kind: entry.keyKind,
      idempotency_key: entry.idempotencyKey,
      body_hash: bodyHash,
      format: entry.format,
      user_index: userIndex,
      users: entry.userCount,
      events: rejection === undefined ? user.events : 0,
      rejection,
      dropped_by_client: userIndex === reporting ? entry.droppedByClient : undefined,
    };
    const line = JSON.stringify(header);
    const lineBytes = Buffer.byteLength(line);
    const value = Buffer.allocUnsafe(lineBytes + 1 + user.end - user.start);
    value.write(line, 0);
    value[lineBytes] = LINE_FEED;
    body.copy(value, lineBytes + 1, user.start, user.end);
    return { key: keyOf(entry, user), value, timestamp };
  });
}

/** The entry as a reader would return it from a log that holds nothing else. */
export function recordsOf(entry: LogEntry): LogRecord[] {
  return messagesOf(entry).map(({ value }, position) => recordOf(value, { partition: 0, position }));
}

export function recordOf(value: Uint8Array | null, location: MessageLocation): LogRecord {
  const { header, rest } = parseMessage(value, location);
  return { ...header, body: header.tenantId === NO_TENANT ? rest : Buffer.concat([BODY_START, rest, BODY_END]) };
}

export function headerOf(value: Uint8Array | null, location: MessageLocation): LogHeader {
  return parseMessage(value, location).header;
}

function keyOf({ tenantId, traceId }: LogEntry, { identifier }: BodyUser): Buffer {
  const parts = identifier === null ? [tenantId, traceId] : [tenantId, identifier.type, identifier.value];
  return Buffer.from(parts.join(SEPARATOR));
}

function parseMessage(
  value: Uint8Array | null,
  location: MessageLocation,
): { readonly header: LogHeader; readonly rest: Buffer } {
  const bytes = value === null ? Buffer.alloc(0) : Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  const lineEnd = bytes.indexOf(LINE_FEED);
  const line = lineEnd < 0 ? undefined : jsonIn(bytes.toString('utf8', 0, lineEnd), JSON.parse);
  if (isMessageHeader(line)) return { header: headerFrom(line, location), rest: bytes.subarray(lineEnd + 1) };
  if (isOfAnotherVersion(line)) {
    throw new LogCorruptError(
      `position ${location.position} of partition ${location.partition} has a message that another version of Sluice wrote: run the newest version on all servers`,
    );
  }
  return { header: foreignHeader(location), rest: bytes };
}

/** Its id is the same whenever it is read, so that the store recognises it as the last record that it has processed. */
function foreignHeader({ partition, position }: MessageLocation): LogHeader {
  const [first, last] = [partition.toString(16).padStart(8, '0'), position.toString(16).padStart(12, '0')];
  return {
    partition,
    position,
    firstUserIndex: 0,
    traceId: `${first}-0000-8000-8000-${last}`,
    tenantId: NO_TENANT,
    receivedAt: Date.now(),
    keyId: '',
    keyKind: 'publishable',
    idempotencyKey: null,
    userCount: 0,
    eventCount: 0,
    rejections: [],
  };
}

function headerFrom(line: MessageHeader, { partition, position }: MessageLocation): LogHeader {
  const { user_index: userIndex, idempotency_key: key, body_hash: bodyHash, format, rejection } = line;
  return {
    partition,
    position,
    firstUserIndex: userIndex,
    traceId: line.trace_id,
    tenantId: line.tenant,
    receivedAt: line.received_at,
    keyId: line.key_id,
    keyKind: line.key_kind,
    // Per user: after a request that was appended only in part, a retry adds the missing users.
    idempotencyKey: key === null ? null : keyOfUser(key, userIndex),
    ...(bodyHash === undefined ? {} : { bodyHash }),
    ...(format === undefined ? {} : { format }),
    userCount: 1,
    eventCount: line.events,
    rejections: rejection === undefined ? [] : [{ userIndex, message: rejection }],
    ...(line.dropped_by_client === undefined ? {} : { droppedByClient: line.dropped_by_client }),
  };
}

/** For a line that is not a header of this version: also one with the same number, which may have a new `format`. */
function isOfAnotherVersion(line: unknown): boolean {
  if (typeof line !== 'object' || line === null) return false;
  const { version, trace_id, tenant } = line as Partial<MessageHeader>;
  return Number.isSafeInteger(version) && isText(trace_id) && isText(tenant);
}

function isMessageHeader(line: unknown): line is MessageHeader {
  if (typeof line !== 'object' || line === null) return false;
  const header = line as Partial<MessageHeader>;
  const { idempotency_key, body_hash, format, dropped_by_client = 0 } = header;
  const numbers = [header.received_at, header.user_index, header.users, header.events, dropped_by_client];
  return (
    header.version === VERSION &&
    [header.trace_id, header.tenant, header.key_id].every(isText) &&
    numbers.every((number) => Number.isSafeInteger(number)) &&
    KEY_KINDS.some((kind) => kind === header.key_kind) &&
    (format === undefined || FORMATS.includes(format)) &&
    (idempotency_key === null ? body_hash === undefined : [idempotency_key, body_hash].every(isText))
  );
}

function isText(value: unknown): boolean {
  return typeof value === 'string';
}

interface BodyUser {
  readonly start: number;
  readonly end: number;
  /** 0 if `events` is not an array. */
  readonly events: number;
  readonly identifier: { readonly type: IdentifierType; readonly value: string } | null;
}

const BODY_KEYS = new KnownKeys('users');
const USER_KEYS = new KnownKeys('events', 'identifiers');
const EVENTS = 0;
const IDENTIFIERS = 1;
const IDENTIFIER_KEYS = new KnownKeys(...IDENTIFIER_TYPES);

/**
 * Agrees with `JSON.parse`: the last of duplicate names wins, and names may contain escapes. The body must be JSON with a
 * `users` array, which the edge has checked. Nesting uses no stack.
 */
export function usersInBody(body: Uint8Array): BodyUser[] {
  const scanner = new JsonScanner(body);
  let users: BodyUser[] | null = null;
  if (scanner.openObject()) {
    for (let key = scanner.nextKey(BODY_KEYS); key !== END; key = scanner.nextKey(BODY_KEYS)) {
      if (key === OTHER || !scanner.openArray()) {
        scanner.skipValue();
        continue;
      }
      users = [];
      while (scanner.nextElement()) users.push(userOf(scanner));
    }
  }
  if (!scanner.finish()) throw new Error('a body that is not JSON reached the log');
  if (users === null) throw new Error('a body without users reached the log');
  return users;
}

function userOf(scanner: JsonScanner): BodyUser {
  scanner.peek();
  const start = scanner.at;
  let events = 0;
  let identifier: BodyUser['identifier'] = null;
  if (scanner.openObject()) {
    for (let key = scanner.nextKey(USER_KEYS); key !== END; key = scanner.nextKey(USER_KEYS)) {
      if (key === EVENTS) events = countElements(scanner);
      else if (key === IDENTIFIERS) identifier = strongestIdentifier(scanner);
      else scanner.skipValue();
    }
  } else {
    scanner.skipValue();
  }
  return { start, end: scanner.at, events, identifier };
}

function countElements(scanner: JsonScanner): number {
  let count = 0;
  if (!scanner.openArray()) {
    scanner.skipValue();
    return 0;
  }
  for (; scanner.nextElement(); count++) scanner.skipValue();
  return count;
}

/** The first in the order of types that is a string and not empty. */
function strongestIdentifier(scanner: JsonScanner): BodyUser['identifier'] {
  if (!scanner.openObject()) {
    scanner.skipValue();
    return null;
  }
  const values: string[] = IDENTIFIER_TYPES.map(() => '');
  for (let key = scanner.nextKey(IDENTIFIER_KEYS); key !== END; key = scanner.nextKey(IDENTIFIER_KEYS)) {
    const isString = scanner.peek() === QUOTE;
    scanner.skipValue();
    if (key !== OTHER) values[key] = isString ? scanner.stringText() : '';
  }
  const strongest = values.findIndex((value) => value !== '');
  return strongest < 0
    ? null
    : { type: IDENTIFIER_TYPES[strongest] as IdentifierType, value: values[strongest] as string };
}
