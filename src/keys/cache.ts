/**
 * What the edge knows of API keys, so that a request costs no read of the key store.
 *
 * An answer of the store is used for FRESH_MS, so a revocation holds everywhere within that time. While the store
 * cannot be read, keys that it confirmed within the last STALE_MS go on working: a restart of the store loses no
 * events. Both maps are bounded, and keys that do not exist have a map of their own: no flood of guesses can push out
 * the keys of customers. What is handed out is frozen, for all requests share it.
 */

import type { Environment } from '../model.ts';
import type { ApiKey, KeyStore } from '../store.ts';
import { hashKey, isWellFormedKey } from './format.ts';

export const FRESH_MS = 1_000;
export const STALE_MS = 10 * 60 * 1_000;
export const FOUND_MAX = 10_000;
export const NOT_FOUND_MAX = 10_000;

/** The key store could not be asked, so nobody knows whether the key is good. The answer is 503, never 401. */
export class KeyStoreUnavailableError extends Error {
  override readonly name = 'KeyStoreUnavailableError';
}

export interface KeyCacheOptions {
  readonly staleMs?: number;
  readonly foundMax?: number;
  readonly notFoundMax?: number;
}

interface Found {
  readonly apiKey: ApiKey;
  /** When the store was last asked, and when it last answered; they differ only while it fails. */
  readonly askedAt: number;
  readonly confirmedAt: number;
}

export class KeyCache {
  readonly #store: KeyStore;
  readonly #staleMs: number;
  readonly #foundMax: number;
  readonly #notFoundMax: number;
  /**
   * Both in order of the last question to the store, oldest first. A key in use is asked for again every FRESH_MS, so
   * dropping the first one drops the least recently used, without any bookkeeping on a hit.
   */
  readonly #found = new Map<string, Found>();
  readonly #notFoundAt = new Map<string, number>();
  readonly #underWay = new Map<string, Promise<ApiKey | undefined>>();

  constructor(store: KeyStore, options: KeyCacheOptions = {}) {
    this.#store = store;
    this.#staleMs = options.staleMs ?? STALE_MS;
    this.#foundMax = options.foundMax ?? FOUND_MAX;
    this.#notFoundMax = options.notFoundMax ?? NOT_FOUND_MAX;
  }

  /** The key, if that is known without asking the store. Undefined says nothing: use `lookup` then. */
  peek(key: string, now: number): ApiKey | undefined {
    const found = this.#found.get(key);
    if (found === undefined || !isFresh(found.askedAt, now)) return undefined;
    return this.#isTrusted(found, now) ? found.apiKey : undefined;
  }

  /**
   * The key, revoked and expired ones included (see `isUsable`); undefined if there is no such key. Rejects with
   * `KeyStoreUnavailableError` when nobody can tell.
   */
  async lookup(key: string, now: number): Promise<ApiKey | undefined> {
    const known = this.peek(key, now);
    if (known !== undefined) return known;

    const notFoundAt = this.#notFoundAt.get(key);
    if (notFoundAt !== undefined && isFresh(notFoundAt, now)) return undefined;

    const underWay = this.#underWay.get(key);
    if (underWay !== undefined) return underWay;

    if (!isWellFormedKey(key)) return undefined;
    const asking = this.#ask(key, now).finally(() => this.#underWay.delete(key));
    this.#underWay.set(key, asking);
    return asking;
  }

  /** How many keys are held, for metrics and tests. */
  get sizes(): { found: number; notFound: number } {
    return { found: this.#found.size, notFound: this.#notFoundAt.size };
  }

  async #ask(key: string, now: number): Promise<ApiKey | undefined> {
    let apiKey: ApiKey | undefined;
    try {
      apiKey = await this.#store.findByHash(hashKey(key));
    } catch (error) {
      return this.#withoutStore(key, now, error);
    }
    if (apiKey === undefined) {
      this.#found.delete(key);
      putLast(this.#notFoundAt, key, now, this.#notFoundMax);
      return undefined;
    }
    this.#notFoundAt.delete(key);
    const frozen = freeze(apiKey);
    putLast(this.#found, key, { apiKey: frozen, askedAt: now, confirmedAt: now }, this.#foundMax);
    return frozen;
  }

  #withoutStore(key: string, now: number, cause: unknown): ApiKey {
    const found = this.#found.get(key);
    if (found === undefined || !this.#isTrusted(found, now)) {
      throw new KeyStoreUnavailableError('the key store cannot be read', { cause });
    }
    // Counts as asked, so that a failing store is tried once per key and FRESH_MS, not once per request.
    putLast(this.#found, key, { ...found, askedAt: now }, this.#foundMax);
    return found.apiKey;
  }

  #isTrusted(found: Found, now: number): boolean {
    return now - found.confirmedAt < this.#staleMs;
  }
}

/** Whether a key opens anything now, on a deployment for the given environment. */
export function isUsable(key: ApiKey, now: number, environment: 'any' | Environment): boolean {
  if (key.revokedAt !== null) return false;
  if (key.expiresAt !== null && key.expiresAt <= now) return false;
  return environment === 'any' || key.environment === environment;
}

/** A clock that was set back makes an answer look as if it came from the future: then it is not fresh. */
function isFresh(askedAt: number, now: number): boolean {
  const ageMs = now - askedAt;
  return ageMs >= 0 && ageMs < FRESH_MS;
}

function putLast<V>(map: Map<string, V>, key: string, value: V, max: number): void {
  map.delete(key);
  map.set(key, value);
  if (map.size <= max) return;
  const first = map.keys().next();
  if (first.done !== true) map.delete(first.value);
}

function freeze(apiKey: ApiKey): ApiKey {
  return Object.freeze({
    ...apiKey,
    scopes: Object.freeze([...apiKey.scopes]),
    origins: Object.freeze([...apiKey.origins]),
  });
}
