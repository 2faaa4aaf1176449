/**
 * Copies an embedded installation, with a running server or without one, so that the copy is consistent: a server
 * started on it stores everything that was acknowledged before the copy began, once. The order matters: store, log, keys.
 * The log is copied after the store, so it reaches at least as far as the position in it, and the rest is processed after a
 * restore; keys come last, so that every tenant in the log has its account. Retention removes no segment meanwhile
 * (`../folder-lock.ts`). A missing or damaged file is an error: a backup never silently omits data. Also counts what is
 * in a copy, for the manifest, and checks a copy.
 */

import { chmodSync, closeSync, existsSync, mkdirSync, openSync, readdirSync, statSync, truncateSync } from 'node:fs';
import { copyFile } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { backup, DatabaseSync } from 'node:sqlite';
import { setImmediate } from 'node:timers/promises';
import type { CheckFolder } from '../../../backup/files.ts';
import {
  type BackupFacts,
  type BackupScope,
  type CopySetup,
  type DataSize,
  isBackupPath,
  type KeyFacts,
  type LedgerSums,
  type LogFacts,
  type LostRecords,
  type StoreFacts,
} from '../../../backup/manifest.ts';
import { keyFileOf, logFolderOf, sizeOfFile, storeFileOf } from '../../../data-folder/files.ts';
import { messageOf, OperatorError } from '../../../errors.ts';
import { LogCorruptError, LogUnavailableError } from '../../../log.ts';
import { positionsText } from '../../../log/continuity.ts';
import { sqliteCodeOf } from '../../../runtime/sqlite-errors.ts';
import { brokenLinksIn } from '../checkup.ts';
import { BUSY_TIMEOUT_MS, damageIn, isDamage, refuseForeignWal, textsIn } from '../database.ts';
import { canWrite, isFullDisk } from '../disk.ts';
import { type Lock, lockForBackup, lockHolderOf } from '../folder-lock.ts';
import { readLogInstallation, wasUsedByServer } from '../installation.ts';
import { readAcknowledgedEnd } from '../log/ends.ts';
import { inspectSegment, isEndUnknown, newestRecordBefore, unknownEndText } from '../log/recovery.ts';
import { findLogName } from '../log/name.ts';
import {
  findEnd,
  MissingPositionsError,
  readRecords,
  SegmentCache,
  type SegmentRange,
  UNBOUNDED,
} from '../log/segment-reader.ts';
import { gapAdvice, holdsRecords, listSegments, type Segment } from '../log/segments.ts';
import { noteLogWarning } from '../log/warnings.ts';
import { readDifference } from '../../sql/ledger.ts';
import { StoreConnection } from '../store/connection.ts';
import { recount } from '../store/stored-events.ts';
import { openImmutable } from '../wal-chain.ts';

/** 8 MB: large enough to be fast, small enough to stop soon. */
const PAGES_PER_STEP = 1_024;
const READ_BYTES = 4 * 1024 * 1024;
const FINDINGS_MAX = 3;

/** Files that a server or another command recreates by itself. */
const TRANSIENT =
  /^(lock\.db|log-ends|retention-time|server\.(pid|url)|backup(-unfinished)?\.json|backup-manifest\.json|log)$|(-wal|-shm|-journal|\.draft)$/;
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
  const sizes = listSegments(logFolderOf(dataFolder)).map(({ file }) => sizeOfFile(file));
  for (const file of scope === 'all' ? [storeFileOf(dataFolder), keyFileOf(dataFolder)] : []) {
    sizes.push(sizeOfFile(file) + sizeOfFile(`${file}-wal`));
  }
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
  const store = scope === 'all' ? await copyDatabase('store.db', setup, storeFacts) : null;
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
  const keys = scope === 'all' ? await copyDatabase('keys.db', setup, keyFacts) : null;
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
  const { dataFolder, stop } = setup;
  const logFolder = logFolderOf(dataFolder);
  // Read before the log is copied, so that the log must reach as far: acknowledged records that are missing were lost
  // before.
  const acknowledged = readAcknowledgedEnd(logFolder);
  const segments = listSegments(logFolder);
  const logName = findLogName(logFolder);
  const copied: CountedSegment[] = [];
  for (let index = segments.length - 1; index >= 0; index -= 1) {
    stop.throwIfAborted();
    const segment = segments[index] as Segment;
    const next = segments[index + 1];
    const copy = await copySegment(segment, next === undefined, setup);
    if (copy === undefined) break;
    const whole = { segment: copy, logName, until: next?.firstPosition, next: undefined, ...UNBOUNDED };
    const records = await inSource(copy.file, segment.file, () =>
      countRecords(whole, stop).catch((error: unknown) => {
        throw asGap(error, whole, logFolder);
      }),
    );
    copied.unshift({ ...segment, records });
    await setup.onFile(`log/${basename(copy.file)}`);
  }
  const facts = logFactsOf(copied);
  if (facts.next_position >= acknowledged) return facts;
  throw new OperatorError(
    `The log in ${resolve(logFolder)} has lost its end: it ends at position ${facts.next_position}, and requests up to ${acknowledged} were acknowledged. Ask "sluice doctor" what to do before you back it up.`,
  );
}

/** If a segment ends before the next one begins, it may be complete, and the one between them gone. */
function asGap(error: unknown, { segment, until }: Omit<SegmentRange, 'from'>, logFolder: string): unknown {
  const cause = error instanceof OperatorError ? error.cause : undefined;
  if (!(cause instanceof MissingPositionsError) || cause.to !== until || cause.from === segment.firstPosition)
    return error;
  const { from, to } = cause;
  const noun = to - from === 1 ? 'record' : 'records';
  const advice = gapAdvice(logFolder, { position: from, isMarked: false });
  return new OperatorError(`The log has lost the ${noun} at ${positionsText(from, to)}. ${advice}`, { cause });
}

/** The copy; undefined if the segment no longer exists. */
async function copySegment(segment: Segment, isNewest: boolean, setup: CopySetup): Promise<Segment | undefined> {
  const isChecked = isNewest && holdsRecords(segment);
  // A running server has checked the segments of earlier ones, and tracks the end of its own.
  if (isChecked && !lockHolderOf(setup.dataFolder).isHeld) assertRecoverable(segment, setup);
  // The server may just have compressed it.
  for (const source of [segment, { ...segment, file: `${segment.file}.zst`, isCompressed: true }]) {
    const path = `log/${basename(source.file)}`;
    if (!(await ifThere(source.file, () => copyPlain(path, setup)))) continue;
    const copy = { ...source, file: join(setup.into, path) };
    // Without the commit that was being written.
    const end = isChecked ? findEnd(copy)?.bytes : undefined;
    if (end !== undefined) truncateSync(copy.file, end);
    return copy;
  }
  return undefined;
}

/** As at start. A server that starts meanwhile checks it itself. */
function assertRecoverable(segment: Segment, { dataFolder }: CopySetup): void {
  try {
    inspectSegment(segment);
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

/**
 * From one read transaction. Without it, writers in other processes would make the copy start over; with it, the
 * write-ahead log grows meanwhile.
 */
async function copyDatabase<Facts>(
  name: string,
  { dataFolder, into, stop, onBytes, onFile }: CopySetup,
  factsOf: (database: DatabaseSync) => Facts,
): Promise<Facts> {
  const [source, target] = [join(dataFolder, name), join(into, name)];
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
  const facts = inDatabase(target, factsOf);
  await onFile(name);
  return facts;
}

async function copyPlain(path: string, { dataFolder, into, onBytes }: CopySetup): Promise<void> {
  const target = join(into, path);
  mkdirSync(dirname(target), { recursive: true, mode: 0o700 });
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
  // To read a database, SQLite may create a small file next to it.
  if (canWrite(into)) {
    return new OperatorError(
      `The disk of ${resolve(dataFolder)} is full, and a few kilobytes are needed there to read the data. Free some space there; then run it again.`,
      { cause: error },
    );
  }
  const message = `The disk of ${dirname(resolve(into))} is full. Free some space there, or choose another place.`;
  return new OperatorError(message, { cause: error });
}

/**
 * Counts what is in the files of a folder at rest, as in its manifest, and checks all of it: every page of every database
 * is intact, every record of the log has the checksum that it was written with and follows the one before, every stored
 * event has its record, every event is accounted for in the ledger, and the log reaches at least as far as the store. A
 * failed check is an `OperatorError` that names the file. Files are opened as immutable, so nothing is written next to
 * them and a read-only disk will do. `onFile` is called with the name of the file that is checked next.
 */
export const checkDataFolder: CheckFolder = async (folder, scope, { stop, onFile }) => {
  let [store, keys]: [StoreFacts | null, KeyFacts | null] = [null, null];
  const logFolder = logFolderOf(folder);
  if (scope === 'all') {
    onFile('store.db');
    store = inDatabase(storeFileOf(folder), (database, file) => {
      refuseDamage(file, damageIn(database, FINDINGS_MAX));
      refuseDamage(file, brokenLinksIn(database, FINDINGS_MAX));
      assertAccountedFor(database, file);
      return storeFacts(database);
    });
    await setImmediate();
    onFile('keys.db');
    keys = inDatabase(keyFileOf(folder), (database, file) => {
      refuseDamage(file, damageIn(database, FINDINGS_MAX));
      return keyFacts(database);
    });
  }
  const segments = listSegments(logFolder);
  const counted: CountedSegment[] = [];
  for (const [index, segment] of segments.entries()) {
    stop.throwIfAborted();
    onFile('log');
    const next = segments[index + 1];
    const range = { segment, logName: findLogName(logFolder), until: next?.firstPosition, next, ...UNBOUNDED };
    const records = await countRecords(range, stop);
    counted.push({ ...segment, records });
  }
  const log = logFactsOf(counted);
  if (store !== null) assertContinues(folder, store.position, segments);
  const installation = readLogInstallation(logFolder) ?? null;
  if (scope === 'all') assertBelongTogether(folder, installation);
  const facts = { installation, log, store, keys };
  assertLogReaches(facts, folder);
  return facts;
};

function storeFacts(database: DatabaseSync): StoreFacts {
  const sums = (noun: 'users' | 'events'): LedgerSums => {
    const sql = ['received', 'stored', 'duplicates', 'erased', 'expired', 'failed']
      .map((name) => `coalesce(sum(${noun}_${name === 'failed' ? 'dead_letters' : name}), 0) AS ${name}`)
      .join(', ');
    return { ...database.prepare(`SELECT ${sql} FROM ledger`).get() } as unknown as LedgerSums;
  };
  const [position = 0] = textsIn(database, 'SELECT position FROM positions WHERE partition = 0').map(Number);
  const [tenants = 0] = textsIn(database, 'SELECT count(*) FROM tenants').map(Number);
  const facts = { position, tenants, users: sums('users'), events: sums('events') };
  const lost = database
    .prepare('SELECT first_position, next_position, records FROM lost_records ORDER BY first_position')
    .all()
    .map((row) => Object.assign({}, row) as unknown as LostRecords);
  return lost.length === 0 ? facts : { ...facts, lost };
}

function keyFacts(database: DatabaseSync): KeyFacts {
  const sql = ['accounts', 'keys', 'members'].map((table) => `(SELECT count(*) FROM ${table}) AS ${table}`).join(', ');
  return { ...database.prepare(`SELECT ${sql}`).get() } as unknown as KeyFacts;
}

interface CountedSegment extends Segment {
  readonly records: number;
}

/** For segments in order of position. */
function logFactsOf(segments: readonly CountedSegment[]): LogFacts {
  const records = segments.reduce((sum, segment) => sum + segment.records, 0);
  const first = segments[0]?.firstPosition ?? 1;
  const last = segments.at(-1);
  const gaps = segments.flatMap(({ state, firstPosition }, index) => {
    const next = segments[index + 1]?.firstPosition ?? firstPosition;
    return (state === 'lost' || state === 'missing') && next > firstPosition
      ? [{ first_position: firstPosition, next_position: next }]
      : [];
  });
  const facts = { first_position: first, next_position: (last?.firstPosition ?? 1) + (last?.records ?? 0), records };
  return gaps.length === 0 ? facts : { ...facts, gaps };
}

/**
 * Reads every record of a segment with its checksum. Throws if one is damaged or missing, or the segment is of another
 * log.
 */
async function countRecords(whole: Omit<SegmentRange, 'from'>, stop: AbortSignal): Promise<number> {
  const { segment } = whole;
  if (!holdsRecords(segment)) return 0;
  let from = segment.firstPosition;
  const cache = new SegmentCache();
  try {
    for (;;) {
      const { records, isEnd } = readRecords({ ...whole, from }, READ_BYTES, cache);
      from += records.length;
      if (isEnd) return from - segment.firstPosition;
      if (records.length === 0) throw new LogCorruptError(`The log segment ${segment.file} has no position ${from}.`);
      // Reading blocks: let signals be handled here.
      await setImmediate();
      stop.throwIfAborted();
    }
  } catch (error) {
    if (!(error instanceof LogCorruptError) && !(error instanceof LogUnavailableError)) throw error;
    throw new OperatorError(error.message, { cause: error });
  }
}

/** A log that ends before the store's position, or begins after it, would lose events or use positions twice. */
function assertLogReaches({ log, store }: BackupFacts, folder: string): void {
  if (store === null) return;
  const { first_position: first, next_position: next } = log;
  if (first <= Math.max(1, store.position) && store.position <= next) return;
  throw new OperatorError(
    `The log and the store in ${folder} do not belong together: the store has processed the log up to position ${store.position}, and its log holds positions ${first} to ${next}. Start the server on the data folder, or ask "sluice doctor" what is wrong.`,
  );
}

/** The record before the position of the store is the last one that it processed (`log/continuity.ts`). */
function assertContinues(folder: string, position: number, segments: readonly Segment[]): void {
  const storeFile = storeFileOf(folder);
  const [processed] = inDatabase(storeFile, (store) =>
    textsIn(store, 'SELECT last_trace_id FROM positions WHERE partition = 0 AND last_trace_id IS NOT NULL'),
  );
  const found = newestRecordBefore(logFolderOf(folder), position);
  // Another check reports a log that does not reach as far.
  if (processed === undefined || found?.position !== position - 1 || found.traceId === processed) return;
  const segment = segments.findLast(({ firstPosition }) => firstPosition < position);
  throw new OperatorError(
    `${segment?.file} and ${storeFile} do not belong together: at position ${found.position} the log has the request ${found.traceId}, and the store has processed ${processed}.`,
  );
}

/** A server refuses to start on parts of different installations. */
function assertBelongTogether(folder: string, installation: string | null): void {
  for (const file of [storeFileOf(folder), keyFileOf(folder)]) {
    const [found] = inDatabase(file, (database) => textsIn(database, 'SELECT installation FROM belongs_to'));
    if (found === undefined || installation === null || found === installation) continue;
    throw new OperatorError(`${file} is of the installation ${found}, and the log next to it of ${installation}.`);
  }
}

/** Opens the file as immutable. */
function inDatabase<T>(file: string, work: (database: DatabaseSync, file: string) => T): T {
  if (!existsSync(file)) throw new OperatorError(`${file} is missing.`);
  try {
    using database = openImmutable(file);
    return work(database, file);
  } catch (error) {
    if (sqliteCodeOf(error) === undefined) throw error;
    const what = isDamage(error) ? 'is damaged' : 'cannot be read by this version of Sluice';
    throw new OperatorError(`${file} ${what}: ${messageOf(error)}.`, { cause: error });
  }
}

function refuseDamage(file: string, findings: readonly string[]): void {
  if (findings.length > 0) throw new OperatorError(`${file} is damaged: ${findings.join('; ')}.`);
}

/** Checks every hour, and counts the events themselves. */
function assertAccountedFor(database: DatabaseSync, file: string): void {
  const store = new StoreConnection(database);
  const { users, events } = store.steps((tables) => readDifference(tables));
  if (users > 0 || events > 0) {
    throw new OperatorError(
      `The ledger in ${file} does not account for all ${events > 0 ? 'events' : 'users'}: it is out by ${users} users and ${events} events.`,
    );
  }
  const { eventsInLedger, eventsInTables } = recount(store);
  if (eventsInLedger === eventsInTables) return;
  throw new OperatorError(`The ledger in ${file} says ${eventsInLedger} events, and ${eventsInTables} are there.`);
}
