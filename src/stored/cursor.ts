/**
 * Cursors of the store's lists: where the last row stood, as a few whole numbers, with the name of the list. They are
 * opaque to clients and hold nothing secret: a made-up one shows other rows of the same tenant at most. One of a list
 * with other filters is refused, and so is one of another tenant (`withTenant`, added by `reading.ts`): the id of a tenant
 * is random and made once, so that covers cursors of another installation, and a cursor survives `sluice migrate`.
 *
 * A client keeps a cursor of arrivals for as long as it likes, so that one also names the store that gave it, and
 * every reason for which it cannot be used says how to go on: a client must never miss events without knowing.
 */

import { hash } from 'node:crypto';
import { BadCursorError } from '../store.ts';

type List = 'events' | 'profiles' | 'rejections' | 'audit' | 'people' | 'traces';

/** Instead of a cursor: from the oldest event that is stored. */
export const OLDEST = 'oldest';

const NUMBER = /^(0|-?[1-9]\d{0,15})$/;
const STORE_ID = /^[0-9a-f]{12}$/;
const ARRIVALS = 'arrivals';
const GO_ON = `"${OLDEST}" instead reads all that is stored from the beginning, in the same order; events that you have already have the same id`;

export function cursorOf(list: List, ...numbers: readonly number[]): string {
  return encoded([list, ...numbers]);
}

/** Throws `BadCursorError` unless `cursorOf` could have made it. */
export function numbersOf(list: List, cursor: string, count: number): number[] {
  const [name, ...words] = decoded(cursor, malformedPage);
  const numbers = words.map(numberIn);
  if (name !== list || numbers.length !== count || !numbers.every(Number.isSafeInteger)) throw malformedPage();
  return numbers;
}

/** Whose rows are listed, and which of them: the number of the tenant, then the filters that leave rows out. */
export type CursorScope = readonly [tenant: number, ...filters: readonly (string | null)[]];

/** Like `cursorOf`; good for the same scope alone, since with another one rows would be passed over. */
export function scopedCursorOf(list: List, scope: CursorScope, ...numbers: readonly number[]): string {
  return cursorOf(list, scopeNumber(scope), ...numbers);
}

export function scopedNumbersOf(list: List, scope: CursorScope, cursor: string, count: number): number[] {
  const [number, ...numbers] = numbersOf(list, cursor, count + 1);
  if (number !== scopeNumber(scope)) throw malformedPage();
  return numbers;
}

function scopeNumber(scope: CursorScope): number {
  return Number.parseInt(hash('sha256', JSON.stringify(scope), 'hex').slice(0, 8), 16);
}

/** `storeId` as `storeIdIn` makes it. */
export function arrivalCursorOf(storeId: string, ...numbers: readonly number[]): string {
  return encoded([ARRIVALS, storeId, ...numbers]);
}

export interface ArrivalCursor {
  readonly storeId: string;
  readonly numbers: readonly number[];
}

/** Throws `BadCursorError` unless `arrivalCursorOf` could have made it, of whatever store. */
export function arrivalCursorIn(cursor: string): ArrivalCursor {
  const [name, storeId = '', ...words] = decoded(cursor, malformed);
  const numbers = words.map(numberIn);
  const isOurs = name === ARRIVALS && STORE_ID.test(storeId) && numbers.length > 0;
  if (!isOurs || !numbers.every(Number.isSafeInteger)) throw malformed();
  return { storeId, numbers };
}

/** Enough of the id of a store to tell it from any other that a client may have to do with. */
export function storeIdIn(id: string): string {
  return id.replaceAll('-', '').slice(0, 12).toLowerCase();
}

/** Rows of all tenants, and of all installations, have the same numbers, so a cursor says whose it is. */
export function withTenant(cursor: string, tenantId: string): string {
  return `${cursor}.${tenantMark(tenantId)}`;
}

/** The cursor of arrivals without that. Throws `BadCursorError` where it was given to another tenant. */
export function withoutTenant(cursor: string, tenantId: string): string {
  const [own, mark] = partsOf(cursor, malformed);
  if (mark === tenantMark(tenantId)) return own;
  throw new BadCursorError(`was given to another account or environment: ${GO_ON}`);
}

/** As `withoutTenant`, of a cursor for the next page of a list. */
export function pageWithoutTenant(cursor: string, tenantId: string): string {
  const [own, mark] = partsOf(cursor, malformedPage);
  if (mark === tenantMark(tenantId)) return own;
  throw new BadCursorError(
    'was given to another account or environment, or by another installation: leave it out to begin with the first page',
  );
}

function partsOf(cursor: string, refusal: () => BadCursorError): [own: string, mark: string] {
  const [own = '', mark, ...more] = cursor.split('.');
  if (mark === undefined || more.length > 0) throw refusal();
  return [own, mark];
}

function tenantMark(tenantId: string): string {
  return hash('sha256', tenantId, 'hex').slice(0, 8);
}

export function malformed(): BadCursorError {
  return new BadCursorError('is not one that this call gave: send it as it was in the response');
}

function malformedPage(): BadCursorError {
  return new BadCursorError(
    'is not one that this call gave: send next_cursor of a response as it came, with the same key and filters',
  );
}

export function ofAnotherStore(): BadCursorError {
  return new BadCursorError(`was given by another installation, or by an earlier store of this one: ${GO_ON}`);
}

export function fromTheFuture(): BadCursorError {
  return new BadCursorError(
    `is ahead of all that is stored, so the store is not the one that gave it, or was set back to an earlier state: ${GO_ON}`,
  );
}

export function expired(): BadCursorError {
  return new BadCursorError(
    `is too old: events that arrived after it have expired (SLUICE_EVENT_RETENTION) and are missing: ${GO_ON}`,
  );
}

function encoded(words: readonly (string | number)[]): string {
  return Buffer.from(words.join(' ')).toString('base64url');
}

/** Decoding passes over strange characters; only one spelling of a cursor is right. */
function decoded(cursor: string, refusal: () => BadCursorError): string[] {
  const words = Buffer.from(cursor, 'base64url').toString('latin1').split(' ');
  if (encoded(words) !== cursor) throw refusal();
  return words;
}

function numberIn(word: string): number {
  return NUMBER.test(word) ? Number(word) : Number.NaN;
}
