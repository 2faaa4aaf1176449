/**
 * Cursors of the store's lists: the location of the last row, as a few integers, with the name of the list. They are
 * opaque to clients and contain nothing secret: a forged one shows other rows of the same tenant at most. A cursor from
 * a list with other filters is rejected, and so is one of another tenant (`withTenant`, added by `reading.ts`). Tenant
 * ids are random and created once, so that also covers cursors of another installation, and a cursor survives
 * `sluice migrate`.
 *
 * A client may keep a cursor of arrivals indefinitely. So such a cursor also names the store that issued it, and a
 * random id that is stored with the row it points to: a store that was restored to an earlier state does not have that
 * id. Every rejection says how to continue: a client must never miss events without knowing.
 */

import { hash } from 'node:crypto';
import { BadCursorError, type EventQuery, type Page } from '../store.ts';

type List = 'events' | 'profiles' | 'rejections' | 'dead_letters' | 'jobs' | 'audit' | 'people' | 'traces';

/** Instead of a cursor: from the oldest event that is stored. */
export const OLDEST = 'oldest';

const NUMBER = /^(0|-?[1-9]\d{0,15})$/;
/** The id of a store as `storeIdIn` makes it, and `historyId`. */
const ISSUER = /^([0-9a-f]{12})([0-9a-f]{16})?$/;
const ARRIVALS = 'arrivals';
const GO_ON = `"${OLDEST}" instead reads all that is stored from the beginning, in the same order; events that you have already have the same id`;

/** Whose rows are listed, and which of them: the number of the tenant, then the filters that leave rows out. */
export type CursorScope = readonly [tenant: number, ...filters: readonly (string | null)[]];

/** Valid only for the same scope: with another one, rows would be skipped. */
export function scopedCursorOf(list: List, scope: CursorScope, ...numbers: readonly number[]): string {
  return encoded([list, scopeNumber(scope), ...numbers]);
}

/** Throws `BadCursorError` unless `scopedCursorOf` could have made it. */
export function scopedNumbersOf(list: List, scope: CursorScope, cursor: string, count: number): number[] {
  const [name, ...words] = decoded(cursor, malformedPage);
  const [number, ...numbers] = words.map(numberIn);
  const isOurs = name === list && number === scopeNumber(scope) && numbers.length === count;
  if (!isOurs || !numbers.every(Number.isSafeInteger)) throw malformedPage();
  return numbers;
}

function scopeNumber(scope: CursorScope): number {
  return Number.parseInt(hash('sha256', JSON.stringify(scope), 'hex').slice(0, 8), 16);
}

/** What issued a cursor of arrivals. */
export interface CursorIssuer {
  /** As `storeIdIn` makes it. */
  readonly storeId: string;
  /**
   * 16 hexadecimal digits: the id of a start of an embedded server, or of a batch of events on PostgreSQL. Null if the
   * cursor points to nothing that is stored.
   */
  readonly historyId: string | null;
}

export function arrivalCursorOf({ storeId, historyId }: CursorIssuer, ...numbers: readonly number[]): string {
  return encoded([ARRIVALS, storeId + (historyId ?? ''), ...numbers]);
}

/** Throws `BadCursorError` unless `arrivalCursorOf` could have made it, of whatever store. */
export function arrivalCursorIn(cursor: string): CursorIssuer & { readonly numbers: readonly number[] } {
  const [name, issuer = '', ...words] = decoded(cursor, malformedCursor);
  const [, storeId, historyId = null] = ISSUER.exec(issuer) ?? [];
  const numbers = words.map(numberIn);
  const isOurs = name === ARRIVALS && storeId !== undefined && numbers.length > 0;
  if (!isOurs || !numbers.every(Number.isSafeInteger)) throw malformedCursor();
  return { storeId, historyId, numbers };
}

/** Enough of the id of a store to distinguish it from any other that a client may use. */
export function storeIdIn(id: string): string {
  return id.replaceAll('-', '').slice(0, 12).toLowerCase();
}

/**
 * Different tenants and installations use the same row numbers, so a cursor names its tenant. A checksum distinguishes
 * a damaged cursor from one of another tenant.
 */
export function withTenant(cursor: string, tenantId: string): string {
  const marked = `${cursor}.${shortHash(tenantId)}`;
  return `${marked}.${shortHash(marked)}`;
}

/** The cursor without that, of arrivals or of a list. Throws `BadCursorError` where it was given to another tenant. */
export function withoutTenant(of: 'arrivals' | 'list', cursor: string, tenantId: string): string {
  const [own = '', mark = '', checksum, ...more] = cursor.split('.');
  const isArrivals = of === 'arrivals';
  if (more.length > 0 || checksum !== shortHash(`${own}.${mark}`))
    throw isArrivals ? malformedCursor() : malformedPage();
  if (mark === shortHash(tenantId)) return own;
  throw new BadCursorError(
    isArrivals
      ? `was given to another account or environment: ${GO_ON}`
      : 'was given to another account or environment, or by another installation: leave it out to begin with the first page',
  );
}

/** The cursor after the last event of a page that is ordered by event time. */
export function eventCursorOf(tenant: number, query: EventQuery, last: { timestamp: number; no: number }): string {
  return scopedCursorOf('events', eventScopeOf(tenant, query), last.timestamp, last.no);
}

/** The end of a page of events that is read from newest to oldest: all of its events come before this. */
export function eventsBefore(tenant: number, query: EventQuery): { readonly timestamp: number; readonly no: number } {
  const { cursor, to } = query;
  const end = { timestamp: to ?? Number.MAX_SAFE_INTEGER, no: 0 };
  if (cursor === null) return end;
  const [timestamp = 0, no = 0] = scopedNumbersOf('events', eventScopeOf(tenant, query), cursor, 2);
  return timestamp < end.timestamp ? { timestamp, no } : end;
}

function eventScopeOf(tenant: number, { profileId, eventName }: EventQuery): CursorScope {
  return [tenant, profileId, eventName];
}

function shortHash(text: string): string {
  return hash('sha256', text, 'hex').slice(0, 8);
}

export function malformedCursor(): BadCursorError {
  return new BadCursorError('is not one that this call gave: send it as it was in the response');
}

function malformedPage(): BadCursorError {
  return new BadCursorError(
    'is not one that this call gave: send next_cursor of a response as it came, with the same key and filters',
  );
}

export function cursorOfOtherStore(): BadCursorError {
  return new BadCursorError(`was given by another installation, or by an earlier store of this one: ${GO_ON}`);
}

export function cursorFromFuture(): BadCursorError {
  return new BadCursorError(
    `is ahead of all that is stored, so the store is not the one that gave it, or was restored to an earlier state: ${GO_ON}`,
  );
}

/** The store does not have the history the cursor was issued in: a start of the server, or a batch of events. */
export function cursorOfOtherHistory(): BadCursorError {
  return new BadCursorError(
    `was given after the copy of the store that is in use now was made, so an older copy, a dump or a backup was put back since (or an embedded server was started 10,000 times): events may be missing after it: ${GO_ON}`,
  );
}

export function expiredCursor(): BadCursorError {
  return new BadCursorError(
    `is too old: events that arrived after it have expired (SLUICE_EVENT_RETENTION) and are missing: ${GO_ON}`,
  );
}

function encoded(words: readonly (string | number)[]): string {
  return Buffer.from(words.join(' ')).toString('base64url');
}

/** Decoding skips invalid characters, but only one spelling of a cursor is valid. */
function decoded(cursor: string, refusal: () => BadCursorError): string[] {
  const words = Buffer.from(cursor, 'base64url').toString('latin1').split(' ');
  if (encoded(words) !== cursor) throw refusal();
  return words;
}

function numberIn(word: string): number {
  return NUMBER.test(word) ? Number(word) : Number.NaN;
}

/**
 * Limit of the texts on a page of events or people, in UTF-16 units; the one that exceeds it is still returned. The same
 * for all stores, whose pages are alike.
 */
export const PAGE_LENGTH_MAX = 16 * 1024 * 1024;

/** One row more than the limit was asked for, to know whether there are more; the cursor names the last one given. */
export function pageOf<Row, Given>(
  rows: readonly Row[],
  limit: number,
  give: (row: Row) => Given,
  cursorAfter: (row: Row) => string,
): Page<Given> {
  const given = rows.slice(0, limit);
  const last = given.at(-1);
  return { rows: given.map(give), nextCursor: rows.length > limit && last !== undefined ? cursorAfter(last) : null };
}
