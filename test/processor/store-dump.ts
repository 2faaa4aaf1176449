/**
 * Everything that a store tells through `Store`, as lines: profiles with provenance and identity, events, traces,
 * rejections, counts, the ledger, acts, dead letters. Two stores are the same when their lines are. On the way, the
 * lines are looked at for what must hold in every store: each event once, a ledger that balances, sums that agree.
 */

import assert from 'node:assert/strict';
import type { TenantId } from '../../src/model.ts';
import type { LedgerSums, Page, PageRequest, Store } from '../../src/store.ts';

const PAGE_ROWS = 500;
const ALL_TIMES = { from: Date.UTC(0) - 1e15, to: 8e15 };

export async function* linesOf(store: Store, traceIds: Iterable<string>): AsyncGenerator<string> {
  for (const tenantId of (await store.tenants()).toSorted()) {
    yield `tenant ${tenantId}`;
    yield* profileLines(store, tenantId);
    yield* eventLines(store, tenantId);
    for await (const row of pages((page) =>
      store.rejections(tenantId, { ...page, reason: null, from: null, to: null }),
    ))
      yield `rejection ${text(row)}`;
    for (const row of await store.rejectionReasons(tenantId, { from: null, to: null })) yield `reason ${text(row)}`;
    const { minutes } = await store.receipts(tenantId, { from: null, to: null });
    for (const minute of minutes) yield `receipts ${text(minute)}`;
    for await (const row of pages((page) => store.audit(tenantId, page))) yield `act ${text(row)}`;
    for await (const row of pages((page) => store.jobs(tenantId, page))) yield `job ${text(row)}`;
    const { hours } = await store.ledger(tenantId, { from: null, to: null });
    for (const hour of hours) {
      assertBalance(hour.users);
      assertBalance(hour.events);
      yield `hour ${text(hour)}`;
    }
  }
  for (const traceId of traceIds) yield `trace ${text((await store.trace(null, traceId)) ?? null)}`;
  for (const row of await store.deadLetters(PAGE_ROWS)) yield `dead letter ${text(row)}`;
  const { hours, positions } = await store.ledger(null, { from: null, to: null });
  yield `books ${text(hours)} ${text([...positions].sort(([a], [b]) => a - b))}`;
  const { eventsInLedger, eventsInTables } = await store.recount();
  assert.equal(eventsInLedger, eventsInTables, 'the ledger has another number of events than there are');
  yield `recount ${eventsInTables}`;
}

async function* profileLines(store: Store, tenantId: TenantId): AsyncGenerator<string> {
  for await (const profile of pages((page) => store.profiles(tenantId, page))) {
    const { profileFields, userProperties, ...rest } = profile;
    yield `profile ${text(rest)} ${text([...profileFields])} ${text([...userProperties])}`;
    yield `identity ${text(await store.identity(tenantId, profile.id))}`;
  }
}

async function* eventLines(store: Store, tenantId: TenantId): AsyncGenerator<string> {
  const seen = new Set<string>();
  const query = { profileId: null, eventName: null, from: null, to: null };
  for await (const event of pages(async (page) => (await store.events(tenantId, { ...query, ...page })) ?? nothing())) {
    assert.ok(!seen.has(event.id), `the event ${event.id} is there twice`);
    seen.add(event.id);
    yield `event ${text(event)}`;
  }
  let counted = 0;
  for (const interval of ['minute', 'hour', 'day'] as const) {
    const buckets = await store.counts(tenantId, { interval, ...ALL_TIMES, byEventName: true });
    counted = buckets.reduce((sum, { events }) => sum + events, 0);
    assert.equal(counted, seen.size, `counts by ${interval} add up to another number of events than there is`);
    for (const bucket of buckets) yield `${interval} ${text(bucket)}`;
  }
}

function nothing(): never {
  throw new Error('the events of a tenant are unknown');
}

async function* pages<Row>(ask: (page: PageRequest) => Promise<Page<Row>>): AsyncGenerator<Row> {
  for (let cursor: string | null = null; ; ) {
    const { rows, nextCursor }: Page<Row> = await ask({ limit: PAGE_ROWS, cursor });
    yield* rows;
    if (nextCursor === null) return;
    cursor = nextCursor;
  }
}

function text(value: unknown): string {
  return JSON.stringify(value);
}

export function differenceOf(ledger: LedgerSums): number {
  const { received, stored, duplicates, erased, expired, deadLetters, pending } = ledger;
  return received - stored - duplicates - erased - expired - deadLetters - pending;
}

function assertBalance(ledger: LedgerSums): void {
  assert.equal(differenceOf(ledger), 0, `the ledger does not balance: ${JSON.stringify(ledger)}`);
}

export async function dumpOf(store: Store, traceIds: Iterable<string>): Promise<string[]> {
  return Array.fromAsync(linesOf(store, traceIds));
}

/** Line by line, so that stores may be large. Returns how many lines there are. */
export async function assertSame(one: Store, other: Store, traceIds: readonly string[]): Promise<number> {
  const others = linesOf(other, traceIds);
  let lines = 0;
  for await (const line of linesOf(one, traceIds)) {
    const next = await others.next();
    // Not assert.equal: it would draw a picture of two long lines for every one.
    if (next.value !== line)
      assert.fail(`line ${lines} differs:\n${line.slice(0, 2_000)}\n${String(next.value).slice(0, 2_000)}`);
    lines += 1;
  }
  assert.equal((await others.next()).done, true, 'the other store holds more');
  return lines;
}
