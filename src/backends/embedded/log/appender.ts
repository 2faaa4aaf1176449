/**
 * The appending half of the embedded event log: commits in a thread of its own (`./writer.ts`), so that the HTTP
 * thread never waits for a disk. The first edge of a server starts that thread, and the others join it, so that there
 * is one order of requests, whichever edge received them. The reading half is `./reader.ts`.
 *
 * The caller bounds the memory: the edge reserves bytes before it reads a body and releases them when `append` settles.
 */

import { type MessagePort, receiveMessageOnPort, Worker } from 'node:worker_threads';
import { OperatorError } from '../../../errors.ts';
import { type LogAppender, type LogEntry, LogUnavailableError } from '../../../log.ts';
import type { MissingRecords } from '../../../log/continuity.ts';
import { HEAP_LIMITS, inOwnMemory, threadFile } from '../../../runtime/threads.ts';
import { encodeEntry } from './frames.ts';
import type { Group, WriterMessage, WriterReply, LogWriterSetup } from './writer.ts';

/**
 * Larger bodies are transferred by themselves, without a copy. Measured with bodies of 390 kB, that takes a quarter off
 * the CPU time of all threads: half of the copying and of the garbage.
 */
const OWN_TRANSFER_BYTES_MIN = 64 * 1024;

interface Waiting {
  readonly entry: LogEntry;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

interface AppenderSetup extends LogWriterSetup {
  /** Called once, after every waiting call was rejected, when the process has to end: what it writes may not be found again. */
  readonly onFatal: (message: string) => void;
  /** Called at start if the log has lost its end. */
  readonly onMissing?: (missing: MissingRecords) => void;
}

/** Resolves when the log has been checked and is ready for appends. */
export async function openEmbeddedLogAppender({ onFatal, onMissing, ...setup }: AppenderSetup): Promise<LogAppender> {
  const transferList = [...(setup.otherEdges ?? [])];
  const options = { name: 'log writer', workerData: setup, transferList, resourceLimits: HEAP_LIMITS.default };
  const worker = new Worker(threadFile('./writer', import.meta.url), options);
  await new Promise<void>((resolve, reject) => {
    worker.once('message', (reply: WriterReply) => {
      if (reply.type === 'start-failed') reject(new OperatorError(reply.message));
      else resolve();
      if (reply.type === 'ready' && reply.missing !== null) onMissing?.(reply.missing);
    });
    worker.once('error', reject);
  });
  worker.removeAllListeners('error');
  const appender = new EmbeddedLogAppender(worker, onFatal);
  worker.on('error', (error: Error) => appender.die(`the log writer crashed: ${error.message}`));
  worker.on('exit', () => appender.ended());
  return appender;
}

/**
 * For another edge, which has one end of a port whose other end the writer has (`otherEdges`). Throws
 * `LogUnavailableError` until the writer runs.
 */
export function joinEmbeddedLog(port: MessagePort, onFatal: (message: string) => void): LogAppender {
  const first = receiveMessageOnPort(port)?.message as WriterReply | undefined;
  if (first?.type !== 'ready') throw new LogUnavailableError('the log is not open yet');
  const appender = new EmbeddedLogAppender(port, onFatal);
  port.on('close', () => appender.ended());
  return appender;
}

class EmbeddedLogAppender implements LogAppender {
  readonly #writer: Worker | MessagePort;
  readonly #onFatal: (message: string) => void;
  /** Appended in this tick of the event loop, not yet sent. */
  #gathering: Waiting[] = [];
  /** Sent, not yet durable; oldest first. */
  readonly #sent: { readonly id: number; readonly waiting: Waiting[] }[] = [];
  #nextGroupId = 1;
  #problem: string | null = null;
  #dead = false;
  #closed: { readonly promise: Promise<void>; readonly resolve: () => void } | undefined;

  constructor(writer: Worker | MessagePort, onFatal: (message: string) => void) {
    this.#writer = writer;
    this.#onFatal = onFatal;
    writer.on('message', (reply: WriterReply) => this.#onReply(reply));
  }

  /** The writer's thread ended: closed, or crashed. */
  ended(): void {
    if (this.#closed) this.#closed.resolve();
    else this.die('the log writer ended');
  }

  append(entry: LogEntry): Promise<void> {
    if (this.#problem !== null || this.#closed) {
      return Promise.reject(new LogUnavailableError(this.#problem ?? 'the log is closed', this.#dead));
    }
    return new Promise((resolve, reject) => {
      // One message for all appends of this tick of the event loop, rather than one each.
      if (this.#gathering.push({ entry, resolve, reject }) === 1) setImmediate(() => this.#send());
    });
  }

  problem(): string | null {
    return this.#problem;
  }

  close(): Promise<void> {
    // After a fatal error the writer does nothing more; there is nothing to wait for.
    if (this.#dead) return Promise.resolve();
    if (!this.#closed) {
      this.#closed = Promise.withResolvers<void>();
      this.#send();
      this.#post('close');
    }
    return this.#closed.promise;
  }

  #send(): void {
    const gathered = this.#gathering;
    this.#gathering = [];
    let small: Waiting[] = [];
    for (const waiting of gathered) {
      if (waiting.entry.body.byteLength < OWN_TRANSFER_BYTES_MIN) {
        small.push(waiting);
        continue;
      }
      this.#sendGroup(small);
      this.#sendGroup([waiting]);
      small = [];
    }
    this.#sendGroup(small);
  }

  #sendGroup(waiting: Waiting[]): void {
    if (waiting.length === 0) return;
    const group = packGroup(this.#nextGroupId, waiting);
    this.#nextGroupId += 1;
    this.#sent.push({ id: group.id, waiting });
    this.#post(group);
  }

  #post(message: WriterMessage): void {
    this.#writer.postMessage(message, message === 'close' ? [] : [message.bodies]);
  }

  #onReply(reply: WriterReply): void {
    if (reply.type === 'durable') for (const { resolve } of this.#takeSent(reply.upToGroup)) resolve();
    if (reply.type === 'recovered' && !this.#dead) this.#problem = null;
    if (reply.type !== 'failed') return;
    if (reply.fatal) {
      this.die(reply.message);
    } else {
      this.#problem = reply.message;
      const error = new LogUnavailableError(reply.message);
      for (const { reject } of this.#takeSent(reply.upToGroup)) reject(error);
    }
  }

  *#takeSent(upToGroup: number): Generator<Waiting> {
    while (this.#sent[0] && this.#sent[0].id <= upToGroup) yield* this.#sent.shift()?.waiting ?? [];
  }

  die(message: string): void {
    if (this.#dead) return;
    this.#dead = true;
    this.#problem = message;
    const error = new LogUnavailableError(message, true);
    for (const { reject } of this.#takeSent(Number.POSITIVE_INFINITY)) reject(error);
    for (const waiting of this.#gathering.splice(0)) waiting.reject(error);
    this.#writer.unref();
    this.#closed?.resolve();
    this.#onFatal(message);
  }
}

function packGroup(id: number, waiting: readonly Waiting[]): Group {
  return {
    id,
    receivedAt: waiting.map(({ entry }) => entry.receivedAt),
    entries: waiting.map(({ entry }) => encodeEntry(entry)),
    bodyBytes: waiting.map(({ entry }) => entry.body.byteLength),
    bodies: packBodies(waiting),
  };
}

/** A single body is transferred as it is; several are concatenated. */
function packBodies(waiting: readonly Waiting[]): ArrayBuffer {
  const [first] = waiting;
  if (first && waiting.length === 1) return inOwnMemory(first.entry.body).buffer;
  let bytes = 0;
  for (const { entry } of waiting) bytes += entry.body.byteLength;
  const bodies = new Uint8Array(bytes);
  let offset = 0;
  for (const { entry } of waiting) {
    bodies.set(entry.body, offset);
    offset += entry.body.byteLength;
  }
  return bodies.buffer;
}
