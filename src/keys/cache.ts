/**
 * The edge's cache of API keys, so that a request costs no read of the key store. A response of the store is used for
 * FRESH_MS, so a revocation takes effect everywhere within that time, and at most TIMEOUT_MS more where the store is slow.
 * While the store cannot be read, or takes longer than TIMEOUT_MS, keys that it confirmed within the last STALE_MS keep
 * working: neither a restart of the store nor a network that drops packets loses events.
 *
 * Keys that do not exist have their own map, so a flood of guesses cannot evict real keys. All times are of the monotonic
 * clock: setting the wall clock neither shortens nor extends them.
 */

import { messageWithCause } from '../errors.ts';
import { type Environment, MINUTE_MS } from '../model.ts';
import { putLast } from '../runtime/put-last.ts';
import { StoreUnavailableError } from '../store-writer.ts';
import type { OutageLog } from '../telemetry/logger.ts';
import { type ApiKey, keyState, type KeyStore } from '../keys.ts';
import { hashKey, isWellFormedKey } from './format.ts';

export const FRESH_MS = 1_000;
export const STALE_MS = 10 * MINUTE_MS;
/** How long a request with a key that is known waits for the store to confirm it once more. */
export const TIMEOUT_MS = 1_000;
/** How long after the last query `probe` makes one. */
export const PROBE_MS = 5_000;
/** How long after a timeout requests with a cached key do not wait at all. Queries continue in the background. */
const HANGING_MS = 10_000;
/** How many keys that exist are held, and how many that do not. */
export const KEYS_MAX = 10_000;

interface KeyCacheOptions {
  readonly timeoutMs?: number;
  readonly keysMax?: number;
  readonly outage?: Pick<OutageLog, 'failed' | 'worked'>;
}

interface Found {
  readonly apiKey: ApiKey;
  /** When the store was last queried, and when it last responded; they differ only while it fails. */
  readonly askedAt: number;
  readonly confirmedAt: number;
}

interface Asking {
  readonly response: Promise<ApiKey | undefined>;
  /** Resolves after the timeout, whether the store responds later or not. */
  readonly timeout: Promise<void>;
}

export class KeyCache {
  readonly #store: KeyStore;
  readonly #timeoutMs: number;
  readonly #keysMax: number;
  readonly #outage: KeyCacheOptions['outage'];
  /**
   * Both in order of the last query to the store, oldest first. A key in use is queried again every FRESH_MS, so
   * evicting the first entry evicts the least recently used, without any bookkeeping on a hit.
   */
  readonly #found = new Map<string, Found>();
  readonly #notFoundAt = new Map<string, number>();
  readonly #inFlight = new Map<string, Asking>();
  /** Set when the store did not respond in time, cleared when it does. */
  #hangsUntil = 0;
  #queriedAt = Number.NEGATIVE_INFINITY;
  #isProbing = false;
  /** Why the last query failed; null if it did not. */
  #failure: string | null = null;
  #confirmedAt = Number.NEGATIVE_INFINITY;

  constructor(store: KeyStore, options: KeyCacheOptions = {}) {
    this.#store = store;
    this.#timeoutMs = options.timeoutMs ?? TIMEOUT_MS;
    this.#keysMax = options.keysMax ?? KEYS_MAX;
    this.#outage = options.outage;
  }

  /** The key, if it is cached. Undefined means not cached: use `lookup` then. */
  peek(key: string, now = performance.now()): ApiKey | undefined {
    const found = this.#found.get(key);
    if (found === undefined || !isFresh(found.askedAt, now)) return undefined;
    return isTrusted(found, now) ? found.apiKey : undefined;
  }

  /**
   * The key, revoked and expired ones included (see `isUsable`); undefined if there is no such key. Rejects with
   * `StoreUnavailableError` when that is unknown: the response is 503 then, never 401.
   */
  async lookup(key: string, now = performance.now()): Promise<ApiKey | undefined> {
    const known = this.peek(key, now);
    if (known !== undefined) return known;

    const notFoundAt = this.#notFoundAt.get(key);
    if (notFoundAt !== undefined && isFresh(notFoundAt, now)) return undefined;

    if (!isWellFormedKey(key)) return undefined;
    const { response, timeout } = this.#inFlight.get(key) ?? this.#startAsking(key, now);
    const stale = this.#found.get(key);
    if (stale === undefined || !isTrusted(stale, now)) return response;
    if (performance.now() < this.#hangsUntil) return stale.apiKey;
    return Promise.race([response, timeout.then(() => stale.apiKey)]);
  }

  /**
   * Why no request can be accepted: the last query failed, and no key was confirmed within STALE_MS. Null while one may
   * be accepted.
   */
  problem(now = performance.now()): string | null {
    return now - this.#confirmedAt < STALE_MS ? null : this.#failure;
  }

  /** To be called every second: queries the store if no request does, so that `problem` is right without traffic. */
  async probe(now = performance.now()): Promise<void> {
    const interval = this.#failure === null ? PROBE_MS : FRESH_MS;
    if (this.#isProbing || now - this.#queriedAt < interval) return;
    this.#isProbing = true;
    try {
      await this.#query(NO_KEY, now);
    } catch {
      // Noted by the query.
    } finally {
      this.#isProbing = false;
    }
  }

  /** Any key may have changed: each is read again from the store. Confirmed keys still work if that fails. */
  invalidate(): void {
    for (const [key, found] of this.#found) this.#found.set(key, { ...found, askedAt: Number.NEGATIVE_INFINITY });
  }

  get sizes(): { found: number; notFound: number } {
    return { found: this.#found.size, notFound: this.#notFoundAt.size };
  }

  #startAsking(key: string, now: number): Asking {
    const { promise: timeout, resolve: giveUp } = Promise.withResolvers<void>();
    const timer = setTimeout(() => {
      this.#hangsUntil = performance.now() + HANGING_MS;
      giveUp();
    }, this.#timeoutMs);
    const response = this.#ask(key, now).finally(() => {
      clearTimeout(timer);
      this.#inFlight.delete(key);
    });
    // All callers may have continued without it.
    response.catch(() => undefined);
    this.#inFlight.set(key, { response, timeout });
    return { response, timeout };
  }

  async #ask(key: string, now: number): Promise<ApiKey | undefined> {
    let apiKey: ApiKey | undefined;
    try {
      apiKey = await this.#query(hashKey(key), now);
    } catch (error) {
      return this.#withoutStore(key, now, error);
    }
    if (apiKey !== undefined) this.#confirmedAt = Math.max(this.#confirmedAt, now);
    if (apiKey === undefined) {
      this.#found.delete(key);
      putLast(this.#notFoundAt, key, now, this.#keysMax);
      return undefined;
    }
    this.#notFoundAt.delete(key);
    const frozen = freeze(apiKey);
    putLast(this.#found, key, { apiKey: frozen, askedAt: now, confirmedAt: now }, this.#keysMax);
    return frozen;
  }

  async #query(hash: Uint8Array, now: number): Promise<ApiKey | undefined> {
    this.#queriedAt = now;
    try {
      const apiKey = await this.#store.findByHash(hash);
      this.#outage?.worked();
      this.#hangsUntil = 0;
      this.#failure = null;
      return apiKey;
    } catch (error) {
      this.#outage?.failed(error);
      this.#failure = messageWithCause(error);
      throw error;
    }
  }

  #withoutStore(key: string, now: number, cause: unknown): ApiKey {
    const found = this.#found.get(key);
    if (found === undefined || !isTrusted(found, now)) {
      throw new StoreUnavailableError('the key store cannot be read', { cause });
    }
    // Counts as asked, so that a failing store is tried once per key and FRESH_MS, not once per request.
    putLast(this.#found, key, { ...found, askedAt: now }, this.#keysMax);
    return found.apiKey;
  }
}

/** The hash of no key: hashes of keys have more bytes. */
const NO_KEY = new Uint8Array(1);

/** Whether a key opens anything now, on a deployment for the given environment. */
export function isUsable(key: ApiKey, now: number, environment: 'any' | Environment): boolean {
  return keyState(key, now) === 'active' && (environment === 'any' || key.environment === environment);
}

function isTrusted(found: Found, now: number): boolean {
  return now - found.confirmedAt < STALE_MS;
}

function isFresh(askedAt: number, now: number): boolean {
  return now - askedAt < FRESH_MS;
}

function freeze(apiKey: ApiKey): ApiKey {
  return Object.freeze({
    ...apiKey,
    scopes: Object.freeze([...apiKey.scopes]),
    origins: Object.freeze([...apiKey.origins]),
    rateLimit: Object.freeze(apiKey.rateLimit),
  });
}
