/**
 * Which records of a segment are read at once: from a position on, as many as fit. Notices missing positions among
 * them.
 */

import type { DatabaseSync } from 'node:sqlite';
import { LogCorruptError } from '../../../log.ts';
import type { Segment } from './segments.ts';

/** Positions that a segment should contain and does not: from `from` up to, and without, `to`. */
export class MissingPositionsError extends LogCorruptError {
  readonly from: number;
  readonly to: number;
  constructor(file: string, from: number, to: number) {
    super(
      `The log segment ${file} is damaged: it has no position ${from}, where ${to} is next. ${restoreOrGiveUp(file)}`,
    );
    this.from = from;
    this.to = to;
  }
}

/** What an operator can do about a partly unreadable segment. */
export function restoreOrGiveUp(file: string): string {
  return (
    `With the server stopped, put ${file} back from a backup. To go on without those of its records that are not ` +
    `processed yet, rename it to ${file}.lost.`
  );
}

/** The part of a segment to read. */
export interface Stretch {
  readonly segment: Segment;
  /** The name of its log (`log/name.ts`). */
  readonly logName: string | undefined;
  readonly from: number;
  /**
   * Where the next segment begins; undefined for the newest segment, which may still grow. A record from there on was
   * written by a server that had lost its lock, and was never acknowledged (`data-folder/held-lock.ts`).
   */
  readonly until: number | undefined;
}

/**
 * Plus the one record that may exceed it, and escaped as JSON, this stays below SQLite's limit for one value
 * (`RECORD_BYTES_MAX`).
 */
export const BATCH_BYTES_MAX = 16 * 1024 * 1024;
/** More than a record takes besides its body and its rejections. */
const HEADER_BYTES = 256;

const SUMS = `
  SELECT count(*) AS count, max(position) AS last, sum(bytes) AS bytes, sum(more) AS more
  FROM (SELECT position, length(body) AS bytes, coalesce(length(rejections), 0) AS more FROM records
        WHERE position >= ? AND position < ? ORDER BY position LIMIT ?)`;
const SUMS_MAX = 3;
/** If no more than these would fit, sizes are read one by one. */
const FIRST_RECORDS = 16;
/** A little fewer than the average suggests, so that they fit though some are larger. */
const SIZES_DIFFER = 0.97;

interface Run {
  /** Before the first if there are none. */
  readonly last: number;
  readonly isEnd: boolean;
  /** Total size of the bodies. */
  readonly bytes: number;
}

/**
 * Sums sizes within SQLite, for as many records as should fit, judging by the first few: takes an eighth of the time of
 * reading sizes one by one. Null if that is inconclusive: sizes differ widely, bodies are large, or a position is
 * missing.
 */
export function runOfMany(database: DatabaseSync, { from, until }: Stretch, bytesMax: number): Run | null {
  const sums = database.prepare(SUMS);
  let countMax = FIRST_RECORDS;
  for (let tries = 0; tries < SUMS_MAX; tries++) {
    const { count, last, bytes, more } = sums.get(
      from,
      until ?? Number.MAX_SAFE_INTEGER,
      countMax,
    ) as unknown as SumsRow;
    if (count === 0 || last !== from + count - 1) return null;
    const fits = bytes <= bytesMax && bytes + more + count * HEADER_BYTES <= BATCH_BYTES_MAX;
    const isEnd = count < countMax || last + 1 === until;
    if (fits && isEnd) return until === undefined || last + 1 === until ? { last, isEnd, bytes } : null;
    if (fits && tries > 0) return { last, isEnd, bytes };
    countMax = Math.floor(((count * bytesMax) / bytes) * SIZES_DIFFER);
    if (countMax < FIRST_RECORDS) return null;
  }
  return null;
}

export function runOfFew(database: DatabaseSync, stretch: Stretch, bytesMax: number): Run {
  const sizes = database.prepare(
    `SELECT position, length(body) AS bytes, coalesce(length(rejections), 0) AS more
     FROM records WHERE position >= ? AND position < ? ORDER BY position`,
  );
  let last = stretch.from - 1;
  let bytes = 0;
  let bytesInAll = 0;
  const rows = sizes.iterate(stretch.from, stretch.until ?? Number.MAX_SAFE_INTEGER) as unknown as Iterable<SizeRow>;
  try {
    const isEnd = eachInTurn(stretch, rows, (row) => {
      last = row.position;
      bytes += row.bytes;
      bytesInAll += row.bytes + row.more + HEADER_BYTES;
      return bytes < bytesMax && bytesInAll < BATCH_BYTES_MAX;
    });
    return { last, isEnd, bytes };
  } catch (error) {
    // The records before missing positions can be read; the next read reports the gap.
    if (!(error instanceof MissingPositionsError) || last < stretch.from) throw error;
    return { last, isEnd: false, bytes };
  }
}

interface SumsRow {
  readonly count: number;
  readonly last: number | null;
  readonly bytes: number;
  readonly more: number;
}

interface SizeRow {
  readonly position: number;
  readonly bytes: number;
  readonly more: number;
}

/**
 * Passes rows to `take` until it has enough, and throws if one is missing before that. Returns whether it reached the
 * end of the segment.
 */
export function eachInTurn<Row extends { readonly position: number }>(
  { segment, from, until }: Stretch,
  rows: Iterable<Row>,
  take: (row: Row) => boolean,
): boolean {
  let expected = from;
  for (const row of rows) {
    if (row.position !== expected) throw new MissingPositionsError(segment.file, expected, row.position);
    expected += 1;
    if (!take(row)) return expected === until;
  }
  if (until !== undefined && expected !== until) throw new MissingPositionsError(segment.file, expected, until);
  return true;
}
