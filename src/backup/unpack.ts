/**
 * Reads a backup: a folder or an archive. Every file is compared with its size and hash in the manifest, so what was
 * changed, cut or removed since is named. `unpack` writes the files into an empty folder on the way; `verify` checks what
 * is in them as well, for which an archive is unpacked next to itself for a while.
 */

import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { OperatorError } from '../errors.ts';
import { contentOf, type CopyOptions, hashFile, readArchive, writeContent } from './files.ts';
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
import { TarError } from './tar.ts';
import { checkFolderOf } from './notes.ts';
import { syncPath } from '../data-folder/write-durably.ts';

export interface UnpackOptions extends CopyOptions {
  /** Called after each file. */
  readonly onFile: (path: string) => void;
}

type CheckOptions = Omit<UnpackOptions, 'onBytes'>;

/** Opens and reads everything in a folder at rest; throws an `OperatorError` that names the file where something is wrong. */
export type CheckFolder = (folder: string, scope: BackupScope, options: CheckOptions) => Promise<BackupFacts>;

interface VerifyOptions extends UnpackOptions {
  readonly checkFolder: CheckFolder;
}

/** How much is read from the backup; as much as it writes, unless it is compressed. */
export function bytesOfBackup(source: string): number {
  if (!isFolder(source)) return statSync(source).size;
  return readManifest(source).files.reduce((sum, { bytes }) => sum + bytes, 0);
}

export function isFolder(path: string): boolean {
  return statSync(path).isDirectory();
}

/** Reads the manifest of a backup that is a folder. */
function readManifest(source: string): Manifest {
  const file = join(source, MANIFEST_FILE);
  if (!existsSync(file)) throw unfinished(source);
  return parseManifest(readFileSync(file, 'utf8'), source);
}

/** Writes the files, all but the manifest, into the folder, which must be empty; files and folders are synced. */
export async function unpack(source: string, into: string, options: UnpackOptions): Promise<Manifest> {
  const { manifest, found } = isFolder(source)
    ? await copyFolder(source, into, options)
    : await extractArchive(source, into, options);
  assertSameFiles(source, manifest, found);
  for (const folder of new Set(manifest.files.flatMap(({ path }) => foldersOf(into, path)))) syncPath(folder);
  return manifest;
}

export async function verify(source: string, options: VerifyOptions): Promise<Manifest> {
  if (isFolder(source)) {
    const manifest = readManifest(source);
    const found: BackupFile[] = [];
    for (const path of pathsIn(source)) found.push(await hashFile(source, path, options));
    assertSameFiles(source, manifest, found);
    await verifyContents(source, source, manifest, options);
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
    const manifest = await unpack(source, folder, { ...options, onFile: () => undefined });
    await verifyContents(folder, source, manifest, options);
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
  { stop, onFile, checkFolder }: Omit<VerifyOptions, 'onBytes'>,
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
    if (isDeepStrictEqual(JSON.parse(JSON.stringify(facts[part])), manifest[part])) continue;
    throw damaged(
      source,
      `"${part}" in ${MANIFEST_FILE} says ${JSON.stringify(manifest[part])}, and the files hold ${JSON.stringify(facts[part])}`,
    );
  }
}

interface Unpacked {
  readonly manifest: Manifest;
  readonly found: readonly BackupFile[];
}

async function copyFolder(source: string, into: string, options: UnpackOptions): Promise<Unpacked> {
  const manifest = readManifest(source);
  const known = new Set(manifest.files.map(({ path }) => path));
  const found: BackupFile[] = [];
  for (const path of pathsIn(source)) {
    if (!known.has(path)) throw superfluous(source, path);
    found.push(await writeContent(into, path, contentOf(join(source, path), options.stop), options));
    options.onFile(path);
  }
  return { manifest, found };
}

async function extractArchive(source: string, into: string, options: UnpackOptions): Promise<Unpacked> {
  const found: BackupFile[] = [];
  let manifest: Manifest | undefined;
  let name = '';
  try {
    for await (const entry of readArchive(source, options.stop)) {
      name = entry.name;
      const isTwice = name === MANIFEST_FILE ? manifest !== undefined : found.some(({ path }) => path === name);
      if (isTwice) throw damaged(source, `it has ${name} twice`);
      if (name === MANIFEST_FILE) {
        if (entry.bytes > MANIFEST_BYTES_MAX) throw new TarError(`${MANIFEST_FILE} is too long`);
        const parts: Buffer[] = [];
        for await (const chunk of entry.content) parts.push(chunk);
        manifest = parseManifest(Buffer.concat(parts).toString('utf8'), source);
      } else {
        if (!isBackupPath(name)) throw superfluous(source, name);
        found.push(await writeContent(into, name, entry.content, options));
        options.onFile(name);
      }
    }
  } catch (error) {
    if (options.stop.aborted || !isOfArchive(error)) throw error;
    const place = name === '' ? '' : ` (at or after ${name})`;
    throw new OperatorError(
      `The backup ${source} is damaged or cut short${place}: ${error.message}. Copy it again from where it was made, or use another backup.`,
      { cause: error },
    );
  }
  if (manifest === undefined) throw unfinished(source);
  return { manifest, found };
}

function isOfArchive(error: unknown): error is Error {
  if (error instanceof TarError) return true;
  return error instanceof Error && 'code' in error && /^(Z_|ZSTD_)/.test(String(error.code));
}

function assertSameFiles(source: string, { files }: Manifest, found: readonly BackupFile[]): void {
  const byPath = new Map(found.map((file) => [file.path, file]));
  for (const { path, bytes, sha256 } of files) {
    const file = byPath.get(path);
    byPath.delete(path);
    const name = join(resolve(source), path);
    if (file === undefined) throw damaged(source, `${path} is missing`);
    if (file.bytes !== bytes) {
      throw damaged(source, `${name} has ${file.bytes} bytes, and had ${bytes}`);
    }
    if (file.sha256 !== sha256) {
      throw damaged(source, `${name} was changed, its SHA-256 is another one`);
    }
  }
  for (const path of byPath.keys()) throw superfluous(source, path);
}

/** All files in the folder but the manifest, in the order of their names. */
function pathsIn(source: string): string[] {
  return readdirSync(source, { recursive: true, withFileTypes: true })
    .filter((entry) => !entry.isDirectory())
    .map((entry) => join(entry.parentPath, entry.name).slice(join(source, '/').length))
    .filter((path) => path !== MANIFEST_FILE)
    .sort();
}

function foldersOf(root: string, path: string): string[] {
  const folders = [root];
  for (let folder = dirname(path); folder !== '.'; folder = dirname(folder)) folders.push(join(root, folder));
  return folders;
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
