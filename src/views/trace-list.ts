/**
 * The list of requests, newest first, the same for every store: ordered by trace_id, a UUID version 7, which begins
 * with the time. Records already have an index by trace_id, of all tenants together. So a page reads at most
 * VISITED_MAX records and ends there, with a cursor that continues. A request that a log split into several records is
 * one row.
 */

import type { TenantId } from '../model.ts';
import type { Page, TraceQuery, TraceSummary } from '../store.ts';
import { type CursorScope, scopedCursorOf, scopedNumbersOf } from './cursor.ts';
import { processedRequest } from './trace.ts';

/** Records of all tenants that one page looks at: of a tenant that sends little next to one that sends much. */
export const VISITED_MAX = 50_000;

export const HIGHEST_TRACE_ID = 'ffffffff-ffff-ffff-ffff-ffffffffffff';

/** Uses the id of the tenant, since records that are still in the log have no tenant number. */
export function traceScope(tenantId: TenantId, { status }: TraceQuery): CursorScope {
  return [0, tenantId, status];
}

export function traceCursor(scope: CursorScope, traceId: string): string {
  const hex = traceId.replaceAll('-', '');
  return scopedCursorOf('traces', scope, ...[0, 8, 16, 24].map((at) => Number.parseInt(hex.slice(at, at + 8), 16)));
}

/** The trace_id below which a page begins. Throws `BadCursorError`. */
export function traceIdBefore(scope: CursorScope, cursor: string | null): string {
  if (cursor === null) return HIGHEST_TRACE_ID;
  const parts = scopedNumbersOf('traces', scope, cursor, 4);
  const hex = parts.map((part) => (Math.abs(part) % 2 ** 32).toString(16).padStart(8, '0')).join('');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}

export interface SummarisedRecord extends Omit<TraceSummary, 'status'> {
  readonly firstUserIndex: number;
}

/** Collects one page of a tenant's requests from records of all tenants, which are added newest first. */
export class TracePage {
  readonly #tenant: number;
  readonly #scope: CursorScope;
  readonly #limit: number;
  readonly #traces: SummarisedRecord[][] = [];
  #visited = 0;
  #last: string | undefined;

  constructor(tenant: number, scope: CursorScope, limit: number) {
    this.#tenant = tenant;
    this.#scope = scope;
    this.#limit = limit;
  }

  /** False when the page ends before this record. */
  add(tenant: number, record: SummarisedRecord): boolean {
    const isNext = record.traceId !== this.#last;
    const isOwn = tenant === this.#tenant;
    const isFull = this.#visited >= VISITED_MAX || (isOwn && this.#traces.length === this.#limit);
    if (isNext && isFull) return false;
    this.#visited += 1;
    this.#last = record.traceId;
    if (!isOwn) return true;
    if (isNext) this.#traces.push([]);
    this.#traces.at(-1)?.push(record);
    return true;
  }

  take(isLastPage: boolean): Page<TraceSummary> {
    const nextCursor = isLastPage || this.#last === undefined ? null : traceCursor(this.#scope, this.#last);
    return { rows: this.#traces.map(traceSummary), nextCursor };
  }
}

/** Summarises the records of one request. */
function traceSummary(records: readonly SummarisedRecord[]): TraceSummary {
  const inOrder = records.toSorted((a, b) => a.firstUserIndex - b.firstUserIndex);
  const first = inOrder[0] as SummarisedRecord;
  const events = inOrder.reduce((sum, record) => sum + record.events, 0);
  return { traceId: first.traceId, ...processedRequest(first, inOrder), events };
}
