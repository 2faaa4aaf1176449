/**
 * Hears of changed keys the moment they are committed, over one connection that LISTENs, so that caches drop what they
 * know at once. It is a shortcut and no promise: while the connection is lost nothing is heard, and caches ask again by
 * themselves after a second anyway. After each reconnection everything may have changed, and the callback is told so.
 */

import { Client, type ClientConfig } from 'pg';
import { connectionSettings, type PoolOptions } from './connection.ts';
import { KEY_CHANGES_CHANNEL } from './keys-schema.ts';

const FIRST_RETRY_MS = 100;
const RETRY_MS_MAX = 5_000;
/** How often a silent connection is asked whether it is still there, and how long it has to answer. */
const PING_EVERY_MS = 10_000;
const PING_TIMEOUT_MS = 5_000;

export interface ListenerOptions {
  readonly pingEveryMs?: number;
  readonly pingTimeoutMs?: number;
}

export interface KeyChangeListener {
  /** Whether changes are heard now. */
  readonly isListening: boolean;
  close(): void;
}

/** `onChange` gets the id of the key that was changed or removed, or undefined: any may be new or changed. */
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

  /** A connection tells of its end in several ways; the first counts. */
  #onLost(client: Client): void {
    if (this.#client !== client) return;
    this.#drop();
    if (this.#isClosed) return;
    const waitMs = Math.min(RETRY_MS_MAX, FIRST_RETRY_MS * 2 ** this.#failures);
    this.#failures++;
    // Nodes that lost the same server do not all come back at the same moment.
    this.#timer = setTimeout(() => void this.#connect(), waitMs * (0.5 + Math.random() / 2));
  }

  #drop(): void {
    clearTimeout(this.#timer);
    this.isListening = false;
    const client = this.#client;
    this.#client = undefined;
    // A polite goodbye could wait for ever on a connection that is silent.
    client?.connection.stream.destroy();
  }
}
