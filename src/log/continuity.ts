/**
 * Whether a log and a store still belong together. The store keeps the position up to which it has processed each
 * partition, and the request of the last record before it. A log that ends before that position has lost records; one
 * with another record there has used the same positions twice: it was truncated and then appended to, or it is another
 * log. In either case the store must not continue from its position. A store that is ahead of a log must have processed
 * the newest record of this log: otherwise it was made from another copy, and would skip records that it never had.
 */

import { LOCAL_PARTITION, LogCorruptError, type LogHeader, type LogReader, type LostAhead } from '../log.ts';
import type { TraceReader } from '../store.ts';

/** Throws `LogCorruptError` when the record before `position` is not the one that was processed. */
export async function assertContinues(
  log: LogReader,
  partition: number,
  position: number,
  lastTraceId: string | undefined,
): Promise<void> {
  if (position === 0 || lastTraceId === undefined) return;
  const found = await log.traceIdAt(partition, position - 1);
  // Not kept any more: what is processed may be removed.
  if (found === undefined || found === lastTraceId) return;
  const statement = await log.readAgainStatement?.(partition);
  const how =
    statement === undefined
      ? ''
      : ' To continue with the log as it is (the partition is then read again from its beginning, and what is stored already ' +
        `is left out), run in the database: ${statement}`;
  throw new LogCorruptError(
    `The log and the store do not belong together: at position ${position - 1} of partition ${partition} the log has the request ` +
      `${found}, where the store has processed ${lastTraceId}. Either the log lost its newest records and continued, or it was ` +
      `replaced by another. docs/operating.md says how to continue: "The log and the store do not match".${how}`,
  );
}

export type ProcessedRecord = Pick<LogHeader, 'partition' | 'position' | 'traceId' | 'receivedAt'>;

/** More than there should ever be; each is looked at by people. */
const DEAD_LETTERS_MAX = 1_000;

/**
 * Throws `LogCorruptError` when the store does not know `newest`, the newest record in the log of those below the position
 * that it has processed. `keptSince`: requests that were received earlier may have been removed from the store.
 */
export async function assertProcessed(
  store: Pick<TraceReader, 'trace' | 'deadLetters'>,
  newest: ProcessedRecord,
  position: number,
  keptSince: number,
): Promise<void> {
  // Where it is the last one, the store has its id with the position: see `assertContinues`.
  if (newest.position === position - 1 || newest.receivedAt < keptSince) return;
  if ((await store.trace(null, newest.traceId)) !== undefined) return;
  if ((await store.deadLetters(DEAD_LETTERS_MAX)).some(({ traceId }) => traceId === newest.traceId)) return;
  throw new LogCorruptError(
    `The log and the store do not belong together: the store has processed partition ${newest.partition} up to position ${position - 1}, but not the request ` +
      `${newest.traceId}, which the log has at position ${newest.position}. The store was made from another copy of this log, so records ` +
      'of this one would never be processed. Put back the store.db (or the database) that belongs to this log, or the log/ and ' +
      'log-ends that belong to this store. To continue without the records that only this log has, move log/ elsewhere. ' +
      'docs/operating.md says more: "The log and the store do not match".',
  );
}

export interface ProcessedLog {
  readonly positions: ReadonlyMap<number, number>;
  readonly lastTraceIds: ReadonlyMap<number, string>;
}

/** As a store keeps it, by partition. */
export function processedLogOf(
  rows: readonly { readonly partition: number; readonly position: number; readonly lastTraceId: string | null }[],
): ProcessedLog {
  return {
    positions: new Map(rows.map(({ partition, position }) => [partition, position])),
    lastTraceIds: new Map(
      rows.flatMap(({ partition, lastTraceId }) => (lastTraceId === null ? [] : [[partition, lastTraceId] as const])),
    ),
  };
}

/**
 * How many records the store relies on and the log does not have; 0 while they match. A partition that was overwritten
 * counts as one, since it is not known how many there were.
 */
export async function missingRecords(log: LogReader, { positions, lastTraceIds }: ProcessedLog): Promise<number> {
  let missing = 0;
  for (const partition of new Set([...positions.keys(), ...(await log.partitions())])) {
    const position = positions.get(partition) ?? 0;
    const here = await log.missing(partition, position);
    if (here > 0) missing += here;
    else if ((await mismatchOf(log, partition, position, lastTraceIds.get(partition))) !== null) missing += 1;
  }
  return missing;
}

/** Lost records after the positions of the store: processing will pass over them. */
export async function lostAhead(log: LogReader, positions: ReadonlyMap<number, number>): Promise<LostAhead[]> {
  const lost: LostAhead[] = [];
  for (const partition of await log.partitions()) {
    for (const range of await log.lost(partition, positions.get(partition) ?? 0)) {
      lost.push({ partition, ...range, at: null });
    }
  }
  return lost;
}

/** Of the lost records that processing has passed, those that the log has again: nothing reads them any more. */
export async function returnedRecords<Lost extends LostAhead>(
  log: LogReader,
  lost: readonly Lost[],
): Promise<ReadonlySet<Lost>> {
  const returned = new Set<Lost>();
  for (const range of lost) {
    if (range.at === null) continue;
    const { headers } = await log.headers(range.partition, range.from, 1);
    if (headers[0] !== undefined && headers[0].position < range.to) returned.add(range);
  }
  return returned;
}

/** Up to where a store has processed a local log, of the positions that it keeps; 0 for nothing. */
export function positionInLocalLog(positions: ReadonlyMap<number, number>): number {
  return positions.get(LOCAL_PARTITION) ?? 0;
}

/** A local log has lost its end: it lacks the records from `from` up to `to`. The store has those below `processed`. */
export interface MissingRecords {
  readonly from: number;
  readonly to: number;
  readonly processed: number;
  /** Why it is not certain that nothing was acknowledged beyond `to`; null where it is. */
  readonly doubt: string | null;
}

/** What a start finds in a local log (also run by `sluice doctor`). */
export interface LogInspection {
  /** Why a start refuses it, and what to do. */
  readonly refusals: readonly string[];
  /** Why a start refuses the newest segment. Null while a server runs, which checked it when it started. */
  readonly newestRefused: string | null;
  /** Why it is unknown whether more was acknowledged than the log holds; null if it is known, or a server runs. */
  readonly unknownEnd: string | null;
  /** Null while a server runs, and where it is refused. */
  readonly missing: MissingRecords | null;
  /** Markers of records that the log has again, which the next start removes. Also while a server runs. */
  readonly outdatedMarkers: readonly {
    readonly marker: { readonly file: string };
    readonly message: string;
  }[];
  /** Warnings that earlier starts noted, and when. Also while a server runs. */
  readonly noted: readonly { readonly at: number; readonly message: string }[];
}

/** Whether it is certain that no acknowledged record is lost. */
export function isHarmless({ to, processed, doubt }: MissingRecords): boolean {
  return processed >= to && doubt === null;
}

/** `from` inclusive, `to` exclusive. */
export function positionsText(from: number, to: number): string {
  return to - from === 1 ? `position ${from}` : `positions ${from} to ${to - 1}`;
}

/** As a start and `sluice doctor` print it. */
export function missingRecordsText(missing: MissingRecords): string {
  const { from, to, processed, doubt } = missing;
  const what = `the log has lost its newest records, ${positionsText(from, to)}`;
  if (isHarmless(missing)) return `${what}; the store has all of them, so nothing is lost`;
  if (processed >= to) {
    return `${what}; the store has all of these, but ${doubt}, so it is not known whether more were acknowledged`;
  }
  const lost = Math.max(from, processed);
  const more = doubt === null ? '' : `, and it is unknown whether more were: ${doubt}`;
  return `${what}; those from position ${lost} on were acknowledged and are not processed${more}`;
}

/** As a start prints it. */
export function returnedRecordsText({ from }: LostAhead): string {
  return (
    `the log has records from position ${from} on again that were given up, and processing has continued without them: they ` +
    'are not in the store. docs/operating.md says what to do: "Records that come back too late"'
  );
}

/** The processor's errors about partitions that have another record where the store has processed one. */
export async function mismatches(log: LogReader, { positions, lastTraceIds }: ProcessedLog): Promise<string[]> {
  const found: string[] = [];
  for (const [partition, position] of positions) {
    const problem = await mismatchOf(log, partition, position, lastTraceIds.get(partition));
    if (problem !== null) found.push(problem);
  }
  return found;
}

async function mismatchOf(...position: Parameters<typeof assertContinues>): Promise<string | null> {
  try {
    await assertContinues(...position);
    return null;
  } catch (error) {
    if (error instanceof LogCorruptError) return error.message;
    throw error;
  }
}
