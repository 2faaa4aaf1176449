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
import { fixUser } from '../resubmit/fixed-user.ts';
import { type Patch, sharedIdentifiers } from '../resubmit/patch.ts';
import type { PlanCheck } from '../resubmit/plan-checks.ts';
import { resubmittedRecord } from '../resubmit/resubmitted-record.ts';
import type {
  PredictedUser as PredictedUserData,
  Prediction,
  RejectionFilter,
  Store,
  StoredRejection,
} from '../store.ts';
import { reasonOf, rejectionId } from '../views/kept-rejections.ts';
import { PredictedUser, predictedUserJson } from './ingest-operation.ts';
import { CHECK_RESPONSE, PARTLY_VALID_REQUEST, TRACE_ID } from './examples.ts';
import { type JsonOf, raw } from './json-text.ts';
import { anyJson, count, list, nextCursor, object, oneOf, orNull, text, textOrNull, Type } from './schema.ts';

const CHECKED_MAX = 1_000;
/** Few, since the last read may exceed VALID_CHARACTERS_MAX. */
const CHECKED_PER_READ = 20;
const SHOWN_MAX = 50;
const REASONS_MAX = 20;
const TURN_MS = 20;
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

interface Checked {
  readonly rejection: StoredRejection;
  readonly status: 'valid' | 'still_rejected' | 'cut';
  readonly message: string | null;
  /** The fixed user as JSON; null if it is not valid. */
  readonly user: string | null;
  readonly events: number;
}

export interface PreviewRequest {
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
  const of = (status: Checked['status']) => checked.filter((user) => user.status === status);
  // The oldest first, as a job takes them.
  const valid = of('valid').toReversed();
  const { users: predictions, pendingRequests } = await predict(store, tenantId, valid, at);
  const turns = new Turns();
  const predicted: Described[] = [];
  for (const user of predictions) {
    await turns.yield();
    predicted.push(describe(user, valid, plan));
  }
  const byId = new Map(predicted.map((user) => [user.id, user]));
  const shown = [...of('still_rejected'), ...of('cut'), ...of('valid')].slice(0, SHOWN_MAX);
  const messages = Map.groupBy(of('still_rejected'), ({ message }) => reasonOf(message ?? ''));
  return {
    matched,
    checked: checked.length,
    valid: of('valid').length,
    still_rejected: of('still_rejected').length,
    cut: of('cut').length,
    effects: effectsOf(predicted),
    pending_requests: pendingRequests,
    reasons: [...messages]
      .map(([message, users]) => ({ message, users: users.length }))
      .sort((a, b) => b.users - a.users)
      .slice(0, REASONS_MAX),
    warnings: matched > 1 ? sharedIdentifiers(patch).map(oneForAll) : [],
    users: shown.map(({ rejection, status, message, user }) => {
      const id = idOf(rejection);
      const prediction = byId.get(id);
      return {
        id,
        status,
        message,
        user: user === null ? null : raw(user),
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
  const turns = new Turns();
  do {
    const page = await store.rejections(tenantId, {
      ...filter,
      isResubmitted: false,
      limit: CHECKED_PER_READ,
      cursor: next,
    });
    for (const rejection of page.rows) {
      await turns.yield();
      if (rejection.payloadIsCut) {
        checked.push({ rejection, status: 'cut', message: null, user: null, events: 0 });
        continue;
      }
      const fixed = fixUser(rejection.payload, patch, rejection, plan?.enforced);
      if (fixed.status === 'still_rejected') {
        checked.push({ rejection, status: 'still_rejected', message: fixed.message, user: null, events: 0 });
        continue;
      }
      charactersLeft -= fixed.user.length;
      checked.push({ rejection, status: 'valid', message: null, user: fixed.user, events: fixed.events });
    }
    next = page.nextCursor;
  } while (next !== null && checked.length < CHECKED_MAX && charactersLeft > 0);
  return { checked, nextCursor: next };
}

/** Lets other requests proceed when this one has used the thread for TURN_MS. */
class Turns {
  #end = performance.now() + TURN_MS;

  async yield(): Promise<void> {
    if (performance.now() < this.#end) return;
    await setImmediate();
    this.#end = performance.now() + TURN_MS;
  }
}

/** `userIndex` of each is its index in `valid`. */
function predict(store: Store, tenantId: TenantId, valid: readonly Checked[], at: number): Promise<Prediction> {
  if (valid.length === 0) return Promise.resolve({ users: [], pendingRequests: 0 });
  const records = valid.map(({ rejection, user, events }, index) => {
    const { format } = rejection;
    const sentAs = { ...rejection, format: format === 'sluice' ? null : format };
    return resubmittedRecord(tenantId, sentAs, index, { user: user ?? '', events });
  });
  return store.predict(tenantId, records, at);
}

/** A prediction in terms of the rejection that it is of. */
interface Described extends PredictedUserData {
  readonly id: string;
  readonly violations: readonly Violation[];
}

function describe(user: PredictedUserData, valid: readonly Checked[], plan: PlanCheck | undefined): Described {
  const { rejection, user: json } = valid[user.userIndex] as Checked;
  const nameOf = (id: string): string => nameOfProfile(id, valid);
  return {
    ...user,
    id: idOf(rejection),
    userIndex: rejection.userIndex,
    profileId: user.profileId === null ? null : nameOf(user.profileId),
    merges: user.merges.map(({ from, into, via }) => ({ from: nameOf(from), into: nameOf(into), via })),
    violations: plan?.violationsOf(parseJson(json ?? 'null')) ?? [],
  };
}

function idOf({ traceId, userIndex }: StoredRejection): string {
  return rejectionId(traceId, userIndex);
}

/** A new profile is named by an index in a prediction. */
function nameOfProfile(id: string, valid: readonly Checked[]): string {
  const [, index] = /^new:(\d+)$/.exec(id) ?? [];
  const creator = index === undefined ? undefined : valid[Number(index)];
  return creator === undefined ? id : `new:${idOf(creator.rejection)}`;
}

function effectsOf(users: readonly Described[]): Static<typeof Effects> {
  const sum = (of: (user: Described) => number): number => users.reduce((total, user) => total + of(user), 0);
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

function oneForAll(path: string): string {
  return `the patch gives every user the same ${path}: all of them would become one person`;
}
