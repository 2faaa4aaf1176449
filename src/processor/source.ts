/**
 * Where the processor gets prepared records from. Preparing (above all parsing) is a third of the work and needs
 * nothing of the store, so under `sluice serve` it runs in a thread of its own, one batch ahead; in tests and tools it
 * runs in place. Either way the records of a partition come in order, and records that cannot be prepared are reported
 * with the position where reading continues, so that the processor can isolate them.
 */

import type { MessagePort, Worker } from 'node:worker_threads';
import type { MatchOptions } from '../identity/match-keys.ts';
import { type LogBatch, LogCorruptError, type LogReader, LogUnavailableError } from '../log.ts';
import { releaseMemory } from '../runtime/threads.ts';
import type { Packed } from './packer.ts';
import type { PreparedRecord } from './prepared.ts';
import { Preparer } from './prepare.ts';
import { unpack } from './unpacking.ts';
import { messageOf } from '../errors.ts';

export interface PreparedBatch {
  readonly records: readonly PreparedRecord[];
  readonly next: number;
  /** Why the records up to `next` could not be prepared; then there are none here. */
  readonly problem: Error | null;
}

export interface RecordSource {
  /** As of `LogReader`. */
  read(partition: number, position: number, bytesMax: number, lastTraceId?: string): Promise<PreparedBatch>;
}

export function inlineSource(log: LogReader, options: MatchOptions): RecordSource {
  const preparer = new Preparer(options);
  return {
    read: async (partition, position, bytesMax, lastTraceId) => {
      const { records, next } = await log.read(partition, position, bytesMax, lastTraceId);
      try {
        return { records: unpack(preparer.prepare(records)), next, problem: null };
      } catch (error) {
        return { records: [], next, problem: error instanceof Error ? error : new Error(String(error)) };
      }
    },
  };
}

interface Request {
  readonly call: number;
  readonly partition: number;
  readonly position: number;
  readonly bytesMax: number;
}

type Reply = { readonly call: number } & (
  | PackedBatch
  | { readonly failure: { readonly name: string; readonly message: string } }
);

/** Of bodies. A read costs as much as preparing dozens of users, so one is enough for several batches. */
const READ_BYTES_MIN = 1024 * 1024;
/** Of bodies. A batch of ordinary requests has less; of very large requests, one at a time is in memory. */
const AHEAD_BYTES_MAX = 4 * 1024 * 1024;

/** The memory of a body of this size or more is released as soon as it is prepared. */
const LARGE_BODY_BYTES = 1024 * 1024;

interface PackedBatch {
  readonly packed: Packed;
  readonly next: number;
  readonly problem: string | null;
  /**
   * Whether to read ahead: it has as many bytes as requested, so there is probably more, and not too many for memory.
   */
  readonly isOneOfMany: boolean;
}

/** Reads more of the log than requested, and buffers the rest of each partition for the next call. */
class BufferedReader {
  readonly #log: LogReader;
  readonly #rests = new Map<number, LogBatch>();

  constructor(log: LogReader) {
    this.#log = log;
  }

  async read(partition: number, position: number, bytesMax: number): Promise<LogBatch> {
    const rest = this.#rests.get(partition);
    this.#rests.delete(partition);
    const isNext = rest?.records[0]?.position === position;
    const batch = isNext ? rest : await this.#log.read(partition, position, Math.max(bytesMax, READ_BYTES_MIN));
    const { records } = batch;
    let bytes = 0;
    const end = records.findIndex(({ body }) => (bytes += body.byteLength) >= bytesMax) + 1;
    const following = records[end];
    if (end === 0 || following === undefined) return batch;
    this.#rests.set(partition, { records: records.slice(end), next: batch.next });
    return { records: records.slice(0, end), next: following.position };
  }
}

async function readPacked(
  log: BufferedReader,
  preparer: Preparer,
  { partition, position, bytesMax }: Omit<Request, 'call'>,
): Promise<PackedBatch> {
  const { records, next } = await log.read(partition, position, bytesMax);
  const bytes = records.reduce((sum, { body }) => sum + body.byteLength, 0);
  const isOneOfMany = bytes >= bytesMax && bytes < AHEAD_BYTES_MAX;
  try {
    return { packed: preparer.prepare(records), next, problem: null, isOneOfMany };
  } catch (error) {
    const problem = messageOf(error);
    return { packed: preparer.prepare([]), next, problem, isOneOfMany };
  } finally {
    for (const { body } of records) releaseLarge(body);
  }
}

/** Small bodies of a batch may share memory, with others that are not prepared yet. */
function releaseLarge({ buffer, byteLength }: Uint8Array): void {
  const isAlone = buffer instanceof ArrayBuffer && buffer.byteLength === byteLength;
  if (isAlone && byteLength >= LARGE_BODY_BYTES) releaseMemory(buffer);
}

/** The thread's side. */
export function serveRecords(port: MessagePort, log: LogReader, options: MatchOptions): void {
  const reader = new BufferedReader(log);
  const preparer = new Preparer(options);
  port.on('message', ({ call, ...request }: Request) => {
    readPacked(reader, preparer, request).then(
      (prepared) => {
        const { narrow, wide, numbers } = prepared.packed;
        const reply: Reply = { call, ...prepared };
        port.postMessage(reply, [narrow.buffer, wide.buffer, numbers.buffer]);
      },
      (error: unknown) => {
        const { name, message } = error instanceof Error ? error : new Error(String(error));
        const reply: Reply = { call, failure: { name, message } };
        port.postMessage(reply);
      },
    );
  });
}

/**
 * The processor's side: requests the next batch while one is processed, so that it is ready and packed in time. A
 * thread that dies is an error event of the worker, and ends the process.
 */
export function threadSource(thread: Worker): RecordSource {
  const waiting = new Map<number, { resolve(batch: PackedBatch): void; reject(error: Error): void }>();
  const ahead = new Map<number, { readonly position: number; readonly batch: Promise<PackedBatch | null> }>();
  let calls = 0;
  thread.on('message', (reply: Reply) => {
    const caller = waiting.get(reply.call);
    waiting.delete(reply.call);
    if ('failure' in reply) caller?.reject(errorOf(reply.failure));
    else caller?.resolve(reply);
  });
  return {
    read: async (partition, position, bytesMax) => {
      const early = ahead.get(partition);
      ahead.delete(partition);
      const found = early?.position === position ? await early.batch : null;
      // The end of the log and failures are asked for again.
      const batch = found === null || found.next === position ? await ask(partition, position, bytesMax) : found;
      const { packed, next, problem, isOneOfMany } = batch;
      if (isOneOfMany) {
        ahead.set(partition, { position: next, batch: ask(partition, next, bytesMax).catch(() => null) });
      }
      return { records: unpack(packed), next, problem: problem === null ? null : new Error(problem) };
    },
  };

  function ask(partition: number, position: number, bytesMax: number): Promise<PackedBatch> {
    return new Promise((resolve, reject) => {
      const request: Request = { call: ++calls, partition, position, bytesMax };
      waiting.set(request.call, { resolve, reject });
      thread.postMessage(request);
    });
  }
}

/** The processor distinguishes these errors by class. */
function errorOf({ name, message }: { readonly name: string; readonly message: string }): Error {
  if (name === 'LogCorruptError') return new LogCorruptError(message);
  if (name === 'LogUnavailableError') return new LogUnavailableError(message);
  return new Error(`${name}: ${message}`);
}
