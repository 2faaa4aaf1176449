/**
 * The interface of accounts and API keys: few, read on every request through a cache (`keys/cache.ts`), written rarely.
 * `test/contract/keys.ts` is the suite that every backend passes. A key is stored as its SHA-256 only.
 */

import type { Environment, KeyKind } from './model.ts';

export interface Account {
  readonly id: string;
  readonly name: string;
  readonly createdAt: number;
}

/** A key as it is stored. The key itself is shown once at creation and is never here, only its SHA-256. */
export interface ApiKey {
  /** Public and harmless: `key_` and 12 base62 characters. Used to revoke, in logs and in records. */
  readonly id: string;
  readonly accountId: string;
  readonly accountName: string;
  readonly name: string;
  readonly kind: KeyKind;
  readonly environment: Environment;
  /** What the key may do. Pinned by kind in code; stored so that it can be shown and later narrowed. */
  readonly scopes: readonly string[];
  /** Origins a browser may use a publishable key from; empty means any. */
  readonly origins: readonly string[];
  /** For display: `sk_dev_` and the last four characters. */
  readonly prefix: string;
  readonly lastFour: string;
  readonly createdAt: number;
  readonly expiresAt: number | null;
  readonly revokedAt: number | null;
  readonly lastUsedAt: number | null;
  /** A secret key was seen in a request from a web page of another site: probably leaked. */
  readonly leakSuspectedAt: number | null;
  readonly leakOrigin: string | null;
}

/** What is needed to store a new key: all that does not come with its use. */
export interface NewKey
  extends Omit<ApiKey, 'accountName' | 'revokedAt' | 'lastUsedAt' | 'leakSuspectedAt' | 'leakOrigin'> {
  /** SHA-256 of the whole key. */
  readonly hash: Uint8Array;
}

/** When the edge last saw a key in use; collected in memory and written in the background. */
export interface KeyUsage {
  readonly keyId: string;
  readonly usedAt: number;
  readonly leakOrigin: string | null;
}

/** Every method rejects when the store cannot be read or written; callers respond with 503 then, never 401. */
export interface KeyStore {
  accounts(): Promise<Account[]>;
  /** Makes the account, or returns the one that has that name already. */
  ensureAccount(account: Account): Promise<Account>;
  create(key: NewKey): Promise<void>;
  /** By SHA-256 of the whole key, revoked and expired ones included; undefined if there is none. */
  findByHash(hash: Uint8Array): Promise<ApiKey | undefined>;
  /** Newest first; of one account, or of all. */
  list(accountId?: string): Promise<ApiKey[]>;
  /** Returns the key as it is afterwards; undefined if there is no such id. Revoking twice keeps the first time. */
  revoke(id: string, at: number): Promise<ApiKey | undefined>;
  /** Lets a key expire at that time, or earlier if it would have. As it is afterwards; undefined for an unknown id. */
  expire(id: string, at: number): Promise<ApiKey | undefined>;
  /** Never moves `lastUsedAt` backwards; keeps the first suspected leak. Unknown ids are ignored. */
  recordUsage(usage: readonly KeyUsage[]): Promise<void>;
  /**
   * Reports each key that is changed, as soon as can be, until `close`. Undefined: any may be new or changed, because one was
   * created or the connection was interrupted. A store that has no way to report changes has no such method.
   */
  watch?(onChange: (keyId: string | undefined) => void): void;
  close(): Promise<void>;
}
