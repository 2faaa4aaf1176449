/**
 * Copying files into and out of a backup: private to their owner, hashed on the way, synced, and stopped by a signal.
 * A backup is a folder, or one archive: `.tar`, `.tar.gz` (`.tgz`) or `.tar.zst`. Which of them an existing archive is
 * follows from its first bytes, not from its name.
 */

import { createHash, type Hash } from 'node:crypto';
import { closeSync, createReadStream, createWriteStream, mkdirSync, openSync, readSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { PassThrough, type Readable, type Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import {
  constants,
  createGunzip,
  createGzip,
  createZstdCompress,
  createZstdDecompress,
  type Gunzip,
  type ZstdDecompress,
} from 'node:zlib';
import type { BackupFile } from './manifest.ts';
import { readTar, TarError, type TarEntry, TarWriter } from './tar.ts';
import { syncPath } from '../data-folder/write-durably.ts';

export type ArchiveKind = 'tar' | 'tar.gz' | 'tar.zst';

const CHUNK_BYTES = 1024 * 1024;

/** Undefined for a name that means a folder. */
export function archiveKindOf(name: string): ArchiveKind | undefined {
  if (/\.tar$/i.test(name)) return 'tar';
  if (/\.(tar\.gz|tgz)$/i.test(name)) return 'tar.gz';
  return /\.tar\.zst$/i.test(name) ? 'tar.zst' : undefined;
}

export interface CopyOptions {
  readonly stop: AbortSignal;
  readonly onBytes: (bytes: number) => void;
}

/** Also the folders on the way to it. */
export function makePrivateFolder(folder: string): void {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
}

export async function hashFile(folder: string, path: string, options: CopyOptions): Promise<BackupFile> {
  const hash = createHash('sha256');
  let bytes = 0;
  for await (const chunk of counted(contentOf(join(folder, path), options.stop), options.onBytes)) {
    hash.update(chunk);
    bytes += chunk.byteLength;
  }
  return { path, bytes, sha256: hash.digest('hex') };
}

/** Writes a file that must not be there yet; synced when it resolves. */
export async function writeContent(
  folder: string,
  path: string,
  content: AsyncIterable<Uint8Array>,
  { stop, onBytes }: CopyOptions,
): Promise<BackupFile> {
  const hash = createHash('sha256');
  const target = join(folder, path);
  let bytes = 0;
  makePrivateFolder(dirname(target));
  const count = (more: number): void => {
    bytes += more;
    onBytes(more);
  };
  const output = createWriteStream(target, { flags: 'wx', mode: 0o600, flush: true, highWaterMark: CHUNK_BYTES });
  try {
    await pipeline(counted(content, count, hash), output, { signal: stop });
  } finally {
    // After an error the file may still be about to be made, in a folder that the caller is going to remove.
    if (!output.closed) await new Promise((resolve) => output.once('close', resolve));
  }
  return { path, bytes, sha256: hash.digest('hex') };
}

export function contentOf(file: string, stop: AbortSignal): Readable {
  const content = createReadStream(file, { highWaterMark: CHUNK_BYTES, signal: stop });
  // An error is thrown where the content is read. What is stopped before that must not end the process.
  content.on('error', () => undefined);
  return content;
}

/** An archive that is being written. */
export class ArchiveWriter {
  readonly #tar: TarWriter;
  readonly #file: string;
  readonly #written: Promise<void>;

  constructor(file: string, kind: ArchiveKind, stop: AbortSignal) {
    const input = new PassThrough({ highWaterMark: CHUNK_BYTES });
    const output = createWriteStream(file, { flags: 'wx', mode: 0o600, highWaterMark: CHUNK_BYTES });
    const compressor = compressorOf(kind);
    this.#file = file;
    this.#written =
      compressor === undefined
        ? pipeline(input, output, { signal: stop })
        : pipeline(input, compressor, output, { signal: stop });
    // The error is thrown by what is written next, and by `finish`.
    this.#written.catch(() => undefined);
    this.#tar = new TarWriter(input);
  }

  async addFile(folder: string, path: string, { stop, onBytes }: CopyOptions): Promise<BackupFile> {
    const file = join(folder, path);
    const { size, mtimeMs } = statSync(file);
    const hash = createHash('sha256');
    await this.#tar.add(path, size, mtimeMs, counted(contentOf(file, stop), onBytes, hash));
    return { path, bytes: size, sha256: hash.digest('hex') };
  }

  async addText(path: string, text: string, at: number): Promise<void> {
    const bytes = Buffer.from(text);
    await this.#tar.add(path, bytes.byteLength, at, one(bytes));
  }

  /** The archive is whole and synced when it resolves. */
  async finish(): Promise<void> {
    await this.#tar.finish();
    await this.#written;
    syncPath(this.#file);
  }

  /** Resolves when nothing is written any more. The signal is to be aborted first, or the archive to have failed. */
  async closed(): Promise<void> {
    await this.#written.catch(() => undefined);
  }
}

/** The files in an archive, in order. Decompresses by what the first bytes say. */
export async function* readArchive(file: string, stop: AbortSignal): AsyncGenerator<TarEntry> {
  const source = contentOf(file, stop);
  const decompressor = decompressorOf(file);
  if (decompressor === undefined) {
    yield* readTar(source);
    return;
  }
  // An error of the file ends the decompressor, and is thrown where that is read.
  pipeline(source, decompressor).catch(() => undefined);
  yield* readTar(decompressor);
  // Decompressors stop at the end of what was compressed, and some say nothing of what follows.
  const left = statSync(file).size - decompressor.bytesWritten;
  if (left > 0) throw new TarError(`${left} bytes behind its end do not belong to it`);
}

function compressorOf(kind: ArchiveKind): Transform | undefined {
  if (kind === 'tar') return undefined;
  // gzip has its own checksum.
  return kind === 'tar.gz' ? createGzip() : createZstdCompress({ params: { [constants.ZSTD_c_checksumFlag]: 1 } });
}

function decompressorOf(file: string): Gunzip | ZstdDecompress | undefined {
  const start = Buffer.alloc(4);
  const descriptor = openSync(file, 'r');
  try {
    readSync(descriptor, start, 0, start.byteLength, 0);
  } finally {
    closeSync(descriptor);
  }
  if (start.readUInt16BE(0) === 0x1f8b) return createGunzip();
  return start.readUInt32BE(0) === 0x28b52ffd ? createZstdDecompress() : undefined;
}

async function* counted(
  content: AsyncIterable<Uint8Array>,
  onBytes: (bytes: number) => void,
  hash?: Hash,
): AsyncGenerator<Uint8Array> {
  for await (const chunk of content) {
    hash?.update(chunk);
    onBytes(chunk.byteLength);
    yield chunk;
  }
}

async function* one(chunk: Uint8Array): AsyncGenerator<Uint8Array> {
  yield chunk;
}
