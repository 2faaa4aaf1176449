/**
 * Validates bodies. Small ones are validated where they arrive; large ones in their own thread
 * (`validator-thread.ts`), because parsing a hostile body of 10 MB can take most of a second and other clients should
 * not wait for it. Either way the same pure validation runs.
 */

import { isUtf8 } from 'node:buffer';
import { Worker } from 'node:worker_threads';
import { inOwnMemory, threadFile, YOUNG_LIMIT } from '../runtime/threads.ts';
import { acceptPlain } from '../validation/accept-plain.ts';
import { type RequestValidation, validateRequest } from '../validation/validate-request.ts';

/**
 * Batches of a hundred users are above it, so that their validation uses a second core; single users are far below it. A
 * hostile body of this size takes some milliseconds to parse (Node 26: 94 ms a megabyte of nested arrays).
 */
export const LARGE_BODY_BYTES = 32 * 1024;

export function validateBody(body: Uint8Array): RequestValidation {
  if (!isUtf8(body)) {
    return { ok: false, message: 'body is not valid UTF-8; if it is compressed, say how in Content-Encoding' };
  }
  const plain = acceptPlain(body);
  if (plain !== null) return { ok: true, ...plain, rejections: [] };
  return validateRequest(Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString('utf8'));
}

export interface ValidatorReply {
  readonly validation: RequestValidation;
  readonly body: Uint8Array<ArrayBuffer>;
}

export interface ValidatedBody {
  readonly validation: RequestValidation;
  /** The same bytes that were handed in; the argument is no longer usable, its memory was transferred. */
  readonly body: Uint8Array;
}

export class LargeBodyValidator {
  readonly #thread: Worker;
  /** In the order in which they were sent, which is the order of the replies. */
  readonly #waiting: ((validated: ValidatedBody) => void)[] = [];

  constructor() {
    const options = { name: 'validator', resourceLimits: YOUNG_LIMIT };
    this.#thread = new Worker(threadFile('./validator-thread', import.meta.url), options);
    this.#thread.on('message', (reply: ValidatorReply) => this.#waiting.shift()?.(reply));
    // A crash in there is a bug, not an input that was foreseen: end loudly, nothing was acknowledged.
    this.#thread.on('error', (error) => {
      throw error;
    });
    this.#thread.unref();
  }

  /** How many bodies are not validated yet. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /** Takes the memory of `body` over. */
  validate(body: Buffer): Promise<ValidatedBody> {
    const bytes = inOwnMemory(body);
    return new Promise((resolve) => {
      this.#thread.postMessage(bytes, [bytes.buffer]);
      this.#waiting.push(resolve);
    });
  }
}
