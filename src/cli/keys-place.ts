/**
 * What the commands on keys share: the world they run in, and where the key file is. They read the same settings as
 * the server, so that a mistyped SLUICE_DATA is told instead of making keys in a folder that no server looks at.
 */

import { type Config, type Env, readConfig } from '../config.ts';
import { keyFileOf } from '../data-folder.ts';
import type { KeyStore } from '../store.ts';
import type { FlagKinds, FlagsRead } from './flags.ts';

export interface KeysIo {
  out(text: string): void;
  readonly env: Env;
  now(): number;
  openKeyStore(file: string): KeyStore;
  readonly isTty: boolean;
}

export const FLAGS_EVERYWHERE = { data: 'value', json: 'switch' } as const satisfies FlagKinds;
export const KEYS_HINT = 'More about keys: sluice keys --help';

/** The settings, with `--data` as the one flag of the server that commands on keys take; and all mistakes so far. */
export function readPlace(flags: FlagsRead, env: Env): { config: Config; file: string; mistakes: string[] } {
  const data = flags.values.get('data');
  const { config, mistakes } = readConfig({ env, args: data === undefined ? [] : [`--data=${data}`] });
  return { config, file: keyFileOf(config.dataFolder), mistakes: [...flags.mistakes, ...mistakes] };
}

export async function withKeyStore<T>(io: KeysIo, file: string, work: (store: KeyStore) => Promise<T>): Promise<T> {
  const store = io.openKeyStore(file);
  try {
    return await work(store);
  } finally {
    await store.close();
  }
}
