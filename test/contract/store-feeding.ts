/**
 * Helpers for the contract of the store: requests as the edge would have appended them, processed by the processor's
 * own steps and the backend's writer, and ways to read everything back.
 */

import assert from 'node:assert/strict';
import type { LogEntry } from '../../src/log.ts';
import { HOUR_MS, type TenantId } from '../../src/model.ts';
import type { CatalogueCollector } from '../../src/processor/catalogue.ts';
import type { WarningPlans } from '../../src/processor/plan-warnings.ts';
import type { EventQuery, Page, PageRequest, Store, StoredEvent, StoredProfile } from '../../src/store.ts';
import type { Retention, StoreWriter } from '../../src/store-writer.ts';
import { processBatch } from '../processor/process-batch.ts';
import { entryOf, traceIdOf } from '../processor/history.ts';

export interface StoreUnderTest {
  readonly writer: StoreWriter;
  readonly store: Store;
  close(): Promise<void>;
}

export interface StoreOfContract extends StoreUnderTest {
  /** Another one on the same tables, which the caller closes. */
  another(): Store;
}

/** For the suites, which take them from here with the rest. */
export { DAY_MS, HOUR_MS, MINUTE_MS } from '../../src/model.ts';

export type OpenStore = () => Promise<StoreOfContract>;

export const TENANT: TenantId = 'acct_test/development';
export const OTHER_TENANT: TenantId = 'acct_other/production';
export const START = Date.UTC(2026, 2, 1, 12);
/** An erase or an unmerge. */
export const ACT = { traceId: '01957000-0000-7000-8000-00000000ac70', at: START + HOUR_MS };
export const PROCESSED_AT = Date.UTC(2026, 2, 2);
export const KEEP_ALL: Retention = {
  eventsMs: 1e15,
  tracesMs: 1e15,
  rejectionsMs: 1e15,
  rejectionBytesMax: 1e15,
};

const OPTIONS = { defaultCountry: null, junkValues: new Set<string>() };

let requests = 0;

export type Request = Partial<
  Pick<
    LogEntry,
    'tenantId' | 'receivedAt' | 'traceId' | 'keyId' | 'keyKind' | 'idempotencyKey' | 'format' | 'droppedByClient'
  > & { firstUserIndex: number }
>;

/** A request of these users, with a trace_id of its own, judged by the real validation. */
export function request(users: readonly unknown[], about: Request = {}): LogEntry & { firstUserIndex: number } {
  requests += 1;
  const { receivedAt = START + requests, firstUserIndex = 0, keyId = 'key_test', ...rest } = about;
  const entry = entryOf(users, {
    traceId: traceIdOf(receivedAt, requests),
    tenantId: TENANT,
    keyKind: 'secret',
    idempotencyKey: null,
    receivedAt,
    ...rest,
  });
  const rejections = entry.rejections.map((row) => ({ ...row, userIndex: row.userIndex + firstUserIndex }));
  const { format, droppedByClient } = rest;
  const unusual = { ...(format && { format }), ...(droppedByClient && { droppedByClient }) };
  return { ...entry, ...unusual, keyId, rejections, firstUserIndex };
}

export function person(identifiers: object, events: readonly object[] = [{}], userProperties?: object): object {
  return {
    identifiers,
    events: events.map((event) => ({ event_name: 'tested', ...event })),
    ...(userProperties && { user_properties: userProperties }),
  };
}

/** Takes requests in, in one transaction, behind what was taken in before. */
export async function feed(
  { writer }: Pick<StoreUnderTest, 'writer'>,
  entries: readonly (LogEntry & { firstUserIndex?: number })[],
  {
    plans,
    catalogue,
    defaultCountry = null,
  }: {
    readonly plans?: WarningPlans;
    readonly catalogue?: CatalogueCollector;
    readonly defaultCountry?: string | null;
  } = {},
): Promise<void> {
  const start = (await writer.processed()).positions.get(0) ?? 0;
  const records = entries.map((entry, index) => ({
    firstUserIndex: 0,
    ...entry,
    partition: 0,
    position: start + index,
  }));
  const transaction = await writer.begin();
  try {
    await transaction.advance(0, start, start + records.length);
    const context = { options: { ...OPTIONS, defaultCountry }, now: () => PROCESSED_AT, failpoint: () => undefined };
    await processBatch(transaction, records, { ...context, plans, catalogue });
    await transaction.commit(false);
    catalogue?.commit();
  } catch (error) {
    await transaction.rollback();
    throw error;
  }
}

/** Takes in one request and gives its trace_id. */
export async function send(under: StoreUnderTest, users: readonly unknown[], about: Request = {}): Promise<string> {
  const entry = request(users, about);
  await feed(under, [entry]);
  return entry.traceId;
}

export async function profileOf(
  { store }: StoreUnderTest,
  type: 'user_id' | 'email' | 'phone_number' | 'anon_id',
  value: string,
): Promise<StoredProfile> {
  const profile = await store.findProfile(TENANT, type, value);
  assert.ok(profile, `there is no profile of ${type} ${value}`);
  return profile;
}

export const ALL_EVENTS: EventQuery = {
  profileId: null,
  eventName: null,
  from: null,
  to: null,
  limit: 500,
  cursor: null,
};

export async function eventsOf(
  { store }: Pick<StoreUnderTest, 'store'>,
  query: Partial<EventQuery> = {},
  tenantId = TENANT,
): Promise<StoredEvent[]> {
  return allPages(async (page) => {
    const response = await store.events(tenantId, {
      ...ALL_EVENTS,
      ...query,
      ...page,
      limit: query.limit ?? page.limit,
    });
    assert.ok(response);
    return response;
  });
}

export async function allPages<Row>(ask: (page: PageRequest) => Promise<Page<Row>>): Promise<Row[]> {
  const rows: Row[] = [];
  for (let cursor: string | null = null; ; ) {
    const page: Page<Row> = await ask({ limit: 500, cursor });
    rows.push(...page.rows);
    if (page.nextCursor === null) return rows;
    cursor = page.nextCursor;
  }
}

export async function sweepAll({ writer }: StoreUnderTest, retention: Partial<Retention>, now: number): Promise<void> {
  for (let calls = 0; await writer.sweep({ ...KEEP_ALL, ...retention }, now); calls += 1) {
    assert.ok(calls < 10_000, 'the sweep never ends');
  }
}
