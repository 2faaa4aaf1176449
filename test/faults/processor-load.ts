/**
 * The ledger test, end to end. Clients send requests in which every event has a mark that exists once in the world, and
 * write down a trace_id only after its 202. Some requests have an Idempotency-Key or event ids and are sent again when
 * the response was lost, and sometimes when it was not; the others are sent once. At the end everything is read back over
 * the API: what was acknowledged is there exactly once, and nothing that was refused is there at all.
 */

import assert from 'node:assert/strict';
import { eventually, get, read, sleep, type TestServer } from '../server.ts';
import { Connection, ConnectionLostError } from './connection.ts';

/** How a request is known when it comes again. */
export type Recognition = 'idempotency_key' | 'event_ids' | 'none';

interface Sent {
  readonly recognition: Recognition;
  readonly idempotencyKey: string | null;
  readonly body: string;
  /** Of the events of valid users. */
  readonly marks: readonly string[];
  readonly rejectedMarks: readonly string[];
  readonly usersAccepted: number;
  /** trace_ids that came with a 202. */
  readonly acknowledged: string[];
}

interface Ingested {
  readonly trace_id: string;
  readonly users_accepted: number;
}

export interface TraceResponse {
  readonly status: 'pending' | 'processed';
  readonly users_accepted: number;
  readonly duplicate_of: string | null;
  readonly users: readonly { readonly status: string; readonly events: number; readonly profile_id: string | null }[];
}

export interface LedgerResponse {
  readonly balanced: boolean;
  readonly hours: readonly object[];
  readonly totals: Record<'users' | 'events', Readonly<Record<string, number>>>;
}

const PAUSE_MS = 20;
/** A client is not in a hurry: the faults are of interest, not the load, and everything that is sent is read back. */
const PACE_MS = 10;
const AGAIN_SHARE = 0.15;

export class EndToEndLedger {
  readonly sent: Sent[] = [];
  readonly #random: () => number;
  responses = 0;
  /** Trace lookups and reads of the ledger that succeeded while the load ran. */
  looks = 0;

  constructor(random: () => number) {
    this.#random = random;
  }

  next(): Sent {
    const n = this.sent.length;
    const recognition = (['idempotency_key', 'event_ids', 'none'] as const)[n % 3] ?? 'none';
    const marks: string[] = [];
    const rejectedMarks: string[] = [];
    const users = Array.from({ length: 1 + Math.floor(this.#random() * 4) }, (_, userIndex) => {
      const isBad = userIndex > 0 && this.#random() < 0.2;
      const events = Array.from({ length: 1 + (userIndex % 2) }, (__, eventIndex) => {
        const mark = `${n}.${userIndex}.${eventIndex}`;
        (isBad ? rejectedMarks : marks).push(mark);
        return { event_name: 'marked', mark, ...(recognition === 'event_ids' && { $event_id: mark }) };
      });
      // Few people, so that batches write to the same profiles and merge them.
      const person = Math.floor(this.#random() * 40);
      const identifiers =
        this.#random() < 0.5 ? { user_id: `u${person}` } : { user_id: `u${person}`, anon_id: `a${n}` };
      return { identifiers: isBad ? {} : identifiers, user_properties: { latest: n }, events };
    });
    const sent: Sent = {
      recognition,
      idempotencyKey: recognition === 'idempotency_key' ? `request-${n}` : null,
      body: JSON.stringify({ users }),
      marks,
      rejectedMarks,
      usersAccepted: users.filter(({ identifiers }) => 'user_id' in identifiers).length,
      acknowledged: [],
    };
    this.sent.push(sent);
    return sent;
  }

  /** True when the response was 202. */
  async send(connection: Connection, key: string, sent: Sent): Promise<boolean> {
    const response = await connection.ingest(key, sent.idempotencyKey, sent.body);
    if (response.status === 503) return false;
    assert.equal(response.status, 202, `${response.head}\n${response.body}`);
    const { trace_id, users_accepted } = JSON.parse(response.body) as Ingested;
    assert.equal(users_accepted, sent.usersAccepted);
    sent.acknowledged.push(trace_id);
    this.responses += 1;
    return true;
  }
}

/** Where to send to: changes when the server is started again. */
export interface Target {
  port: number;
  baseUrl: string;
}

export interface EndToEndLoad {
  stop(): Promise<void>;
}

export function startEndToEndLoad(
  target: Target,
  key: string,
  ledger: EndToEndLedger,
  random: () => number,
  clients: number,
): EndToEndLoad {
  const stopping = new AbortController();

  /** A request that can be recognised goes out until it is acknowledged, whatever happens; others once. */
  async function deliver(open: () => Promise<Connection | undefined>): Promise<void> {
    const sent = ledger.next();
    const times = sent.recognition !== 'none' && random() < AGAIN_SHARE ? 2 : 1;
    for (let time = 0; time < times; ) {
      const connection = await open();
      if (connection === undefined) {
        if (sent.recognition === 'none') return;
        if (stopping.signal.aborted) return;
        await sleep(PAUSE_MS);
        continue;
      }
      try {
        if (await ledger.send(connection, key, sent)) time += 1;
        else await sleep(PAUSE_MS);
      } catch (error) {
        if (!(error instanceof ConnectionLostError)) throw error;
        connection.close();
        if (sent.recognition === 'none' || stopping.signal.aborted) return;
      }
    }
  }

  async function client(): Promise<void> {
    let connection: Connection | undefined;
    let port = 0;
    const open = async (): Promise<Connection | undefined> => {
      if (connection !== undefined && !connection.socket.destroyed && port === target.port) return connection;
      port = target.port;
      connection = await Connection.open(port).catch(() => undefined);
      return connection;
    };
    while (!stopping.signal.aborted) {
      await deliver(open);
      await sleep(PACE_MS);
    }
    connection?.close();
  }

  /** Every event is accounted for and a trace is known at any time. */
  async function lookOn(): Promise<void> {
    while (!stopping.signal.aborted) {
      await sleep(PAUSE_MS * 3);
      const { baseUrl } = target;
      const newest = ledger.sent.findLast(({ acknowledged }) => acknowledged.length > 0)?.acknowledged.at(-1);
      try {
        const totals = await get({ baseUrl }, key, '/ledger');
        if (totals.status === 200) assertBalanced(totals.body as LedgerResponse);
        if (newest === undefined) continue;
        const trace = await get({ baseUrl }, key, `/traces/${newest}`);
        if (trace.status !== 503)
          assert.equal(trace.status, 200, `a trace that was given out is unknown: ${trace.text}`);
        ledger.looks += 1;
      } catch (error) {
        // There is no response while the server is dead.
        if (!(error instanceof TypeError)) throw error;
      }
    }
  }

  const running = Promise.all([...Array.from({ length: clients }, client), lookOn()]);
  return {
    stop: async () => {
      stopping.abort();
      await running;
    },
  };
}

export function ask(baseUrl: string, key: string, path: string, init: RequestInit = {}): Promise<Response> {
  return fetch(baseUrl + path, { ...init, headers: { authorization: `Bearer ${key}` } });
}

export function assertBalanced(totals: LedgerResponse): void {
  assert.ok(totals.balanced, `not every event is accounted for: ${JSON.stringify(totals)}`);
  for (const { difference } of [totals.totals.users, totals.totals.events]) assert.equal(difference, 0);
}

/** The ledger once nothing waits any more. */
export async function settled(server: Pick<TestServer, 'baseUrl'>, key: string): Promise<LedgerResponse> {
  return eventually(
    'everything is processed',
    async () => {
      const totals = await read<LedgerResponse>(server, key, '/ledger');
      assertBalanced(totals);
      return totals.totals.users['pending'] === 0 && totals.totals.events['pending'] === 0 ? totals : undefined;
    },
    30_000,
  );
}

export interface EventResponse {
  readonly id: string;
  readonly trace_id: string;
  readonly timestamp: string;
  readonly profile_id: string | null;
  readonly properties: { readonly mark?: string };
}

export async function allEvents(server: Pick<TestServer, 'baseUrl'>, key: string): Promise<EventResponse[]> {
  const all: EventResponse[] = [];
  for (let cursor = ''; ; ) {
    const path = `/events?limit=500${cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`}`;
    const page = await read<{ events: EventResponse[]; next_cursor: string | null }>(server, key, path);
    all.push(...page.events);
    if (page.next_cursor === null) return all;
    cursor = page.next_cursor;
  }
}

/** Reads everything back; returns how many events there are. */
export async function assertReadable(server: TestServer, key: string, ledger: EndToEndLedger): Promise<number> {
  const totals = await settled(server, key);
  const events = await allEvents(server, key);
  assert.equal(new Set(events.map(({ id }) => id)).size, events.length, 'an event is listed twice');
  assert.equal(totals.totals.events['stored'], events.length);
  const counts = Map.groupBy(events, ({ properties }) => properties.mark ?? '');
  for (const sent of ledger.sent) {
    const isAcknowledged = sent.acknowledged.length > 0;
    for (const mark of sent.marks) {
      const times = counts.get(mark)?.length ?? 0;
      const expected = isAcknowledged ? 'exactly once' : 'at most once';
      assert.ok(
        times === 1 || (times === 0 && !isAcknowledged),
        `${mark} (${sent.recognition}) is there ${times} times, not ${expected}`,
      );
    }
    for (const mark of sent.rejectedMarks) assert.equal(counts.get(mark), undefined, `${mark} was rejected`);
    await assertTraces(server, key, sent);
  }
  const metrics = await (await fetch(`${server.baseUrl}/metrics`)).text();
  assert.match(metrics, /^sluice_ledger_difference 0$/m);
  return events.length;
}

async function assertTraces(server: TestServer, key: string, sent: Sent): Promise<void> {
  const originals = new Set<string>();
  for (const traceId of sent.acknowledged) {
    const trace = await read<TraceResponse>(server, key, `/traces/${traceId}`);
    assert.equal(trace.status, 'processed');
    assert.equal(trace.users_accepted, sent.usersAccepted);
    if (sent.recognition === 'idempotency_key') originals.add(trace.duplicate_of ?? traceId);
    else assert.equal(trace.duplicate_of, null);
    const stored = trace.users.reduce((sum, { events }) => sum + events, 0);
    if (sent.recognition === 'none') assert.equal(stored, sent.marks.length);
    if (trace.duplicate_of !== null) assert.equal(stored, 0);
  }
  // However often it was sent, one request is the original of all.
  assert.ok(originals.size <= 1, `${sent.idempotencyKey} was stored by ${originals.size} requests`);
}
