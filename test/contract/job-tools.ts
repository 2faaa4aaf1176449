/** Jobs for the contracts of the store: a runner of them, and what tests look at afterwards. */

import assert from 'node:assert/strict';
import { JobRunner, type JobRunnerParts } from '../../src/processor/jobs.ts';
import { headerOf } from '../../src/processor/prepare.ts';
import type { RejectionQuery, StoredJob, StoredRejection } from '../../src/store.ts';
import { createLogger } from '../../src/telemetry/logger.ts';
import { allocateMetrics, metricsWriter } from '../../src/telemetry/metrics.ts';
import { traceIdOf } from '../processor/history.ts';
import { allPages, DAY_MS, HOUR_MS, request, type StoreUnderTest, START, TENANT } from './store-feeding.ts';

export const ANY: Omit<RejectionQuery, 'limit' | 'cursor'> = { reason: null, from: null, to: null };
export const ANY_LETTER = { cause: null, from: null, to: null };
export const BY = { key_id: 'key_operator' };
export const FIXED_AT = START + DAY_MS;
/** What is wrong: a number. */
export const wrong = (user_id: unknown, event: object = {}, rest: object = {}): object => ({
  identifiers: { user_id },
  events: [{ event_name: 'tested', ...event }],
  ...rest,
});

export function jobRunner(
  { writer }: Pick<StoreUnderTest, 'writer'>,
  failpoint: (name: string) => void = () => undefined,
  parts: Partial<JobRunnerParts> = {},
): JobRunner {
  return new JobRunner({
    writer,
    options: { defaultCountry: null, junkValues: new Set() },
    metrics: metricsWriter(allocateMetrics(1), 0),
    logger: createLogger('silent', 'test'),
    now: () => FIXED_AT + 5,
    failpoint,
    ...parts,
  });
}

export async function runJobs(
  under: Pick<StoreUnderTest, 'writer'>,
  parts: Partial<JobRunnerParts> = {},
): Promise<void> {
  const runner = jobRunner(under, undefined, parts);
  while (await runner.step(true));
}

let calls = 0;
export const audit = () => ({ traceId: traceIdOf(FIXED_AT, ++calls), at: FIXED_AT, by: BY });

/** What the tests of a suite ask of the store that is under test at the moment. */
export function jobTools(under: () => StoreUnderTest) {
  const rejections = (query: Partial<RejectionQuery> = {}): Promise<StoredRejection[]> =>
    allPages((page) => under().store.rejections(TENANT, { ...ANY, ...query, ...page }));
  const jobOf = async (id: string): Promise<StoredJob> => {
    const job = await under().store.job(TENANT, id);
    assert.ok(job);
    return job;
  };
  const totals = async () => {
    const { hours } = await under().store.ledger(TENANT, { from: null, to: null });
    const [hour, ...others] = hours;
    assert.ok(hour !== undefined && others.length === 0, 'everything was received in one hour');
    assert.deepEqual(await under().writer.difference(), { users: 0, events: 0 });
    const { users, events, usersRejected, usersResubmitted } = hour;
    return { users, events, usersRejected, usersResubmitted };
  };

  async function deadLetter(users: readonly unknown[], spoil: object, position: number): Promise<string> {
    const record = { ...request(users, { receivedAt: START + position }), partition: 3, position, ...spoil };
    const transaction = await under().writer.begin();
    await transaction.deadLetter(headerOf({ ...record }), record, `Error: broken ${position}`, START + HOUR_MS);
    await transaction.commit(true);
    return record.traceId;
  }

  return { rejections, jobOf, totals, deadLetter };
}
