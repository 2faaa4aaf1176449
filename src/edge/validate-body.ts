/**
 * Validates bodies. Small ones are validated where they arrive; large ones in their own thread
 * (`validator-thread.ts`), because parsing a hostile body of 10 MB can take most of a second and other clients should
 * not wait for it. Either way the same pure validation runs.
 */

import { isUtf8 } from 'node:buffer';
import { Worker } from 'node:worker_threads';
import { inOwnMemory, threadFile, YOUNG_LIMIT } from '../runtime/threads.ts';
import { type Conversion, type ConversionOptions, convertSegment, writeKeyOf } from '../intake/segment.ts';
import { acceptPlain } from '../validation/accept-plain.ts';
import { type RequestValidation, validateRequest } from '../validation/validate-request.ts';

/**
 * Batches of a hundred users are above it, so that their validation uses a second core; single users are far below it.
 * A hostile body of this size takes some milliseconds to parse (Node 26: 94 ms a megabyte of nested arrays).
 */
export const LARGE_BODY_BYTES = 32 * 1024;

const NOT_UTF8 = 'body is not valid UTF-8; if it is compressed, say how in Content-Encoding';

export function validateBody(body: Uint8Array): RequestValidation {
  if (!isUtf8(body)) return { ok: false, message: NOT_UTF8 };
  const plain = acceptPlain(body);
  if (plain !== null) return { ok: true, ...plain, rejections: [] };
  return validateRequest(Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString('utf8'));
}

/** In the form of Segment's SDKs, converted to ours; every user in the result has been validated. */
export function convertBody(body: Uint8Array, options: ConversionOptions): Conversion {
  if (!isUtf8(body)) return { ok: false, code: 'validation_failed', message: NOT_UTF8 };
  return convertSegment(Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString('utf8'), options);
}

/** A task for the thread, with a large body. A body alone is to be validated. */
export type ValidatorTask =
  | Uint8Array<ArrayBuffer>
  | { readonly convert: ConversionOptions; readonly body: Uint8Array<ArrayBuffer> }
  | { readonly findKey: true; readonly body: Uint8Array<ArrayBuffer> };

export interface ValidatorReply {
  readonly validation: RequestValidation;
  readonly body: Uint8Array<ArrayBuffer>;
}

/** The result of any task, and the memory that goes back with it. */
export function runTask(task: ValidatorTask): { readonly reply: unknown; readonly memory: ArrayBuffer } {
  if (task instanceof Uint8Array) {
    const reply: ValidatorReply = { validation: validateBody(task), body: task };
    return { reply, memory: task.buffer };
  }
  const { body } = task;
  if ('findKey' in task) return { reply: { writeKey: writeKeyOf(body), body }, memory: body.buffer };
  const conversion = convertBody(body, task.convert);
  if (!conversion.ok) return { reply: conversion, memory: body.buffer };
  const converted = inOwnMemory(conversion.body);
  return { reply: { ...conversion, body: converted }, memory: converted.buffer };
}

export interface KeyInBody {
  readonly writeKey: string | null;
  /** The same bytes that were handed in, which are no longer usable. */
  readonly body: Uint8Array;
}

export interface ValidatedBody {
  readonly validation: RequestValidation;
  /** The same bytes that were handed in; the argument is no longer usable, its memory was transferred. */
  readonly body: Uint8Array;
}

export class LargeBodyValidator {
  readonly #thread: Worker;
  /** In the order in which they were sent, which is the order of the replies. */
  readonly #waiting: ((reply: never) => void)[] = [];

  constructor() {
    const options = { name: 'validator', resourceLimits: YOUNG_LIMIT };
    this.#thread = new Worker(threadFile('./validator-thread', import.meta.url), options);
    this.#thread.on('message', (reply) => this.#waiting.shift()?.(reply as never));
    // A crash there is a bug, and not bad input. It ends the process; nothing was acknowledged.
    this.#thread.on('error', (error) => {
      throw error;
    });
    this.#thread.unref();
  }

  /** How many bodies are not validated yet. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /** Takes ownership of the memory of `body`. */
  validate(body: Buffer): Promise<ValidatedBody> {
    const bytes = inOwnMemory(body);
    return this.#run(bytes, bytes.buffer);
  }

  /** Takes ownership of the memory of `body`. */
  convert(body: Uint8Array, options: ConversionOptions): Promise<Conversion> {
    const bytes = inOwnMemory(body);
    return this.#run({ convert: options, body: bytes }, bytes.buffer);
  }

  /** Takes ownership of the memory of `body`. */
  findKey(body: Uint8Array): Promise<KeyInBody> {
    const bytes = inOwnMemory(body);
    return this.#run({ findKey: true, body: bytes }, bytes.buffer);
  }

  #run<Reply>(task: ValidatorTask, memory: ArrayBuffer): Promise<Reply> {
    return new Promise((resolve) => {
      this.#thread.postMessage(task, [memory]);
      this.#waiting.push(resolve);
    });
  }
}
