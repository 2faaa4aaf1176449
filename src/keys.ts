/**
 * The interface of accounts and API keys: few, read on every request through a cache (`keys/cache.ts`), written rarely.
 * Tracking plans and members are stored with them. `test/contract/keys.ts` is the suite that every backend passes. A key
 * is stored as its SHA-256 only.
 */

import type { MemberStore } from './members.ts';
import type { Environment, KeyKind } from './model.ts';
import type { PlanStore } from './plans.ts';

export interface Account {
  readonly id: string;
  readonly name: string;
  readonly createdAt: number;
}

export interface RateLimit {
  readonly usersPerSecond: number;
  /** How many may come at once after a pause. */
  readonly burstUsers: number;
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
  readonly rateLimit: RateLimit | null;
  /** For display: `sk_dev_` and the last four characters. */
  readonly prefix: string;
  readonly lastFour: string;
  readonly createdAt: number;
  readonly expiresAt: number | null;
  readonly revokedAt: number | null;
  readonly lastUsedAt: number | null;
  /** The site of the newest request that came from a web page. */
  readonly lastOrigin: string | null;
  /** A secret key was seen in a request from a web page of another site: probably leaked. */
  readonly leakSuspectedAt: number | null;
  readonly leakOrigin: string | null;
  /** The version of the tenant's tracking plan that is in use, if it enforces anything; null otherwise. */
  readonly enforcedPlan: number | null;
}

export type KeyState = 'active' | 'expired' | 'revoked';

/** What is needed to store a new key: all that does not come with its use. */
export interface NewKey
  extends Omit<
    ApiKey,
    'accountName' | 'revokedAt' | 'lastUsedAt' | 'lastOrigin' | 'leakSuspectedAt' | 'leakOrigin' | 'enforcedPlan'
  > {
  readonly hash: Uint8Array;
}

/** What may be changed of a key; what is absent stays. */
export type KeyChanges = Partial<Pick<ApiKey, 'name' | 'origins' | 'rateLimit'>>;

export interface KeyVolume {
  readonly users: number;
  readonly events: number;
  readonly usersRejected: number;
  /** Requests that were refused because of the key's rate limit. */
  readonly requestsLimited: number;
}

/** What the edge saw of a key; collected in memory and written in the background. */
export interface KeyUsage {
  readonly keyId: string;
  readonly usedAt: number;
  readonly leakOrigin: string | null;
  /** The web page that the newest of these requests came from; absent if none did. */
  readonly origin?: string;
  readonly volume?: KeyVolume;
}

/** Today, in UTC, and the six days before. */
export const KEY_VOLUME_DAYS = 7;

/** Every method rejects with `StoreUnavailableError` when the store cannot be read or written: 503 then, never 401. */
export interface KeyStore {
  readonly plans: PlanStore;
  readonly members: MemberStore;
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
  /** Lets a key expire at that time, or earlier if it would have. Returns the changed key; undefined for an unknown id. */
  expire(id: string, at: number): Promise<ApiKey | undefined>;
  /** Returns the changed key; undefined for an unknown id. */
  edit(id: string, changes: KeyChanges): Promise<ApiKey | undefined>;
  /**
   * What was received with the keys of an account since the UTC day of that time, by key id; keys without any are left
   * out. Days are kept for `KEY_VOLUME_DAYS`.
   */
  volumes(accountId: string, since: number): Promise<Map<string, KeyVolume>>;
  /** Never moves `lastUsedAt` backwards; keeps the first suspected leak; adds volumes up. Unknown ids are ignored. */
  recordUsage(usage: readonly KeyUsage[]): Promise<void>;
  close(): Promise<void>;
}

/** Whether a key works. Revoked wins over expired. */
export function keyState({ revokedAt, expiresAt }: Pick<ApiKey, 'revokedAt' | 'expiresAt'>, now: number): KeyState {
  if (revokedAt !== null) return 'revoked';
  return expiresAt !== null && expiresAt <= now ? 'expired' : 'active';
}
