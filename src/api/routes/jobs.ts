/**
 * `GET /jobs`, `GET /jobs/{id}`: work on many rejected users or dead letters, and how far it is. A job continues by
 * itself, also after a restart; `stop` and `resume` hold it. `resubmit.ts` and `dead-letters.ts` make jobs.
 */

import type { FastifyInstance } from 'fastify';
import { parseJson } from '../../json/parse.ts';
import { JOB_KINDS, JOB_STATUSES, type StoredJob } from '../../store.ts';
import { exampleOf, KEY_ID, PROCESSED_AT, RESUBMIT_AT, RESUBMIT_TRACE_ID, TRACE_ID } from '../examples.ts';
import { raw, rowJson, timeText } from '../responses.ts';
import { cursor, limit } from '../parameters.ts';
import type { ApiParts } from '../parts.ts';
import { count, list, nextCursor, object, oneOf, orNull, text, time, Type, uuid } from '../schema.ts';
import { tenantRoute } from '../route-kinds.ts';

const JobProblem = object('JobProblem', 'One that was not stored, and why.', {
  id: text('The rejection or the dead letter.'),
  message: text('Why.'),
});

export const Job = object('Job', 'Work on many rejected users or dead letters.', {
  id: uuid('The `trace_id` of the call that created it.'),
  kind: oneOf(JOB_KINDS, '`resubmit` for rejected users, `retry` for dead letters.'),
  status: oneOf(JOB_STATUSES, '`running` until all are processed, unless it was stopped.'),
  created_at: time('When it was made.'),
  finished_at: orNull(time('When it was done.')),
  by: Type.Unknown({ description: 'The key or member that created it: `key_id` or `member_id`.' }),
  filter: Type.Unknown({ description: 'Which ones; `id` for a single one.' }),
  patch: Type.Unknown({
    description:
      'The JSON Patch; once the job is done, without its values. Null for a user that was fixed by hand, and for dead letters.',
  }),
  matched: count('How many there were when it was created.'),
  resubmitted: count('Accepted now. Their traces show what happened to each.'),
  still_rejected: count('Still not valid, or the patch does not apply to them.'),
  already: count('Resubmitted by another call in the meantime.'),
  cut: count('Too large to have been kept whole: there is nothing to patch.'),
  failed: count('Could not be processed. Those that were rejected stay rejected.'),
  left: count('Not processed yet.'),
  gone: count('Never processed: retention or an erasure removed them first, or ended the job.'),
  problems: list(JobProblem, 'The first 50 that are still rejected or failed.'),
});

const JobPage = object('JobPage', 'Jobs.', { jobs: list(Job, 'Newest first.'), next_cursor: nextCursor });

const JOB = exampleOf(Job, {
  id: RESUBMIT_TRACE_ID,
  kind: 'resubmit',
  status: 'done',
  created_at: RESUBMIT_AT,
  finished_at: RESUBMIT_AT,
  by: { key_id: KEY_ID },
  filter: {
    reason: 'identifiers.user_id must be a string',
    event_name: null,
    key_id: null,
    from: null,
    to: PROCESSED_AT,
  },
  patch: [{ op: 'replace', path: '/identifiers/user_id' }],
  matched: 2,
  resubmitted: 1,
  still_rejected: 1,
  problems: [{ id: `${TRACE_ID}.1`, message: 'events array is required and must not be empty' }],
});

const params = { id: uuid('Id of the job.') };

export function registerJobRoutes(app: FastifyInstance, parts: ApiParts): void {
  tenantRoute(app, parts, 'GET /jobs', {
    operationId: 'listJobs',
    summary: 'Jobs',
    description: 'Resubmits of rejected users and retries of dead letters, with their progress.',
    query: { limit, cursor },
    response: { description: 'Jobs.', body: JobPage },
    handler: async ({ store, tenantId, parameters }) => {
      const { rows, nextCursor } = await store.jobs(tenantId, parameters);
      return { jobs: rows.map(jobJson), next_cursor: nextCursor };
    },
  });

  tenantRoute(app, parts, 'GET /jobs/:id', {
    operationId: 'getJob',
    summary: 'One job',
    description: 'The progress of a resubmit or a retry.',
    params,
    response: { description: 'The job.', body: Job, examples: { job: ['A job that is done', JOB] } },
    handler: async ({ store, tenantId, id }) => jobJsonIfAny(await store.job(tenantId, id)),
  });

  for (const [act, status, words] of [
    [
      'stop',
      'stopped',
      'What is already processed stays processed. The job of a single user that was fixed by hand cannot be stopped: it takes only a moment.',
    ],
    ['resume', 'running', 'It continues where it was.'],
  ] as const) {
    tenantRoute(app, parts, `POST /jobs/:id/${act}`, {
      operationId: `${act}Job`,
      summary: act === 'stop' ? 'Stop a job' : 'Resume a job',
      description: `${words} A job that is done stays as it is.`,
      params,
      response: { description: 'The job.', body: Job },
      handler: async ({ store, tenantId, id }) => jobJsonIfAny(await store.setJobStatus(tenantId, id, status)),
    });
  }
}

function jobJsonIfAny(job: StoredJob | undefined) {
  return job && jobJson(job);
}

export function jobJson({ counts, ...job }: StoredJob) {
  const { resubmitted, stillRejected, already, cut, failed } = counts;
  const unseen = Math.max(0, job.matched - resubmitted - stillRejected - already - cut - failed);
  return rowJson(Job, {
    ...job,
    ...counts,
    filter: filterJson(job.filter),
    patch: job.patch === null ? null : raw(job.patch),
    left: job.status === 'done' ? 0 : unseen,
    gone: job.status === 'done' ? unseen : 0,
  });
}

/** As the store keeps it; named and written as clients gave it. */
function filterJson(filter: string) {
  const { id, reason, eventName, keyId, cause, from, to } = parseJson(filter) as {
    readonly [name: string]: string | number | null | undefined;
  };
  const timeOf = (value: typeof from) => (typeof value === 'number' ? timeText(value) : value);
  return { id, reason, cause, event_name: eventName, key_id: keyId, from: timeOf(from), to: timeOf(to) };
}

export const jobResponse = {
  status: 202,
  description: 'The job. It runs in the background: `GET /jobs/{id}` shows its progress.',
  body: Job,
} as const;
