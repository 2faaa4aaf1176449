/**
 * What `sluice doctor` reads from the embedded files: which process holds the data folder, which segments of the log a
 * start would refuse, how much disk is free, whether every page and every link of the store is intact. Reads only;
 * takes no lock that a server would notice.
 */

import { existsSync, readFileSync, statfsSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { OperatorError } from '../../errors.ts';
import { LogCorruptError, LogUnavailableError } from '../../log.ts';
import { isBusy, isDamage } from './database.ts';
import { foreignLockText } from './folder-lock.ts';
import { recoverSegment } from './log/recovery.ts';
import { hasWal, holdsRecords, listSegments } from './log/segments.ts';
import { brokenLinksIn } from './store/consistency.ts';

const FINDINGS_MAX = 5;

/** The lock itself shows whether a server is running; the process id is the one that the last server wrote. */
export function lockHolderOf(folder: string): { isHeld: boolean; pid: number | null } {
  return { isHeld: isLocked(join(folder, 'lock.db')), pid: pidIn(join(folder, 'server.pid')) };
}

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
  const database = new DatabaseSync(file, { readOnly: true });
  try {
    database.exec('BEGIN');
    const rows = database.prepare(`PRAGMA quick_check(${FINDINGS_MAX})`).all();
    const findings = rows.map((row) => String(row['quick_check'])).filter((text) => text !== 'ok');
    return findings.length > 0 || !isDeep ? findings : brokenLinksIn(database, FINDINGS_MAX);
  } catch (error) {
    if (!isDamage(error) || !(error instanceof Error)) throw error;
    return [error.message];
  } finally {
    database.close();
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

function isLocked(file: string): boolean {
  if (!existsSync(file)) return false;
  const database = new DatabaseSync(file, { readOnly: true, timeout: 0 });
  try {
    // Any read takes a shared lock for a moment, which a server's exclusive one prevents.
    database.prepare('SELECT count(*) FROM sqlite_schema').get();
    return false;
  } catch (error) {
    if (isBusy(error)) return true;
    if (isDamage(error)) throw new OperatorError(foreignLockText(file), { cause: error });
    throw error;
  } finally {
    database.close();
  }
}

function pidIn(file: string): number | null {
  try {
    const pid = Number(readFileSync(file, 'utf8').trim());
    return Number.isSafeInteger(pid) && pid > 0 ? pid : null;
  } catch {
    return null;
  }
}
