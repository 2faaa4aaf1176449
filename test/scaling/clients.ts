/**
 * Clients as they should be: each request has an Idempotency-Key and is sent again, to the next edge, until a 202 has
 * arrived; only then is it written down as acknowledged. Every user is one of a few people, named by one or both of two
 * identifiers, and has an event with a mark that exists once in the world. So servers that work at the same time write
 * the same profiles and merge them, and whatever is lost or doubled shows in the marks.
 */

import assert from 'node:assert/strict';
import { sleep } from '../server.ts';
import { Connection, ConnectionLostError, type RawResponse } from '../faults/connection.ts';

const USERS_MAX = 50;
/** Most requests are small; every so many is large. */
const LARGE_EVERY = 5;
const SMALL_USERS_MAX = 6;
/**
 * A client is not in a hurry: the faults are of interest, not the load. With less of a pause requests come faster than a
 * processor that is killed and started again stores them, and the test would wait for what is left over.
 */
const PAUSE_MS = 120;
const PAUSE_AFTER_REFUSAL_MS = 100;

export interface SentRequest {
  readonly idempotencyKey: string;
  readonly body: string;
  /** Of each user in order. */
  readonly marks: readonly string[];
  readonly people: readonly number[];
  /** Of all tries that got 202, which is one unless a response was lost. */
  acknowledgedAs: string | null;
  tries: number;
}

/** One try and its end; times by `performance.now`. */
export interface Try {
  readonly sentAt: number;
  readonly respondedAt: number;
  /** The status, or how it ended without one. */
  readonly end: number | 'lost' | 'refused' | 'silent';
}

/** What clients sent and the responses they got. */
export class ClientLedger {
  readonly requests: SentRequest[] = [];
  readonly tries: Try[] = [];
  /** People that a request named by both identifiers. */
  readonly linked = new Set<number>();
  readonly #random: () => number;
  readonly #people: number;

  constructor(random: () => number, people = 120) {
    this.#random = random;
    this.#people = people;
  }

  next(): SentRequest {
    const n = this.requests.length;
    const usersMax = n % LARGE_EVERY === LARGE_EVERY - 1 ? USERS_MAX : SMALL_USERS_MAX;
    const people = Array.from({ length: 1 + Math.floor(this.#random() * usersMax) }, () =>
      Math.floor(this.#random() * this.#people),
    );
    const marks = people.map((_, index) => `${n}.${index}`);
    const users = people.map((person, index) => ({
      identifiers: this.#identifiersOf(person),
      user_properties: { latest: n },
      events: [{ event_name: 'marked', mark: marks[index] }],
    }));
    const idempotencyKey = `request-${n}`;
    const request = { idempotencyKey, body: JSON.stringify({ users }), marks, people, acknowledgedAs: null, tries: 0 };
    this.requests.push(request);
    return request;
  }

  get acknowledged(): number {
    return this.requests.filter(({ acknowledgedAs }) => acknowledgedAs !== null).length;
  }

  count(end: Try['end']): number {
    return this.tries.filter((one) => one.end === end).length;
  }

  get slowestMs(): number {
    return Math.max(...this.tries.map(({ sentAt, respondedAt }) => respondedAt - sentAt));
  }

  /** For people to see what the fault did. */
  summary(): string {
    const ends = Map.groupBy(this.tries, ({ end }) => end);
    const counts = Array.from(ends, ([end, tries]) => `${end}: ${tries.length}`).toSorted();
    const again = this.requests.filter(({ tries }) => tries > 1).length;
    const users = this.requests.reduce((sum, { marks }) => sum + marks.length, 0);
    const slowest = Math.round(this.slowestMs);
    return `${this.acknowledged} requests of ${users} users acknowledged, ${again} of them sent again; answers ${counts.join(', ')}, the slowest after ${slowest} ms`;
  }

  #identifiersOf(person: number): Record<string, string> {
    const both = { user_id: `u${person}`, email: `p${person}@example.com` };
    const which = this.#random();
    if (which < 0.4) return { user_id: both.user_id };
    if (which < 0.8) return { email: both.email };
    this.linked.add(person);
    return both;
  }
}

export interface Clients {
  /** Resolves when every request that was begun is acknowledged; no request may wait for longer than that. */
  stop(acknowledgedMsMax?: number): Promise<void>;
}

export interface ClientOptions {
  readonly ledger: ClientLedger;
  readonly key: string;
  readonly clients: number;
  /** Where the edges are now. */
  readonly ports: () => readonly number[];
  /** How long a client waits for a response before it takes it for lost. */
  readonly responseMsMax?: number;
  /** That of the test: a client whose test is over gives up. */
  readonly signal: AbortSignal;
}

class SilenceError extends Error {}

export function startClients(options: ClientOptions): Clients {
  const { ledger, key, clients, ports, responseMsMax = 30_000, signal } = options;
  const stopping = new AbortController();
  let deadline = Number.POSITIVE_INFINITY;

  const client = async (index: number): Promise<void> => {
    const desk = new Desk(ports, index);
    while (!stopping.signal.aborted && !signal.aborted) {
      const request = ledger.next();
      while (request.acknowledgedAs === null && !signal.aborted) {
        assert.ok(performance.now() < deadline, `${request.idempotencyKey} was not acknowledged in time`);
        const hasResponse = await attempt(desk, request);
        if (!hasResponse) await sleep(PAUSE_AFTER_REFUSAL_MS);
      }
      await sleep(PAUSE_MS);
    }
    desk.leave();
  };

  const attempt = async (desk: Desk, request: SentRequest): Promise<boolean> => {
    const sentAt = performance.now();
    const note = (end: Try['end']): boolean => {
      ledger.tries.push({ sentAt, respondedAt: performance.now(), end });
      return end === 202;
    };
    const connection = await desk.connection();
    if (connection === undefined) return note('refused');
    request.tries += 1;
    try {
      const response = await inTime(connection.ingest(key, request.idempotencyKey, request.body), responseMsMax);
      if (/^connection: close/im.test(response.head)) desk.leave();
      // Anything else is not a fault but a mistake.
      assert.ok(response.status === 202 || response.status === 503, `${response.head}\n${response.body}`);
      if (response.status === 503) {
        assert.match(response.head, /^retry-after: \d+/im);
        desk.leave();
        return note(503);
      }
      request.acknowledgedAs = traceIdOf(response, request);
      return note(202);
    } catch (error) {
      desk.leave();
      if (error instanceof ConnectionLostError) return note('lost');
      if (error instanceof SilenceError) return note('silent');
      throw error;
    }
  };

  const running = Promise.all(Array.from({ length: clients }, (_, index) => client(index)));
  // Set by the test that stops them.
  running.catch(() => undefined);
  return {
    stop: async (acknowledgedMsMax = 30_000) => {
      deadline = performance.now() + acknowledgedMsMax;
      stopping.abort();
      await running;
    },
  };
}

/** A client's connection, to the next edge after each that failed. */
class Desk {
  readonly #ports: () => readonly number[];
  #turn: number;
  #connection: Connection | undefined;

  constructor(ports: () => readonly number[], turn: number) {
    this.#ports = ports;
    this.#turn = turn;
  }

  async connection(): Promise<Connection | undefined> {
    if (this.#connection?.socket.destroyed === false) return this.#connection;
    const ports = this.#ports();
    this.#turn += 1;
    const port = ports[this.#turn % ports.length];
    if (port === undefined) return undefined;
    this.#connection = await Connection.open(port).catch(() => undefined);
    return this.#connection;
  }

  leave(): void {
    this.#connection?.close();
    this.#connection = undefined;
  }
}

async function inTime<T>(response: Promise<T>, msMax: number): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new SilenceError()), msMax);
  // It ends with the connection, when nothing waits any more.
  response.catch(() => undefined);
  return Promise.race([response, promise]).finally(() => clearTimeout(timer));
}

function traceIdOf({ body }: RawResponse, { marks }: SentRequest): string {
  const { trace_id, users_accepted } = JSON.parse(body) as { trace_id: string; users_accepted: number };
  assert.equal(users_accepted, marks.length);
  return trace_id;
}
