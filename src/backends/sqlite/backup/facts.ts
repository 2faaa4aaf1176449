/**
 * Counts what is in the files of an embedded installation, for the manifest of a backup and for checking one. The files
 * must not be in use: a backup, or a restored folder without a running server. They are opened as immutable, so nothing
 * is written beside them and a read-only disk will do.
 *
 * A check is complete when every page of every database is intact, every record of the log has the checksum that it was
 * written with and follows the one before, every stored event has its record, every event is accounted for in the
 * ledger, and the log reaches at least as far as the store. A failed check is an `OperatorError` that names the file.
 */

import { existsSync } from 'node:fs';
import type { DatabaseSync } from 'node:sqlite';
import { setImmediate } from 'node:timers/promises';
import type { BackupFacts, KeyFacts, LedgerSums, LogFacts, LostStretch, StoreFacts } from '../../../backup/manifest.ts';
import type { CheckFolder } from '../../../backup/unpack.ts';
import { keyFileOf, logFolderOf, storeFileOf } from '../../../data-folder/files.ts';
import { messageOf, OperatorError } from '../../../errors.ts';
import { LogCorruptError, LogUnavailableError } from '../../../log.ts';
import { sqliteCodeOf } from '../../../runtime/sqlite-errors.ts';
import { brokenLinksIn } from '../checkup.ts';
import { damageIn, isDamage, openImmutable, textsIn } from '../database.ts';
import { readLogInstallation } from '../installation.ts';
import { findLogName } from '../log/ends.ts';
import { newestRecordBefore } from '../log/reader.ts';
import { readRecords, type Stretch } from '../log/segment-reader.ts';
import { holdsRecords, listSegments, type Segment } from '../log/segments.ts';
import { StoreConnection } from '../store/connection.ts';
import { recount } from '../store/stored-events.ts';

const READ_BYTES = 4 * 1024 * 1024;
const FINDINGS_MAX = 3;

/** Reads everything. `onFile` is called with the name of the file that is checked next. */
export const checkDataFolder: CheckFolder = async (folder, scope, { stop, onFile }) => {
  let [store, keys]: [StoreFacts | null, KeyFacts | null] = [null, null];
  const logFolder = logFolderOf(folder);
  if (scope === 'all') {
    onFile('store.db');
    inDatabase(storeFileOf(folder), (database, file) => {
      assertSound(database, file);
      refuseDamage(file, brokenLinksIn(database, FINDINGS_MAX));
      assertAccountedFor(database, file);
    });
    store = storeFacts(storeFileOf(folder));
    await setImmediate();
    onFile('keys.db');
    inDatabase(keyFileOf(folder), assertSound);
    keys = keyFacts(keyFileOf(folder));
  }
  const segments = listSegments(logFolder);
  const counted: CountedSegment[] = [];
  for (const [index, segment] of segments.entries()) {
    stop.throwIfAborted();
    onFile('log');
    if (holdsRecords(segment)) inDatabase(segment.file, assertSound);
    const until = segments[index + 1]?.firstPosition;
    const records = await countRecords({ segment, logName: findLogName(logFolder), until }, stop);
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

export function storeFacts(file: string): StoreFacts {
  return inDatabase(file, (database) => {
    const sums = (noun: 'users' | 'events'): LedgerSums => {
      const columns = ['received', 'stored', 'duplicates', 'erased', 'expired'].map((name) => [
        `${noun}_${name}`,
        name,
      ]);
      const sql = [...columns, [`${noun}_dead_letters`, 'failed']]
        .map(([column, name]) => `coalesce(sum(${column}), 0) AS ${name}`)
        .join(', ');
      return { ...database.prepare(`SELECT ${sql} FROM ledger`).get() } as unknown as LedgerSums;
    };
    const [position = 0] = textsIn(database, 'SELECT position FROM positions WHERE partition = 0').map(Number);
    const [tenants = 0] = textsIn(database, 'SELECT count(*) FROM tenants').map(Number);
    const facts = { position, tenants, users: sums('users'), events: sums('events') };
    const lost = database
      .prepare('SELECT first_position, next_position, records FROM lost_records ORDER BY first_position')
      .all()
      .map((row) => Object.assign({}, row) as unknown as LostStretch);
    return lost.length === 0 ? facts : { ...facts, lost };
  });
}

export function keyFacts(file: string): KeyFacts {
  const sql = ['accounts', 'keys', 'members'].map((table) => `(SELECT count(*) FROM ${table}) AS ${table}`).join(', ');
  return inDatabase(file, (database) => ({ ...database.prepare(`SELECT ${sql}`).get() }) as unknown as KeyFacts);
}

export interface CountedSegment extends Segment {
  readonly records: number;
}

/** For segments in order of position. */
export function logFactsOf(segments: readonly CountedSegment[]): LogFacts {
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
export async function countRecords(whole: Omit<Stretch, 'from'>, stop: AbortSignal): Promise<number> {
  const { segment, until } = whole;
  if (!holdsRecords(segment) || segment.firstPosition === until) return 0;
  let from = segment.firstPosition;
  try {
    for (;;) {
      const { records, isEnd } = readRecords({ ...whole, from }, READ_BYTES);
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
export function assertLogReaches({ log, store }: BackupFacts, folder: string): void {
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
    throw new OperatorError(`${file} is of the installation ${found}, and the log beside it of ${installation}.`);
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

function assertSound(database: DatabaseSync, file: string): void {
  refuseDamage(file, damageIn(database, FINDINGS_MAX));
}

function refuseDamage(file: string, findings: readonly string[]): void {
  if (findings.length > 0) throw new OperatorError(`${file} is damaged: ${findings.join('; ')}.`);
}

/** Checks every hour, and counts the events themselves. */
function assertAccountedFor(database: DatabaseSync, file: string): void {
  for (const noun of ['users', 'events']) {
    const [row] = database
      .prepare(
        `SELECT hour, ${noun}_received AS received,
                ${noun}_stored + ${noun}_duplicates + ${noun}_erased + ${noun}_expired + ${noun}_dead_letters AS found
         FROM ledger WHERE received <> found LIMIT 1`,
      )
      .all() as { hour: number; received: number; found: number }[];
    if (row === undefined) continue;
    throw new OperatorError(
      `The ledger in ${file} does not account for all ${noun}: in the hour of ${new Date(row.hour).toISOString()} ${row.received} were received, and ${row.found} are accounted for.`,
    );
  }
  const { eventsInLedger, eventsInTables } = recount(new StoreConnection(database));
  if (eventsInLedger === eventsInTables) return;
  throw new OperatorError(`The ledger in ${file} says ${eventsInLedger} events, and ${eventsInTables} are there.`);
}
