/**
 * Copying files into and out of a backup: private to their owner, hashed on the way, synced, and stopped by a signal.
 * A backup is a folder, or one archive: `.tar`, `.tar.gz` (`.tgz`) or `.tar.zst`, which opens without Sluice. Which of
 * them an existing archive is follows from its first bytes, not from its name; archives of other programs are read too.
 * Every file that is read is compared with its size and hash in the manifest, so what was changed, cut or removed since is
 * named. To check what is in the files, an archive is unpacked next to itself for a while.
 */

import { createHash } from 'node:crypto';
import {
  createReadStream,
  createWriteStream,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { Readable, type Transform } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import { ReadableStream } from 'node:stream/web';
import { isDeepStrictEqual } from 'node:util';
import {
  constants,
  createGunzip,
  createGzip,
  createZstdCompress,
  createZstdDecompress,
  type Gunzip,
  type ZstdDecompress,
} from 'node:zlib';
import { createTarDecoder, createTarPacker } from 'modern-tar';
import { syncPath } from '../data-folder/write-durably.ts';
import { OperatorError } from '../errors.ts';
import {
  type BackupFacts,
  type BackupFile,
  type BackupScope,
  isBackupPath,
  type Manifest,
  MANIFEST_BYTES_MAX,
  MANIFEST_FILE,
  parseManifest,
} from './manifest.ts';
import { checkFolderOf } from './notes.ts';

export type ArchiveKind = 'tar' | 'tar.gz' | 'tar.zst';

const CHUNK_BYTES = 1024 * 1024;

/** Undefined for a name that means a folder. */
export function archiveKindOf(name: string): ArchiveKind | undefined {
  if (/\.tar$/i.test(name)) return 'tar';
  if (/\.(tar\.gz|tgz)$/i.test(name)) return 'tar.gz';
  return /\.tar\.zst$/i.test(name) ? 'tar.zst' : undefined;
}

interface CopyOptions {
  readonly stop: AbortSignal;
  readonly onBytes: (bytes: number) => void;
}

export interface ReadOptions extends CopyOptions {
  /** Called for each file; with its name where the work on one takes long. */
  readonly onFile: (path?: string) => void;
}

interface BackupEntry {
  readonly name: string;
  readonly bytes: number;
  /** To be read before the next entry is asked for. */
  readonly content: AsyncIterable<Uint8Array>;
}

/** Opens and reads everything in a folder at rest; throws an `OperatorError` that names the file where something is wrong. */
export type CheckFolder = (
  folder: string,
  scope: BackupScope,
  options: Omit<ReadOptions, 'onBytes'>,
) => Promise<BackupFacts>;

export async function hashFile(folder: string, path: string, { stop, onBytes }: CopyOptions): Promise<BackupFile> {
  return passOn(path, contentOf(join(folder, path), stop), onBytes, drain);
}

/** Writes a file that must not be there yet; synced when it resolves. */
async function writeFile(
  folder: string,
  { name, content }: BackupEntry,
  { stop, onBytes }: CopyOptions,
): Promise<BackupFile> {
  const target = join(folder, name);
  mkdirSync(dirname(target), { recursive: true, mode: 0o700 });
  const output = createWriteStream(target, { flags: 'wx', mode: 0o600, flush: true, highWaterMark: CHUNK_BYTES });
  try {
    return await passOn(name, content, onBytes, (chunks) => pipeline(chunks, output, { signal: stop }));
  } finally {
    // After an error the file may still be about to be made, in a folder that the caller is going to remove.
    if (!output.closed) await new Promise((resolve) => output.once('close', resolve));
  }
}

/** What the content was that went to `take`. */
async function passOn(
  path: string,
  content: AsyncIterable<Uint8Array>,
  onBytes: (bytes: number) => void,
  take: (chunks: AsyncIterable<Uint8Array>) => Promise<void>,
): Promise<BackupFile> {
  const hash = createHash('sha256');
  let bytes = 0;
  async function* hashed(): AsyncGenerator<Uint8Array> {
    for await (const chunk of content) {
      hash.update(chunk);
      bytes += chunk.byteLength;
      onBytes(chunk.byteLength);
      yield chunk;
    }
  }
  await take(hashed());
  return { path, bytes, sha256: hash.digest('hex') };
}

async function drain(chunks: AsyncIterable<Uint8Array>): Promise<void> {
  for await (const chunk of chunks) void chunk;
}

/** Opened when it is read, so that nothing that is never read stays open. */
async function* contentOf(file: string, stop: AbortSignal): AsyncGenerator<Uint8Array> {
  yield* createReadStream(file, { highWaterMark: CHUNK_BYTES, signal: stop });
}

/** So that its files are found after a power loss. */
export function syncFolders(root: string, files: readonly BackupFile[]): void {
  for (const folder of new Set([root, ...files.map(({ path }) => dirname(join(root, path)))])) syncPath(folder);
}

/** Writes one file after the other; `finish` ends the archive. */
export class ArchiveWriter {
  readonly #file: string;
  readonly #tar = createTarPacker();
  readonly #written: Promise<void>;

  constructor(file: string, kind: ArchiveKind, stop: AbortSignal) {
    const input = Readable.fromWeb(this.#tar.readable);
    const output = createWriteStream(file, { flags: 'wx', mode: 0o600, highWaterMark: CHUNK_BYTES });
    this.#file = file;
    this.#written = pipeline([input, ...compressorsOf(kind), output], { signal: stop });
    // The error is thrown by what is written next, and by `finish`.
    this.#written.catch(() => undefined);
  }

  async add(
    name: string,
    bytes: number,
    modifiedAt: number,
    content: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  ): Promise<void> {
    const file = this.#tar.controller.add({ name, size: bytes, mtime: new Date(modifiedAt), mode: 0o600 });
    await ReadableStream.from(content).pipeTo(file);
  }

  async addFile(folder: string, path: string, { stop, onBytes }: CopyOptions): Promise<BackupFile> {
    const file = join(folder, path);
    const { size, mtimeMs } = statSync(file);
    return passOn(path, contentOf(file, stop), onBytes, (chunks) => this.add(path, size, mtimeMs, chunks));
  }

  /** The archive is whole and synced when it resolves. */
  async finish(): Promise<void> {
    this.#tar.controller.finalize();
    await this.#written;
    syncPath(this.#file);
  }

  /** Resolves when nothing is written any more. The signal is to be aborted first, or the archive to have failed. */
  async closed(): Promise<void> {
    await this.#written.catch(() => undefined);
  }
}

function compressorsOf(kind: ArchiveKind): Transform[] {
  if (kind === 'tar') return [];
  // gzip has its own checksum.
  return [kind === 'tar.gz' ? createGzip() : createZstdCompress({ params: { [constants.ZSTD_c_checksumFlag]: 1 } })];
}

/** How much is read from the backup; as much as it writes, unless it is compressed. */
export function bytesOfBackup(source: string): number {
  if (!isFolder(source)) return statSync(source).size;
  const file = join(source, MANIFEST_FILE);
  if (!existsSync(file)) throw unfinished(source);
  return parseManifest(readFileSync(file, 'utf8'), source).files.reduce((sum, { bytes }) => sum + bytes, 0);
}

export function isFolder(path: string): boolean {
  return statSync(path).isDirectory();
}

/** Writes the files, all but the manifest, into the folder, which must be empty; files and folders are synced. */
export async function unpack(source: string, into: string, options: ReadOptions): Promise<Manifest> {
  const manifest = await readFiles(source, options.stop, async (entry) => {
    const file = await writeFile(into, entry, options);
    options.onFile();
    return file;
  });
  syncFolders(into, manifest.files);
  return manifest;
}

export async function verify(source: string, checkFolder: CheckFolder, options: ReadOptions): Promise<Manifest> {
  const { stop, onBytes } = options;
  if (isFolder(source)) {
    const manifest = await readFiles(source, stop, ({ name, content }) => passOn(name, content, onBytes, drain));
    await verifyContents(source, source, manifest, checkFolder, options);
    return manifest;
  }
  const folder = checkFolderOf(source);
  try {
    mkdirSync(folder, { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    throw new OperatorError(
      `${folder} is there: another check of ${source} is running, or one was killed. If none is running, remove it: rm -r "${folder}"`,
    );
  }
  try {
    const manifest = await unpack(source, folder, { stop, onBytes, onFile: () => undefined });
    await verifyContents(folder, source, manifest, checkFolder, options);
    return manifest;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** `source` is how the backup is called that the files in the folder are of. */
export async function verifyContents(
  folder: string,
  source: string,
  manifest: Manifest,
  checkFolder: CheckFolder,
  { stop, onFile }: ReadOptions,
): Promise<void> {
  let facts: BackupFacts;
  try {
    facts = await checkFolder(folder, manifest.scope, { stop, onFile });
  } catch (error) {
    if (!(error instanceof OperatorError)) throw error;
    throw new OperatorError(`${error.message} So ${source} cannot be used: make a new backup, or use another one.`, {
      cause: error,
    });
  }
  for (const part of ['installation', 'log', 'store', 'keys'] as const) {
    if (isDeepStrictEqual(facts[part], manifest[part])) continue;
    throw damaged(
      source,
      `"${part}" in ${MANIFEST_FILE} says ${JSON.stringify(manifest[part])}, and the files hold ${JSON.stringify(facts[part])}`,
    );
  }
}

/** Calls `read` for every file but the manifest, and compares what it returns with that. */
async function readFiles(
  source: string,
  stop: AbortSignal,
  read: (entry: BackupEntry) => Promise<BackupFile>,
): Promise<Manifest> {
  const found = new Map<string, BackupFile>();
  let manifest: Manifest | undefined;
  let name = '';
  try {
    for await (const entry of isFolder(source) ? readFolder(source, stop) : readArchive(source, stop)) {
      ({ name } = entry);
      const isManifest = name === MANIFEST_FILE;
      if (isManifest ? manifest !== undefined : found.has(name)) throw damaged(source, `it has ${name} twice`);
      if (isManifest) {
        if (entry.bytes > MANIFEST_BYTES_MAX) throw new Error(`${MANIFEST_FILE} is too long`);
        manifest = parseManifest((await buffer(entry.content)).toString('utf8'), source);
      } else {
        if (!isBackupPath(name)) throw superfluous(source, name);
        found.set(name, await read(entry));
      }
    }
  } catch (error) {
    if (stop.aborted || !isOfArchive(error)) throw error;
    const place = name === '' ? '' : ` (at or after ${name})`;
    throw new OperatorError(
      `The backup ${source} is damaged or cut short${place}: ${error.message.replace(/\.$/, '')}. Copy it again from where it was made, or use another backup.`,
      { cause: error },
    );
  }
  if (manifest === undefined) throw unfinished(source);
  assertSameFiles(source, manifest, found);
  return manifest;
}

/** In the order of their names. */
async function* readFolder(folder: string, stop: AbortSignal): AsyncGenerator<BackupEntry> {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => !entry.isDirectory())
    .map((entry) => join(entry.parentPath, entry.name))
    .sort();
  for (const file of files) {
    yield { name: file.slice(join(folder, '/').length), bytes: statSync(file).size, content: contentOf(file, stop) };
  }
}

/** The files in an archive, in order. Decompresses by what the first bytes say. */
async function* readArchive(file: string, stop: AbortSignal): AsyncGenerator<BackupEntry> {
  const source = contentOf(file, stop);
  const decompressor = await decompressorOf(file);
  // An error of the file ends the decompressor, and is thrown where that is read.
  if (decompressor !== undefined) pipeline(source, decompressor).catch(() => undefined);
  // Strict: it verifies the checksums, and refuses an archive without an end or with anything but zeros behind it.
  const entries = ReadableStream.from(decompressor ?? source).pipeThrough(createTarDecoder({ strict: true }));
  for await (const { header, body } of entries) {
    if (header.type === 'directory') continue;
    if (header.type !== 'file') throw new Error(`"${header.name}" is neither a file nor a folder`);
    yield { name: header.name.replace(/^(\.\/)+/, ''), bytes: header.size, content: body };
  }
  // Decompressors stop at the end of what was compressed, and some say nothing of what follows.
  const left = decompressor === undefined ? 0 : statSync(file).size - decompressor.bytesWritten;
  if (left > 0) throw new Error(`${left} bytes behind its end do not belong to it`);
}

async function decompressorOf(file: string): Promise<Gunzip | ZstdDecompress | undefined> {
  const start = Buffer.alloc(4);
  await using handle = await open(file);
  await handle.read(start, 0, start.byteLength, 0);
  if (start.readUInt16BE(0) === 0x1f8b) return createGunzip();
  return start.readUInt32BE(0) === 0x28b52ffd ? createZstdDecompress() : undefined;
}

/** What is wrong with a tar archive is a plain error, and with compressed data one with these codes; a file's has others. */
function isOfArchive(error: unknown): error is Error {
  if (!(error instanceof Error)) return false;
  return 'code' in error ? /^(Z_|ZSTD_)/.test(String(error.code)) : error.name === 'Error';
}

function assertSameFiles(source: string, { files }: Manifest, found: Map<string, BackupFile>): void {
  for (const { path, bytes, sha256 } of files) {
    const file = found.get(path);
    found.delete(path);
    const name = join(resolve(source), path);
    if (file === undefined) throw damaged(source, `${path} is missing`);
    if (file.bytes !== bytes) {
      throw damaged(source, `${name} has ${file.bytes} bytes, and had ${bytes}`);
    }
    if (file.sha256 !== sha256) {
      throw damaged(source, `${name} was changed, its SHA-256 is another one`);
    }
  }
  for (const path of found.keys()) throw superfluous(source, path);
}

function unfinished(source: string): OperatorError {
  return new OperatorError(
    `${source} is not a finished backup: it has no ${MANIFEST_FILE}, which is written last. Use another one.`,
  );
}

function damaged(source: string, what: string): OperatorError {
  return new OperatorError(
    `The backup ${source} is damaged: ${what}. Copy it again from where it was made, or use another backup.`,
  );
}

function superfluous(source: string, path: string): OperatorError {
  return new OperatorError(
    `The backup ${source} holds ${path}, which is not part of it. Remove that, or use another backup; did a server run on it?`,
  );
}
