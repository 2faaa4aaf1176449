/**
 * What threads of this program need to find each other and to hand memory over.
 */

import { readlinkSync } from 'node:fs';
import { setPriority } from 'node:os';
import { isTooManyOpenFiles } from './open-files.ts';

/** A quarter of the share of a thread with the usual priority, where both want more than there is. */
const BACKGROUND_PRIORITY = 6;

/**
 * For new objects of a thread, in MB: V8 would take 96 and keep them. A request, a page or a batch is gone sooner.
 * An option of `Worker`.
 */
export const YOUNG_LIMIT = { maxYoungGenerationSizeMb: 24 } as const;

/** Published builds are JavaScript, a checkout runs TypeScript; threads are started by file name. */
export function threadFile(name: string, importer: string): URL {
  return new URL(name + (importer.endsWith('.ts') ? '.ts' : '.js'), importer);
}

/**
 * Lets the other threads of this process go first when there are not enough cores: whoever waits for an answer comes
 * before whoever works things out. Linux only; elsewhere, or without the right to do so, it changes nothing.
 */
export function yieldToOthers(): void {
  try {
    const thread = Number(readlinkSync('/proc/thread-self').split('/').at(-1));
    setPriority(thread, BACKGROUND_PRIORITY);
  } catch {
    // All threads are equal then.
  }
}

/** Whether a thread failed because it could not be started, for want of open files: a later one may start. */
export function isThreadUnavailable(error: unknown): boolean {
  const isInit = error instanceof Error && 'code' in error && error.code === 'ERR_WORKER_INIT_FAILED';
  return isInit || isTooManyOpenFiles(error);
}

/**
 * Gives the memory back now. A thread that makes few objects collects garbage rarely, and what other threads handed to it
 * would lie there until then. All views of it are empty from here on.
 */
export function releaseMemory(buffer: ArrayBuffer): void {
  buffer.transfer(0);
}

/** The bytes in memory of their own, which can be handed to another thread without a copy. Copies only if need be. */
export function inOwnMemory(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  const { buffer } = bytes;
  const isAlone = buffer instanceof ArrayBuffer && buffer.byteLength === bytes.byteLength;
  return isAlone ? new Uint8Array(buffer) : new Uint8Array(bytes);
}
