/**
 * What the API is made of: `edge/edge.ts` puts it together, and tests replace what they need. Routes take all of it, so
 * that each names only what it uses.
 */

import type { RequestListener, Server } from 'node:http';
import type { Config, Sources } from '../config/config.ts';
import type { MatchOptions } from '../identity/match-keys.ts';
import type { KeyCache } from '../keys/cache.ts';
import type { ApiKey, KeyStore } from '../keys.ts';
import type { Environment, Role } from '../model.ts';
import type { Store } from '../store.ts';

/** For every role: a role without the API serves health, metrics and version, and the SDK script if it ingests. */
export interface OperatorParts {
  readonly serverFactory: (handler: RequestListener) => Server;
  readonly version: string;
  readonly role: Role;
  /** Where clients reach this server, without a slash at the end, if that is known. Called once it listens. */
  readonly serverUrl?: () => string;
  readonly readiness: () => { readonly ready: boolean; readonly reasons: readonly string[] };
  readonly renderMetrics: () => string;
  readonly newTraceId: () => string;
  /** Called for every unexpected exception. Must not throw. */
  readonly onError: (error: unknown, traceId: string) => void;
  /** Called when keys or the store cannot be read, which gives a 503. Must not throw. */
  readonly onUnavailable: (error: Error) => void;
  /** Where the built script of the SDK is; in this package unless given. */
  readonly sdkScript?: URL;
}

export interface ApiParts extends OperatorParts {
  readonly store: Store;
  /** API keys, and the tracking plans and members stored with them. */
  readonly keyStore: KeyStore;
  readonly keys: KeyCache;
  readonly config: Config;
  readonly sources: Sources;
  /** Only tenants and keys of this environment are served. */
  readonly environment: 'any' | Environment;
  /** SLUICE_PUBLIC_URL; empty when it is not known. */
  readonly publicUrl: string;
  readonly now: () => number;
  /** The clock that `received_at` is taken from: what is stored, or asked about times of receipt, goes by it. */
  readonly receiptTime: () => number;
  readonly matchOptions: MatchOptions;
  /** Called when the store has responded to a call. */
  readonly onRead: () => void;
  /** Called for every use of a key, with the origin of the request. Must not throw. */
  readonly noteUse: (key: ApiKey, at: number, origin: string | undefined, host: string | undefined) => void;
  /** What the start found that an operator should know, as of now: some of it is found after the start. */
  readonly startWarnings: () => readonly string[];
  /** Why this process processes nothing at the moment; null while it does, and where another one processes. */
  readonly processingProblem: () => string | null;
  readonly metricsBuffer: SharedArrayBuffer;
  /** Aborted when the server begins to stop: streams would keep it waiting. */
  readonly stopping: AbortSignal;
  /** Where the built dashboard is; in this package unless given. */
  readonly pageFolder?: URL;
}
