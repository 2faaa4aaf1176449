/**
 * What the commands on keys share: the world they run in, and where the keys are.
 */

import type { Config, Env } from '../config/config.ts';
import { StoreUnavailableError } from '../store-writer.ts';
import type { KeyStore } from '../keys.ts';
import { OperatorError } from '../errors.ts';
import { refuseLostKeys } from '../data-folder/lost-keys.ts';
import { isShared, locationName } from './location.ts';

export interface KeysIo {
  out(text: string): void;
  readonly env: Env;
  now(): number;
  /** Makes what is not there yet, but for keys that a data folder has lost. */
  readonly openKeyStore: (config: Config) => Promise<KeyStore>;
  /** Replaces those that a data folder has lost. */
  readonly replaceLostKeys: (config: Config, now: number) => Promise<KeyStore>;
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
    const reason = error.cause instanceof Error ? error.cause.message : error.message;
    throw new OperatorError(`The keys in ${locationName(config)} cannot be reached: ${reason}`, { cause: error });
  } finally {
    await store?.close();
  }
}

/** Undefined where there are no keys at all: nothing is made only to be looked at. */
export async function onKeys<T>(
  io: KeysIo,
  config: Config,
  work: (store: KeyStore) => Promise<T>,
): Promise<T | undefined> {
  const found = await io.findKeyStore(config);
  if (found === undefined && !isShared(config)) refuseLostKeys(config.dataFolder);
  return found === undefined ? undefined : withKeyStore(config, async () => found, work);
}

export function unknownKey(id: string, config: Config): OperatorError {
  // The key itself may have been given, which must not end up in a log of this command.
  const problem = id.startsWith('key_')
    ? `No key in ${locationName(config)} has the id ${id}.`
    : 'That is not the id of a key: ids begin with key_.';
  return new OperatorError(`${problem} "sluice keys list" shows the ids; --data FOLDER looks elsewhere.`);
}
