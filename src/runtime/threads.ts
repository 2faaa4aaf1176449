/**
 * How threads of this program are started, and how they transfer memory.
 */

import { setFlagsFromString } from 'node:v8';
import { isTooManyOpenFiles } from './open-files.ts';

/**
 * Limits of V8's heap in a thread: the `resourceLimits` of its `Worker`.
 *
 * The young generation grows to 96 MB by default, and never shrinks. A request, or a page that is written, is
 * short-lived and needs little of it; the processor's batches live longer. A young generation that fits the CPU's cache
 * is also faster.
 *
 * The old generation may by default become four times what is in use before it is collected; the smaller the limit, the
 * smaller this factor. A thread that needs more than 1 GB ends: a store reader is replaced, any other one ends the
 * process. Decision 035 has figures for both.
 */
const OLD_GENERATION = { maxOldGenerationSizeMb: 1_024 };
export const HEAP_LIMITS = {
  default: { maxYoungGenerationSizeMb: 12, ...OLD_GENERATION },
  processor: { maxYoungGenerationSizeMb: 24, ...OLD_GENERATION },
} as const;

/**
 * For all threads of the process; call it before any is started. Where V8 sees that objects of one place in the code
 * often survive, it allocates them in the old generation from then on. Those of a batch or a request survive a little
 * longer than most and are then garbage all the same, of which the processor had 40 MB at any time (decision 035).
 */
export function disablePretenuring(): void {
  setFlagsFromString('--no-allocation-site-pretenuring');
}

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
