/**
 * The thread that commits. It takes all groups that arrived while the last commit ran, appends them to the segment, syncs
 * it once (group commit) and replies up to which group everything is durable. All edges of a server append through one
 * writer: a request that is received after the 202 of another one, at whichever edge, therefore follows it in the log.
 * The order of the log is also that of `received_at`.
 *
 * Failures: a full disk fails the current groups, of which nothing stays in the segment, and is probed until there is
 * space again; any other I/O error is fatal, is reported once, and this thread never touches the segment after it, because
 * after a failed fsync the content of the disk is unknown.
 */

import { randomBytes } from 'node:crypto';
import { resolve } from 'node:path';
import { type MessagePort, parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { METRIC, type MetricsWriter, metricsWriter } from '../../../telemetry/metrics.ts';
import { assertLockHeld, type HeldLock } from '../../../data-folder/held-lock.ts';
import { LogUnavailableError } from '../../../log.ts';
import { AppendSignal } from '../../../runtime/append-signal.ts';
import { releaseMemory } from '../../../runtime/threads.ts';
import { canWrite, fullDiskText, isAccessDenied, isFullDisk, mayPassByItself } from '../disk.ts';
import type { MissingRecords } from '../../../log/continuity.ts';
import { encodeFrame, encodeHeader } from './frames.ts';
import { LogEnds } from './ends.ts';
import { localLogName } from './name.ts';
import { recoverLog } from './recovery.ts';
import { removeSegment, segmentFile, type SegmentHeader, SegmentWriter } from './segments.ts';
import { messageOf } from '../../../errors.ts';

export interface LogWriterSetup {
  readonly folder: string;
  readonly segmentBytes: number;
  /** How long a segment grows at most, from its first record on; for as long as it takes unless given. */
  readonly segmentMsMax?: number;
  /** The lock of the data folder. Omitted if nothing but this writer can be there. */
  readonly lock?: HeldLock | null;
  /** The position up to which the store has processed the log; a record never gets a position below it. */
  readonly processed?: number;
  readonly metrics: { readonly buffer: SharedArrayBuffer; readonly slot: number } | null;
  /** Memory of the `AppendSignal` for the processor. Omitted where none waits for it. */
  readonly appendSignal?: SharedArrayBuffer | undefined;
  /** To the edges that append besides the one that starts the writer. */
  readonly otherEdges?: readonly MessagePort[];
}

/** Entries of one tick of the edge. Numbers and texts in lists of their own are cheaper to send than objects. */
export interface Group {
  readonly id: number;
  readonly receivedAt: readonly number[];
  /** By `encodeEntry`. */
  readonly entries: readonly string[];
  readonly bodyBytes: readonly number[];
  /** Concatenated. */
  readonly bodies: ArrayBuffer;
}

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
  hasLeft: boolean;
}

/** The last group of each edge in a commit. */
type LastGroups = ReadonlyMap<Sender, number>;

const SEGMENT_ID_BYTES = 8;
const COMMIT_BYTES_MAX = 16 * 1024 * 1024;
const PROBE_INTERVAL_MS = 500;
/** How often the writer checks that `log-ends` still exists, and whether its segment is old. */
const CHECK_INTERVAL_MS = 1_000;
/** How long to continue with a full segment when no new one can be created. */
const ROTATE_RETRY_MS = 1_000;

class Writer {
  readonly #setup: LogWriterSetup;
  readonly #senders: readonly Sender[];
  readonly #metrics: MetricsWriter | null;
  readonly #appendSignal: AppendSignal | undefined;
  #segment: SegmentWriter;
  #nextPosition: number;
  #newestReceivedAt = 0;
  /** When the segment got its first record, by `performance.now()`. */
  #segmentBegunAt: number | undefined;
  #rotateNotBefore = 0;
  #probeTimer: NodeJS.Timeout | undefined;
  #checkTimer: NodeJS.Timeout | undefined;
  #dead = false;
  readonly #ends: LogEnds;
  readonly #missing: MissingRecords | null;

  constructor(setup: LogWriterSetup, port: MessagePort) {
    this.#setup = setup;
    this.#senders = [port, ...(setup.otherEdges ?? [])].map((one) => ({ port: one, hasLeft: false }));
    this.#metrics = setup.metrics && metricsWriter(setup.metrics.buffer, setup.metrics.slot);
    this.#appendSignal = setup.appendSignal && new AppendSignal(setup.appendSignal);
    const { end, missing, previous } = recoverLog(setup.folder, setup.processed ?? 0);
    this.#nextPosition = end;
    this.#missing = missing;
    this.#ends = new LogEnds(setup.folder, localLogName(setup.folder), this.#nextPosition);
    assertLockHeld(setup.lock ?? null);
    // Every start leaves a segment, which may be empty.
    removeSegment(segmentFile(setup.folder, end));
    this.#segment = this.#createSegment(previous);
  }

  listen(): void {
    this.#checkTimer = setInterval(() => this.#check(), CHECK_INTERVAL_MS).unref();
    for (const sender of this.#senders) {
      sender.port.on('message', (message: WriterMessage) => this.#commitWaiting(sender, message));
      // An edge that ends before it has joined sends no close message.
      sender.port.on('close', () => this.#leave(sender));
    }
    // The edge that starts the writer comes last: once it is ready, the others can join.
    for (const { port } of this.#senders.toReversed()) {
      reply(port, { type: 'ready', missing: this.#missing });
    }
  }

  /** For times without appends: an append recreates `log-ends` itself, or ends the process, and rotates. */
  #check(): void {
    if (this.#dead) return;
    try {
      this.#ends.recreateIfReplaced();
      this.#rotateIfDue();
    } catch (error) {
      // What may pass by itself is retried by the next call.
      if (!mayPassByItself(error)) this.#stopForGood(error);
    }
  }

  #commitWaiting(from: Sender, first: WriterMessage): void {
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
      this.#replyFailed(lastGroups, 'the log has stopped', true);
      return;
    }
    const startedAt = performance.now();
    const segment = this.#segment;
    const pieces: Uint8Array[] = [];
    let position = this.#nextPosition;
    for (const group of groups) position = this.#encodeGroup(group, position, pieces);
    let appended: number;
    try {
      segment.assertInPlace();
      this.#ends.beforeCommit(position);
      appended = segment.append(pieces);
    } catch (error) {
      this.#fail(error, lastGroups);
      return;
    }
    try {
      segment.sync();
      segment.bytes += appended;
      // After the commit and before anything is acknowledged: see data-folder/held-lock.ts and SegmentWriter.
      assertLockHeld(this.#setup.lock ?? null);
      segment.assertInPlace();
      this.#ends.afterCommit({ position, segment: segment.header, bytes: segment.bytes });
    } catch (error) {
      this.#stopForGood(error, lastGroups);
      return;
    }
    const entries = position - this.#nextPosition;
    this.#nextPosition = position;
    for (const [{ port }, upToGroup] of lastGroups) reply(port, { type: 'durable', upToGroup });
    this.#appendSignal?.committed();
    for (const { bodies } of groups) releaseMemory(bodies);
    if (this.#metrics) {
      this.#metrics.inc(METRIC.log_entries, entries);
      this.#metrics.inc(METRIC.log_bytes, bytes);
      this.#metrics.observe(METRIC.log_commit_duration, (performance.now() - startedAt) / 1000);
    }
    this.#segmentBegunAt ??= startedAt;
    this.#rotateIfDue();
  }

  #encodeGroup({ receivedAt, entries, bodyBytes, bodies }: Group, firstPosition: number, pieces: Uint8Array[]): number {
    let position = firstPosition;
    let offset = 0;
    for (const [index, entry] of entries.entries()) {
      const header = encodeHeader(position, this.#nextPosition, this.#inOrder(receivedAt[index] as number), entry);
      const body = new Uint8Array(bodies, offset, bodyBytes[index]);
      pieces.push(...encodeFrame(header, body, this.#segment.seed));
      offset += body.byteLength;
      position += 1;
    }
    return position;
  }

  /**
   * Edges read the clock independently, so a request may get here just after one with a later time: it gets that time.
   * One edge alone sends its requests in order.
   */
  #inOrder(receivedAt: number): number {
    this.#newestReceivedAt = Math.max(this.#newestReceivedAt, receivedAt);
    return this.#senders.length === 1 ? receivedAt : this.#newestReceivedAt;
  }

  #fail(error: unknown, lastGroups: LastGroups): void {
    if (!isFullDisk(error)) {
      this.#stopForGood(error, lastGroups);
      return;
    }
    try {
      this.#segment.cutOff();
    } catch (cutOffError) {
      this.#stopForGood(cutOffError, lastGroups);
      return;
    }
    this.#probeUntilRecovered();
    this.#replyFailed(lastGroups, 'the disk is full', false);
  }

  #stopForGood(error: unknown, lastGroups: LastGroups = new Map()): void {
    this.#dead = true;
    clearInterval(this.#probeTimer);
    this.#replyFailed(lastGroups, messageOf(error), true);
  }

  #probeUntilRecovered(): void {
    this.#probeTimer ??= setInterval(() => {
      if (!canWrite(this.#setup.folder)) return;
      clearInterval(this.#probeTimer);
      this.#probeTimer = undefined;
      for (const { port } of this.#senders) reply(port, { type: 'recovered' });
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

  #rotateIfDue(): void {
    const now = performance.now();
    if (this.#segmentBegunAt === undefined || now < this.#rotateNotBefore) return;
    const isOld = now - this.#segmentBegunAt >= (this.#setup.segmentMsMax ?? Number.POSITIVE_INFINITY);
    if (isOld || this.#segment.bytes >= this.#setup.segmentBytes) this.#rotate();
  }

  #createSegment(previous: SegmentHeader['previous']): SegmentWriter {
    const { folder } = this.#setup;
    const id = randomBytes(SEGMENT_ID_BYTES).toString('hex');
    return new SegmentWriter(folder, {
      firstPosition: this.#nextPosition,
      id,
      logName: localLogName(folder),
      previous,
    });
  }

  #rotate(): void {
    const finished = this.#segment;
    try {
      const { firstPosition, id } = finished.header;
      const next = this.#createSegment({ firstPosition, id, bytes: finished.bytes });
      // The new one must be next to the finished one, not behind a symbolic link that was changed in the meantime.
      finished.assertInPlace();
      this.#segment = next;
      this.#segmentBegunAt = undefined;
    } catch (error) {
      // No space for a new file: continue with this one, and retry later.
      if (mayPassByItself(error) || (error instanceof LogUnavailableError && !error.fatal))
        this.#rotateNotBefore = performance.now() + ROTATE_RETRY_MS;
      else this.#stopForGood(isAccessDenied(error) ? new Error(this.#deniedText(error as Error)) : error);
      return;
    }
    finished.close();
  }

  /** The last edge that leaves closes the log. */
  #leave(sender: Sender): void {
    if (sender.hasLeft) return;
    sender.hasLeft = true;
    if (this.#senders.every(({ hasLeft }) => hasLeft)) this.#close();
  }

  #close(): void {
    // The thread ends with the process, which is killed.
    if (this.#dead) return;
    clearInterval(this.#probeTimer);
    clearInterval(this.#checkTimer);
    this.#segment.close();
    this.#ends.close();
    for (const { port } of this.#senders) port.close();
  }

  /** Sent to all edges, so that none accepts what cannot be written. */
  #replyFailed(lastGroups: LastGroups, message: string, fatal: boolean): void {
    for (const sender of this.#senders) {
      reply(sender.port, { type: 'failed', upToGroup: lastGroups.get(sender) ?? 0, message, fatal });
    }
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
