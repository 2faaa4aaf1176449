/**
 * An SQLite store and a PostgreSQL store side by side, each behind the real API. Both are fed the same records in the
 * same batches and queried alike; a result is good when both return it, to the byte. Cursors are opaque and
 * differ: each store is asked on with its own, and compared is only whether there is one.
 */

import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import type { TestContext } from 'node:test';
import type { FastifyInstance } from 'fastify';
import { makeTables } from '../../src/backends/postgres/make-tables.ts';
import { openPool, type PostgresPool } from '../../src/backends/postgres/pool.ts';
import { openPostgresStore } from '../../src/backends/postgres/store.ts';
import { openPostgresStoreWriter } from '../../src/backends/postgres/store-writer.ts';
import type { RunsShape } from '../../src/backends/embedded/sorted-runs/entries.ts';
import { StoredRuns } from '../../src/backends/embedded/sorted-runs/stored-runs.ts';
import { EVENT_IDS, IDEMPOTENCY_KEYS } from '../../src/backends/embedded/store/first-uses.ts';
import { openSqliteStore } from '../../src/backends/embedded/store/store.ts';
import { openSqliteStoreWriter } from '../../src/backends/embedded/store/writer.ts';
import { KeyCache } from '../../src/keys/cache.ts';
import { createKey } from '../../src/keys/manage.ts';
import type { LogReader, LogRecord } from '../../src/log.ts';
import { type Environment, EVENT_ID_WINDOW_MS, IDEMPOTENCY_WINDOW_MS, type TenantId } from '../../src/model.ts';
import { withPendingRecords } from '../../src/views/reading.ts';
import type { Store } from '../../src/store.ts';
import type { Retention, StoreWriter } from '../../src/store-writer.ts';
import { processBatch } from '../processor/process-batch.ts';
import { startApp } from '../api/running-app.ts';
import { temporaryKeyStore } from '../keys/temporary-store.ts';
import { TENANTS, traceIdOf } from '../processor/history.ts';
import { testPostgres } from '../servers/postgres.ts';

export const OPTIONS = { defaultCountry: null, junkValues: new Set<string>() };
/** Of a tenant that never sends anything. */
export const SILENT: TenantId = 'acct_silent/production';

const LOG_NAME = 'test:agreement';
const CONNECTIONS = 6;
/** All that a history fills. Partitions stay, as they do in a server that continues. */
const TABLES =
  'tenants, invalidations, positions, nodes, identifiers, merges, cannot_link, refusals, tombstones, idempotency_keys, event_ids, counts, ' +
  'ledger, receipts, profile_counts, catalogue_entries, catalogue_properties, rejections, dead_letters, jobs, audit, records, events, arrivals, expired_arrivals';
/** What a history should bring about now and then, by how a response shows it. */
const SIGHTS: Readonly<Record<string, RegExp>> = {
  merge: /"merged_ids":\["/,
  other_user_id: /"reason":"other_user_id"/,
  limit: /"reason":"limit"/,
  publishable_key: /"reason":"publishable_key"/,
  cannot_link: /"reason":"cannot_link"/,
  chain: /"chain":\[\{/,
  unmerge: /"kind":"unmerge"/,
  erase: /"kind":"erase"/,
  'erased when late': /this person was erased after the request/,
  expired: /"expired":[1-9]/,
  'duplicate request': /"duplicate_of":"/,
  'key reused': /Idempotency-Key was used with another body/,
  'duplicate event': /"duplicate_events":[1-9]/,
  rejection: /"payload_is_cut":/,
  junk: /is a placeholder value/,
  'too many names': /only the first 1000 names/,
  'no profile': /"profile_id":null/,
};
const CURSOR = /"(next_cursor|last)":"[^"]*"/g;
/** The trace ids of the API's own calls begin so; calls that run at once get theirs in any order. */
const OWN_TRACE = '0a0a0a0a';
const OWN_TRACES = /0a0a0a0a-[0-9a-f-]{27}/g;

export interface Side {
  readonly name: string;
  readonly writer: StoreWriter;
  readonly store: Store;
  /** The store alone; the log is that of its process. */
  readonly close: () => Promise<void>;
}

interface Asked {
  readonly path: string;
  readonly status: number;
  readonly text: string;
}

interface HasCursor {
  readonly next_cursor?: string | null;
}

export interface Question {
  readonly method?: 'GET' | 'POST' | 'DELETE';
  readonly json?: unknown;
}

export class TwoStores {
  /** By the clock of both APIs and of the processor. */
  now = 0;
  readonly asked = new Set<string>();
  /** Names of SIGHTS, and how many responses showed them. */
  readonly seen = new Map(Object.keys(SIGHTS).map((name) => [name, 0]));
  readonly #folder: string;
  readonly #pool: PostgresPool;
  readonly #keys = new Map<TenantId, string>();
  readonly #apps: FastifyInstance[] = [];
  #sides: readonly [Side, Side] | undefined;
  #histories = 0;

  private constructor(folder: string, pool: PostgresPool) {
    this.#folder = folder;
    this.#pool = pool;
  }

  static async open(context: TestContext): Promise<TwoStores> {
    const folder = await mkdtemp(join(tmpdir(), 'sluice-agreement-'));
    context.after(() => rm(folder, { recursive: true, force: true }));
    const { newDatabase } = await testPostgres();
    const pool = await openPool({ url: await newDatabase(), max: CONNECTIONS, applicationName: 'sluice agreement' });
    context.after(() => pool.close());
    await makeTables(pool);
    const stores = new TwoStores(folder, pool);
    await stores.#startApps(context);
    context.after(() => stores.#closeSides());
    return stores;
  }

  get sides(): readonly [sqlite: Side, postgres: Side] {
    assert.ok(this.#sides, 'renew was not called');
    return this.#sides;
  }

  /** The paths of all routes that respond to GET. */
  get routes(): string[] {
    const [app] = this.#apps;
    return [...(app?.methodsByPath ?? [])].flatMap(([path, methods]) => (methods.has('GET') ? [path] : []));
  }

  get #sqliteFile(): string {
    return join(this.#folder, `${this.#histories}.db`);
  }

  /** Two empty stores; with a log, its name and what is still in it count. */
  async renew(log?: LogReader): Promise<void> {
    await this.#closeSides();
    this.#histories += 1;
    const file = this.#sqliteFile;
    await this.#pool.query(`TRUNCATE ${TABLES} RESTART IDENTITY`);
    const logName = log?.name ?? LOG_NAME;
    const side = (name: string, writer: StoreWriter, store: Store): Side => {
      return {
        name,
        writer,
        store: log === undefined ? store : withPendingRecords(store, log),
        close: () => store.close(),
      };
    };
    this.#sides = [
      side('SQLite', openSqliteStoreWriter({ file }), openSqliteStore(file)),
      side(
        'PostgreSQL',
        openPostgresStoreWriter({ pool: this.#pool.share(), logName }),
        openPostgresStore({ pool: this.#pool.share(), logName }),
      ),
    ];
  }

  /** One batch, in a transaction of its own, into both. */
  async feed(records: readonly Omit<LogRecord, 'partition' | 'position'>[]): Promise<void> {
    for (const { writer } of this.sides) {
      const start = (await writer.processed()).positions.get(0) ?? 0;
      const placed = records.map((record, index) => ({ ...record, partition: 0, position: start + index }));
      const transaction = await writer.begin();
      try {
        await transaction.advance(0, start, start + records.length);
        await processBatch(transaction, placed, { options: OPTIONS, now: () => this.now, failpoint: () => undefined });
        await transaction.commit(false);
      } catch (error) {
        await transaction.rollback();
        throw error;
      }
    }
  }

  async sweep(retention: Retention, now: number): Promise<void> {
    for (const { writer, name } of this.sides) {
      for (let calls = 0; await writer.sweep(retention, now); calls += 1) {
        assert.ok(calls < 1_000, `the sweep of ${name} never ends`);
      }
    }
    await this.#forgetUsesBefore(IDEMPOTENCY_KEYS, now - IDEMPOTENCY_WINDOW_MS);
    await this.#forgetUsesBefore(EVENT_IDS, now - EVENT_ID_WINDOW_MS);
  }

  /**
   * Both stores keep first uses for longer than their window, and a history that continues before the sweep shows it: PostgreSQL
   * for processors that are late, SQLite until the newest use of the same run is over.
   */
  async #forgetUsesBefore(shape: RunsShape, cutoff: number): Promise<void> {
    await this.#pool.query(`DELETE FROM ${shape.name} WHERE received_at < $1`, [cutoff]);
    using database = new DatabaseSync(this.#sqliteFile);
    const reader = new StoredRuns(database, shape);
    const old = [...reader.all([Number.MIN_SAFE_INTEGER])].filter(({ values }) => (values[0] as number) < cutoff);
    database.exec('BEGIN IMMEDIATE');
    reader.remove(old.map(({ key }) => key));
    database.exec('COMMIT');
  }

  /** Asks both, and returns the responses as they came: the cursors in them are each store's own. */
  async ask(tenantId: TenantId, path: string, question: Question = {}): Promise<readonly [string, string]> {
    return this.#askEach(tenantId, [path, path], question);
  }

  /** To the last page. */
  async askPages(tenantId: TenantId, path: string): Promise<string[]> {
    const pages: string[] = [];
    for (let paths: readonly [string, string] = [path, path]; ; ) {
      const responses = await this.#askEach(tenantId, paths, {});
      pages.push(responses[0]);
      const [one = '', other = ''] = responses.map((text) => (JSON.parse(text) as HasCursor).next_cursor ?? '');
      if (one === '' || other === '') return pages;
      const next = (cursor: string): string => `${path}&cursor=${encodeURIComponent(cursor)}`;
      paths = [next(one), next(other)];
    }
  }

  /** What arrived after the places, in order; and the places after it. PostgreSQL may need a moment to be certain. */
  async arrivals(
    tenantId: TenantId,
    places: readonly [string, string],
  ): Promise<{ events: string[][]; last: [string, string] }> {
    const last: [string, string] = [...places];
    const events: string[][] = [[], []];
    for (const [index, app] of this.#apps.entries()) {
      for (;;) {
        const path = `/events?limit=3&after=${encodeURIComponent(last[index] as string)}`;
        const { text } = await this.#call(app, tenantId, path, {});
        const response = JSON.parse(text) as { events: unknown[]; last: string };
        last[index] = response.last;
        events[index]?.push(...response.events.map((event) => JSON.stringify(event)));
        if (response.events.length === 0) break;
      }
    }
    return { events, last };
  }

  async #askEach(
    tenantId: TenantId,
    paths: readonly [string, string],
    question: Question,
  ): Promise<readonly [string, string]> {
    this.asked.add(paths[0].split('?')[0] as string);
    const [one, other] = (await Promise.all(
      this.#apps.map((app, index) => this.#call(app, tenantId, paths[index] as string, question)),
    )) as [Asked, Asked];
    if (one.status !== other.status || comparable(one.text) !== comparable(other.text)) {
      const reported = [one, other].map(({ status, text }) => `${status} ${text.slice(0, 4_000)}`);
      assert.fail(
        `${question.method ?? 'GET'} ${decodeURIComponent(paths[0])} of ${tenantId}\nSQLite:     ${reported[0]}\nPostgreSQL: ${reported[1]}`,
      );
    }
    for (const [name, pattern] of Object.entries(SIGHTS)) {
      if (pattern.test(one.text)) this.seen.set(name, (this.seen.get(name) ?? 0) + 1);
    }
    assert.ok(one.status < 500, `${paths[0]} of ${tenantId}: ${one.text}`);
    return [one.text, other.text];
  }

  async #call(app: FastifyInstance, tenantId: TenantId, path: string, question: Question): Promise<Asked> {
    const { method = 'GET', json } = question;
    const response = await app.inject({
      method,
      url: path,
      headers: { authorization: `Bearer ${this.#keys.get(tenantId)}` },
      ...(json === undefined ? {} : { payload: json as object }),
    });
    return { path, status: response.statusCode, text: response.body };
  }

  async #startApps(context: TestContext): Promise<void> {
    const { store: keyStore } = await temporaryKeyStore(context);
    for (const tenantId of [...TENANTS, SILENT]) {
      const [id = '', environment] = tenantId.split('/');
      const account = await keyStore.ensureAccount({ id, name: id, createdAt: 0 });
      const options = { name: 'test', kind: 'secret', origins: [], expiresAt: null, now: 0 } as const;
      const { key } = await createKey(keyStore, {
        ...options,
        accountId: account.id,
        environment: environment as Environment,
      });
      this.#keys.set(tenantId, key);
    }
    const keys = new KeyCache(keyStore);
    for (const index of [0, 1]) {
      let traces = 0;
      const { app } = await startApp(context, {
        store: forwarding(() => (this.sides[index] as Side).store),
        keys,
        keyStore,
        now: () => this.now,
        newTraceId: () => traceIdOf(0, traces++).replace(/^.{8}/, OWN_TRACE),
        onError: (error) => assert.fail(error as Error),
      });
      this.#apps.push(app);
    }
  }

  async #closeSides(): Promise<void> {
    for (const { writer, close } of this.#sides ?? []) {
      await close();
      await writer.close();
    }
    this.#sides = undefined;
  }
}

/** A store that is another one from history to history. */
function forwarding(current: () => Store): Store {
  return new Proxy({} as Store, {
    get: (_, name: keyof Store) => {
      const store = current();
      return (store[name] as (...args: unknown[]) => unknown).bind(store);
    },
  });
}

function comparable(text: string): string {
  return text.replaceAll(CURSOR, '"$1":"…"').replaceAll(OWN_TRACES, OWN_TRACE);
}
