/**
 * The dry run of a resubmit: what would become of each rejected user that matches, with its patch. Those that would be
 * accepted are predicted by the processor's own code (`Predictions`), in the order in which a job applies them and with
 * the time of receipt of their request, so that users see each other.
 *
 * Limits: one response is about CHECKED_MAX users, or fewer if they are large, the newest first, and predicts them as if
 * the others were not there. It lists SHOWN_MAX of them.
 */

import { setImmediate } from 'node:timers/promises';
import type { Static } from 'typebox';
import { parseJson } from '../json/parse.ts';
import type { TenantId } from '../model.ts';
import type { Violation } from '../plans/compiled-plan.ts';
import { type FixedUserResult, fixUser } from '../resubmit/fixed-user.ts';
import { type Patch, sharedIdentifiers } from '../resubmit/patch.ts';
import type { PlanCheck } from '../resubmit/plan-checks.ts';
import { resubmittedRecord } from '../resubmit/resubmitted-record.ts';
import type { PredictedUser as PredictedUserData, RejectionFilter, Store, StoredRejection } from '../store.ts';
import { withoutIndexes, rejectionId } from '../views/kept-rejections.ts';
import { PredictedUser, predictedUserJson } from './ingest-operation.ts';
import { CHECK_RESPONSE, PARTLY_VALID_REQUEST, TRACE_ID } from './examples.ts';
import { type JsonOf, raw } from './json-text.ts';
import { anyJson, count, list, nextCursor, object, oneOf, orNull, text, textOrNull, Type } from './schema.ts';

const CHECKED_MAX = 1_000;
/** Few, since the last read may exceed VALID_CHARACTERS_MAX. */
const CHECKED_PER_READ = 20;
const SHOWN_MAX = 50;
const REASONS_MAX = 20;
const YIELD_AFTER_MS = 20;
/** Limit of the valid users together: beyond it, no more are read. */
const VALID_CHARACTERS_MAX = 1_048_576;

const CheckedUser = object('CheckedUser', 'What would happen to one rejected user.', {
  id: text('The rejection.'),
  status: oneOf(
    ['valid', 'still_rejected', 'cut'],
    '`cut`: it was too large to be kept whole, so it cannot be patched; send it whole to `POST /rejections/{id}/resubmit`.',
  ),
  message: textOrNull('Why it would still be rejected.'),
  user: anyJson('The user as it would be; null unless it is valid.'),
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

export const ResubmitPreview = object('ResubmitPreview', 'What would happen to rejected users.', {
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

const [EXAMPLE_USER] = CHECK_RESPONSE.users;

export const PREVIEW_EXAMPLE = {
  matched: 1,
  checked: 1,
  valid: 1,
  still_rejected: 0,
  cut: 0,
  effects: {
    users: 1,
    new_profiles: 0,
    merges: 0,
    refusals: 0,
    property_changes: 1,
    events: 2,
    duplicate_events: 0,
    violations: 0,
  },
  pending_requests: 0,
  reasons: [],
  warnings: [],
  users: [
    {
      id: rejectionId(TRACE_ID, 1),
      status: 'valid',
      message: null,
      user: {
        identifiers: { first_name: 'Sam', anon_id: 'unknown-visitor' },
        events: PARTLY_VALID_REQUEST.users[1]?.events,
      },
      prediction: { ...EXAMPLE_USER, userIndex: 1 },
    },
  ],
  next_cursor: null,
};

type Checked = { readonly rejection: StoredRejection } & (FixedUserResult | { readonly status: 'cut' });
type ValidUser = Extract<Checked, { readonly status: 'valid' }>;

interface PreviewRequest {
  readonly tenantId: TenantId;
  readonly filter: RejectionFilter;
  readonly patch: Patch;
  readonly plan: PlanCheck | undefined;
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
    warnings: matched > 1 ? sharedIdentifiers(patch).map(sharedIdentifierWarning) : [],
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
  const checked: Checked[] = [];
  let next = cursor;
  let charactersLeft = VALID_CHARACTERS_MAX;
  const yielder = new Yielder();
  const query = { ...filter, isResubmitted: false, limit: CHECKED_PER_READ };
  do {
    const page = await store.rejections(tenantId, { ...query, cursor: next });
    for (const rejection of page.rows) {
      await yielder.yieldIfDue();
      const fixed = rejection.payloadIsCut
        ? { status: 'cut' as const }
        : fixUser(rejection.payload, patch, rejection, plan?.enforced);
      if (fixed.status === 'valid') charactersLeft -= fixed.user.length;
      checked.push({ rejection, ...fixed });
    }
    next = page.nextCursor;
  } while (next !== null && checked.length < CHECKED_MAX && charactersLeft > 0);
  return { checked, nextCursor: next };
}

/** Lets other requests proceed when this one has used the thread for YIELD_AFTER_MS. */
class Yielder {
  #dueAt = performance.now() + YIELD_AFTER_MS;

  async yieldIfDue(): Promise<void> {
    if (performance.now() < this.#dueAt) return;
    await setImmediate();
    this.#dueAt = performance.now() + YIELD_AFTER_MS;
  }
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
  plan: PlanCheck | undefined,
  at: number,
): Promise<{ readonly predicted: readonly Predicted[]; readonly pendingRequests: number }> {
  if (valid.length === 0) return { predicted: [], pendingRequests: 0 };
  const records = valid.map((fixed, index) => {
    const { format } = fixed.rejection;
    return resubmittedRecord(
      tenantId,
      { ...fixed.rejection, format: format === 'sluice' ? null : format },
      index,
      fixed,
    );
  });
  const { users, pendingRequests } = await store.predict(tenantId, records, at);
  // A prediction names users, and the profiles that they would create, by their index.
  const nameOf = (profile: string): string =>
    profile.replace(/^new:(\d+)$/, (_, index: string) => `new:${idOf((valid[Number(index)] as ValidUser).rejection)}`);
  const yielder = new Yielder();
  const predicted: Predicted[] = [];
  for (const user of users) {
    await yielder.yieldIfDue();
    const { rejection, user: json } = valid[user.userIndex] as ValidUser;
    predicted.push({
      ...user,
      id: idOf(rejection),
      userIndex: rejection.userIndex,
      profileId: user.profileId === null ? null : nameOf(user.profileId),
      merges: user.merges.map(({ from, into, via }) => ({ from: nameOf(from), into: nameOf(into), via })),
      violations: plan?.violationsOf(parseJson(json)) ?? [],
    });
  }
  return { predicted, pendingRequests };
}

function idOf({ traceId, userIndex }: StoredRejection): string {
  return rejectionId(traceId, userIndex);
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

function sharedIdentifierWarning(path: string): string {
  return `the patch gives every user the same ${path}: all of them would become one person`;
}
