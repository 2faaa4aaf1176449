/**
 * Plain tar archives (ustar), so that a backup can be opened without Sluice: `tar -xf`. Writes regular files only, with
 * mode 0600 and names of at most 100 bytes. A size of 8 GB or more is written in base 256, as GNU tar, bsdtar and Python
 * do and read. Reads archives of those programs too, as far as they hold files under short names. Contents are streamed:
 * memory stays flat whatever the size.
 */

import { once } from 'node:events';
import type { Writable } from 'node:stream';

const BLOCK_BYTES = 512;
const NAME_BYTES_MAX = 100;
/** Eleven octal digits. */
const OCTAL_SIZE_MAX = 0o77777777777;
const END = Buffer.alloc(2 * BLOCK_BYTES);

const REGULAR = new Set(['0', '\0', '7']);
const FOLDER = '5';
/** Extended headers of POSIX: times and owners mostly, which are of no use here. */
const EXTENDED = new Set(['x', 'g']);

export class TarError extends Error {
  override readonly name = 'TarError';
}

export interface TarEntry {
  readonly name: string;
  readonly bytes: number;
  /** To be read before the next entry is asked for. */
  readonly content: AsyncIterable<Uint8Array>;
}

export function tarHeader(name: string, bytes: number, modifiedAt: number): Buffer {
  const header = Buffer.alloc(BLOCK_BYTES);
  if (Buffer.byteLength(name) > NAME_BYTES_MAX) throw new TarError(`the name "${name}" is too long for a tar archive`);
  header.write(name, 0);
  header.write('0000600\0', 100);
  header.write('0000000\0', 108);
  header.write('0000000\0', 116);
  writeSize(header, bytes);
  header.write(`${octal(Math.floor(modifiedAt / 1_000), 11)}\0`, 136);
  header.write('0', 156);
  header.write('ustar\u000000', 257);
  header.write(`${octal(checksumOf(header), 6)}\0 `, 148);
  return header;
}

/** Writes one file after the other into a stream; `finish` ends the archive and the stream. */
export class TarWriter {
  readonly #stream: Writable;

  constructor(stream: Writable) {
    this.#stream = stream;
  }

  async add(
    name: string,
    bytes: number,
    modifiedAt: number,
    content: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  ): Promise<void> {
    await this.#write(tarHeader(name, bytes, modifiedAt));
    let written = 0;
    for await (const chunk of content) {
      written += chunk.byteLength;
      await this.#write(chunk);
    }
    if (written !== bytes) throw new TarError(`${name} has ${written} bytes where ${bytes} were expected`);
    await this.#write(Buffer.alloc(paddingOf(bytes)));
  }

  async finish(): Promise<void> {
    await this.#write(END);
    this.#stream.end();
  }

  async #write(chunk: Uint8Array): Promise<void> {
    if (chunk.byteLength === 0) return;
    // A stream that has failed never drains again.
    if (this.#stream.destroyed) throw this.#stream.errored ?? new TarError('the archive was closed');
    if (!this.#stream.write(chunk)) await once(this.#stream, 'drain');
  }
}

/** The files of an archive, in order. Throws a `TarError` where it is cut short or is none. */
export async function* readTar(source: AsyncIterable<Uint8Array>): AsyncGenerator<TarEntry> {
  const input = new ByteReader(source);
  try {
    for (;;) {
      const header = await input.exactly(BLOCK_BYTES, 'it is cut short');
      if (isZero(header)) {
        // Two blocks of zeros end an archive. Programs fill it up with more of them; anything else no program wrote.
        const second = await input.exactly(BLOCK_BYTES, 'its end is missing');
        for await (const chunk of input.rest(second)) {
          if (!isZero(chunk)) throw new TarError('there are bytes behind its end, which do not belong to it');
        }
        return;
      }
      assertChecksum(header);
      const bytes = readSize(header);
      const type = String.fromCharCode(header[156] ?? 0);
      const name = nameOf(header);
      if (EXTENDED.has(type)) {
        assertIsNoOverride(await input.exactly(bytes + paddingOf(bytes), 'it is cut short'));
        continue;
      }
      if (!REGULAR.has(type) && type !== FOLDER) throw new TarError(`"${name}" is neither a file nor a folder`);
      if (type !== FOLDER) yield { name, bytes, content: input.chunks(bytes, `it is cut short within ${name}`) };
      await input.exactly(paddingOf(bytes), 'it is cut short');
    }
  } finally {
    await input.close();
  }
}

function isZero(bytes: Uint8Array): boolean {
  return bytes.every((byte) => byte === 0);
}

class ByteReader {
  readonly #chunks: AsyncIterator<Uint8Array>;
  #rest: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#chunks = source[Symbol.asyncIterator]();
  }

  /** As many bytes, as they come. */
  async *chunks(bytes: number, problem: string): AsyncGenerator<Buffer> {
    for (let left = bytes; left > 0; ) {
      while (this.#rest.byteLength === 0) {
        const next = await this.#chunks.next();
        if (next.done === true) throw new TarError(problem);
        this.#rest = Buffer.from(next.value.buffer, next.value.byteOffset, next.value.byteLength);
      }
      const taken = this.#rest.subarray(0, left);
      this.#rest = this.#rest.subarray(taken.byteLength);
      left -= taken.byteLength;
      yield taken;
    }
  }

  /** What was taken last, and then what is left. */
  async *rest(taken: Uint8Array): AsyncGenerator<Uint8Array> {
    yield taken;
    yield this.#rest;
    for (let next = await this.#chunks.next(); next.done !== true; next = await this.#chunks.next()) yield next.value;
  }

  /** For headers and padding: all of it is in memory. */
  async exactly(bytes: number, problem: string): Promise<Buffer> {
    if (bytes > EXTENDED_BYTES_MAX) throw new TarError('a header is too long');
    return Buffer.concat(await Array.fromAsync(this.chunks(bytes, problem)));
  }

  async close(): Promise<void> {
    await this.#chunks.return?.();
  }
}

const EXTENDED_BYTES_MAX = 1024 * 1024;

function octal(value: number, digits: number): string {
  return value.toString(8).padStart(digits, '0');
}

/** In octal digits; 0 for an empty field. */
function numberIn(field: Buffer): number {
  const text = field.toString('latin1').replace(/[\0 ]+$/, '');
  return Number.parseInt(text.trim() || '0', 8);
}

function paddingOf(bytes: number): number {
  return (BLOCK_BYTES - (bytes % BLOCK_BYTES)) % BLOCK_BYTES;
}

function writeSize(header: Buffer, bytes: number): void {
  if (bytes <= OCTAL_SIZE_MAX) {
    header.write(`${octal(bytes, 11)}\0`, 124);
    return;
  }
  header[124] = 0x80;
  header.writeBigUInt64BE(BigInt(bytes), 128);
}

function readSize(header: Buffer): number {
  const field = header.subarray(124, 136);
  const isBase256 = ((field[0] ?? 0) & 0x80) !== 0;
  const size = isBase256 ? Number(field.readBigUInt64BE(4)) : numberIn(field);
  if (!Number.isSafeInteger(size) || size < 0) throw new TarError('a size in it cannot be read');
  return size;
}

function nameOf(header: Buffer): string {
  const name = textIn(header, 0, 100);
  const isUstar = header.toString('latin1', 257, 263) === 'ustar\0';
  const prefix = isUstar ? textIn(header, 345, 500) : '';
  return (prefix === '' ? name : `${prefix}/${name}`).replace(/^(\.\/)+/, '');
}

function textIn(header: Buffer, from: number, to: number): string {
  const field = header.subarray(from, to);
  const end = field.indexOf(0);
  return field.toString('utf8', 0, end === -1 ? field.byteLength : end);
}

/** The sum of all bytes, those of the sum itself counted as blanks. */
function checksumOf(header: Buffer): number {
  let sum = 0;
  for (const [index, byte] of header.entries()) sum += index >= 148 && index < 156 ? 0x20 : byte;
  return sum;
}

function assertChecksum(header: Buffer): void {
  if (numberIn(header.subarray(148, 156)) !== checksumOf(header))
    throw new TarError('it is not a tar archive, or a header in it is damaged');
}

function assertIsNoOverride(extended: Buffer): void {
  if (/^\d+ (path|size|linkpath)=/m.test(extended.toString('utf8'))) {
    throw new TarError('it has names or sizes in extended headers, which are not read here');
  }
}
