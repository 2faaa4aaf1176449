/**
 * `POST /rejections/{id}/resubmit`: one rejected user, fixed by hand. `POST /rejections/resubmit`: all that match a
 * filter, each fixed by the same JSON Patch, and with `dry_run` what would become of them. Both make a job, which the
 * processor applies; a rejection is resubmitted once, and a second call for it is refused.
 */

import type { FastifyInstance } from 'fastify';
import { fixedByHand } from '../../resubmit/fixed-user.ts';
import { BadPatchError, changesBetween, type Patch, parsePatch } from '../../resubmit/patch.ts';
import { PlanChecks } from '../../resubmit/plan-checks.ts';
import type { RejectionFilter } from '../../store.ts';
import { withoutIndexes } from '../../views/kept-rejections.ts';
import { NO_IDENTIFIER, PARTLY_VALID_REQUEST } from '../examples.ts';
import { filterRange, filterText, membersOf, parseBody } from '../json-body.ts';
import { BadParameterError, RefusedError } from '../responses.ts';
import { PREVIEW_EXAMPLE, previewResubmit, ResubmitPreview } from '../resubmit-preview.ts';
import { namedExamples } from '../route-schema.ts';
import { anyJson, flag, list, object, orNull, text, Type } from '../schema.ts';
import { type TenantParts, tenantRoute } from '../tenant-route.ts';
import { filterTimes, JOB, Job, jobJson, jobResponse } from './jobs.ts';
import { REASON_CHARACTERS_MAX } from './rejections.ts';

/** A user that is kept whole has at most 16,384 characters; one that was cut may have been much larger. */
const USER_BYTES_MAX = 1_048_576;
const NAME_CHARACTERS_MAX = 512;

const ResubmitUser = Type.Object(
  {
    user: anyJson(
      'The whole user, corrected: as in `users` of `POST /ingest/events`. For a user sent by a Segment SDK, the corrected message works too.',
    ),
  },
  {
    title: 'ResubmitUser',
    description: 'A rejected user, fixed by hand.',
    additionalProperties: false,
    'x-examples': namedExamples({
      user: [
        'With an identifier',
        {
          user: { identifiers: { user_id: 'u-77', first_name: 'Sam' }, events: PARTLY_VALID_REQUEST.users[1]?.events },
        },
      ],
    }),
  },
);

const PATCH = [{ op: 'add', path: '/identifiers/anon_id', value: 'unknown-visitor' }];

const ResubmitRequest = Type.Object(
  {
    filter: Type.Object(
      {
        reason: Type.Optional(text('Only users rejected for this reason: a `message`, with or without its indexes.')),
        event_name: Type.Optional(text('Only users with an event of this name.')),
        key_id: Type.Optional(text('Only users of requests with this API key.')),
        ...filterTimes,
      },
      { description: 'Which rejected users; `{}` for all.', additionalProperties: false },
    ),
    patch: list(
      anyJson('An operation: `op`, `path`, `value`, `from`.'),
      'A JSON Patch (RFC 6902) for each user. Beyond the RFC, `{"op": "to_string", "path": …}` converts a number or a boolean to a string.',
    ),
    dry_run: Type.Optional(flag('Only show what would happen to them.')),
    cursor: Type.Optional(text('For a dry run: `next_cursor` of the previous one.')),
  },
  {
    title: 'ResubmitRequest',
    description: 'Which rejected users to fix, and how.',
    additionalProperties: false,
    'x-examples': namedExamples({
      patch: ['Give each an identifier', { filter: { reason: NO_IDENTIFIER }, patch: PATCH, dry_run: true }],
    }),
  },
);

const Resubmitted = object('Resubmitted', 'A job, or with `dry_run` what it would do.', {
  job: orNull(Job, 'Null for a dry run.'),
  preview: orNull(ResubmitPreview, 'Null unless it is a dry run.'),
});

export function registerResubmitRoutes(app: FastifyInstance, parts: TenantParts): void {
  const checks = new PlanChecks(parts.keyStore.plans);

  tenantRoute(app, parts, {
    method: 'POST',
    url: '/rejections/:id/resubmit',
    idForm: 'user',
    bodyBytesMax: USER_BYTES_MAX,
    schema: {
      operationId: 'resubmitRejection',
      summary: 'Fix one rejected user',
      description:
        'Send the corrected user. It is stored as if it had been correct from the start: under the trace, the `userIndex`, the key and the time of receipt of its request. 400 with the rule if it is still not valid, 409 if it was resubmitted before, 404 if it is not kept any more.',
      params: { id: text('Id of the rejection: `<trace_id>.<userIndex>`.') },
      body: ResubmitUser,
      response: jobResponse,
      errors: [409],
    },
    handler: async ({ store, tenantId, id, body, traceId, now, by }) => {
      const { user } = membersOf(parseBody(body), ['user']);
      if (user === undefined) throw new BadParameterError('user is required: the whole user, corrected');
      const [request = '', index = ''] = id.split('.');
      const rejection = await store.rejection(tenantId, request, Number(index));
      if (rejection === undefined) return null;
      const fixed = fixedByHand(JSON.stringify(user), rejection, (await checks.of(tenantId))?.enforced);
      if (fixed.status === 'still_rejected')
        throw new BadParameterError(`the user is still not valid: ${fixed.message}`);
      const steps = rejection.payloadIsCut ? WHOLE : changesBetween(rejection.payload, JSON.stringify(user));
      const { userIndex } = rejection;
      const one = { traceId: rejection.traceId, userIndex, user: fixed.user, steps };
      const job = await store.resubmitUser(tenantId, one, { traceId, at: now, by });
      if (job === 'unknown') return null;
      if (job === 'already')
        throw new RefusedError('conflict', 'this rejected user was resubmitted before, or accepted in a retry');
      return jobJson(job);
    },
  });

  tenantRoute(app, parts, {
    method: 'POST',
    url: '/rejections/resubmit',
    bodyBytesMax: USER_BYTES_MAX,
    schema: {
      operationId: 'resubmitRejections',
      summary: 'Fix all rejected users that match',
      description:
        'Applies one JSON Patch to each rejected user that matches and was not resubmitted yet, and stores those that are then valid. With `dry_run` nothing is stored, and the response shows what would happen to the newest 1,000: why they would still be rejected, or what would happen to profiles; `next_cursor` continues. Without it the response has a job, which runs in the background: `GET /jobs/{id}`. 404 if no user matches.',
      body: ResubmitRequest,
      response: {
        description: 'The job, or what it would do.',
        body: Resubmitted,
        examples: {
          preview: ['A dry run', { job: null, preview: PREVIEW_EXAMPLE }],
          job: ['A job', { job: { ...JOB, status: 'running', finished_at: null }, preview: null }],
        },
      },
      errors: [404],
    },
    handler: async ({ store, tenantId, body, traceId, now, by }) => {
      const members = membersOf(parseBody(body), ['filter', 'patch', 'dry_run', 'cursor']);
      const { dry_run: dryRun = false, cursor = null } = members;
      if (typeof dryRun !== 'boolean') throw new BadParameterError('dry_run must be true or false');
      if (cursor !== null && (typeof cursor !== 'string' || !dryRun)) {
        throw new BadParameterError('cursor must be the next_cursor of a dry run, and is for dry runs alone');
      }
      const filter = filterOf(members.filter, now);
      const patchText = JSON.stringify(members.patch ?? null);
      const patch = readPatch(patchText);
      if (dryRun) {
        const plan = await checks.of(tenantId);
        return { job: null, preview: await previewResubmit(store, { tenantId, filter, patch, plan, cursor, at: now }) };
      }
      const job = await store.resubmitAll(tenantId, { filter, patch: patchText }, { traceId, at: now, by });
      if (job === undefined) throw new RefusedError('not_found', 'no rejected user matches the filter');
      return { job: jobJson(job), preview: null };
    },
  });
}

/** For a payload that was cut when it was stored: the whole user is new. */
const WHOLE = [{ op: 'replace', path: '' }];

function readPatch(patch: string): Patch {
  try {
    return parsePatch(patch);
  } catch (error) {
    if (!(error instanceof BadPatchError)) throw error;
    throw new BadParameterError(error.message);
  }
}

/** What is received after the call is not what its author has seen. */
function filterOf(given: unknown, now: number): RejectionFilter {
  if (given === undefined) throw new BadParameterError('filter is required: {} is all rejected users');
  const filter = membersOf(given, ['reason', 'event_name', 'key_id', 'from', 'to'], 'filter');
  const reason = filterText(filter, 'reason', REASON_CHARACTERS_MAX);
  const { from, to } = filterRange(filter);
  return {
    reason: reason === null ? null : withoutIndexes(reason),
    eventName: filterText(filter, 'event_name', NAME_CHARACTERS_MAX),
    keyId: filterText(filter, 'key_id', NAME_CHARACTERS_MAX),
    from,
    to: Math.min(to ?? now, now),
  };
}
