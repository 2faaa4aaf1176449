/**
 * The counts of attempts to sign in, for `members.ts`, inside a write transaction of its caller: what was read is still
 * so when it is written. Rows that have no more effect go with the next attempt, so the table stays small.
 */

import type { DatabaseSync } from 'node:sqlite';
import { ATTEMPTS_KEPT_MS, type AttemptCount, type AttemptRuling } from '../../members.ts';

/** At once, so that the attempt after a flood does not keep its thread for the whole of it. More than an attempt adds. */
const REMOVED_MAX = 100;

export function takeAttempt(
  database: DatabaseSync,
  subjects: readonly Uint8Array[],
  at: number,
  rule: (counts: readonly AttemptCount[]) => AttemptRuling,
): number {
  const select = database.prepare('SELECT failures, last_at FROM sign_in_attempts WHERE subject = ?');
  const counts = subjects.map((subject) => {
    const row = select.get(subject);
    return { failures: (row?.failures ?? 0) as number, lastAt: (row?.last_at ?? 0) as number };
  });
  const { waitMs, failures } = rule(counts);
  if (waitMs > 0) return waitMs;
  const insert = database.prepare(
    'INSERT OR REPLACE INTO sign_in_attempts (subject, failures, last_at) VALUES (?, ?, ?)',
  );
  for (const [n, subject] of subjects.entries()) insert.run(subject, failures[n] ?? 1, at);
  const remove = database.prepare(
    `DELETE FROM sign_in_attempts WHERE subject IN (
       SELECT subject FROM sign_in_attempts WHERE last_at < ? ORDER BY last_at LIMIT ?)`,
  );
  remove.run(at - ATTEMPTS_KEPT_MS, REMOVED_MAX);
  return 0;
}

export function forgiveAttempt(database: DatabaseSync, forgotten: Uint8Array, takenBack: readonly Uint8Array[]): void {
  database.prepare('DELETE FROM sign_in_attempts WHERE subject = ?').run(forgotten);
  const update = database.prepare('UPDATE sign_in_attempts SET failures = max(0, failures - 1) WHERE subject = ?');
  for (const subject of takenBack) update.run(subject);
}
