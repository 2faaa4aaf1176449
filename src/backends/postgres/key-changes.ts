/**
 * Notifies key caches of changed keys as soon as the change is committed, over one connection that LISTENs. This is an
 * optimization, not a guarantee: notifications are lost while disconnected, and caches refresh every second anyway. Any
 * key may have changed during a disconnect, so every reconnect reports that too.
 */

import { Client, type ClientConfig } from 'pg';
import { connectionSettings, type PoolOptions } from './connection.ts';
import { KEY_CHANGES_CHANNEL } from './keys-schema.ts';

const FIRST_RETRY_MS = 100;
const RETRY_MS_MAX = 5_000;
/** How often a silent connection is pinged, and how long it has to respond. */
const PING_EVERY_MS = 10_000;
const PING_TIMEOUT_MS = 5_000;

export interface ListenerOptions {
  readonly pingEveryMs?: number;
  readonly pingTimeoutMs?: number;
}

export interface KeyChangeListener {
  /** Whether notifications arrive at present. */
  readonly isListening: boolean;
  close(): void;
}

/** `onChange` gets the id of the changed or removed key, or undefined when any key may be new or changed. */
export function listenForKeyChanges(
  options: PoolOptions,
  onChange: (keyId: string | undefined) => void,
  ping: ListenerOptions = {},
): KeyChangeListener {
  return new Listener(options, onChange, ping);
}

class Listener implements KeyChangeListener {
  readonly #settings: ClientConfig;
  readonly #pingEveryMs: number;
  readonly #onChange: (keyId: string | undefined) => void;
  #client: Client | undefined;
  #timer: NodeJS.Timeout | undefined;
  #failures = 0;
  #isClosed = false;
  isListening = false;

  constructor(options: PoolOptions, onChange: (keyId: string | undefined) => void, ping: ListenerOptions) {
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
