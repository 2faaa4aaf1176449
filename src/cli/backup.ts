/**
 * `sluice backup --to FOLDER|FILE`: makes a consistent copy of an installation, with or without a running server.
 * `sluice backup --verify FOLDER|FILE`: checks an existing backup. The backend decides what to copy and in which order
 * (`backends/embedded/backup/backup.ts`); this file adds the archive format, the manifest and the name. A backup is
 * written as `….part` and renamed only when it is complete, synced and, with --verify, checked: a backup with its final
 * name is complete.
 */

import {
  existsSync,
  lstatSync,
  mkdirSync,
  readlinkSync,
  realpathSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join, relative, resolve } from 'node:path';
import {
  type ArchiveKind,
  archiveKindOf,
  ArchiveWriter,
  bytesOfBackup,
  type CheckFolder,
  hashFile,
  isFolder,
  type ReadOptions,
  syncFolders,
  verify,
} from '../backup/files.ts';
import {
  type BackupFacts,
  type BackupFile,
  type BackupScope,
  type CopySetup,
  type DataSize,
  type LogGap,
  MANIFEST_FILE,
  type Manifest,
  manifestText,
  parseManifest,
} from '../backup/manifest.ts';
import {
  draftOf,
  type LastBackup,
  leftoversOf,
  refuseDraft,
  refuseUnfinishedRestore,
  removeUnfinishedBackup,
  writeLastBackup,
  writeUnfinishedBackup,
} from '../backup/notes.ts';
import type { Config } from '../config/config.ts';
import { readRetentionTime } from '../clock/retention-clock.ts';
import { refuseUnreadableFolder } from '../data-folder/access.ts';
import { logFolderOf, retentionTimeFileOf } from '../data-folder/files.ts';
import { messageOf, OperatorError } from '../errors.ts';
import { refuseMigratedFolder } from '../migration/marker.ts';
import { readArguments } from './arguments.ts';
import { countOf, formatBytes, formatCount, formatSpan, localTime } from './local-time.ts';
import { readSettings } from './location.ts';
import { Progress } from './progress.ts';
import { asOperatorError, type Shell } from './shell.ts';
import { syncPath } from '../data-folder/write-durably.ts';

export interface BackupShell extends Shell {
  readonly version: string;
  /** One backup of a data folder at a time. Refuses a folder that lacks something. */
  readonly lockDataFolder: (dataFolder: string, scope: BackupScope) => { release(): void };
  /** Under the lock. Writes a consistent copy into an empty folder, file by file, and says what it holds. */
  readonly copyDataFolder: (setup: CopySetup) => Promise<BackupFacts>;
  readonly sizeOfData: (dataFolder: string, scope: BackupScope) => DataSize;
  /** Names of files that no backup holds, because Sluice does not know them. */
  readonly unknownFiles: (dataFolder: string) => string[];
  readonly checkDataFolder: CheckFolder;
  readonly freeBytesOf: (folder: string) => number;
}

/** Best-case compression ratio: the free-space check is there to fail early, not to refuse a backup that may fit. */
const COMPRESSED_SHARE_MIN = 0.1;

type Options = ReturnType<typeof readOptions>;

export async function runBackup(args: readonly string[], shell: BackupShell): Promise<number> {
  const options = readOptions(args, shell);
  try {
    return options.existing === null ? await makeBackup(options, shell) : await verifyExisting(options, shell);
  } catch (error) {
    if (shell.stop.aborted) throw new OperatorError('Stopped. Nothing was kept.');
    throw asOperatorError(error, dirname(resolve(options.to ?? options.existing ?? '')));
  }
}

/** `to` is where the new backup goes, `existing` one to check; the other one is null. */
function readOptions(args: readonly string[], shell: Shell) {
  const flags = readArguments('backup', args);
  const { mistakes } = flags;
  const config = readSettings(flags, shell.env);
  const to = flags.values.get('to') ?? null;
  const isVerify = flags.switches.has('verify');
  const [existing = null, ...more] = flags.positionals;
  flags.refuse(more);
  if (to === '') mistakes.push('--to is empty; expected a folder or a file that is not there yet');
  if (to === null && existing === null) {
    mistakes.push('no backup given; expected --to FOLDER|FILE, or --verify FOLDER|FILE for one that is there');
  }
  if (existing !== null && (to !== null || !isVerify)) {
    mistakes.push(
      `unexpected argument "${existing}"; to write it: --to ${existing}, to check it: --verify ${existing}`,
    );
  }
  if (mistakes.length > 0) throw flags.error();
  return { config, to, existing, isVerified: isVerify, json: flags.isJson };
}

async function verifyExisting({ existing, json }: Options, shell: BackupShell): Promise<number> {
  const source = existing ?? '';
  if (!existsSync(source)) throw new OperatorError(`There is no ${source}.`);
  refuseDraft(source);
  if (!isFolder(source))
    assertSpace(bytesOfBackup(source), dirname(resolve(source)), shell, 'to unpack it for the check');
  const manifest = await verifyWithProgress(source, shell);
  shell.out(
    json
      ? `${JSON.stringify({ backup: source, is_whole: true, ...summaryOf(manifest) })}\n`
      : `${source} is intact: ${contentsOf(manifest)}.\n${gapLines(manifest)}It began at ${localTime(Date.parse(manifest.began_at))}; every file, page, record and sum was checked.\n`,
  );
  return 0;
}

async function makeBackup({ config, to, isVerified, json }: Options, shell: BackupShell): Promise<number> {
  const { dataFolder } = config;
  const target = resolve(to ?? '');
  const scope = scopeOf(config);
  assertTarget(target, dataFolder);
  refuseUnreadableFolder(dataFolder);
  refuseBackupOfBackup(dataFolder);
  refuseUnfinishedRestore(dataFolder);
  if (scope === 'all') refuseMigratedFolder(dataFolder);
  const beganAt = shell.now();
  const lock = shell.lockDataFolder(dataFolder, scope);
  let manifest: Manifest;
  try {
    for (const path of removeUnfinishedBackup(dataFolder)) {
      shell.err(`Removed ${path}, which a backup that was killed had left.\n`);
    }
    manifest = await writeBackup({ target, scope, dataFolder, beganAt, isVerified }, shell);
  } finally {
    lock.release();
  }
  const bytes = bytesOfBackup(target);
  const { began_at, sluice_version } = manifest;
  const made = { began_at, target, bytes, verified: isVerified, sluice_version };
  note(shell, () => writeLastBackup(dataFolder, made));
  const unknown = shell.unknownFiles(dataFolder);
  if (json) {
    const result = { backup: target, bytes, verified: isVerified, ...summaryOf(manifest), files_left_out: unknown };
    shell.out(`${JSON.stringify(result)}\n`);
    return 0;
  }
  shell.out(report(made, manifest, shell.now() - beganAt, unknown));
  return 0;
}

/** It would be dated by the second backup, and hold what the first one has. */
function refuseBackupOfBackup(dataFolder: string): void {
  if (!existsSync(join(dataFolder, MANIFEST_FILE))) return;
  throw new OperatorError(
    `${dataFolder} is a backup and not a data folder. Copy it as it is, or restore it first: sluice restore --from ${dataFolder}`,
  );
}

/** Notes in the data folder are optional. Its disk may be full, which is when a backup is needed. */
function note({ err }: Shell, write: () => void): void {
  try {
    write();
  } catch (error) {
    const reason = messageOf(error);
    err(
      `The backup continues, but could not be noted in the data folder, so "sluice doctor" does not see it: ${reason}\n`,
    );
  }
}

interface NewBackup {
  readonly target: string;
  readonly scope: BackupScope;
  readonly dataFolder: string;
  readonly beganAt: number;
  readonly isVerified: boolean;
}

/** Under the lock. Resolves once the backup has its final name; if it rejects, nothing is left behind. */
async function writeBackup(backup: NewBackup, shell: BackupShell): Promise<Manifest> {
  const { target, scope, dataFolder, beganAt, isVerified } = backup;
  assertIsFree(target);
  const draft = draftOf(target);
  const size = shell.sizeOfData(dataFolder, scope);
  const needed = spaceFor(archiveKindOf(target), size, isVerified);
  assertSpace(needed, dirname(target), shell, `for a backup of ${formatBytes(size.bytes)}`);
  note(shell, () => writeUnfinishedBackup(dataFolder, { target, began_at: new Date(beganAt).toISOString() }));
  try {
    const manifest = await writeDraft(draft, size.bytes, backup, shell);
    if (isVerified) await verifyWithProgress(draft, shell);
    shell.stop.throwIfAborted();
    if (existsSync(target)) throw existsAlready(target);
    renameSync(draft, target);
    syncPath(dirname(target));
    return manifest;
  } catch (error) {
    // Also where the disk of the data folder was too full to note it.
    rmSync(draft, { recursive: true, force: true });
    throw error;
  } finally {
    removeUnfinishedBackup(dataFolder);
  }
}

/** Where the data is. With Kafka nothing is in the folder. */
function scopeOf({ storeUrl, logUrl }: Config): BackupScope {
  if (logUrl !== '') {
    throw new OperatorError(
      'LOG_URL is set: everything is in PostgreSQL and Kafka, and nothing in a data folder. Back up PostgreSQL with its own tools; docs/backup.md has the steps.',
    );
  }
  return storeUrl === '' ? 'all' : 'log';
}

function assertTarget(target: string, dataFolder: string): void {
  const folder = dirname(target);
  if (existsSync(target)) throw existsAlready(target);
  if (lstatSync(target, { throwIfNoEntry: false })?.isSymbolicLink()) {
    throw new OperatorError(
      `${target} is a link to ${readlinkSync(target)}, and nothing is there. Is a disk not mounted? Mount it, or choose another name.`,
    );
  }
  if (target.endsWith(draftOf(''))) {
    throw new OperatorError(
      `${target} is what an unfinished backup is called. Choose a name without ${draftOf('')} at its end.`,
    );
  }
  if (!existsSync(folder)) {
    throw new OperatorError(
      `There is no folder ${folder} for ${basename(target)} yet. Create it first: mkdir -p "${folder}"`,
    );
  }
  // Whatever links lead there. The log may be a link to another disk.
  const path = join(realpathSync(folder), basename(target));
  const roots = [dataFolder, logFolderOf(dataFolder)]
    .filter((root) => existsSync(root))
    .map((root) => realpathSync(root));
  if (roots.some((root) => !relative(root, path).startsWith('..'))) {
    throw new OperatorError(
      `${target} is in the data folder, where the next backup would have to copy it, and is lost together with it. Choose another disk, or at least another folder.`,
    );
  }
}

/** What a backup of this folder left is removed by now. */
function assertIsFree(target: string): void {
  const [path] = leftoversOf(target);
  if (path === undefined) return;
  throw new OperatorError(
    `${path} exists already: a backup of another data folder to the same name is running, or was killed. Choose another name, or, if none is running, remove it: rm -r "${path}"`,
  );
}

function existsAlready(target: string): OperatorError {
  return new OperatorError(
    `${target} exists already. Give every backup a new name: $(date +%Y-%m-%d-%H%M) in it is the time.`,
  );
}

/** An archive takes a file after the other, so one of them is there twice. A check unpacks an archive. */
function spaceFor(kind: ArchiveKind | undefined, { bytes, largestBytes }: DataSize, isVerified: boolean): number {
  if (kind === undefined) return bytes;
  const archiveBytes = kind === 'tar' ? bytes : bytes * COMPRESSED_SHARE_MIN;
  return archiveBytes + (isVerified ? bytes : largestBytes);
}

export function assertSpace(
  bytes: number,
  folder: string,
  { freeBytesOf }: Pick<BackupShell, 'freeBytesOf'>,
  purpose: string,
): void {
  const free = freeBytesOf(folder);
  if (free >= bytes) return;
  throw new OperatorError(
    `There is too little space on the disk of ${folder}: ${formatBytes(free)} are free, and about ${formatBytes(bytes)} are needed ${purpose}. Free some, or choose another disk.`,
  );
}

/** Whole and synced when it resolves. */
async function writeDraft(
  draft: string,
  totalBytes: number,
  { target, scope, dataFolder, beganAt }: NewBackup,
  shell: BackupShell,
): Promise<Manifest> {
  const kind = archiveKindOf(target);
  const into = kind === undefined ? draft : `${draft}.files`;
  mkdirSync(into, { mode: 0o700 });
  // Also aborted when copying fails, so that the archive is not waited for.
  const failing = new AbortController();
  const stop = AbortSignal.any([shell.stop, failing.signal]);
  const archive = kind === undefined ? undefined : new ArchiveWriter(draft, kind, stop);
  const progress = new Progress('backup', 'file', shell);
  const files: BackupFile[] = [];
  let done = 0;
  // Every byte is copied, then hashed or put into the archive.
  const onBytes = (bytes: number): void => {
    done += bytes;
    progress.show({ count: files.length, bytes: done / 2, done, total: 2 * totalBytes });
  };
  try {
    const onFile = async (path: string): Promise<void> => {
      if (archive === undefined) {
        syncPath(join(into, path));
        files.push(await hashFile(into, path, { stop, onBytes }));
      } else {
        files.push(await archive.addFile(into, path, { stop, onBytes }));
        rmSync(join(into, path));
      }
    };
    const facts = await shell.copyDataFolder({ dataFolder, scope, into, stop: shell.stop, onBytes, onFile });
    const retentionAt = Math.min(beganAt, readRetentionTime(retentionTimeFileOf(dataFolder)) ?? beganAt);
    const text = manifestText({
      sluice_version: shell.version,
      scope,
      began_at: new Date(beganAt).toISOString(),
      finished_at: new Date(shell.now()).toISOString(),
      ...(scope === 'all' && { retention_at: new Date(retentionAt).toISOString() }),
      ...facts,
      files,
    });
    if (archive === undefined) {
      syncFolders(into, files);
      writeFileSync(join(into, MANIFEST_FILE), text, { mode: 0o600, flush: true });
      syncPath(into);
    } else {
      await archive.add(MANIFEST_FILE, Buffer.byteLength(text), shell.now(), [Buffer.from(text)]);
      await archive.finish();
      rmSync(into, { recursive: true });
    }
    return parseManifest(text, draft);
  } catch (error) {
    failing.abort();
    await archive?.closed();
    throw error;
  } finally {
    progress.end();
  }
}

function verifyWithProgress(source: string, shell: BackupShell): Promise<Manifest> {
  return withProgress('check', bytesOfBackup(source), shell, (options) =>
    verify(source, shell.checkDataFolder, options),
  );
}

export async function withProgress<T>(
  title: string,
  total: number | null,
  shell: Shell,
  work: (options: ReadOptions) => Promise<T>,
): Promise<T> {
  const progress = new Progress(title, 'file', shell);
  let [count, bytes] = [0, 0];
  const show = (note?: string): void =>
    progress.show({ count, bytes, done: bytes, total, ...(note !== undefined && { note }) });
  const onBytes = (more: number): void => {
    bytes += more;
    show();
  };
  const onFile = (path?: string): void => {
    count += 1;
    show(path);
  };
  try {
    return await work({ stop: shell.stop, onBytes, onFile });
  } finally {
    progress.end();
  }
}

function report(
  { target, bytes, verified }: LastBackup,
  manifest: Manifest,
  spanMs: number,
  unknown: readonly string[],
): string {
  const checked = verified ? 'Verified: the backup is intact.' : `To check it: sluice backup --verify ${target}`;
  const database =
    manifest.scope === 'log'
      ? 'PostgreSQL is not part of it: dump the database BEFORE each backup of the log, never after (docs/backup.md).\n'
      : '';
  const leftOut = unknown.length === 0 ? '' : `Not included (not Sluice files): ${unknown.join(', ')}\n`;
  return `${target} (${formatBytes(bytes)}, ${countOf(manifest.files.length, 'file')}, ${formatSpan(spanMs)}) holds ${contentsOf(manifest)}.
${gapLines(manifest)}${checked}
${database}${leftOut}It holds personal data and hashes of keys and passwords: keep it as safe as the data folder.
`;
}

export function contentsOf({ log, store, keys }: Pick<Manifest, 'log' | 'store' | 'keys'>): string {
  const pending = pendingRecords({ log, store });
  const parts = [
    ...(store === null ? [] : [countOf(store.events.stored, 'event')]),
    ...(keys === null ? [] : [countOf(keys.keys, 'key'), countOf(keys.members, 'member')]),
    `a log of ${countOf(log.records, 'request')}`,
  ];
  const waiting =
    pending === 0 ? '' : `, of which ${formatCount(pending)} ${pending === 1 ? 'waits' : 'wait'} to be processed`;
  return `${parts.join(', ')}${store === null ? '' : waiting}`;
}

/** In the log, and not in the store. What the log has lost does not wait. */
export function pendingRecords({ log, store }: Pick<Manifest, 'log' | 'store'>): number {
  const position = store?.position ?? 0;
  return (log.gaps ?? []).reduce((rest, gap) => rest - countFrom(position, gap), countFrom(position, log));
}

/**
 * One line for each range of positions that the log has lost and knows of, and one for what the store lacks besides: of
 * that the log has no trace left.
 */
export function gapLines({ log, store, files }: Pick<Manifest, 'log' | 'store' | 'files'>): string {
  const warned = files.some(({ path }) => path === 'log-warnings')
    ? 'Warnings of earlier starts are in log-warnings, which is part of it; "sluice doctor" shows them.\n'
    : '';
  const lost = store?.lost ?? [];
  let lostElsewhere = lost.reduce((sum, { records }) => sum + records, 0);
  const lines = (log.gaps ?? [])
    .map((gap) => {
      const count = countFrom(0, gap);
      const passed = lost.reduce((sum, range) => sum + Math.min(range.records, overlapOf(gap, range)), 0);
      lostElsewhere -= passed;
      const unprocessed = Math.min(count, countFrom(store?.position ?? 0, gap) + passed);
      const last = gap.next_position - 1;
      const where = count === 1 ? `position ${last}` : `positions ${gap.first_position} to ${last}`;
      const became =
        unprocessed === 0
          ? 'all of them are in the store'
          : `${formatCount(unprocessed)} of them ${unprocessed === 1 ? 'is' : 'are'} in neither the log nor the store`;
      return `The log has a known gap of ${countOf(count, 'request')} (${where})${store === null ? '' : `; ${became}`}.\n`;
    })
    .join('');
  if (lostElsewhere <= 0) return lines + warned;
  return `${lines}${warned}The store lacks ${countOf(lostElsewhere, 'request')} that ${lostElsewhere === 1 ? 'was' : 'were'} given up or no longer in the log when it was created (lost_records of GET /ledger).\n`;
}

function overlapOf(one: LogGap, other: LogGap): number {
  const first_position = Math.max(one.first_position, other.first_position);
  return countFrom(0, { first_position, next_position: Math.min(one.next_position, other.next_position) });
}

function countFrom(position: number, { first_position, next_position }: LogGap): number {
  return Math.max(0, next_position - Math.max(first_position, position));
}

function summaryOf(manifest: Manifest): object {
  const { began_at, finished_at, scope, sluice_version, installation, log, store, keys, files } = manifest;
  return { installation, began_at, finished_at, scope, sluice_version, files: files.length, log, store, keys };
}
