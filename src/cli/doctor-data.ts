/**
 * The doctor's checks of the data: log, clock, backlog, store and ledger. It reads the log at both ends of every
 * segment, which finds missing and unreadable ones, and the structure of a store that is not too large; `--deep` reads
 * every store, compares its rows, and reads every pending record. Beside a running server each check sees one moment.
 */

import { existsSync, readdirSync, statSync } from 'node:fs';
import { basename } from 'node:path';
import { CLOCK_EARLIEST } from '../clock/clock.ts';
import { formatSetting } from '../config/config.ts';
import { withoutSecrets } from '../config/values.ts';
import { REPLACED_STORE_ADVICE, WAS_REPLACED } from '../data-folder/file-identity.ts';
import { logFolderOf, serverUrlIn, storeFileOf } from '../data-folder/files.ts';
import {
  ForeignSegmentError,
  LOCAL_PARTITION,
  LogCorruptError,
  LogGapError,
  type LogHeader,
  type LogReader,
  NO_TENANT,
} from '../log.ts';
import {
  isHarmless,
  mismatches,
  type MissingRecords,
  missingRecordsText,
  positionInLocalLog,
  returnedRecords,
  returnedRecordsText,
} from '../log/continuity.ts';
import { readMigrationMarker } from '../migration/marker.ts';
import { type DeadLetter, type LedgerHour, type LedgerReader, NO_HOURS, type StoredLedger } from '../store.ts';
import { TABLES_CHANGED } from '../store-writer.ts';
import {
  failed,
  firstOf,
  type Check,
  checkDatabaseClock,
  type DoctorParts,
  type Finding,
  type SegmentName,
  warning,
  ok,
} from './doctor-checks.ts';
import { countOf, formatBytes, formatCount, formatSpan, isoTime, localTime } from './local-time.ts';
import { messageOf } from '../errors.ts';

const HEADERS_PER_LOOK = 10_000;
const RECORD_BYTES_PER_LOOK = 4 * 1024 * 1024;
/** Beyond this the exact number no longer matters. */
const BACKLOG_RECORDS_COUNTED_MAX = 1_000_000;
const RECHECK_INTERVAL_MS = 1_000;
/** A busy machine may process nothing for this long: a transaction, a checkpoint and a full core take seconds. */
const RECHECKS_MAX = 10;
const BACKLOG_OLD_MS = 60_000;
const CLOCK_TOLERANCE_MS = 5_000;
const METRICS_MS_MAX = 2_000;
const HELD_SECONDS = /^sluice_clock_held_seconds (\S+)$/m;
/** More than anyone reads. */
const DEAD_LETTERS_MAX = 1_000;
/** Reading this much takes about a second; larger stores are read with --deep. */
const STORE_BYTES_READ_MAX = 256 * 1024 * 1024;

type Positions = ReadonlyMap<number, number>;

export const checkLog: Check = async (parts) => {
  const { refusals, newestRefused, unknownEnd, missing, outdatedMarkers, noted } = await parts.inspectLocalLog();
  const findings = refusals.map((message) => failed(message, REFUSED_ADVICE));
  if (unknownEnd !== null) findings.push(warning(unknownEnd, UNKNOWN_ENDS_ADVICE));
  if (missing !== null) findings.push(lostEndFinding(missing));
  for (const { message } of outdatedMarkers) findings.push(warning(message, OUTDATED_MARKER_ADVICE));
  const outdatedFiles = new Set(outdatedMarkers.map(({ marker }) => marker.file));
  for (const { at, message } of noted)
    findings.push(warning(`${message} (found by the start at ${localTime(at)})`, NOTED_ADVICE));
  findings.push(...misnamedFindings(logFolderOf(parts.dataFolder)));
  const log = await parts.log();
  if (log === undefined) return findings.length > 0 ? findings : [absentLog(parts)];
  const processed = await processedPosition(parts);
  findings.push(...(await mismatchFindings(parts)));
  const segments = parts.listSegments(logFolderOf(parts.dataFolder));
  for (const [index, segment] of segments.entries()) {
    if (outdatedFiles.has(segment.file)) continue;
    const next = segments[index + 1];
    if (next === undefined && newestRefused !== null) findings.push(failed(newestRefused, REFUSED_ADVICE));
    else findings.push(...(await segmentFindings(log, segment, next, processed)));
  }
  if (findings.length === 0) {
    const atRest = parts.lockHolderOf(parts.dataFolder).isHeld ? '' : ', and a start would accept them';
    return [ok(`${countOf(segments.length, 'segment')}, readable at both ends${atRest}`)];
  }
  // A foreign segment is also found next to each of its neighbours.
  return [...new Map(findings.map((finding) => [finding.message, finding])).values()];
};

/** A compressed segment that was given up under a name that nothing reads. */
function misnamedFindings(folder: string): Finding[] {
  const names = existsSync(folder) ? readdirSync(folder) : [];
  return names
    .filter((name) => MISNAMED.test(name))
    .map((name) => {
      const segment = name.replace(MISNAMED, '.log');
      const advice = `With the server stopped, rename it to ${segment}.lost to give it up, or back to ${segment}.zst to read its records again.`;
      return warning(`the file ${name} is ignored: its name is not one of a segment`, advice);
    });
}

const MISNAMED = /\.log\.zst\.lost$/;

/** A migrated folder has a log, so next to the marker of a migration there was one. */
function absentLog({ dataFolder }: DoctorParts): Finding {
  const marker = readMigrationMarker(dataFolder);
  if (marker?.state !== 'migrated') return ok('there is none yet');
  const message = `it is gone, with log-ends: migrated.json says that this folder had one when it was migrated to PostgreSQL (${marker.at}). Whether acknowledged requests are unprocessed is unknown`;
  return warning(message, 'If you have log/ and log-ends, put them back before the next start.');
}

const REFUSED_ADVICE = 'Until then a server refuses to start, and a running one may not process.';
const UNKNOWN_ENDS_ADVICE =
  'If you have the last version of log-ends (and of log/, if that is gone), put it back before the next start. If not, there is nothing to do: the next start records the ends of the segments.';

const OUTDATED_MARKER_ADVICE =
  'The next start removes the marker. Records that processing has not passed by then are processed.';

const NOTED_ADVICE =
  'If you still have the files that were lost, docs/operating.md says how to put them back: "The log and the store do not match". When this is dealt with, remove log-warnings in the data folder.';

/** For the lost end of a local log, before the start that continues after it. */
function lostEndFinding(missing: MissingRecords): Finding {
  const text = missingRecordsText(missing);
  if (isHarmless(missing)) return warning(text, 'Nothing to do: the next start continues after them.');
  const advice =
    'Put the files back before the next start. docs/operating.md says how: "The log and the store do not match".';
  if (missing.processed >= missing.to) return warning(text, advice);
  return failed(text, `${advice} A started server accepts requests, and processes none after the missing records.`);
}

/** Opening it checks its settings, too: warns of those that could lose acknowledged events. */
export const checkKafka: Check = async (parts) => {
  const log = await parts.log();
  if (log === undefined) return [];
  const advice = 'docs/scaling.md has the settings of a topic that loses nothing: "Step 2: Kafka".';
  const warnings = parts.logWarnings.map((message) => warning(message, advice));
  const partitions = countOf((await log.partitions()).length, 'partition');
  const name = withoutSecrets(parts.config.logUrl);
  const settings = warnings.length === 0 ? ', and its settings are safe for events' : '';
  return [ok(`${name} responds: ${partitions}${settings}`), ...warnings];
};

async function segmentFindings(
  log: LogReader,
  segment: SegmentName,
  next: SegmentName | undefined,
  processed: number | undefined,
): Promise<Finding[]> {
  const name = basename(segment.file);
  if (segment.state === 'lost') {
    const advice =
      'Records in it that were not processed by then are missing from the store. Keep the file until it is no longer needed.';
    return [warning(`the segment ${name} was given up`, advice)];
  }
  if (segment.state === 'missing') return [missingFinding(segment, next, processed)];
  try {
    const last = next === undefined ? await lastPosition(log, segment.firstPosition) : next.firstPosition - 1;
    // Empty ones are read, too: an unreadable segment seems to be empty.
    for (const position of new Set([segment.firstPosition, last ?? segment.firstPosition])) {
      const { records } = await log.read(LOCAL_PARTITION, position, 1);
      if (last !== null && records[0]?.position !== position)
        throw new LogCorruptError(`position ${position} is not there`);
    }
    return [];
  } catch (error) {
    // Retention may just have removed it.
    if (!existsSync(segment.file)) return [];
    if (error instanceof ForeignSegmentError) return [failed(error.message, REFUSED_ADVICE)];
    if (error instanceof LogGapError) {
      if (next !== undefined && (processed ?? 0) >= next.firstPosition) {
        const message = `records of the segment ${name} are missing, before position ${next.firstPosition}; the store has processed all of them`;
        return [warning(message, 'Nothing to do for these: the next start marks them.')];
      }
      return [failed(error.message, 'Until then a server accepts requests, and does not process past the gap.')];
    }
    const advice =
      'Stop the server and put back a copy from a backup. Without one, rename it to ….log.lost to continue without its records.';
    return [failed(`the segment ${name} cannot be read: ${messageOf(error)}`, advice)];
  }
}

/** Undefined if the store cannot be read, which is reported with the store. */
async function processedPosition(parts: DoctorParts): Promise<number | undefined> {
  try {
    const store = await parts.store();
    return store && positionInLocalLog(await positionsOf(store));
  } catch {
    return undefined;
  }
}

/** A range of positions that the log has lost: whether that matters depends on how far the store has processed it. */
function missingFinding(
  { firstPosition }: SegmentName,
  next: SegmentName | undefined,
  processed: number | undefined,
): Finding {
  const until = next === undefined ? '' : ` to ${next.firstPosition - 1}`;
  const message = `positions ${firstPosition}${until} are missing`;
  if (processed === undefined) {
    return warning(message, 'Without the store it is unknown whether they were processed: see "store" below.');
  }
  if (next !== undefined && processed >= next.firstPosition) {
    const advice = 'Nothing to do for these. The marker file may be removed with the segments before it.';
    return warning(`${message}; the store has processed all of them`, advice);
  }
  return failed(
    `${message}, and the store has processed the log up to position ${Math.max(0, processed - 1)} only`,
    'What is missing from there on was acknowledged and is not stored. Put the files back. docs/operating.md says how: "The log and the store do not match".',
  );
}

/** The last position in the newest segment, which may be empty and may still grow. */
async function lastPosition(log: LogReader, from: number): Promise<number | null> {
  let last: number | null = null;
  for await (const headers of headersFrom(log, LOCAL_PARTITION, from)) last = headers.at(-1)?.position ?? last;
  return last;
}

/** Page by page, up to the end of the partition. */
async function* headersFrom(log: LogReader, partition: number, position: number): AsyncGenerator<LogHeader[]> {
  for (;;) {
    const { headers, next } = await log.headers(partition, position, HEADERS_PER_LOOK);
    yield headers;
    if (headers.length < HEADERS_PER_LOOK) return;
    position = next;
  }
}

export const checkBacklog: Check = async (parts) => {
  const [log, store] = [await parts.log(), await parts.store()];
  if (log === undefined || store === undefined) return [];
  const before = await lookAtBacklog(log, await positionsOf(store));
  if (before.records === 0) return [ok('all received requests are processed')];
  const age = parts.now() - (before.oldest ?? parts.now());
  const more = before.records >= BACKLOG_RECORDS_COUNTED_MAX ? 'more than ' : '';
  const isShared = parts.config.logUrl !== '';
  // Kafka has a message for each user of a request.
  const waiting = countOf(before.records, isShared ? 'message' : 'request');
  const size = `${more}${waiting} (${formatBytes(before.bytes)}) wait, the oldest for ${formatSpan(age)}`;
  const damaged = parts.isDeep && !isShared ? await firstDamaged(log, before.positions) : undefined;
  if (damaged !== undefined) {
    const advice = 'Until then a server accepts requests, and does not process past that position.';
    return [failed(`${size}; ${damaged}`, advice)];
  }
  if (!isShared && !parts.lockHolderOf(parts.dataFolder).isHeld) {
    const start = 'Start the server to continue: sluice serve';
    const advice = parts.isDeep
      ? `Every record of them was read and is intact. ${start}`
      : `${start}. To check every record that waits: sluice doctor --deep`;
    return [warning(`${size}; no server is running`, advice)];
  }
  const firstCheckAt = parts.now();
  let processed = 0;
  // A backlog that is not old is not reported as stuck, however long this takes.
  const rechecksMax = age < BACKLOG_OLD_MS ? 1 : RECHECKS_MAX;
  for (let rechecks = 0; rechecks < rechecksMax && processed === 0; rechecks += 1) {
    await parts.pause(RECHECK_INTERVAL_MS);
    processed = await recordsBetween(log, before.positions, await positionsOf(store));
  }
  const between = formatSpan(Math.max(RECHECK_INTERVAL_MS, parts.now() - firstCheckAt));
  if (processed === 0 && age < BACKLOG_OLD_MS) {
    const advice = 'The machine may be busy, or the processor waits: its log says why. Check again in a minute.';
    return [warning(`${size}, and nothing was processed within ${between}`, advice)];
  }
  if (processed === 0) {
    const advice = isShared
      ? 'Is a server with the role processor running, and what does its log say? A restart loses nothing.'
      : 'Check the log of the server for errors, and the disk; a restart loses nothing.';
    return [failed(`${size}, and nothing was processed within ${between}`, advice)];
  }
  const speed = `${formatCount(processed)} were processed within ${between}`;
  if (age < BACKLOG_OLD_MS) return [ok(`${size}; ${speed}`)];
  return [warning(`${size}; ${speed}`, 'It works, but is behind. Check again in a minute: is the wait shorter?')];
};

/** Reads every pending record, with its checksum. Returns a message about the first unreadable one. */
async function firstDamaged(log: LogReader, positions: Positions): Promise<string | undefined> {
  try {
    for (const partition of await log.partitions()) {
      let position = positions.get(partition) ?? 0;
      for (;;) {
        const { records, next } = await log.read(partition, position, RECORD_BYTES_PER_LOOK);
        if (records.length === 0) break;
        position = next;
      }
    }
    return undefined;
  } catch (error) {
    if (!(error instanceof LogCorruptError)) throw error;
    return error.message;
  }
}

async function lookAtBacklog(log: LogReader, positions: Positions) {
  let [records, bytes] = [0, 0];
  let oldest: number | null = null;
  for (const partition of await log.partitions()) {
    const position = positions.get(partition) ?? 0;
    bytes += await log.backlogBytes(partition, position);
    for await (const headers of headersFrom(log, partition, position)) {
      const [first] = headers;
      if (first !== undefined) oldest = Math.min(oldest ?? first.receivedAt, first.receivedAt);
      records += headers.length;
      if (records >= BACKLOG_RECORDS_COUNTED_MAX) break;
    }
  }
  return { positions, records, bytes: records === 0 ? 0 : bytes, oldest };
}

/** Not the difference of the positions: after records that were given up, a billion of them are skipped. */
export async function recordsBetween(log: LogReader, before: Positions, after: Positions): Promise<number> {
  let sum = 0;
  for (const [partition, end] of after) {
    const position = before.get(partition) ?? 0;
    if (position >= end) continue;
    for await (const headers of headersFrom(log, partition, position)) {
      const processed = headers.filter((header) => header.position < end).length;
      sum += processed;
      if (processed < headers.length) break;
    }
  }
  return sum;
}

/**
 * Compares it with that of the database, if there is one, and with the newest event: a server does not follow a clock
 * that is behind it, or far ahead of it (`clock/clock.ts`).
 */
export const checkClock: Check = async (parts) => {
  const now = parts.now();
  if (now < CLOCK_EARLIEST) {
    return [failed(`it says ${isoTime(now)}`, 'Correct the clock, or synchronise it with NTP.')];
  }
  const apart = await checkDatabaseClock(parts);
  if (apart.length > 0) return apart;
  const heldSeconds = Number(HELD_SECONDS.exec(await askServer(parts, '/metrics'))?.[1] ?? 0);
  if (heldSeconds > 0) {
    const message = `it says ${localTime(now)}, and the server does not trust it: received_at is ${formatSpan(heldSeconds * 1_000)} behind`;
    const advice =
      'The clock jumped ahead. Correct it, and the server recovers by itself. If it is right, restart the server, with a larger SLUICE_CLOCK_GAP_MAX if the difference exceeds it.';
    return [warning(message, advice)];
  }
  const alone = [ok(`${localTime(now)}, and nothing to compare it with yet`)];
  const [log, store] = [await parts.log(), await parts.store()];
  if (log === undefined || store === undefined) return alone;
  const { hours } = await store.ledger(null, { from: null, to: null });
  const newest = hours.reduce((latest, { hour }) => Math.max(latest, hour), await log.newestReceivedAt());
  if (newest === 0) return alone;
  const behind = newest - parts.now();
  const { clockGapMsMax } = parts.config;
  if (behind > CLOCK_TOLERANCE_MS) {
    const message = `it says ${localTime(now)}, but the newest event was received at ${localTime(newest)}, ${formatSpan(behind)} from now`;
    const advice =
      'The clock was set back, or was ahead then. If it is wrong now, correct it. If it is right, wait: received_at continues from there at half speed until the clock has caught up.';
    return [warning(message, advice)];
  }
  if (-behind > clockGapMsMax) {
    const message = `it says ${localTime(now)}, ${formatSpan(-behind)} after the newest event was received`;
    const advice = `That is more than SLUICE_CLOCK_GAP_MAX (${formatSetting('clockGapMsMax', clockGapMsMax)}): a server does not trust it, and received_at continues from the newest event. Correct the clock; if it is right, start the server once with a larger SLUICE_CLOCK_GAP_MAX.`;
    return [warning(message, advice)];
  }
  return [ok(`${localTime(now)}, and no event was received later`)];
};

/** The response of a server running on this folder; empty if none responds. */
async function askServer({ config, dataFolder, lockHolderOf }: DoctorParts, path: string): Promise<string> {
  if (config.logUrl !== '' || !lockHolderOf(dataFolder).isHeld) return '';
  try {
    const response = await fetch(`${serverUrlIn(dataFolder)}${path}`, { signal: AbortSignal.timeout(METRICS_MS_MAX) });
    return await response.text();
  } catch {
    return '';
  }
}

/** What a running server reports about itself: some of it, such as a replaced file, only it can know. */
export const checkReadiness: Check = async (parts) => {
  const text = await askServer(parts, '/readyz');
  if (text === '') return [];
  const { reasons = [] } = JSON.parse(text) as { reasons?: string[] };
  const findings = reasons.map((reason) => failed(`it is not ready: ${reason}`, adviceFor(reason)));
  const counts = [...(await askServer(parts, '/metrics')).matchAll(UNAVAILABLE)];
  const refused = counts.map(([, reason, count]) => `${reason} ${formatCount(Number(count))}`).join(', ');
  // Not a warning: the counts stay until the next start.
  if (refused !== '') findings.push(ok(`since its start, requests got 503 (Segment: 429), by reason: ${refused}`));
  return findings;
};

/** Of the metrics: why requests got 503, and how many. */
const UNAVAILABLE = /^sluice_unavailable_total\{reason="(\w+)"\} ([1-9]\d*)$/gm;

function adviceFor(reason: string): string {
  if (reason.startsWith(`store.db ${WAS_REPLACED}`)) return REPLACED_STORE;
  return reason.startsWith(`keys.db ${WAS_REPLACED}`) ? REPLACED_KEYS : NOT_READY;
}

const NOT_READY = 'It recovers by itself when the reason is gone. docs/operating.md says what to do: "SluiceNotReady".';
const REPLACED_STORE = `Requests are safe in the log, and nothing is processed or removed from it. ${REPLACED_STORE_ADVICE}.`;
const REPLACED_KEYS =
  'Keys that are made or revoked now are lost when the server stops. If the file was moved, move it back. Otherwise put it back from a backup. Then restart the server.';

export const checkStore: Check = async (parts) => {
  const store = await parts.store();
  if (store === undefined) return [await absentStore(parts)];
  const tenants = await store.tenants();
  const opens = `it opens, with data of ${countOf(tenants.length, 'tenant')}`;
  if (parts.config.storeUrl !== '') return [ok(opens)];
  const bytes = statSync(storeFileOf(parts.dataFolder)).size;
  if (!parts.isDeep && bytes > STORE_BYTES_READ_MAX) {
    return [ok(`${opens}; its ${formatBytes(bytes)} were not checked for damage: sluice doctor --deep does`)];
  }
  const problems = parts.findingsInStore(storeFileOf(parts.dataFolder), parts.isDeep);
  if (problems.length === 0 && !parts.isDeep) return [ok(`${opens}; the structure of every page is intact`)];
  const advice =
    'Stop the server and restore a backup. Without one, move store.db away, with its -wal and -shm: the next start rebuilds it from what the log still has.';
  const damage = problems.map((problem) => failed(`it is damaged: ${problem}`, advice));
  const findings = [ok(opens), ...firstOf(damage)];
  if (problems.length === 0) findings.push(ok('every page is intact, and every event has its record'));
  return findings;
};

/** A store that never existed, or one that is gone: then the log shows what can be rebuilt. */
async function absentStore(parts: DoctorParts): Promise<Finding> {
  const none = ok('there is none yet');
  if (parts.config.storeUrl !== '') return none;
  // Records that only log-ends still knows about.
  const { missing } = await parts.inspectLocalLog();
  const [first] = parts.listSegments(logFolderOf(parts.dataFolder));
  const lost = (missing === null ? 0 : missing.to - missing.from) + (first?.firstPosition ?? 1) - 1;
  if (lost === 0 && first === undefined) return none;
  if (parts.lockHolderOf(parts.dataFolder).isHeld) {
    return failed('store.db was removed while the server is running', REPLACED_STORE);
  }
  if (lost > 0) {
    return failed(
      `store.db is gone, and the log does not have everything that was in it: ${countOf(lost, 'request')} ${lost === 1 ? 'is' : 'are'} in neither`,
      'Put store.db back, or restore a backup (sluice restore --from BACKUP). A server started now rebuilds the store from what the log still has, and counts the rest in lost_records of GET /ledger permanently.',
    );
  }
  return warning(
    'store.db is gone; the log still has every request that was in it',
    'Start the server: it rebuilds the store from the log. People who were erased since those requests came back with it: erase them again (docs/operating.md).',
  );
}

export const checkLedger: Check = async (parts) => {
  const store = await parts.store();
  if (store === undefined) return [];
  const { hours, positions, missingRecords, lost } = await store.ledger(null, { from: null, to: null });
  const findings = firstOf(hours.flatMap(imbalances));
  const missing = missingRecords - (await processedButGone(parts));
  // For a log of another store, the number of missing records is unknown.
  const mismatched = missing > 0 ? await mismatchFindings(parts) : [];
  if (mismatched.length > 0) findings.push(...mismatched);
  else if (missing > 0) findings.push(await logIsShort(parts, positions, missing));
  findings.push(...firstOf(await lostFindings(parts, lost)));
  const deadLetters = await store.deadLetters(DEAD_LETTERS_MAX);
  const waiting = deadLetters.filter(({ isErased }) => !isErased);
  findings.push(...firstOf(waiting.map(deadLetterFinding), deadLetters.length === DEAD_LETTERS_MAX));
  if (parts.isDeep) findings.push(...(await recountFindings(store)));
  // Records that were given up, and what the next start fixes, are no reason to doubt the rest.
  if (findings.every(({ state }) => state !== 'error')) {
    const sum = hours.reduce((total, { events }) => total + events.received, 0);
    findings.unshift(ok(`${countOf(sum, 'event')} received, and all accounted for`));
  }
  return findings;
};

function deadLetterFinding({ tenantId, traceId, partition, position, cause, failedAt }: DeadLetter): Finding {
  if (tenantId === NO_TENANT) {
    return warning(
      `position ${position} of partition ${partition} has a message that Sluice cannot read; it was skipped at ${localTime(failedAt)}`,
      'Copy the message from Kafka (its offset is the position) before SLUICE_LOG_RETENTION has passed: Kafka then removes it. ' +
        'If it begins with {"version": it may be a damaged request: report it, and delete nothing. ' +
        'If another program wrote it, let only Sluice write to its topic. Only then remove this warning: ' +
        `DELETE FROM sluice.dead_letters WHERE tenant = 0 AND partition = ${partition} AND position = ${position}`,
    );
  }
  return failed(
    `the request ${traceId} could not be processed and has been a dead letter since ${localTime(failedAt)}: ${cause}`,
    cause.includes(TABLES_CHANGED)
      ? `It is kept. Remove that constraint, then: sluice dead-letters --retry all. The request: sluice trace ${traceId}`
      : `It is kept. This is a bug in Sluice: please report the cause; after an upgrade that fixes it: sluice dead-letters --retry all. The request: sluice trace ${traceId}`,
  );
}

/** The comparison that the processor makes before it continues. None if the store cannot be read. */
async function mismatchFindings(parts: DoctorParts): Promise<Finding[]> {
  const advice = 'Until then a server accepts requests, and processes none of that partition.';
  const [log, store] = [await parts.log(), await parts.store().catch(() => undefined)];
  if (log === undefined || store === undefined) return [];
  const messages = await mismatches(log, await store.ledger(null, NO_HOURS));
  return messages.map((message) => failed(message, advice));
}

/** Records that are gone from the end of a local log but are in the store: the next start continues after them. */
async function processedButGone(parts: DoctorParts): Promise<number> {
  if (parts.config.logUrl !== '') return 0;
  const { missing } = await parts.inspectLocalLog();
  return missing === null ? 0 : Math.max(0, Math.min(missing.processed, missing.to) - missing.from);
}

type Lost = StoredLedger['lost'][number];

/** Newest first. */
async function lostFindings(parts: DoctorParts, lost: readonly Lost[]): Promise<Finding[]> {
  // A database may have lost records of other logs, too.
  if (parts.config.storeUrl !== '') return lost.toReversed().map(lostFinding);
  const log = await parts.log();
  const returned = log === undefined ? new Set<Lost>() : await returnedRecords(log, lost);
  return lost
    .toReversed()
    .map((range) => (returned.has(range) ? warning(returnedRecordsText(range), RETURNED_ADVICE) : lostFinding(range)));
}

const RETURNED_ADVICE =
  'They stay counted in lost_records of GET /ledger. Retention removes their segment like any other: keep a copy.';

function lostFinding({ partition, from, to, records, at }: Lost): Finding {
  const isKnown = to - from === records;
  const where = `${isKnown ? `positions ${from} to ${to - 1}` : `from position ${from} on`} of partition ${partition}`;
  const count = `${isKnown ? '' : 'at least '}${countOf(records, 'record')}`;
  const advice = 'They are not in the store, and are counted in lost_records of GET /ledger permanently.';
  const since = at === null ? '' : ` on ${localTime(at)}`;
  // Only Kafka has a position 0: the store was created then, or an operator gave up the first records of a partition.
  if (from === 0) {
    const message = `${count} (${where}) ${records === 1 ? 'was' : 'were'} no longer in the log when processing of that partition began${since}`;
    return warning(message, `${advice} If a backup of another store has them, restore it.`);
  }
  if (from === 1) {
    const message = `${count} (${where}) ${records === 1 ? 'was' : 'were'} no longer in the log when this store was created${since}`;
    return warning(message, `${advice} If there is a backup of the store that was there before, restore it.`);
  }
  // Not when the file was renamed, which nothing records: a gap is passed with the first request after it.
  const passed =
    at === null ? 'the next request is processed without them' : `processing continued at ${localTime(at)}`;
  const message = `${count} (${where}) ${records === 1 ? 'was' : 'were'} given up; ${passed}`;
  return warning(message, advice);
}

/** The log ends before the last acknowledged record, has a gap, or is not the log of this store. */
async function logIsShort(parts: DoctorParts, positions: Positions, missing: number): Promise<Finding> {
  const isLocal = parts.config.logUrl === '';
  const problems: string[] = [];
  const places: string[] = [];
  const log = await parts.log();
  for (const partition of new Set([...positions.keys(), ...((await log?.partitions()) ?? [])])) {
    const position = positions.get(partition) ?? 0;
    const missingHere = (await log?.missing(partition, position)) ?? 0;
    if (missingHere === 0) continue;
    places.push(
      position === 0 ? `nothing of partition ${partition}` : `partition ${partition} up to position ${position - 1}`,
    );
    // What the processor reports there, with what to do about it; nothing where the log just ends.
    if (isLocal) await log?.read(partition, position, 1).catch((error: unknown) => problems.push(messageOf(error)));
  }
  const where = places.length === 0 ? '' : ` (the store has processed ${places.join(', ')})`;
  return failed(
    `${countOf(missing, 'record')} that the log should have ${missing === 1 ? 'is' : 'are'} missing from it${where}`,
    isLocal
      ? (problems[0] ??
          'Files of it were lost, truncated or replaced by older ones. A running server gives new requests positions after the gap.') +
          ' docs/operating.md says what to do: "The log and the store do not match".'
      : 'Records that were not processed were deleted (by Kafka, if retention.ms or retention.bytes of the topic is set, by a ' +
          'processor of another database, or by someone else), or Kafka lost its newest ones. ' +
          'New requests are accepted; those of that partition wait. Restore the files of the brokers, or run the statement in the log of the ' +
          'processor to continue without them: they stay counted. docs/operating.md: "The log and the store do not match".',
  );
}

async function recountFindings(store: LedgerReader): Promise<Finding[]> {
  const { eventsInLedger, eventsInTables } = await store.recount();
  if (eventsInLedger === eventsInTables) return [ok(`${countOf(eventsInTables, 'event')} counted, as in the ledger`)];
  const message = `the ledger has ${countOf(eventsInLedger, 'event')}, but ${formatCount(eventsInTables)} are stored`;
  return [failed(message, LEDGER_ADVICE)];
}

const LEDGER_ADVICE = 'This is a bug in Sluice, or a damaged file: please report it, and check the store with --deep.';

function imbalances({ hour, users, events }: LedgerHour): Finding[] {
  return [['users', users] as const, ['events', events] as const].flatMap(([noun, sums]) => {
    const { received, stored, duplicates, erased, expired, deadLetters, pending } = sums;
    const difference = received - (stored + duplicates + erased + expired + deadLetters + pending);
    if (difference === 0) return [];
    const message = `of ${formatCount(received)} ${noun} received in the hour of ${localTime(hour)}, ${formatCount(Math.abs(difference))} are ${difference > 0 ? 'missing' : 'too many'}`;
    return [failed(message, LEDGER_ADVICE)];
  });
}

async function positionsOf(store: LedgerReader): Promise<Positions> {
  return (await store.ledger(null, NO_HOURS)).positions;
}
