/**
 * The event log: where the edge and the processor meet, and the point from which data is durable.
 *
 * A log has partitions. Within a partition records are ordered by position; nothing orders partitions among each
 * other. Two halves, because they live in different threads (embedded) or on different machines (Kafka): an appender
 * per edge, a reader for all partitions. `test/contract/log.ts` is the suite that every backend passes.
 */

import { OperatorError } from './errors.ts';
import type { ForeignFormat, KeyKind, Rejection, TenantId } from './model.ts';

/** The only partition of a log in a data folder: its requests have one order. */
export const LOCAL_PARTITION = 0;

/** One request, as the edge hands it over. */
export interface LogEntry {
  readonly traceId: string;
  readonly tenantId: TenantId;
  /** Milliseconds since 1970, by the clock of the edge. */
  readonly receivedAt: number;
  readonly keyId: string;
  /** Kept because a publishable key is in everyone's hands: it may not join two known people. */
  readonly keyKind: KeyKind;
  readonly idempotencyKey: string | null;
  /** The format in which the client sent it, if that was not our own. */
  readonly format?: ForeignFormat;
  /**
   * UTF-8 JSON, an object with a `users` array: as the client sent it, decompressed, never re-serialised; of another
   * format, what it was converted to (decisions/037).
   */
  readonly body: Uint8Array;
  /** How many users the body holds, rejected ones included. */
  readonly userCount: number;
  /** How many events the accepted users have. */
  readonly eventCount: number;
  /** Users in the body that are not to be stored, with the reason. In order of `userIndex`. */
  readonly rejections: readonly Rejection[];
  /** Events that the client reports to have dropped; absent for none, and where no user was accepted. */
  readonly droppedByClient?: number;
}

/**
 * Consecutive users of one request. A backend may keep a request whole (embedded: one record a request) or cut
 * it into users (Kafka: one record a user); readers treat both alike. `body` is always an object with a `users`
 * array, and the user at index i of that array is user `firstUserIndex + i` of the request.
 */
export interface LogRecord extends LogEntry {
  readonly partition: number;
  readonly position: number;
  readonly firstUserIndex: number;
  /**
   * The key for recognising a retry. Kafka appends the user's index, so that a retry stores only the users that are
   * missing.
   */
  readonly idempotencyKey: string | null;
  /** Hash of the body of the whole request (`bodyHashOf`), where a record holds only a part of it. */
  readonly bodyHash?: string;
}

/** The tenant of a record that another program wrote into a shared log. It has no users, and cannot be processed. */
export const NO_TENANT: TenantId = '';

/** A record without its body: cheap to read in large numbers. */
export type LogHeader = Omit<LogRecord, 'body'>;

export interface LogBatch {
  readonly records: readonly LogRecord[];
  /** Where to read on: the position after the last record of this batch (or where reading began, if it is empty). */
  readonly next: number;
}

/** Positions that no longer have a record, `from` inclusive, `to` exclusive. */
export interface LostRange {
  readonly from: number;
  readonly to: number;
  /** As far as is known; at least 1. */
  readonly records: number;
}

/** Records that are gone from the log and were not processed, by partition. */
export interface LostAhead extends LostRange {
  readonly partition: number;
  /** When the processor continued without them; null while it has not. */
  readonly at: number | null;
}

/**
 * Those that the store has passed: given up by an operator or, where `from` is the first position of the log (1, in Kafka
 * 0), perhaps removed before there was this store.
 */
export interface LostRecords extends LostAhead {
  readonly at: number;
}

export interface LogAppender {
  /**
   * Resolves once the entry is durable: it survives kill -9 and power loss. Rejects with `LogUnavailableError` when it
   * is not; the entry is then not in the log, or (after a failing fsync) may be, and no client got a 202 for it.
   * Takes ownership of the memory of `entry.body`: do not read or write it afterwards.
   */
  append(entry: LogEntry): Promise<void>;
  /** Why appends would be refused now, as a text for operators; null while all is well. Recovers without a restart. */
  problem(): string | null;
  /** Waits for appends that are under way. */
  close(): Promise<void>;
}

export interface LogReader {
  /** The permanent name of this log, among all that a store takes records from: positions are stored under it. */
  readonly name: string;
  /** Whether a request may be several records, which are read and processed independently. */
  readonly splitsRequests: boolean;
  /** All of them; for a member of a group of readers, those that are its own at the moment. */
  partitions(): Promise<number[]>;
  /**
   * Records from `position` on, in order, at most about `bytesMax` bytes of bodies but at least one record if there is
   * one. In a local log, whose first position is 1, position 0 is the first one that is kept. Throws `LogCorruptError` on
   * damage, and where records from `position` on are missing: they are never passed over. `lastTraceId` is the request of
   * the record before `position`, for a log that may lose records while it is read: after an interruption such a log throws
   * if it has another there.
   */
  read(partition: number, position: number, bytesMax: number, lastTraceId?: string): Promise<LogBatch>;
  /** Like `read`, without bodies: at most `countMax` headers, fewer only at the end of the partition. */
  headers(partition: number, position: number, countMax: number): Promise<{ headers: LogHeader[]; next: number }>;
  /**
   * The records of one request at or after `position`, in order: one, or several where a backend cuts requests. Throws
   * `LogCorruptError` only where it has none that can be read and a part that cannot be read may hold it.
   */
  find(partition: number, position: number, traceId: string): Promise<LogHeader[]>;
  /** About how many bytes on disk hold the records from `position` on: what is still to be processed. */
  backlogBytes(partition: number, position: number): Promise<number>;
  /** The request of the record at exactly this position; undefined where it is not kept, or not there. */
  traceIdAt(partition: number, position: number): Promise<string | undefined>;
  /**
   * How many records are gone that a store which has processed everything below `position` relies on: the log ends before
   * that position or before what was acknowledged, or records from it on were removed. 0 while all is well.
   */
  missing(partition: number, position: number): Promise<number>;
  /**
   * Records from `position` on that will never come: given up by an operator or, in a local log of which nothing was
   * processed (position 0), removed before. In order.
   */
  lost(partition: number, position: number): Promise<LostRange[]>;
  /** For operators: the SQL statement by which all of a partition is read again; absent where there is none. */
  readAgainStatement?(partition: number): Promise<string>;
  /** Says that every record below `position` has been processed and may be removed once it is old enough. */
  commit(partition: number, position: number): Promise<void>;
  /**
   * The newest time of receipt in the log, over all partitions; 0 when it holds no record. Cheap: a partition is asked for
   * its last record alone. What cannot be read is passed over, since reading it reports it.
   */
  newestReceivedAt(): Promise<number>;
  close(): Promise<void>;
}

/** The log cannot take data now. The edge responds with 503 and the client retries. */
export class LogUnavailableError extends Error {
  override readonly name = 'LogUnavailableError';
  /** True when the process must end rather than continue (a failed fsync: what the disk holds is no longer known). */
  readonly fatal: boolean;
  constructor(message: string, fatal = false) {
    super(message);
    this.fatal = fatal;
  }
}

/** This user may not read the log: an edge need not. */
export class LogForbiddenError extends LogUnavailableError {}

/** A shared log cannot be opened because it does not respond now. A server waits for it; a command prints the message. */
export class LogUnreachableError extends OperatorError {}

/** The log holds bytes that are not what was written. Never skipped silently. */
export class LogCorruptError extends Error {
  override readonly name = 'LogCorruptError';
}

/** A file lies in the log that was written elsewhere. The message names it and says what to do; nothing else is damaged. */
export class ForeignSegmentError extends LogCorruptError {}

/** Records are gone between those that are there. The message names them and says what to do; nothing else is damaged. */
export class LogGapError extends LogCorruptError {}
