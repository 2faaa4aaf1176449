/**
 * The ledger test's backbone. Clients on many connections send requests that each exist once in the world (own
 * Idempotency-Key, own user ids) and write down a trace_id only after its 202 has arrived. After the fault, the log is
 * read: everything written down must be there exactly once, byte for byte. What was sent but not acknowledged may be
 * there (it was in flight) or not, but never twice and never altered.
 */

import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { openEmbeddedLogReader } from '../../src/backends/embedded/log/reader.ts';
import type { LogRecord } from '../../src/log.ts';
import { readAll } from '../contract/log-entries.ts';
import { sleep } from '../server.ts';
import { incompressibleText } from '../incompressible.ts';
import type { Scope } from './scope.ts';
import { Connection, ConnectionLostError, type RawResponse } from './connection.ts';

const USERS_PER_REQUEST_MAX = 5;
const PAUSE_AFTER_REFUSAL_MS = 20;

export class Ledger {
  /** Idempotency-Key → what was in the body, of everything that was ever sent. */
  readonly sent = new Map<string, { readonly hash: string; readonly users: number }>();
  /** trace_id → Idempotency-Key, written after the 202. */
  readonly acknowledged = new Map<string, string>();
  readonly #paddingBytes: number;
  #count = 0;

  constructor(paddingBytes = 200) {
    this.#paddingBytes = paddingBytes;
  }

  /** A request that was never sent before, with 1 to 5 users. */
  next(): { idempotencyKey: string; body: string } {
    this.#count += 1;
    const idempotencyKey = `request-${this.#count}`;
    const users = Array.from({ length: 1 + (this.#count % USERS_PER_REQUEST_MAX) }, (_, index) => ({
      identifiers: { user_id: `user-${this.#count}-${index}` },
      events: [{ event_name: 'tested', padding: incompressibleText(this.#paddingBytes) }],
    }));
    const body = JSON.stringify({ users });
    this.sent.set(idempotencyKey, { hash: hashOf(body), users: users.length });
    return { idempotencyKey, body };
  }

  acknowledge(idempotencyKey: string, response: RawResponse): void {
    const { trace_id, users_accepted } = JSON.parse(response.body) as { trace_id: string; users_accepted: number };
    assert.ok(!this.acknowledged.has(trace_id), `trace_id ${trace_id} was given twice`);
    assert.equal(users_accepted, this.sent.get(idempotencyKey)?.users);
    this.acknowledged.set(trace_id, idempotencyKey);
  }
}

function hashOf(body: string | Uint8Array): string {
  return createHash('sha256').update(body).digest('base64');
}

/** Sends the next request of the ledger and notes a 202 in it. */
export async function sendNext(connection: Connection, ledger: Ledger, key: string): Promise<RawResponse> {
  const { idempotencyKey, body } = ledger.next();
  const response = await connection.ingest(key, idempotencyKey, body);
  if (response.status === 202) ledger.acknowledge(idempotencyKey, response);
  return response;
}

export interface Load {
  /** Responses by status so far; `lost` counts connections that ended without one, `refused` those never made. */
  readonly counts: ReadonlyMap<number | 'lost' | 'refused', number>;
  /** The head of the latest response of each status. */
  readonly heads: ReadonlyMap<number, string>;
  /** Resolves once every client has had its last response or lost its connection. */
  stop(): Promise<void>;
}

/** Clients continue until they are stopped; one whose connection breaks opens another, as long as the server listens. */
export function startLoad(
  scope: Scope,
  server: { readonly port: number },
  key: string,
  ledger: Ledger,
  clients = 16,
): Load {
  const counts = new Map<number | 'lost' | 'refused', number>();
  const heads = new Map<number, string>();
  const stopping = new AbortController();
  const count = (what: number | 'lost' | 'refused'): void => void counts.set(what, (counts.get(what) ?? 0) + 1);

  async function converse(connection: Connection): Promise<void> {
    while (!stopping.signal.aborted) {
      const response = await sendNext(connection, ledger, key);
      // Anything else (no key, a bad request) would only look like a server that is slow.
      assert.ok(response.status === 202 || response.status === 503, `${response.head}\n${response.body}`);
      count(response.status);
      heads.set(response.status, response.head);
      if (/^connection: close/im.test(response.head)) return;
      if (response.status !== 202) await sleep(PAUSE_AFTER_REFUSAL_MS);
    }
  }

  async function client(): Promise<void> {
    while (!stopping.signal.aborted) {
      const connection = await Connection.open(server.port).catch(() => undefined);
      if (connection === undefined) {
        count('refused');
        await sleep(PAUSE_AFTER_REFUSAL_MS);
        continue;
      }
      try {
        await converse(connection);
      } catch (error) {
        if (!(error instanceof ConnectionLostError)) throw error;
        count('lost');
      } finally {
        connection.close();
      }
    }
  }

  const running = Promise.all(Array.from({ length: clients }, client));
  const stop = async (): Promise<void> => {
    stopping.abort();
    await running;
  };
  // Only said here: a client that waits for a response is let go when the server ends, which comes next.
  scope.defer(() => stopping.abort());
  return { counts, heads, stop };
}

export interface Audit {
  readonly records: number;
  /** Acknowledged, and not in the log. */
  readonly missing: readonly string[];
  /** In the log more than once. */
  readonly doubled: readonly string[];
  /** In the log, and not what was sent. */
  readonly altered: readonly string[];
}

/** Reads the whole log, beside a running server or not. Throws when the log says that it is damaged. */
export async function audit(dataFolder: string, ledger: Ledger): Promise<Audit> {
  const traces = new Map<string, LogRecord>();
  const keysSeen = new Set<string>();
  const doubled: string[] = [];
  const altered: string[] = [];
  const reader = openEmbeddedLogReader({ folder: join(dataFolder, 'log'), retentionMs: 0, now: Date.now });
  try {
    for (const partition of await reader.partitions()) {
      for (const record of await readAll(reader, partition)) {
        const { traceId, idempotencyKey } = record;
        if (traces.has(traceId) || keysSeen.has(idempotencyKey ?? '')) doubled.push(traceId);
        traces.set(traceId, record);
        keysSeen.add(idempotencyKey ?? '');
        const sent = ledger.sent.get(idempotencyKey ?? '');
        const isAsSent = sent !== undefined && hashOf(record.body) === sent.hash && record.userCount === sent.users;
        const isAsAcknowledged = (ledger.acknowledged.get(traceId) ?? idempotencyKey) === idempotencyKey;
        if (!isAsSent || !isAsAcknowledged || record.rejections.length > 0) altered.push(traceId);
      }
    }
  } finally {
    await reader.close();
  }
  const missing = Array.from(ledger.acknowledged.keys()).filter((traceId) => !traces.has(traceId));
  return { records: traces.size, missing, doubled, altered };
}

export async function assertLedger(dataFolder: string, ledger: Ledger): Promise<Audit> {
  const found = await audit(dataFolder, ledger);
  const wrong = [...found.missing, ...found.doubled, ...found.altered];
  assert.equal(
    wrong.length,
    0,
    `of ${ledger.acknowledged.size} acknowledged requests ${found.missing.length} are missing, ${found.doubled.length} are doubled and ${found.altered.length} are altered: ${wrong.slice(0, 5).join(', ')}`,
  );
  return found;
}

/** Numbers from 0 to 1 that the same seed gives again. FAULT_SEED=… repeats a run. */
export function seededRandom(report: (line: string) => void): () => number {
  const seed = process.env['FAULT_SEED'] ?? randomBytes(4).toString('hex');
  report(`FAULT_SEED=${seed} repeats these choices`);
  let count = 0;
  return () => {
    count += 1;
    return createHash('sha256').update(`${seed}/${count}`).digest().readUInt32BE(0) / 2 ** 32;
  };
}
