/**
 * Reads back over the API what clients got a 202 for: every event of every acknowledged request is there exactly
 * once, under the one profile of its person, the traces say so, and every event is accounted for with nothing pending.
 */

import assert from 'node:assert/strict';
import { allEvents, assertBalanced, type LedgerResponse, type TraceResponse } from '../faults/processor-load.ts';
import { eventually, get, read, sleep, type TestServer } from '../server.ts';
import type { ClientLedger, SentRequest } from './clients.ts';

type Api = Pick<TestServer, 'baseUrl'>;

/** Generous: a member of a group that was killed is missed by Kafka after seconds only, and the machine may be busy. */
const SETTLED_MS_MAX = 150_000;
/** Traces that are looked up: of requests that had problem all, of the others a part. */
const SMOOTH_TRACES_MAX = 40;
const PROFILES_MAX = 30;
const QUESTIONS_AT_ONCE = 8;
const LOOK_INTERVAL_MS = 250;

export interface Audit {
  readonly events: number;
  /** Users that came more than once, and were recognised. */
  readonly duplicates: number;
}

export async function assertStoredOnce(api: Api, key: string, ledger: ClientLedger): Promise<Audit> {
  const users = ledger.requests.reduce((sum, { marks }) => sum + marks.length, 0);
  assert.equal(ledger.acknowledged, ledger.requests.length, 'a client gave up');
  const totals = await settled(api, key);
  for (const what of ['users', 'events'] as const) {
    const { received = 0, stored, duplicates = 0, dead_letters, erased, expired } = totals.totals[what];
    assert.equal(stored, users, `${what} stored: ${JSON.stringify(totals.totals)}`);
    assert.equal(received - duplicates, users, what);
    assert.deepEqual({ dead_letters, erased, expired }, { dead_letters: 0, erased: 0, expired: 0 });
  }
  const events = await allEvents(api, key);
  assert.equal(new Set(events.map(({ id }) => id)).size, events.length, 'an event is listed twice');
  const byMark = Map.groupBy(events, ({ properties }) => properties.mark ?? '');
  for (const { marks, idempotencyKey, acknowledgedAs, tries } of ledger.requests) {
    const reported = `${idempotencyKey} (${acknowledgedAs}, sent ${tries} times)`;
    for (const mark of marks)
      assert.equal(byMark.get(mark)?.length ?? 0, 1, `times that ${mark} of ${reported} is stored`);
  }
  assert.equal(events.length, users, 'there are events that no one sent');
  await assertPeople(api, key, ledger, (mark) => byMark.get(mark)?.[0]?.profile_id ?? null);
  await assertTraces(api, key, ledger);
  return { events: events.length, duplicates: totals.totals.users['duplicates'] ?? 0 };
}

/** The ledger once nothing waits any more. It balances whenever it can be read. */
export async function settled(api: Api, key: string): Promise<LedgerResponse> {
  return eventually(
    'everything is processed',
    async () => {
      const response = await get(api, key, '/ledger');
      // What it reads from may just be coming back.
      if (response.status === 503) return undefined;
      assert.equal(response.status, 200, response.text);
      const totals = response.body as LedgerResponse;
      assertBalanced(totals);
      return totals.totals.users['pending'] === 0 && totals.totals.events['pending'] === 0 ? totals : undefined;
    },
    SETTLED_MS_MAX,
  );
}

export interface Onlooker {
  /** Rejects with what it saw that must never be seen; resolves with how many responses it got. */
  stop(): Promise<number>;
}

/** At any time: every event is accounted for, and a trace that was given out is known. Or it is a 503. */
export function lookOn(api: Api, key: string, ledger: ClientLedger, signal: AbortSignal): Onlooker {
  const stopping = new AbortController();
  const look = async (): Promise<number> => {
    let looks = 0;
    while (!stopping.signal.aborted && !signal.aborted) {
      await sleep(LOOK_INTERVAL_MS);
      const newest = ledger.requests.findLast(({ acknowledgedAs }) => acknowledgedAs !== null)?.acknowledgedAs;
      const totals = await get(api, key, '/ledger');
      if (totals.status === 200) assertBalanced(totals.body as LedgerResponse);
      else assert.equal(totals.status, 503, totals.text);
      if (newest === undefined) continue;
      const trace = await get(api, key, `/traces/${newest}`);
      if (trace.status === 200) looks += 1;
      else assert.equal(trace.status, 503, `the trace ${newest}, which was acknowledged: ${trace.text}`);
    }
    return looks;
  };
  const looking = look();
  looking.catch(() => undefined);
  return {
    stop: () => {
      stopping.abort();
      return looking;
    },
  };
}

/** One profile a person, and no events under another person's. */
async function assertPeople(
  api: Api,
  key: string,
  ledger: ClientLedger,
  profileOf: (mark: string) => string | null,
): Promise<void> {
  const profiles = new Map<number, Set<string>>();
  const counts = new Map<number, number>();
  for (const { people, marks } of ledger.requests) {
    for (const [index, person] of people.entries()) {
      const profile = profileOf(marks[index] ?? '');
      assert.ok(profile !== null, 'an event belongs to no one');
      profiles.set(person, (profiles.get(person) ?? new Set()).add(profile));
      counts.set(person, (counts.get(person) ?? 0) + 1);
    }
  }
  const seen = new Set<string>();
  for (const [person, ids] of profiles) {
    const profilesMax = ledger.linked.has(person) ? 1 : 2;
    assert.ok(ids.size <= profilesMax, `person ${person} has ${ids.size} profiles, not ${profilesMax}`);
    for (const id of ids) {
      assert.ok(!seen.has(id), `a profile has events of two people, one of them ${person}`);
      seen.add(id);
    }
  }
  await each([...ledger.linked].slice(0, PROFILES_MAX), async (person) => {
    const profile = await read<{ event_count: number }>(api, key, `/profiles?user_id=u${person}`);
    assert.equal(profile.event_count, counts.get(person), `events of person ${person}`);
  });
}

async function assertTraces(api: Api, key: string, { requests }: ClientLedger): Promise<void> {
  const [troubled, smooth] = [requests.filter(({ tries }) => tries > 1), requests.filter(({ tries }) => tries === 1)];
  const step = Math.max(1, Math.ceil(smooth.length / SMOOTH_TRACES_MAX));
  await each([...troubled, ...smooth.filter((_, index) => index % step === 0)], (request) =>
    assertTrace(api, key, request),
  );
}

async function assertTrace(api: Api, key: string, request: SentRequest): Promise<void> {
  const { acknowledgedAs, marks, tries } = request;
  const trace = await read<TraceResponse>(api, key, `/traces/${acknowledgedAs}`);
  const reported = JSON.stringify(trace);
  assert.equal(trace.status, 'processed', reported);
  assert.equal(trace.users_accepted, marks.length, reported);
  assert.equal(trace.users.length, marks.length, reported);
  const stored = trace.users.reduce((sum, { events }) => sum + events, 0);
  if (tries > 1) {
    assert.ok(stored <= marks.length, reported);
    return;
  }
  assert.equal(trace.duplicate_of, null, reported);
  assert.equal(stored, marks.length, reported);
}

async function each<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const rest = [...items];
  const worker = async (): Promise<void> => {
    for (let item = rest.pop(); item !== undefined; item = rest.pop()) await work(item);
  };
  await Promise.all(Array.from({ length: QUESTIONS_AT_ONCE }, worker));
}
