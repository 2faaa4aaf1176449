/**
 * What `sluice doctor` reads from the embedded files: which segments of the log a
 * start would refuse, how much disk is free, whether every page and every link of the store is intact. Reads only;
 * takes no lock that a server would notice.
 */

import { statfsSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { LogCorruptError, LogUnavailableError } from '../../log.ts';
import { damageIn, isDamage } from './database.ts';
import { recoverSegment } from './log/recovery.ts';
import { hasWal, holdsRecords, listSegments } from './log/segments.ts';
import { brokenLinksIn } from './store/consistency.ts';

const FINDINGS_MAX = 5;

/** For users other than root. */
export function freeBytesOf(folder: string): number {
  const { bavail, bsize } = statfsSync(folder);
  return bavail * bsize;
}

/**
 * Problems in the store's file, as messages; none if its pages are intact. Reads all of it. Deep: also checks links
 * between rows, which takes many times as long.
 */
export function findingsInStore(file: string, isDeep: boolean): string[] {
  using database = new DatabaseSync(file, { readOnly: true });
  try {
    database.exec('BEGIN');
    const findings = damageIn(database, FINDINGS_MAX);
    return findings.length > 0 || !isDeep ? findings : brokenLinksIn(database, FINDINGS_MAX);
  } catch (error) {
    if (!isDamage(error) || !(error instanceof Error)) throw error;
    return [error.message];
  }
}

/**
 * By file, the segments of the log that a start would refuse, with its messages: it checks the newest one, and those
 * that have a write-ahead log. For a folder without a running server.
 */
export function unrecoverableSegments(logFolder: string): Map<string, string> {
  const problems = new Map<string, string>();
  const segments = listSegments(logFolder);
  for (const segment of segments) {
    if (!holdsRecords(segment) || (segment !== segments.at(-1) && !hasWal(segment.file))) continue;
    try {
      recoverSegment(segment.file);
    } catch (error) {
      if (!(error instanceof LogCorruptError) && !(error instanceof LogUnavailableError)) throw error;
      problems.set(segment.file, error.message);
    }
  }
  return problems;
}
