/**
 * Whether a log and a store still belong together. The store keeps the position up to which it has processed each
 * partition, and the request of the last record before it. A log that ends before that position has lost records; one
 * that has another record there was given the same positions twice: it was cut and written on, or is of another history.
 * In either case what follows must not be taken for what the store has seen.
 */

import { LogCorruptError, type LogReader, type LostRange } from './log.ts';

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
  throw new LogCorruptError(
    `The log and the store do not belong together: at position ${position - 1} of partition ${partition} the log has the request ` +
      `${found}, where the store has processed ${lastTraceId}. Either the log lost its newest records and went on, or it was ` +
      'replaced by another. docs/operating.md says how to go on: "The log and the store do not match".',
  );
}

export interface ProcessedLog {
  readonly positions: ReadonlyMap<number, number>;
  readonly lastTraceIds: ReadonlyMap<number, string>;
}

/** As a store keeps it, by partition. */
export function processedLogOf(
  rows: readonly (readonly [partition: number, position: number, lastTraceId: string | null])[],
): ProcessedLog {
  return {
    positions: new Map(rows.map(([partition, position]) => [partition, position])),
    lastTraceIds: new Map(rows.flatMap(([partition, , id]) => (id === null ? [] : [[partition, id] as const]))),
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
    missing += here > 0 ? here : await overwritten(log, partition, position, lastTraceIds.get(partition));
  }
  return missing;
}

/** Records that are gone from the log and were not processed, by partition. */
export interface LostAhead extends LostRange {
  readonly partition: number;
  /** When the processor went on without them; null while it has not. */
  readonly at: number | null;
}

/** Those that the store has passed: given up by an operator or, where `from` is 1, removed before there was this store. */
export interface LostRecords extends LostAhead {
  readonly at: number;
}

/** Records that the store has not passed yet and that will never come. */
export async function lostAhead(log: LogReader, positions: ReadonlyMap<number, number>): Promise<LostAhead[]> {
  const lost: LostAhead[] = [];
  for (const partition of await log.partitions()) {
    for (const range of await log.lost(partition, positions.get(partition) ?? 0)) {
      lost.push({ partition, ...range, at: null });
    }
  }
  return lost;
}

async function overwritten(
  log: LogReader,
  partition: number,
  position: number,
  lastTraceId: string | undefined,
): Promise<0 | 1> {
  try {
    await assertContinues(log, partition, position, lastTraceId);
    return 0;
  } catch (error) {
    if (error instanceof LogCorruptError) return 1;
    throw error;
  }
}
