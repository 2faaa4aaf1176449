/**
 * Reads a request's body into memory: never more than the limit, never more than what admission has granted. The result
 * is the bytes exactly as the client sent them, decompressed. Calls back once; a client that disconnects in the middle
 * gives `aborted`.
 */

import type { IncomingMessage } from 'node:http';
import {
  constants,
  createBrotliDecompress,
  createGunzip,
  createInflate,
  createInflateRaw,
  createZstdDecompress,
} from 'node:zlib';
import { LIMITS } from '../model.ts';
import type { Reservation } from './admission.ts';

export const ENCODINGS = ['gzip', 'deflate', 'br', 'zstd'] as const;
export type Encoding = (typeof ENCODINGS)[number];

export type BodyProblem = 'too_large' | 'no_room' | 'bad_encoding' | 'aborted';

const FIRST_BYTES = 16 * 1024;

/**
 * 16 MB. A frame of a few bytes may ask for a window of 128 MB, which the decoder allocates before it reads the data.
 * RFC 9659 allows senders 8 MB; a frame that states its size asks for no more than the body limit.
 */
const ZSTD_WINDOW_LOG_MAX = 24;

/**
 * Collects chunks in one buffer, which is reserved before it is allocated. However small the chunks are, no more memory
 * is held than that. `declaredBytes` is a hint that saves copies, not a promise.
 */
class Gatherer {
  readonly #reservation: Reservation;
  readonly #declaredBytes: number;
  readonly #reservedElsewhere: number;
  /** The common case: all of it came at once and needs no copy. */
  #only: Buffer | undefined;
  #memory: Buffer | undefined;
  #bytes = 0;

  constructor(reservation: Reservation, declaredBytes: number, reservedElsewhere = 0) {
    this.#reservation = reservation;
    this.#declaredBytes = declaredBytes;
    this.#reservedElsewhere = reservedElsewhere;
  }

  add(chunk: Buffer): BodyProblem | null {
    const total = this.#bytes + chunk.length;
    if (total > LIMITS.bodyBytesMax) return 'too_large';
    if (this.#bytes === 0 && chunk.length >= this.#declaredBytes) {
      if (!this.#reservation.growTo(this.#reservedElsewhere + total)) return 'no_room';
      this.#only = chunk;
    } else {
      const memory = this.#roomFor(total);
      if (memory === undefined) return 'no_room';
      chunk.copy(memory, this.#bytes);
    }
    this.#bytes = total;
    return null;
  }

  take(): Buffer {
    return this.#only ?? this.#memory?.subarray(0, this.#bytes) ?? Buffer.alloc(0);
  }

  #roomFor(total: number): Buffer | undefined {
    if (this.#memory && total <= this.#memory.length) return this.#memory;
    const doubled = Math.max(FIRST_BYTES, 2 * this.#bytes, total, this.#declaredBytes);
    const wanted = Math.min(LIMITS.bodyBytesMax, doubled);
    if (!this.#reservation.growTo(this.#reservedElsewhere + wanted)) return undefined;
    const grown = Buffer.allocUnsafeSlow(wanted);
    (this.#only ?? this.#memory)?.copy(grown, 0, 0, this.#bytes);
    this.#only = undefined;
    this.#memory = grown;
    return grown;
  }
}

export function readBody(
  request: IncomingMessage,
  { declaredBytes, encoding }: { readonly declaredBytes: number; readonly encoding: Encoding | null },
  reservation: Reservation,
  done: (read: Buffer | BodyProblem) => void,
): void {
  // It may have gone while its key was looked up.
  if (request.destroyed) {
    done('aborted');
    return;
  }
  const gatherer = new Gatherer(reservation, declaredBytes);
  let finished = false;
  let ended = false;
  const finish = (read: Buffer | BodyProblem): void => {
    if (finished) return;
    finished = true;
    done(read);
  };
  request.on('data', (chunk: Buffer) => {
    if (finished) return;
    const problem = gatherer.add(chunk);
    if (problem) finish(problem);
  });
  request.on('end', () => {
    ended = true;
    if (finished) return;
    if (encoding === null) finish(gatherer.take());
    else inflate(gatherer.take(), encoding, reservation, finish);
  });
  request.on('close', () => {
    if (!ended) finish('aborted');
  });
}

function inflate(
  packed: Buffer,
  encoding: Encoding,
  reservation: Reservation,
  finish: (read: Buffer | BodyProblem) => void,
): void {
  const gatherer = new Gatherer(reservation, 0, packed.length);
  const stream = inflaterFor(encoding, packed);
  stream.on('data', (chunk: Buffer) => {
    const problem = gatherer.add(chunk);
    if (!problem) return;
    finish(problem);
    stream.destroy();
  });
  // All decoders but gzip's ignore bytes after the end of the compressed data.
  stream.on('end', () => {
    finish(stream.bytesWritten === packed.length ? gatherer.take() : 'bad_encoding');
  });
  stream.on('error', () => finish('bad_encoding'));
  stream.end(packed);
}

const INFLATERS = {
  gzip: () => createGunzip(),
  br: () => createBrotliDecompress(),
  zstd: () => createZstdDecompress({ params: { [constants.ZSTD_d_windowLogMax]: ZSTD_WINDOW_LOG_MAX } }),
};

function inflaterFor(encoding: Encoding, packed: Buffer) {
  if (encoding !== 'deflate') return INFLATERS[encoding]();
  // HTTP's "deflate" is the zlib format, whose first half-byte is always 8; some clients send raw deflate.
  return ((packed[0] ?? 0) & 0x0f) === 8 ? createInflate() : createInflateRaw();
}
