/**
 * How threads of this program are started, and how they transfer memory.
 */

import { isTooManyOpenFiles } from './open-files.ts';

/**
 * Limits of V8's heap in a thread: the `resourceLimits` of its `Worker`. The young generation grows to 96 MB by default,
 * and never shrinks. A request, or a page that is written, is short-lived and needs little of it; the processor's
 * batches live longer. A young generation that fits the CPU's cache is also faster (decision 035). A store reader whose
 * query needs more than 1 GB ends its thread, not the process.
 */
export const HEAP_LIMITS = {
  default: { maxYoungGenerationSizeMb: 12 },
  processor: { maxYoungGenerationSizeMb: 24 },
  storeReader: { maxYoungGenerationSizeMb: 12, maxOldGenerationSizeMb: 1_024 },
} as const;

/** Published builds are JavaScript, a checkout runs TypeScript; threads are started by file name. */
export function threadFile(name: string, importer: string): URL {
  return new URL(name + (importer.endsWith('.ts') ? '.ts' : '.js'), importer);
}

/** Whether a thread could not be started because too many files are open: a later one may start. */
export function isThreadUnavailable(error: unknown): boolean {
  const isInit = error instanceof Error && 'code' in error && error.code === 'ERR_WORKER_INIT_FAILED';
  return isInit || isTooManyOpenFiles(error);
}

/**
 * Releases the memory now. A thread that makes few objects collects garbage rarely, and memory transferred to it would
 * stay until then. All views of it are empty from here on.
 */
export function releaseMemory(buffer: ArrayBuffer): void {
  buffer.transfer(0);
}

/** The bytes in their own memory, which can be handed to another thread without a copy. Copies only if need be. */
export function inOwnMemory(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  const { buffer } = bytes;
  const ownsBuffer = buffer instanceof ArrayBuffer && buffer.byteLength === bytes.byteLength;
  return ownsBuffer ? new Uint8Array(buffer) : new Uint8Array(bytes);
}
