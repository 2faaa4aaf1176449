/**
 * Dead letters: records that the processor could not process, with their cause. The whole record is kept, so that a later
 * version can retry it; after a successful retry the row stays, without its body. Beyond a total size, bodies are not kept
 * and cannot be retried. An erase removes the person's users from the bodies; without any user left the row stays for the
 * trace of its request, and is not listed or retried any more. What retention removes before a retry has stored it moves
 * from `dead_letters` to `expired` in the ledger. A message of another program in a shared log is kept without its body,
 * which stays in that log for its retention, and is in no ledger.
 */

import { type ExpressionBuilder, type InferResult, sql } from 'kysely';
import { parseExact } from '../../json/exact-numbers.ts';
import { jsonIn, parseJson } from '../../json/parse.ts';
import { type LogHeader, type LogRecord, NO_TENANT } from '../../log.ts';
import type { DeadLetter, DeadLetterFilter, Page, PageRequest } from '../../store.ts';
import type { DeadLetterItem, RecordHeader } from '../../store-writer.ts';
import { scopedCursorOf, scopedNumbersOf, pageOf } from '../../views/cursor.ts';
import { isObject } from '../../validation/shape.ts';
import { withoutNul } from '../../views/storable-text.ts';
import { HOUR_MS } from '../../model.ts';
import { startOf } from '../../views/sums.ts';
import { ERASED_USER } from '../../views/trace.ts';
import { changedBy, rowsOf, type Steps, type Tables } from './steps.ts';
import type { StoreTables } from './store-tables.ts';
import { addToSums, movedInLedger } from './sums.ts';

/** Limit of all bodies together. Dead letters are bugs, so there are few; a body is at most as large as a request. */
const BODY_BYTES_MAX = 64 * 1024 * 1024;

/** The number of `NO_TENANT`, which is not in the table of tenants. */
export const NO_TENANT_NUMBER = 0;

/** In the transaction that passes over the record. */
export function* insertDeadLetter(
  tables: Tables,
  tenant: number,
  log: string,
  header: RecordHeader,
  record: LogRecord,
  cause: string,
  failedAt: number,
): Steps<void> {
  const { partition, position, receivedAt, traceId, firstUserIndex, usersAccepted, eventsAccepted, keyId } = header;
  const { body, ...rest } = record;
  const [kept] = yield* rowsOf(
    tables.selectFrom('dead_letters').select(sql<number | null>`sum(octet_length(body))`.as('bytes')),
  );
  const isKept = tenant !== NO_TENANT_NUMBER && (kept?.bytes ?? 0) + body.byteLength <= BODY_BYTES_MAX;
  const row = {
    tenant,
    log,
    partition,
    position,
    received_at: receivedAt,
    trace_id: traceId,
    failed_at: failedAt,
    cause: withoutNul(cause),
    first_user_index: firstUserIndex,
    users: usersAccepted,
    events: eventsAccepted,
    key_id: keyId,
    header: withoutNul(JSON.stringify(rest)),
    body: isKept ? Buffer.from(body) : null,
    retried_at: null,
  };
  yield* changedBy(tables.insertInto('dead_letters').values(row));
}

/** Newest first, of all tenants and of all logs that come into this store, with those that were erased. */
export function* listAllDeadLetters(tables: Tables, limit: number): Steps<DeadLetter[]> {
  const rows = yield* rowsOf(notRetried(tables).limit(limit));
  return rows.map(deadLetterOf);
}

/** Newest first, of one tenant. */
export function* listDeadLetters(
  tables: Tables,
  tenant: number,
  { limit, cursor, ...filter }: DeadLetterFilter & PageRequest,
): Steps<Page<DeadLetter>> {
  const scope = [tenant, filter.cause] as const;
  const [before = Number.MAX_SAFE_INTEGER] = cursor === null ? [] : scopedNumbersOf('dead_letters', scope, cursor, 1);
  const letters = matching(waiting(tables), filter)
    .where('dead_letters.tenant', '=', tenant)
    .where('dead_letters.no', '<', before)
    .limit(limit + 1);
  const rows = yield* rowsOf(letters);
  return pageOf(rows, limit, deadLetterOf, ({ no }) => scopedCursorOf('dead_letters', scope, no));
}

function waiting(tables: Tables) {
  return notRetried(tables).where(hasUsers);
}

/** Without those that a retry has stored. */
function notRetried(tables: Tables) {
  return newestFirst(tables).where('retried_at', 'is', null);
}

/** Not if all its users were erased: then it has neither users nor a body. */
function hasUsers(where: ExpressionBuilder<StoreTables, 'dead_letters'>) {
  return where.or([where('users', '>', 0), where('body', 'is not', null)]);
}

function newestFirst(tables: Tables) {
  return tables
    .selectFrom('dead_letters')
    .select((where) => [
      'dead_letters.no',
      where.selectFrom('tenants').select('id').whereRef('tenants.no', '=', 'dead_letters.tenant').as('tenantId'),
      'trace_id as traceId',
      'first_user_index as firstUserIndex',
      'partition',
      'position',
      'received_at as receivedAt',
      'failed_at as failedAt',
      'cause',
      'users',
      'events',
      'key_id as keyId',
      'header',
      sql<number>`CASE WHEN body IS NULL THEN 0 ELSE 1 END`.as('isKept'),
    ])
    .orderBy('dead_letters.no', 'desc');
}

type Letters = ReturnType<typeof newestFirst>;

function matching(query: Letters, { cause, from, to }: DeadLetterFilter): Letters {
  let letters = query;
  if (from !== null) letters = letters.where('received_at', '>=', from);
  if (to !== null) letters = letters.where('received_at', '<', to);
  if (cause !== null) {
    const start = withoutNul(cause);
    letters = letters.where(sql<string>`substr(cause, 1, length(${start}))`, '=', start);
  }
  return letters;
}

function deadLetterOf({ no: _no, tenantId, header, isKept, ...row }: InferResult<Letters>[number]): DeadLetter {
  const isErased = tenantId !== null && row.users === 0 && isKept === 0;
  return {
    ...row,
    tenantId: tenantId ?? NO_TENANT,
    header: parseJson(header) as LogHeader,
    isKept: isKept === 1,
    isErased,
  };
}

/** How many of a tenant's dead letters match. */
export function countDeadLetters(tables: Tables, tenant: number, filter: DeadLetterFilter) {
  return matching(waiting(tables), filter)
    .where('dead_letters.tenant', '=', tenant)
    .clearSelect()
    .clearOrderBy()
    .select(({ fn }) => fn.countAll<number>().as('letters'));
}

/** The number of one, if it waits. */
export function selectDeadLetter(tables: Tables, tenant: number, traceId: string, firstUserIndex: number) {
  return tables
    .selectFrom('dead_letters')
    .select('no')
    .where('tenant', '=', tenant)
    .where('trace_id', '=', traceId)
    .where('first_user_index', '=', firstUserIndex)
    .where('retried_at', 'is', null)
    .where(hasUsers)
    .orderBy('no', 'desc')
    .limit(1);
}

/** For a job: oldest first, those behind a number, or the one that it is about, also if another job has stored it since. */
export function selectNextDeadLetters(
  tables: Tables,
  tenant: number,
  filter: DeadLetterFilter,
  behind: { readonly no: number; readonly only: number | null; readonly createdAt: number },
  limit: number,
) {
  const letters = matching(newestFirst(tables), filter)
    .clearSelect()
    .clearOrderBy()
    // An erase locks the tenant's row first, and so does a job, by this.
    .innerJoin('tenants', 'tenants.no', 'dead_letters.tenant')
    .select([
      'dead_letters.no',
      'trace_id as traceId',
      'first_user_index as userIndex',
      'header',
      'body',
      'retried_at as retriedAt',
    ])
    .where('dead_letters.tenant', '=', tenant)
    .where('dead_letters.no', '>', behind.no)
    .orderBy('dead_letters.no')
    .limit(limit);
  if (behind.only !== null) return letters.where('dead_letters.no', '=', behind.only);
  // Those that were retried before the job was made did not match.
  return letters
    .where(hasUsers)
    .where((where) => where.or([where('retried_at', 'is', null), where('retried_at', '>', behind.createdAt)]));
}

export function deadLetterItem(row: InferResult<ReturnType<typeof selectNextDeadLetters>>[number]): DeadLetterItem {
  const { no, traceId, userIndex, header, body, retriedAt } = row;
  const record = body === null ? null : { ...(parseJson(header) as Omit<LogRecord, 'body'>), body };
  return { kind: 'dead_letter', no, traceId, userIndex, record, isRetried: retriedAt !== null };
}

/** In a transaction of retention. */
export function* removeDeadLetters(tables: Tables, numbers: readonly number[]): Steps<void> {
  // What is removed is counted, as it is by then: a retry or an erase may have changed it a moment ago.
  const removed = yield* rowsOf(
    tables
      .deleteFrom('dead_letters')
      .where('no', 'in', numbers)
      .returning(['tenant', 'received_at', 'users', 'events', 'retried_at']),
  );
  const expired = removed.filter((row) => row.retried_at === null && row.tenant !== NO_TENANT_NUMBER);
  const byHour = Map.groupBy(expired, (row) => `${row.tenant} ${startOf(row.received_at, HOUR_MS)}`);
  for (const rows of byHour.values()) {
    const [{ tenant, received_at: receivedAt }] = rows as [(typeof rows)[number]];
    const users = rows.reduce((sum, row) => sum + row.users, 0);
    const events = rows.reduce((sum, row) => sum + row.events, 0);
    const moved = movedInLedger({ tenant, receivedAt }, { users, events }, 'dead_letters', 'expired');
    yield* addToSums(tables, 'ledger', [moved]);
  }
}

/** Whether a user, as JSON, is the person; whether one that was rejected names the person. */
interface PersonTests {
  readonly isAbout: (user: string) => boolean;
  readonly isRejectedAbout: (user: string) => boolean;
}

/** In the transaction of an erase. */
export function* eraseFromDeadLetters(tables: Tables, tenant: number, tests: PersonTests): Steps<void> {
  const letters = yield* rowsOf(
    tables
      .selectFrom('dead_letters')
      .select(['no', 'received_at', 'first_user_index', 'users', 'events', 'header', 'body'])
      .where('tenant', '=', tenant)
      .where('body', 'is not', null)
      .orderBy('no'),
  );
  for (const { no, received_at: receivedAt, ...letter } of letters) {
    const left = withoutPerson(letter, tests);
    if (left === null) continue;
    const { removed, ...row } = left;
    yield* changedBy(tables.updateTable('dead_letters').set(row).where('no', '=', no));
    const moved = movedInLedger({ tenant, receivedAt }, removed, 'dead_letters', 'erased');
    yield* addToSums(tables, 'ledger', [moved]);
  }
}

type LetterRow = Pick<StoreTables['dead_letters'], 'first_user_index' | 'users' | 'events' | 'header' | 'body'>;

interface LetterLeft extends Omit<LetterRow, 'first_user_index'> {
  readonly removed: { readonly users: number; readonly events: number };
}

/**
 * What is left of a dead letter; null if it is not about the person. A removed user is one that was rejected; a body that
 * cannot be parsed is removed as a whole.
 */
function withoutPerson(letter: LetterRow, { isAbout, isRejectedAbout }: PersonTests): LetterLeft | null {
  const text = Buffer.from(letter.body ?? []).toString('utf8');
  const all = usersIn(text);
  if (all === null) {
    const removed = { users: letter.users, events: letter.events };
    return isAbout(text) ? { users: 0, events: 0, header: letter.header, body: null, removed } : null;
  }
  const header = parseJson(letter.header) as LogRecord;
  const known = new Set(header.rejections.map(({ userIndex }) => userIndex));
  const rejections = [...header.rejections];
  let [users, events] = [0, 0];
  const kept = all.map((user, index) => {
    const userIndex = letter.first_user_index + index;
    const isThePerson = known.has(userIndex) ? isRejectedAbout : isAbout;
    if (!isThePerson(JSON.stringify(user))) return user;
    if (!known.has(userIndex)) {
      rejections.push({ userIndex, message: ERASED_USER });
      users += 1;
      events += eventsOf(user);
    }
    return null;
  });
  if (kept.every((user, index) => user === all[index])) return null;
  rejections.sort((a, b) => a.userIndex - b.userIndex);
  const hasOthers = kept.some((user) => user !== null);
  return {
    users: letter.users - users,
    events: letter.events - events,
    header: withoutNul(JSON.stringify({ ...header, rejections, eventCount: header.eventCount - events })),
    body: hasOthers ? Buffer.from(JSON.stringify({ users: kept })) : null,
    removed: { users, events },
  };
}

/** Null where the body is not what it should be. */
function usersIn(text: string): readonly unknown[] | null {
  const body = jsonIn(text, parseExact);
  return isObject(body) && Array.isArray(body.users) ? body.users : null;
}

function eventsOf(user: unknown): number {
  return isObject(user) && Array.isArray(user.events) ? user.events.length : 0;
}
