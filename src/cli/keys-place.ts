/**
 * What the commands on keys share: the world they run in, and where the keys are.
 */

import type { Config, Env } from '../config.ts';
import { StoreUnavailableError } from '../store-writer.ts';
import type { KeyStore } from '../store.ts';
import { OperatorError } from '../errors.ts';
import { placeName } from './place.ts';

export interface KeysIo {
  out(text: string): void;
  readonly env: Env;
  now(): number;
  /** Makes what is not there yet. */
  readonly openKeyStore: (config: Config) => Promise<KeyStore>;
  /** Makes nothing: undefined where there is none. */
  readonly findKeyStore: (config: Config) => Promise<KeyStore | undefined>;
  readonly isTty: boolean;
}

export async function withKeyStore<T>(
  config: Config,
  open: (config: Config) => Promise<KeyStore>,
  work: (store: KeyStore) => Promise<T>,
): Promise<T> {
  let store: KeyStore | undefined;
  try {
    store = await open(config);
    return await work(store);
  } catch (error) {
    if (!(error instanceof StoreUnavailableError)) throw error;
    throw new OperatorError(`The keys in ${placeName(config)} cannot be reached: ${error.message}`);
  } finally {
    await store?.close();
  }
}
