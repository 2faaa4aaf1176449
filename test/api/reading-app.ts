/** The app with real keys and a canned store, and short ways to ask it. */

import type { TestContext } from 'node:test';
import { KeyCache } from '../../src/keys/cache.ts';
import { createKey, newAccount } from '../../src/keys/manage.ts';
import type { Environment, KeyKind } from '../../src/model.ts';
import type { KeyStore } from '../../src/keys.ts';
import { temporaryKeyStore } from '../keys/temporary-store.ts';
import { type Asked, cannedStore } from './canned-store.ts';
import { type HttpResponse, startApp, type StartOptions } from './running-app.ts';

export const NOW = Date.UTC(2026, 10, 14, 10);

export interface ReadingApp {
  /** Of the tenant that has something. */
  readonly key: string;
  readonly keyId: string;
  readonly asked: Asked[];
  readonly errors: readonly unknown[];
  readonly keyStore: KeyStore;
  readonly makeKey: (options?: KeyOptions) => Promise<string>;
  readonly ask: (path: string, options?: AskOptions) => Promise<HttpResponse & { readonly body: unknown }>;
}

export interface KeyOptions {
  readonly account?: string;
  readonly kind?: KeyKind;
  readonly environment?: Environment;
  readonly expiresAt?: number;
}

export interface AskOptions {
  readonly method?: string;
  /** Null for none. */
  readonly key?: string | null;
  readonly headers?: Readonly<Record<string, string>>;
  readonly json?: unknown;
}

export async function startReadingApp(
  context: Pick<TestContext, 'after'>,
  options: StartOptions = {},
): Promise<ReadingApp> {
  const { store: keyStore } = await temporaryKeyStore(context);
  const make = async (options: KeyOptions = {}) => {
    const account = await keyStore.ensureAccount(newAccount(options.account ?? 'own', NOW));
    return createKey(keyStore, {
      name: 'test',
      kind: options.kind ?? 'secret',
      environment: options.environment ?? 'development',
      origins: [],
      expiresAt: options.expiresAt ?? null,
      accountId: account.id,
      now: NOW,
    });
  };
  const own = await make();
  const { store, asked } = cannedStore(`${own.row.accountId}/development`);
  const { call, errors } = await startApp(context, {
    store,
    keys: new KeyCache(keyStore),
    keyStore,
    now: () => NOW,
    ...options,
  });
  const ask = async (path: string, { method = 'GET', key = own.key, headers = {}, json }: AskOptions = {}) => {
    const response = await call(method, path, {
      headers: {
        ...(key === null ? {} : { authorization: `Bearer ${key}` }),
        ...(json === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(json === undefined ? {} : { body: JSON.stringify(json) }),
    });
    return { ...response, body: response.text === '' ? undefined : (JSON.parse(response.text) as unknown) };
  };
  const makeKey = async (options: KeyOptions = {}): Promise<string> => (await make(options)).key;
  return { key: own.key, keyId: own.row.id, asked, errors, keyStore, makeKey, ask };
}
