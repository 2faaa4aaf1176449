/**
 * `POST /rejections/{id}/resubmit`: one rejected user, fixed by hand. `POST /rejections/resubmit`: all that match a
 * filter, each fixed by the same JSON Patch. Both make a job, which the processor applies; a rejection is resubmitted
 * once, and a second call for it is refused.
 *
 * With `dry_run`, what would become of each: those that would be accepted are predicted by the processor's own code
 * (`Predictions`), in the order in which a job applies them and with the time of receipt of their request, so that users
 * see each other. One response is about CHECKED_MAX users, or fewer if they are large, the newest first, and predicts
 * them as if the others were not there. It lists SHOWN_MAX of them.
 */

import { setImmediate } from 'node:timers/promises';
import type { FastifyInstance } from 'fastify';
import type { Static } from 'typebox';
import { parseJson } from '../../json/parse.ts';
import { type OpenPlan, OpenPlans } from '../../keys/open-plans.ts';
import type { TenantId } from '../../model.ts';
import type { Violation } from '../../plans/compiled-plan.ts';
import {
  enforcedBy,
  fixedByHand,
  type FixedUserResult,
  fixUser,
  resubmittedRecord,
} from '../../resubmit/fixed-user.ts';
import { changesBetween, type Patch, parsePatch, sharedIdentifiers } from '../../resubmit/patch.ts';
import type { PredictedUser as PredictedUserData, RejectionFilter, Store, StoredRejection } from '../../store.ts';
import { rejectionId, withoutIndexes } from '../../views/kept-rejections.ts';
import { NO_IDENTIFIER, PARTLY_VALID_REQUEST } from '../examples.ts';
import { PredictedUser, predictedUserJson } from '../ingest-operation.ts';
import { membersOf, parseBody, readFilter, refuseEmptyRange } from '../parameters.ts';
import type { ApiParts } from '../parts.ts';
import { BadParameterError, type JsonOf, raw, RefusedError } from '../responses.ts';
import {
  count,
  filterObject,
  flag,
  list,
  nextCursor,
  object,
  oneOf,
  orNull,
  requestBody,
  text,
  Type,
} from '../schema.ts';
import { tenantRoute } from '../route-kinds.ts';
import { Job, jobJson, jobResponse } from './jobs.ts';
import { REJECTION_FILTER } from './rejections.ts';

/** A user that is kept whole has at most 16,384 characters; one that was cut may have been much larger. */
const USER_BYTES_MAX = 1_048_576;
const CHECKED_MAX = 1_000;
/** Few, since the last read may exceed VALID_CHARACTERS_MAX. */
const CHECKED_PER_READ = 20;
const SHOWN_MAX = 50;
const REASONS_MAX = 20;
/** Limit of the valid users together: beyond it, no more are read. */
const VALID_CHARACTERS_MAX = 1_048_576;

const ResubmitUser = requestBody(
  'ResubmitUser',
  'A rejected user, fixed by hand.',
  {
    user: Type.Unknown({
      description:
        'The whole user, corrected: as in `users` of `POST /ingest/events`. For a user sent by a Segment SDK, the corrected message works too.',
    }),
  },
  {
    user: [
      'With an identifier',
      { user: { identifiers: { user_id: 'u-77', first_name: 'Sam' }, events: PARTLY_VALID_REQUEST.users[1]?.events } },
    ],
  },
);

const PATCH = [{ op: 'add', path: '/identifiers/anon_id', value: 'unknown-visitor' }];

const ResubmitRequest = requestBody(
  'ResubmitRequest',
  'Which rejected users to fix, and how.',
  {
    filter: filterObject(REJECTION_FILTER, 'Which rejected users, of those received until now; `{}` for all.'),
    patch: list(
      Type.Unknown({ description: 'An operation: `op`, `path`, `value`, `from`.' }),
      'A JSON Patch (RFC 6902) for each user. Beyond the RFC, `{"op": "to_string", "path": …}` converts a number or a boolean to a string.',
    ),
    dry_run: Type.Optional(flag('Only show what would happen to them.')),
    cursor: Type.Optional(text('For a dry run: `next_cursor` of the previous one.')),
  },
  { patch: ['Give each an identifier', { filter: { reason: NO_IDENTIFIER }, patch: PATCH, dry_run: true }] },
);

const CheckedUser = object('CheckedUser', 'What would happen to one rejected user.', {
  id: text('The rejection.'),
  status: oneOf(
    ['valid', 'still_rejected', 'cut'],
    '`cut`: it was too large to be kept whole, so it cannot be patched; send it whole to `POST /rejections/{id}/resubmit`.',
  ),
  message: orNull(text('Why it would still be rejected.')),
  user: Type.Unknown({ description: 'The user as it would be; null unless it is valid.' }),
  prediction: orNull(
    PredictedUser,
    'What would happen to profiles; null unless it is valid. A profile that would be created is named `new:` and the id of the rejection that would create it.',
  ),
});

const Effects = object('ResubmitEffects', 'What the valid users of this response would change, all together.', {
  users: count('How many users were predicted.'),
  new_profiles: count('Profiles that would be created.'),
  merges: count('Merges of profiles.'),
  refusals: count('Identifiers that a rule would not link.'),
  property_changes: count('Properties of profiles that would have a different value.'),
  events: count('Events that would be stored.'),
  duplicate_events: count('Events that are stored already, by `$event_id`.'),
  violations: count('Violations of the tracking plan that would be counted.'),
});

const ResubmitPreview = object('ResubmitPreview', 'What would happen to rejected users.', {
  matched: count('All that match and were not resubmitted yet.'),
  checked: count('How many of them this response is about: at most 1,000, fewer if they are large.'),
  valid: count('Would be accepted.'),
  still_rejected: count('Would still be rejected.'),
  cut: count('Cannot be patched, because they were too large to be kept whole.'),
  effects: Effects,
  pending_requests: count('Your accepted requests that are not processed yet, and so are not considered.'),
  reasons: list(
    Type.Object({ message: text('Why they would still be rejected, without indexes.'), users: count('How many.') }),
    'The most frequent first.',
  ),
  warnings: list(Type.String(), 'What you probably do not want.'),
  users: list(CheckedUser, 'The first 50, those that would still be rejected before others.'),
  next_cursor: nextCursor,
});

export const Resubmitted = object('Resubmitted', 'A job, or with `dry_run` what it would do.', {
  job: orNull(Job, 'Null for a dry run.'),
  preview: orNull(ResubmitPreview, 'Null unless it is a dry run.'),
});

export function registerResubmitRoutes(app: FastifyInstance, parts: ApiParts): void {
  const plans = new OpenPlans(parts.keyStore.plans);

  tenantRoute(app, parts, 'POST /rejections/:id/resubmit', {
    idForm: 'user',
    bodyBytesMax: USER_BYTES_MAX,
    operationId: 'resubmitRejection',
    summary: 'Fix one rejected user',
    description:
      'Send the corrected user. It is stored as if it had been correct from the start: under the trace, the `userIndex`, the key and the time of receipt of its request. 400 with the rule if it is still not valid, 409 if it was resubmitted before, 404 if it is not kept any more.',
    params: { id: text('Id of the rejection: `<trace_id>.<userIndex>`.') },
    body: ResubmitUser,
    response: jobResponse,
    errors: [409],
    handler: async ({ store, tenantId, id, body, traceId, now, by }) => {
      const { user } = membersOf(parseBody(body), ['user']);
      if (user === undefined) throw new BadParameterError('user is required: the whole user, corrected');
      const [request = '', index = ''] = id.split('.');
      const rejection = await store.rejection(tenantId, request, Number(index));
      if (rejection === undefined) return undefined;
      const fixed = fixedByHand(JSON.stringify(user), rejection, enforcedBy(await plans.newest(tenantId)));
      if (fixed.status === 'still_rejected')
        throw new BadParameterError(`the user is still not valid: ${fixed.message}`);
      const steps = rejection.payloadIsCut ? WHOLE : changesBetween(rejection.payload, JSON.stringify(user));
      const { userIndex } = rejection;
      const one = { traceId: rejection.traceId, userIndex, user: fixed.user, steps };
      const job = await store.resubmitUser(tenantId, one, { traceId, at: now, by });
      if (job === 'unknown') return undefined;
      if (job === 'already')
        throw new RefusedError('conflict', 'this rejected user was resubmitted before, or accepted in a retry');
      return jobJson(job);
    },
  });

  tenantRoute(app, parts, 'POST /rejections/resubmit', {
    bodyBytesMax: USER_BYTES_MAX,
    operationId: 'resubmitRejections',
    summary: 'Fix all rejected users that match',
    description:
      'Applies one JSON Patch to each rejected user that matches and was not resubmitted yet, and stores those that are then valid. With `dry_run` nothing is stored, and the response shows what would happen to the newest 1,000: why they would still be rejected, or what would happen to profiles; `next_cursor` continues. Without it the response has a job, which runs in the background: `GET /jobs/{id}`. 404 if no user matches.',
    body: ResubmitRequest,
    response: { description: 'The job, or what it would do.', body: Resubmitted },
    errors: [404],
    handler: async ({ store, tenantId, body, traceId, now, by }) => {
      const members = membersOf(parseBody(body), ['filter', 'patch', 'dry_run', 'cursor']);
      const { dry_run: dryRun = false, cursor = null } = members;
      if (typeof dryRun !== 'boolean') throw new BadParameterError('dry_run must be true or false');
      if (cursor !== null && (typeof cursor !== 'string' || !dryRun)) {
        throw new BadParameterError('cursor must be the next_cursor of a dry run, and is for dry runs alone');
      }
      const filter = filterOf(members.filter, now);
      const patchText = JSON.stringify(members.patch ?? null);
      const patch = parsePatch(patchText);
      if (dryRun) {
        const plan = await plans.newest(tenantId);
        return { job: null, preview: await previewResubmit(store, { tenantId, filter, patch, plan, cursor, at: now }) };
      }
      const job = await store.resubmitAll(tenantId, { filter, patch: patchText }, { traceId, at: now, by });
      if (job === undefined) throw new RefusedError('not_found', 'no rejected user matches the filter');
      return { job: jobJson(job), preview: null };
    },
  });
}

const WHOLE = [{ op: 'replace', path: '' }];

/** What is received after the call is not what its author has seen. */
function filterOf(given: unknown, now: number): RejectionFilter {
  if (given === undefined) throw new BadParameterError('filter is required: {} is all rejected users');
  const { reason, event_name: eventName, key_id: keyId, from, to } = readFilter(REJECTION_FILTER, given);
  refuseEmptyRange(from, to, 'filter.');
  return {
    reason: reason === null ? null : withoutIndexes(reason),
    eventName,
    keyId,
    from,
    to: Math.min(to ?? now, now),
  };
}

type Checked = { readonly rejection: StoredRejection } & (FixedUserResult | { readonly status: 'cut' });
type ValidUser = Extract<Checked, { readonly status: 'valid' }>;

interface PreviewRequest {
  readonly tenantId: TenantId;
  readonly filter: RejectionFilter;
  readonly patch: Patch;
  readonly plan: OpenPlan | undefined;
  readonly cursor: string | null;
  /** When a job would apply it: now. */
  readonly at: number;
}

export async function previewResubmit(
  store: Store,
  request: PreviewRequest,
): Promise<JsonOf<Static<typeof ResubmitPreview>>> {
  const { tenantId, filter, patch, plan, at } = request;
  const { checked, nextCursor: next } = await checkRejections(store, request);
  const matched = await store.countRejections(tenantId, filter);
  const withStatus = <Status extends Checked['status']>(status: Status) =>
    checked.filter((user): user is Extract<Checked, { readonly status: Status }> => user.status === status);
  const [valid, rejected, cut] = [withStatus('valid'), withStatus('still_rejected'), withStatus('cut')];
  // The oldest first, as a job takes them.
  const { predicted, pendingRequests } = await predict(store, tenantId, valid.toReversed(), plan, at);
  const byId = new Map(predicted.map((user) => [user.id, user]));
  return {
    matched,
    checked: checked.length,
    valid: valid.length,
    still_rejected: rejected.length,
    cut: cut.length,
    effects: effectsOf(predicted),
    pending_requests: pendingRequests,
    reasons: [...Map.groupBy(rejected, ({ message }) => withoutIndexes(message))]
      .map(([message, users]) => ({ message, users: users.length }))
      .sort((a, b) => b.users - a.users)
      .slice(0, REASONS_MAX),
    warnings:
      matched > 1
        ? sharedIdentifiers(patch).map(
            (path) => `the patch gives every user the same ${path}: all of them would become one person`,
          )
        : [],
    users: [...rejected, ...cut, ...valid].slice(0, SHOWN_MAX).map((user) => {
      const id = idOf(user.rejection);
      const prediction = byId.get(id);
      return {
        id,
        status: user.status,
        message: user.status === 'still_rejected' ? user.message : null,
        user: user.status === 'valid' ? raw(user.user) : null,
        prediction: prediction === undefined ? null : predictedUserJson(prediction, prediction.violations),
      };
    }),
    next_cursor: next,
  };
}

async function checkRejections(
  store: Store,
  { tenantId, filter, patch, plan, cursor }: PreviewRequest,
): Promise<{ readonly checked: readonly Checked[]; readonly nextCursor: string | null }> {
  const enforced = enforcedBy(plan);
  const checked: Checked[] = [];
  let next = cursor;
  let charactersLeft = VALID_CHARACTERS_MAX;
  const query = { ...filter, isResubmitted: false, limit: CHECKED_PER_READ };
  do {
    const page = await store.rejections(tenantId, { ...query, cursor: next });
    for (const rejection of page.rows) {
      // Other requests go on meanwhile: an expensive pattern takes milliseconds.
      await setImmediate();
      const fixed = rejection.payloadIsCut
        ? { status: 'cut' as const }
        : fixUser(rejection.payload, patch, rejection, enforced);
      if (fixed.status === 'valid') charactersLeft -= fixed.user.length;
      checked.push({ rejection, ...fixed });
    }
    next = page.nextCursor;
  } while (next !== null && checked.length < CHECKED_MAX && charactersLeft > 0);
  return { checked, nextCursor: next };
}

/** A prediction in terms of the rejection that it is of. */
interface Predicted extends PredictedUserData {
  readonly id: string;
  readonly violations: readonly Violation[];
}

async function predict(
  store: Store,
  tenantId: TenantId,
  valid: readonly ValidUser[],
  plan: OpenPlan | undefined,
  at: number,
): Promise<{ readonly predicted: readonly Predicted[]; readonly pendingRequests: number }> {
  if (valid.length === 0) return { predicted: [], pendingRequests: 0 };
  const records = valid.map((fixed, index) => resubmittedRecord(tenantId, fixed.rejection, index, fixed));
  const { users, pendingRequests } = await store.predict(tenantId, records, at);
  // A prediction names users, and the profiles that they would create, by their index.
  const nameOf = (profile: string): string =>
    profile.replace(/^new:(\d+)$/, (_, index: string) => `new:${idOf((valid[Number(index)] as ValidUser).rejection)}`);
  const predicted: Predicted[] = [];
  for (const user of users) {
    await setImmediate();
    const { rejection, user: json } = valid[user.userIndex] as ValidUser;
    predicted.push({
      ...user,
      id: idOf(rejection),
      userIndex: rejection.userIndex,
      profileId: user.profileId === null ? null : nameOf(user.profileId),
      merges: user.merges.map(({ from, into, via }) => ({ from: nameOf(from), into: nameOf(into), via })),
      violations: plan?.plan?.violationsOf(parseJson(json)) ?? [],
    });
  }
  return { predicted, pendingRequests };
}

function effectsOf(users: readonly Predicted[]): Static<typeof Effects> {
  const sum = (of: (user: Predicted) => number): number => users.reduce((total, user) => total + of(user), 0);
  const created = users.flatMap(({ isNew, profileId }) => (isNew && profileId !== null ? [profileId] : []));
  return {
    users: users.length,
    new_profiles: new Set(created).size,
    merges: sum(({ merges }) => merges.length),
    refusals: sum(({ refusals }) => refusals.length),
    property_changes: sum(
      ({ propertyChanges, propertyChangesOmitted }) => propertyChanges.length + propertyChangesOmitted,
    ),
    events: sum(({ events }) => events),
    duplicate_events: sum(({ duplicateEvents }) => duplicateEvents),
    violations: sum(({ violations }) => violations.length),
  };
}

function idOf({ traceId, userIndex }: StoredRejection): string {
  return rejectionId(traceId, userIndex);
}
