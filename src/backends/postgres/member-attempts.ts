/**
 * The counts of attempts to sign in, for `members.ts`. A count is locked from when it is read until it is written, also
 * one that is not there yet, so that attempts at one moment over many nodes count as attempts one after the other. Rows
 * are locked in the order of their subjects. Those that have no more effect go with the next attempt.
 */

import { ATTEMPTS_KEPT_MS, type AttemptCount, type AttemptRuling } from '../../members.ts';
import type { PostgresClient } from './pool.ts';

/** At once, so that the attempt after a flood does not pay for all of it. More than an attempt adds. */
const REMOVED_MAX = 100;

interface AttemptRow extends AttemptCount {
  readonly subject: Buffer;
}

/** Rejects a ruling to wait with this, which rolls back: nothing may be left of such an attempt. */
export class HasToWait extends Error {
  readonly waitMs: number;

  constructor(waitMs: number) {
    super('the attempt has to wait');
    this.waitMs = waitMs;
  }
}

export async function takeAttempt(
  client: PostgresClient,
  subjects: readonly Uint8Array[],
  at: number,
  rule: (counts: readonly AttemptCount[]) => AttemptRuling,
): Promise<void> {
  // An update that changes nothing locks the row, and sees its latest version.
  const { rows } = await client.query<AttemptRow>(
    `INSERT INTO sign_in_attempts (subject, failures, last_at)
     SELECT subject, 0, 0 FROM (SELECT DISTINCT unnest($1::bytea[]) AS subject) AS subjects ORDER BY subject
     ON CONFLICT (subject) DO UPDATE SET failures = sign_in_attempts.failures
     RETURNING subject, failures, last_at AS "lastAt"`,
    [subjects],
  );
  const counts = new Map(rows.map(({ subject, failures, lastAt }) => [subject.toString('hex'), { failures, lastAt }]));
  const names = subjects.map((subject) => Buffer.from(subject).toString('hex'));
  const { waitMs, failures } = rule(names.map((name) => counts.get(name) ?? { failures: 0, lastAt: 0 }));
  if (waitMs > 0) throw new HasToWait(waitMs);
  const counted = new Map(names.map((name, n) => [name, failures[n] ?? 1]));
  await client.query(
    `UPDATE sign_in_attempts SET failures = counted.failures, last_at = $3
     FROM unnest($1::bytea[], $2::int[]) AS counted (subject, failures)
     WHERE sign_in_attempts.subject = counted.subject`,
    [[...counted.keys()].map((name) => Buffer.from(name, 'hex')), [...counted.values()], at],
  );
  await client.query(
    `DELETE FROM sign_in_attempts WHERE subject IN (
       SELECT subject FROM sign_in_attempts WHERE last_at < $1 ORDER BY last_at LIMIT $2 FOR UPDATE SKIP LOCKED)`,
    [at - ATTEMPTS_KEPT_MS, REMOVED_MAX],
  );
}

export async function forgiveAttempt(
  client: PostgresClient,
  forgotten: Uint8Array,
  takenBack: readonly Uint8Array[],
): Promise<void> {
  await client.query('SELECT 1 FROM sign_in_attempts WHERE subject = ANY ($1::bytea[]) ORDER BY subject FOR UPDATE', [
    [forgotten, ...takenBack],
  ]);
  await client.query('DELETE FROM sign_in_attempts WHERE subject = $1', [forgotten]);
  await client.query(
    'UPDATE sign_in_attempts SET failures = greatest(0, failures - 1) WHERE subject = ANY ($1::bytea[])',
    [takenBack],
  );
}
