/**
 * Accounts, API keys and members on PostgreSQL: the stores of `backends/sql/`, and notifications of changed keys for
 * the caches of all servers. The stores own the pools that they are given.
 *
 * Caches are notified as soon as a change is committed, over one connection that LISTENs. This is an optimization, not a
 * guarantee: notifications are lost while disconnected, and caches refresh every second anyway. Any key may have changed
 * during a disconnect, so every reconnect reports that too.
 */

import { Client, type ClientConfig } from 'pg';
import type { KeyStore } from '../../keys.ts';
import type { MemberStore } from '../../members.ts';
import { SqlKeyStore } from '../sql/keys.ts';
import { SqlMemberStore } from '../sql/members.ts';
import { KEY_CHANGES_CHANNEL } from './keys-schema.ts';
import { connectionSettings, type PoolOptions, type PostgresPool } from './pool.ts';
import { PostgresSqlDatabase } from './sql-database.ts';

export function openPostgresKeyStore(pool: PostgresPool): KeyStore {
  return new PostgresKeyStore(pool);
}

export function openPostgresMemberStore(pool: PostgresPool): MemberStore {
  return new SqlMemberStore(new PostgresSqlDatabase(pool));
}

class PostgresKeyStore extends SqlKeyStore {
  readonly #pool: PostgresPool;
  readonly #listeners: KeyChangeListener[] = [];

  constructor(pool: PostgresPool) {
    super(new PostgresSqlDatabase(pool));
    this.#pool = pool;
  }

  watch(onChange: (keyId: string | undefined) => void): void {
    this.#listeners.push(new KeyChangeListener(this.#pool.options, onChange));
  }

  override async close(): Promise<void> {
    for (const listener of this.#listeners) listener.close();
    await super.close();
  }
}

const FIRST_RETRY_MS = 100;
const RETRY_MS_MAX = 5_000;
/** How often a silent connection is pinged, and how long it has to respond. */
const PING_EVERY_MS = 10_000;
const PING_TIMEOUT_MS = 5_000;

interface ListenerOptions {
  readonly pingEveryMs?: number;
  readonly pingTimeoutMs?: number;
}

export class KeyChangeListener {
  readonly #settings: ClientConfig;
  readonly #pingEveryMs: number;
  readonly #onChange: (keyId: string | undefined) => void;
  #client: Client | undefined;
  #timer: NodeJS.Timeout | undefined;
  #failures = 0;
  #isClosed = false;
  /** Whether notifications arrive at present. */
  isListening = false;

  /** `onChange` gets the id of the changed or removed key, or undefined when any key may be new or changed. */
  constructor(options: PoolOptions, onChange: (keyId: string | undefined) => void, ping: ListenerOptions = {}) {
    this.#pingEveryMs = ping.pingEveryMs ?? PING_EVERY_MS;
    const applicationName = `${options.applicationName}, key changes`;
    this.#settings = {
      ...connectionSettings({ ...options, applicationName }),
      query_timeout: ping.pingTimeoutMs ?? PING_TIMEOUT_MS,
    };
    this.#onChange = onChange;
    void this.#connect();
  }

  close(): void {
    this.#isClosed = true;
    this.#drop();
  }

  async #connect(): Promise<void> {
    const client = new Client(this.#settings);
    this.#client = client;
    const onLost = (): void => this.#onLost(client);
    client.on('error', onLost);
    client.on('end', onLost);
    client.on('notification', ({ payload }) => this.#onChange(payload === '' ? undefined : payload));
    try {
      await client.connect();
      await client.query(`LISTEN ${KEY_CHANGES_CHANNEL}`);
    } catch {
      onLost();
      return;
    }
    if (this.#client !== client) return;
    this.#failures = 0;
    this.isListening = true;
    this.#onChange(undefined);
    this.#timer = setTimeout(() => void this.#ping(client), this.#pingEveryMs);
  }

  async #ping(client: Client): Promise<void> {
    try {
      await client.query('SELECT 1');
    } catch {
      this.#onLost(client);
      return;
    }
    if (this.#client === client) this.#timer = setTimeout(() => void this.#ping(client), this.#pingEveryMs);
  }

  /** A lost connection emits several events; the first one counts. */
  #onLost(client: Client): void {
    if (this.#client !== client) return;
    this.#drop();
    if (this.#isClosed) return;
    const waitMs = Math.min(RETRY_MS_MAX, FIRST_RETRY_MS * 2 ** this.#failures);
    this.#failures++;
    // Jitter: nodes that lost the same server must not all reconnect at the same moment.
    this.#timer = setTimeout(() => void this.#connect(), waitMs * (0.5 + Math.random() / 2));
  }

  #drop(): void {
    clearTimeout(this.#timer);
    this.isListening = false;
    const client = this.#client;
    this.#client = undefined;
    // A graceful close could hang forever on a silent connection.
    client?.connection.stream.destroy();
  }
}
