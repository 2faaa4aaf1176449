/**
 * Copies an embedded installation, beside a running server or without one, so that the copy is consistent: a server
 * started on it stores everything that was acknowledged before the copy began, once.
 *
 * Each database is copied from one read transaction through SQLite's backup API. Without the transaction, writers in
 * other processes would make the copy start over; with it, the write-ahead log grows meanwhile. The order matters:
 * store, log, keys. The store's position is in its copy; the log is copied later, so it reaches at
 * least as far, and the rest of it is processed after a restore. Keys come last, so that every tenant in the log has
 * its account. Retention removes no segment meanwhile (`folder-lock.ts`).
 *
 * A missing or damaged file is an error: a backup never silently omits data.
 */

import { chmodSync, closeSync, existsSync, openSync, readdirSync, statSync } from 'node:fs';
import { copyFile } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { backup, DatabaseSync } from 'node:sqlite';
import { setImmediate } from 'node:timers/promises';
import { makePrivateFolder } from '../../../backup/files.ts';
import {
  type BackupFacts,
  type BackupScope,
  type CopySetup,
  type DataSize,
  isBackupPath,
  type LogFacts,
} from '../../../backup/manifest.ts';
import { keyFileOf, logFolderOf, storeFileOf } from '../../../data-folder/files.ts';
import { OperatorError } from '../../../errors.ts';
import { LogCorruptError, LogUnavailableError } from '../../../log.ts';
import { positionsText } from '../../../log/continuity.ts';
import { assertLogReaches, type CountedSegment, countRecords, keyFacts, logFactsOf, storeFacts } from './facts.ts';
import { BUSY_TIMEOUT_MS, isDamage, refuseForeignWal } from '../database.ts';
import { canWrite, isFullDisk } from '../disk.ts';
import { type Lock, lockForBackup, lockHolderOf } from '../folder-lock.ts';
import { readLogInstallation, wasUsedByServer } from '../installation.ts';
import { findLogName, isEndUnknown, readLogEnd, unknownEndText } from '../log/ends.ts';
import { recoverSegment } from '../log/recovery.ts';
import { MissingPositionsError, type Stretch } from '../log/segment-reader.ts';
import { gapAdvice, hasWal, holdsRecords, listSegments, type Segment, segmentBytes } from '../log/segments.ts';
import { noteLogWarning } from '../log/warnings.ts';

/** 8 MB: large enough to be fast, small enough to stop soon. */
const PAGES_PER_STEP = 1_024;
const ATTEMPTS_MAX = 3;

/** Files that a server or another command recreates by itself. */
const TRANSIENT =
  /^(lock\.db|log-(ends|name)(\..*)?|retention-time|server\.(pid|url)|backup(-unfinished)?\.json|backup-manifest\.json|log)$|(-wal|-shm|-journal|\.draft)$/;
const TRANSIENT_IN_LOG = /^(backup-lock\.db|name\..*)$|(-wal|-shm|-journal|\.draft)$/;

/** Files in the data folder that no backup contains, because they are not Sluice's. */
export function unknownFiles(dataFolder: string): string[] {
  const inLog = readdirSync(logFolderOf(dataFolder)).filter((name) => !TRANSIENT_IN_LOG.test(name));
  return [
    ...readdirSync(dataFolder).filter((name) => !TRANSIENT.test(name)),
    ...inLog.map((name) => `log/${name}`),
  ].filter((path) => !isBackupPath(path));
}

export function sizeOfData(dataFolder: string, scope: BackupScope): DataSize {
  const sizes = listSegments(logFolderOf(dataFolder)).map(({ file }) => segmentBytes(file));
  if (scope === 'all') sizes.push(segmentBytes(storeFileOf(dataFolder)), segmentBytes(keyFileOf(dataFolder)));
  return { bytes: sizes.reduce((sum, size) => sum + size, 0), largestBytes: Math.max(0, ...sizes) };
}

/** Held from before a backup begins until it has its name. Refuses an incomplete folder. */
export function lockDataFolder(dataFolder: string, scope: BackupScope): Lock {
  assertComplete(dataFolder, scope);
  return lockForBackup(logFolderOf(dataFolder));
}

/** Requires the lock. */
export async function copyDataFolder(setup: CopySetup): Promise<BackupFacts> {
  try {
    return await copyInOrder(setup);
  } catch (error) {
    throw asOperatorError(error, setup);
  }
}

function assertComplete(dataFolder: string, scope: BackupScope): void {
  const logFolder = logFolderOf(dataFolder);
  const needed = scope === 'all' ? [logFolder, storeFileOf(dataFolder), keyFileOf(dataFolder)] : [logFolder];
  const missing = needed.filter((path) => !existsSync(path)).map((path) => resolve(path));
  if (missing.length === 0 && listSegments(logFolder).length === 0)
    missing.push(`every segment of ${resolve(logFolder)}`);
  if (missing.length === 0) return;
  throw new OperatorError(
    `Nothing was backed up: ${missing.join(' and ')} ${missing.length > 1 ? 'are' : 'is'} missing. Is this the data folder of a server (--data)? If it is, "sluice doctor" says what to do.`,
  );
}

async function copyInOrder(setup: CopySetup): Promise<BackupFacts> {
  const { dataFolder, into, scope } = setup;
  const logFolder = logFolderOf(dataFolder);
  let store: BackupFacts['store'] = null;
  if (scope === 'all') {
    await copyDatabase('store.db', setup);
    store = storeFacts(storeFileOf(into));
    await setup.onFile('store.db');
  }
  for (const path of ['log/name', 'log/installation', 'migrated.json']) {
    if (!existsSync(join(dataFolder, path))) continue;
    await copyPlain(path, setup);
    await setup.onFile(path);
  }
  // A running server has reported what its start found.
  const isUnknown =
    !lockHolderOf(dataFolder).isHeld && isEndUnknown(logFolder, store?.position ?? 0, wasUsedByServer(dataFolder));
  const log = await copyLog(setup);
  // After the log: a start that lost part of it has noted that before.
  if (existsSync(join(dataFolder, 'log-warnings'))) await copyPlain('log-warnings', setup);
  // No start has noted it, and a restore notes the end that the copy has.
  if (isUnknown) noteLogWarning(logFolderOf(into), `${unknownEndText(logFolder)}; so it was when it was backed up`);
  if (existsSync(join(into, 'log-warnings'))) await setup.onFile('log-warnings');
  let keys: BackupFacts['keys'] = null;
  if (scope === 'all') {
    await copyDatabase('keys.db', setup);
    keys = keyFacts(keyFileOf(into));
    await setup.onFile('keys.db');
  }
  const installation = readLogInstallation(logFolder) ?? null;
  const facts = { installation, log, store, keys };
  assertLogReaches(facts, resolve(dataFolder));
  return facts;
}

/**
 * Newest first: a server may have decided to remove segments just before the backup began, and it removes the oldest
 * first. So if one is gone, all before it are, and the copy has no gap.
 */
async function copyLog(setup: CopySetup): Promise<LogFacts> {
  const { dataFolder, into, stop } = setup;
  const logFolder = logFolderOf(dataFolder);
  // Read before the log is copied, so that the log must reach as far: acknowledged records that are missing were lost
  // before.
  const acknowledged = readLogEnd(logFolder);
  const segments = listSegments(logFolder);
  const logName = findLogName(logFolder);
  const copied: CountedSegment[] = [];
  for (let index = segments.length - 1; index >= 0; index -= 1) {
    stop.throwIfAborted();
    const segment = segments[index] as Segment;
    const path = `log/${basename(segment.file)}`;
    if (!(await copySegment(path, segment, setup))) break;
    const copy = { ...segment, file: join(into, path) };
    const whole = { segment: copy, logName, until: segments[index + 1]?.firstPosition };
    const records = await inSource(copy.file, segment.file, () =>
      countRecords(whole, stop).catch((error: unknown) => {
        throw asGap(error, whole, logFolder);
      }),
    );
    copied.unshift({ ...segment, records });
    await setup.onFile(path);
  }
  const facts = logFactsOf(copied);
  if (facts.next_position >= acknowledged) return facts;
  throw new OperatorError(
    `The log in ${resolve(logFolder)} has lost its end: it ends at position ${facts.next_position}, and requests up to ${acknowledged} were acknowledged. Ask "sluice doctor" what to do before you back it up.`,
  );
}

/** If a segment ends before the next one begins, it may be complete, and the one between them gone. */
function asGap(error: unknown, { segment, until }: Omit<Stretch, 'from'>, logFolder: string): unknown {
  const cause = error instanceof OperatorError ? error.cause : undefined;
  if (!(cause instanceof MissingPositionsError) || cause.to !== until || cause.from === segment.firstPosition)
    return error;
  const { from, to } = cause;
  const noun = to - from === 1 ? 'record' : 'records';
  const advice = gapAdvice(logFolder, { position: from, isMarked: false });
  return new OperatorError(`The log has lost the ${noun} at ${positionsText(from, to)}. ${advice}`, { cause });
}

/** False if it no longer exists. */
async function copySegment(path: string, segment: Segment, setup: CopySetup): Promise<boolean> {
  const { file } = segment;
  // Only its name matters; a segment that an operator gave up may be damaged.
  const isMark = !holdsRecords(segment);
  // A running server has checked the segments of earlier ones, and tracks the end of its own.
  if (!isMark && hasWal(file) && !lockHolderOf(setup.dataFolder).isHeld) assertRecoverable(file, setup);
  for (let attempts = 1; ; attempts += 1) {
    const before = statSync(file, { throwIfNoEntry: false });
    if (before === undefined) return false;
    if (!isMark && hasWal(file)) {
      if (await ifThere(file, () => copyDatabase(path, setup))) return true;
    } else {
      // Sealed, so it never changes again; or so new that it is empty, and then it may change.
      const isCopied = await ifThere(file, () => copyPlain(path, setup));
      const after = statSync(file, { throwIfNoEntry: false });
      const isSame = after?.size === before.size && after.mtimeMs === before.mtimeMs && (isMark || !hasWal(file));
      if (isCopied && isSame) return true;
    }
    if (attempts === ATTEMPTS_MAX) throw new OperatorError(`The log segment ${file} changes while it is copied.`);
  }
}

/** As at start. A server that starts meanwhile checks it itself, and may have sealed the segment. */
function assertRecoverable(file: string, { dataFolder }: CopySetup): void {
  try {
    recoverSegment(file);
  } catch (error) {
    if (!lockHolderOf(dataFolder).isHeld) throw error;
  }
}

async function ifThere(file: string, copy: () => Promise<void>): Promise<boolean> {
  try {
    await copy();
    return true;
  } catch (error) {
    if (existsSync(file)) throw error;
    return false;
  }
}

async function copyDatabase(path: string, { dataFolder, into, stop, onBytes }: CopySetup): Promise<void> {
  const [source, target] = [join(dataFolder, path), join(into, path)];
  makePrivateFolder(dirname(target));
  // Truncated too: an earlier attempt may have left something.
  closeSync(openSync(target, 'w', 0o600));
  try {
    refuseForeignWal({ file: source, name: 'database' });
    using database = new DatabaseSync(source, { readOnly: true, timeout: BUSY_TIMEOUT_MS });
    database.exec('BEGIN');
    // The transaction begins with the first read.
    database.prepare('SELECT count(*) FROM sqlite_schema').get();
    const pageBytes = Number(database.prepare('PRAGMA page_size').get()?.['page_size']);
    let pagesBefore = 0;
    const advance = (pages: number): void => {
      onBytes((pages - pagesBefore) * pageBytes);
      pagesBefore = pages;
    };
    const pages = await backup(database, target, {
      rate: PAGES_PER_STEP,
      progress: ({ totalPages, remainingPages }) => {
        stop.throwIfAborted();
        advance(totalPages - remainingPages);
      },
    });
    advance(pages);
  } catch (error) {
    if (isDamage(error)) throw notBackedUp(`${resolve(source)} is damaged: ${(error as Error).message}.`, error);
    throw error;
  }
}

async function copyPlain(path: string, { dataFolder, into, onBytes }: CopySetup): Promise<void> {
  const target = join(into, path);
  makePrivateFolder(dirname(target));
  await copyFile(join(dataFolder, path), target);
  chmodSync(target, 0o600);
  onBytes(statSync(target).size);
}

/** Damage in the copy was in the original. */
async function inSource<T>(copy: string, source: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof OperatorError)) throw error;
    throw notBackedUp(error.message.replaceAll(copy, resolve(source)), error);
  } finally {
    await setImmediate();
  }
}

function notBackedUp(message: string, cause: unknown): OperatorError {
  const next = 'Nothing was backed up; keep the backups that you have. "sluice doctor" says what to do.';
  return new OperatorError(`${message} ${next}`, { cause });
}

function asOperatorError(error: unknown, { dataFolder, into }: CopySetup): unknown {
  if (error instanceof LogCorruptError || error instanceof LogUnavailableError) {
    return notBackedUp(error.message, error);
  }
  if (!isFullDisk(error)) return error;
  // To read a database, SQLite may create a small file beside it.
  if (canWrite(into)) {
    return new OperatorError(
      `The disk of ${resolve(dataFolder)} is full, and a few kilobytes are needed there to read the data. Free some space there; then run it again.`,
      { cause: error },
    );
  }
  const message = `The disk of ${dirname(resolve(into))} is full. Free some space there, or choose another place.`;
  return new OperatorError(message, { cause: error });
}
