/**
 * The thread that commits. It takes all groups that arrived while the last commit ran, writes them in one transaction
 * (group commit) and replies up to which group everything is durable. All edges of a server append through one writer:
 * a request that is received after the 202 of another one, at whichever edge, therefore follows it in the log. The order
 * of the log is also that of `received_at`.
 *
 * Failures: a full disk fails the current groups and is probed until there is space again; any other I/O error is
 * fatal, is reported once, and this thread never touches the database after it, because after a failed fsync the
 * content of the disk is unknown.
 */

import { randomBytes } from 'node:crypto';
import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { type MessagePort, parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { METRIC, type MetricsWriter, metricsWriter } from '../../../telemetry/metrics.ts';
import { identityOf } from '../../../data-folder/file-identity.ts';
import { assertLockHeld, type HeldLock } from '../../../data-folder/held-lock.ts';
import { LogUnavailableError } from '../../../log.ts';
import { CheckpointClient } from '../checkpointer.ts';
import { AppendSignal } from '../../../runtime/append-signal.ts';
import { releaseMemory } from '../../../runtime/threads.ts';
import { canWrite, fullDiskText, isAccessDenied, isFullDisk, isOutOfFiles } from '../disk.ts';
import { type MissingRecords, missingRecordsText } from '../../../log/continuity.ts';
import { endOfSegments, findLogName, localLogName, LogEnds, missingAtEnd, readLogEnd } from './name-and-end.ts';
import { recoverSegment } from './recovery.ts';
import {
  assertNotForeign,
  createSegment,
  findIdentity,
  hasWal,
  type HeaderValues,
  holdsRecords,
  listReadable,
  listSegments,
  LOST_POSITIONS,
  makeMark,
  PAGE_BYTES,
  recordChecksum,
  removeSegment,
  type Segment,
  segmentFile,
  type SegmentId,
} from './segments.ts';
import { noteLogWarning } from './warnings.ts';
import { messageOf } from '../../../errors.ts';

export interface LogWriterSetup {
  readonly folder: string;
  readonly segmentBytes: number;
  /** The lock of the data folder. Omitted if nothing but this writer can be there. */
  readonly lock?: HeldLock | null;
  /** The position up to which the store has processed the log; a record never gets a position below it. */
  readonly processed?: number;
  readonly metrics: { readonly buffer: SharedArrayBuffer; readonly slot: number } | null;
  /** Memory of the `AppendSignal` for the processor. Omitted where none waits for it. */
  readonly appendSignal?: SharedArrayBuffer | undefined;
  /** To the checkpointer's thread; without it the writer's thread checkpoints itself, between two commits. */
  readonly checkpointer?: MessagePort | undefined;
  /** To the edges that append besides the one that starts the writer. */
  readonly otherEdges?: readonly MessagePort[];
}

/**
 * Entries of one tick of the edge, flat: FIELDS_PER_ENTRY values an entry, and all bodies concatenated. The values are
 * those of a record's header without its position, and the length of the body.
 */
export interface Group {
  readonly id: number;
  readonly fields: readonly (string | number | null)[];
  readonly bodies: ArrayBuffer;
}

const FIELDS_PER_ENTRY = 12;

export type WriterMessage = Group | 'close';

export type WriterReply =
  | { readonly type: 'ready'; readonly missing: MissingRecords | null }
  | { readonly type: 'start-failed'; readonly message: string }
  | { readonly type: 'durable'; readonly upToGroup: number }
  | { readonly type: 'failed'; readonly upToGroup: number; readonly message: string; readonly fatal: boolean }
  | { readonly type: 'recovered' };

/** An edge that appends. */
interface Sender {
  readonly port: MessagePort;
  isClosed: boolean;
}

/** The last group of each edge in a commit. */
type LastGroups = ReadonlyMap<Sender, number>;

const SEGMENT_ID_BYTES = 8;
const COMMIT_BYTES_MAX = 16 * 1024 * 1024;
const PROBE_INTERVAL_MS = 500;
/** How often the writer checks that `log-ends` still exists. */
const ENDS_INTERVAL_MS = 1_000;
/** How much the WAL grows before a checkpoint: little enough that commits do not wait long for the disk meanwhile. */
const CHECKPOINT_BYTES = 2 * 1024 * 1024;
/** A commit rewrites the pages that it does not fill: the last leaf, and those above it. */
const COMMIT_PAGES = 2;
/** How long to continue with a full segment when no new one can be created. */
const ROTATE_RETRY_MS = 1_000;
/**
 * A commit writes whole pages. With one small request each, the WAL grows to 200 times the size of the bodies, so it
 * has a limit of its own.
 */
const WAL_BYTES_FACTOR_MAX = 4;

/**
 * The segment that the writer has open. An operating system lets any process move or remove an open file: the writer then
 * commits to a file that no start finds, without an error. So after each commit and before anything in it is
 * acknowledged, the writer checks that both files are still the ones under their names: the database, and the
 * write-ahead log of the commit. The names are those that a start uses, so a link on the way that was pointed elsewhere
 * is noticed, too. Content that was overwritten in place is not noticed.
 */
class OpenSegment {
  readonly database: DatabaseSync;
  readonly id: SegmentId;
  readonly insert: StatementSync;
  /** Without links, as SQLite has opened it. */
  readonly file: string;
  readonly #identities: readonly (readonly [file: string, identity: string])[];

  /** A new one, which begins at `position`. */
  constructor(folder: string, position: number, previous: SegmentId | undefined) {
    this.id = { position, id: randomBytes(SEGMENT_ID_BYTES).toString('hex') };
    this.database = createSegment(folder, { ...this.id, logName: localLogName(folder), previous });
    this.insert = this.database.prepare('INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)');
    this.file = this.database.location() ?? '';
    const name = segmentFile(folder, position);
    // It has its first commit, so both exist.
    this.#identities = ['', '-wal'].map((suffix) => [name + suffix, identityOf(this.file + suffix)]);
  }

  /** Two `stat`s. Also throws if they fail. */
  assertInPlace(): void {
    for (const [file, identity] of this.#identities) {
      if (identity === '' || identityOf(file) !== identity) throw notInPlace(file);
    }
  }
}

function notInPlace(file: string): LogUnavailableError {
  return new LogUnavailableError(
    `${resolve(file)} was moved, removed or replaced while this server was writing to it, or a link on the way to it was pointed elsewhere, ` +
      'so a restart would not find what is written now. This server ends. Requests that it acknowledged before may be in ' +
      'that file: put it back in its place, beside the files that are there, or the link, then start the server. If it is gone, start the server: it reports acknowledged requests ' +
      'that are missing.',
    true,
  );
}

class Writer {
  readonly #setup: LogWriterSetup;
  readonly #senders: readonly Sender[];
  readonly #metrics: MetricsWriter | null;
  readonly #appendSignal: AppendSignal | undefined;
  #segment: OpenSegment;
  #nextPosition: number;
  #newestReceivedAt = 0;
  #segmentBytes = 0;
  /** Approximate growth of the WAL since the last checkpoint. */
  #bytesSinceCheckpoint = 0;
  #rotateNotBefore = 0;
  #probe: NodeJS.Timeout | undefined;
  #endsTimer: NodeJS.Timeout | undefined;
  #dead = false;
  readonly #checkpointClient: CheckpointClient;
  readonly #ends: LogEnds;
  readonly #missing: MissingRecords | null;

  constructor(setup: LogWriterSetup, port: MessagePort) {
    this.#setup = setup;
    this.#senders = [port, ...(setup.otherEdges ?? [])].map((one) => ({ port: one, isClosed: false }));
    this.#metrics = setup.metrics && metricsWriter(setup.metrics.buffer, setup.metrics.slot);
    this.#appendSignal = setup.appendSignal && new AppendSignal(setup.appendSignal);
    this.#checkpointClient = new CheckpointClient(setup.checkpointer);
    const { end, missing } = this.#recover();
    this.#nextPosition = end;
    this.#missing = missing;
    this.#ends = new LogEnds(setup.folder, this.#nextPosition);
    // Not an empty one of the same position, which the new one replaces.
    const newest = listReadable(setup.folder).findLast(({ firstPosition }) => firstPosition < this.#nextPosition);
    assertLockHeld(setup.lock ?? null);
    // An interrupted start may have left an empty one.
    removeSegment(segmentFile(setup.folder, this.#nextPosition));
    this.#segment = new OpenSegment(setup.folder, this.#nextPosition, newest && findIdentity(newest.file));
  }

  listen(): void {
    this.#endsTimer = setInterval(() => this.#keepEnds(), ENDS_INTERVAL_MS).unref();
    for (const sender of this.#senders) {
      sender.port.on('message', (message: WriterMessage) => this.#take(sender, message));
      // An edge that ends before it has joined sends no close message.
      sender.port.on('close', () => this.#leave(sender));
    }
    // The edge that starts the writer comes last: once it is ready, the others can join.
    for (const { port } of this.#senders.toReversed()) {
      reply(port, { type: 'ready', missing: this.#missing });
    }
  }

  /**
   * Checks what an earlier process left, checkpoints it in the background, and finds where to continue and what is missing
   * before.
   */
  #recover(): { readonly end: number; readonly missing: MissingRecords | null } {
    const { folder, processed = 0 } = this.#setup;
    const segments = listSegments(folder);
    const logName = findLogName(folder);
    let empty: Segment | undefined;
    for (const [index, segment] of segments.entries()) {
      const isNewest = index === segments.length - 1;
      if (segment.state === 'lost' && isNewest) this.#markEndOfLost(segment);
      if (!holdsRecords(segment)) continue;
      const identity = assertNotForeign(segment, logName);
      // A segment without a WAL was checkpointed; its records have checksums and are checked when they are read.
      if (isNewest || hasWal(segment.file)) {
        const recovered = recoverSegment(segment.file);
        if (recovered.needsCheckpoint) void this.#checkpointClient.finish(segment.file, null);
        if (recovered.isEmpty) empty = segment;
      }
      if (identity !== undefined) this.#markGap(segment, identity.lastPosition, segments[index + 1]);
    }
    const end = endOfSegments(folder);
    const missing = missingAtEnd(folder, processed, end);
    if (missing !== null) {
      // Before anything changes: afterwards the log seems to be complete.
      if (missing.doubt !== null) noteLogWarning(folder, missingRecordsText(missing));
      // Makes room for the mark of what is missing from there on.
      if (empty !== undefined && empty === segments.at(-1)) removeSegment(empty.file);
      this.#markMissingAtEnd(missing);
    }
    return { end: missing?.to ?? end, missing };
  }

  /** Marks where the records of a newest segment that was given up ended, if that is known. */
  #markEndOfLost({ firstPosition }: Segment): void {
    const end = readLogEnd(this.#setup.folder);
    const isKnown = end > firstPosition && end < firstPosition + LOST_POSITIONS;
    if (isKnown) makeMark(this.#setup.folder, end, 'unused');
  }

  /**
   * Marks missing records between the end of a segment and the beginning of the next one. A mark replaces an empty
   * segment. Unreadable segments are reported by readers.
   */
  #markGap({ file, firstPosition }: Segment, last: number | undefined, next: Segment | undefined): void {
    const end = (last ?? firstPosition - 1) + 1;
    if (next === undefined || end >= next.firstPosition) return;
    if (last === undefined) removeSegment(file);
    makeMark(this.#setup.folder, end, 'missing');
  }

  /** Marks the missing records that the store has not processed. */
  #markMissingAtEnd({ from, to, processed }: MissingRecords): void {
    const { folder } = this.#setup;
    // Without a segment the beginning of the log is unknown: retention removes processed records.
    const hasSegments = listSegments(folder).length > 0;
    const position = hasSegments ? from : Math.max(from, processed);
    if (position < to) makeMark(folder, position, 'missing');
  }

  /** For times without appends: an append recreates `log-ends` itself, or ends the process. */
  #keepEnds(): void {
    try {
      if (!this.#dead) this.#ends.remake();
    } catch (error) {
      // What may pass by itself is retried by the next call.
      if (!isOutOfFiles(error)) this.#die(error);
    }
  }

  #take(from: Sender, first: WriterMessage): void {
    const groups: Group[] = [];
    const lastGroups = new Map<Sender, number>();
    const leaving: Sender[] = [];
    let bytes = 0;
    for (const { sender, message } of this.#waiting(from, first)) {
      if (message === 'close') {
        leaving.push(sender);
        continue;
      }
      groups.push(message);
      lastGroups.set(sender, message.id);
      bytes += message.bodies.byteLength;
      if (bytes >= COMMIT_BYTES_MAX) break;
    }
    if (groups.length > 0) this.#commit(groups, bytes, lastGroups);
    for (const sender of leaving) this.#leave(sender);
  }

  /** The received message, then all that are queued at any port. */
  *#waiting(from: Sender, first: WriterMessage): Generator<{ sender: Sender; message: WriterMessage }> {
    yield { sender: from, message: first };
    for (const sender of this.#senders) {
      for (let next = receiveMessageOnPort(sender.port); next; next = receiveMessageOnPort(sender.port)) {
        yield { sender, message: next.message as WriterMessage };
      }
    }
  }

  #commit(groups: readonly Group[], bytes: number, lastGroups: LastGroups): void {
    if (this.#dead) {
      this.#replyFailed(lastGroups, 'the log stopped after a disk error', true);
      return;
    }
    const startedAt = performance.now();
    let position = this.#nextPosition;
    try {
      this.#segment.database.exec('BEGIN IMMEDIATE');
      for (const group of groups) position = this.#insertGroup(group, position);
      this.#ends.announce(position);
      this.#segment.database.exec('COMMIT');
    } catch (error) {
      this.#fail(error, lastGroups);
      return;
    }
    try {
      // After the commit and before anything is acknowledged: see data-folder/held-lock.ts and OpenSegment.
      assertLockHeld(this.#setup.lock ?? null);
      this.#segment.assertInPlace();
      this.#ends.write(position, this.#segment.id);
    } catch (error) {
      this.#die(error, lastGroups);
      return;
    }
    const entries = position - this.#nextPosition;
    this.#nextPosition = position;
    this.#segmentBytes += bytes;
    for (const [{ port }, upToGroup] of lastGroups) reply(port, { type: 'durable', upToGroup });
    this.#appendSignal?.committed();
    for (const { bodies } of groups) releaseMemory(bodies);
    if (this.#metrics) {
      this.#metrics.inc(METRIC.log_commits);
      this.#metrics.inc(METRIC.log_entries, entries);
      this.#metrics.inc(METRIC.log_bytes, bytes);
      this.#metrics.observe(METRIC.log_commit_duration, (performance.now() - startedAt) / 1000);
    }
    this.#bytesSinceCheckpoint += bytes + COMMIT_PAGES * PAGE_BYTES;
    if (this.#bytesSinceCheckpoint >= CHECKPOINT_BYTES) {
      this.#bytesSinceCheckpoint = 0;
      void this.#checkpointClient.checkpoint(this.#segment.file);
    }
    if (this.#isSegmentFull() && performance.now() >= this.#rotateNotBefore) this.#rotate();
  }

  #isSegmentFull(): boolean {
    const { segmentBytes } = this.#setup;
    if (this.#segmentBytes >= segmentBytes) return true;
    // If it is gone by now, the check of the next commit notices.
    const wal = statSync(`${this.#segment.file}-wal`, { throwIfNoEntry: false });
    return wal !== undefined && wal.size >= WAL_BYTES_FACTOR_MAX * segmentBytes;
  }

  #insertGroup(group: Group, firstPosition: number): number {
    const { fields, bodies } = group;
    let position = firstPosition;
    let offset = 0;
    for (let at = 0; at < fields.length; at += FIELDS_PER_ENTRY) {
      const header = [position, ...fields.slice(at, at + FIELDS_PER_ENTRY - 1)] as HeaderValues;
      header[3] = this.#inOrder(header[3]);
      const bodyBytes = fields[at + FIELDS_PER_ENTRY - 1] as number;
      const body = new Uint8Array(bodies, offset, bodyBytes);
      this.#segment.insert.run(...header, recordChecksum(header, body), body);
      offset += bodyBytes;
      position += 1;
    }
    return position;
  }

  /**
   * Edges read the clock independently, so a request may get here just after one with a later time: it gets that time.
   */
  #inOrder(receivedAt: number): number {
    if (this.#senders.length === 1) return receivedAt;
    this.#newestReceivedAt = Math.max(this.#newestReceivedAt, receivedAt);
    return this.#newestReceivedAt;
  }

  #fail(error: unknown, lastGroups: LastGroups): void {
    if (!isFullDisk(error)) {
      this.#die(error, lastGroups);
      return;
    }
    this.#rollBack();
    this.#probeUntilRecovered();
    this.#replyFailed(lastGroups, 'the disk is full', false);
  }

  #die(error: unknown, lastGroups: LastGroups = new Map()): void {
    this.#dead = true;
    clearInterval(this.#probe);
    this.#checkpointClient.abandon();
    this.#replyFailed(lastGroups, messageOf(error), true);
  }

  #rollBack(): void {
    // After most errors SQLite has rolled back by itself; then there is no transaction to end.
    if (this.#segment.database.isTransaction) this.#segment.database.exec('ROLLBACK');
  }

  #probeUntilRecovered(): void {
    this.#probe ??= setInterval(() => {
      if (!canWrite(this.#setup.folder)) return;
      clearInterval(this.#probe);
      this.#probe = undefined;
      this.#replyToAll({ type: 'recovered' });
    }, PROBE_INTERVAL_MS);
  }

  #deniedText({ message }: Error): string {
    const folder = resolve(this.#setup.folder);
    return (
      `no new segment can be created in ${folder}: ${message}. The disk is not the cause, and nothing that was acknowledged is ` +
      'lost. Give the folder back to the user of the server, with the right to write (sluice doctor shows the command), ' +
      'then start again.'
    );
  }

  #rotate(): void {
    const finished = this.#segment;
    try {
      const next = new OpenSegment(this.#setup.folder, this.#nextPosition, finished.id);
      // The new one must be beside the finished one, not behind a symbolic link that was changed in the meantime.
      finished.assertInPlace();
      this.#segment = next;
    } catch (error) {
      // No space for a new file: continue with this one, and retry later.
      if (isOutOfFiles(error) || (error instanceof LogUnavailableError && !error.fatal))
        this.#rotateNotBefore = performance.now() + ROTATE_RETRY_MS;
      else this.#die(isAccessDenied(error) ? new Error(this.#deniedText(error as Error)) : error);
      return;
    }
    this.#segmentBytes = 0;
    this.#bytesSinceCheckpoint = 0;
    this.#metrics?.inc(METRIC.log_segments_sealed);
    void this.#checkpointClient.finish(finished.file, finished.database);
  }

  /** The last edge that leaves closes the log. */
  #leave(sender: Sender): void {
    if (sender.isClosed) return;
    sender.isClosed = true;
    if (this.#senders.every(({ isClosed }) => isClosed)) void this.#close();
  }

  async #close(): Promise<void> {
    // The thread must not end before the process is killed: SQLite would then close, and so sync, the failed file.
    if (this.#dead) return;
    clearInterval(this.#probe);
    clearInterval(this.#endsTimer);
    await this.#checkpointClient.close();
    this.#segment.database.close();
    this.#ends.close();
    for (const { port } of this.#senders) port.close();
  }

  /** Sent to all edges, so that none accepts what cannot be written. */
  #replyFailed(lastGroups: LastGroups, message: string, fatal: boolean): void {
    for (const sender of this.#senders) {
      reply(sender.port, { type: 'failed', upToGroup: lastGroups.get(sender) ?? 0, message, fatal });
    }
  }

  #replyToAll(message: WriterReply): void {
    for (const { port } of this.#senders) reply(port, message);
  }
}

function reply(port: MessagePort, message: WriterReply): void {
  port.postMessage(message);
}

if (parentPort) start(parentPort);

function start(port: MessagePort): void {
  try {
    new Writer(workerData as LogWriterSetup, port).listen();
  } catch (error) {
    const { folder } = workerData as LogWriterSetup;
    const message = messageOf(error);
    reply(port, { type: 'start-failed', message: isFullDisk(error) ? fullDiskText(folder) : message });
    port.close();
  }
}
