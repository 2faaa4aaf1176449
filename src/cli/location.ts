/**
 * Where the data is that a command works on: the data folder, or a database that servers share. Commands read the same
 * settings as the server, so that a mistyped SLUICE_DATA or STORE_URL is reported instead of reading data that no server uses.
 */

import { resolve } from 'node:path';
import { baseUrlOf } from '../config/base-url.ts';
import { type Config, type Env, readConfig, SETTINGS } from '../config/config.ts';
import { withoutSecrets } from '../config/values.ts';
import { serverUrlIn } from '../data-folder/files.ts';
import type { FlagsRead } from '../config/flags.ts';

/** The settings of the server that commands take as flags, too. */
const LOCATION_FLAGS = ['data', 'store-url', 'log-url'];

/** The settings that the server would have. What is wrong with them is then among the mistakes. */
export function readSettings(flags: FlagsRead, env: Env): Config {
  const args = LOCATION_FLAGS.flatMap((flag) => {
    const value = flags.values.get(flag);
    return value === undefined ? [] : [`--${flag}=${value}`];
  });
  const { config, mistakes } = readConfig({ env, args });
  flags.mistakes.push(...mistakes);
  return config;
}

/** For people; without passwords. */
export function locationName({ dataFolder, storeUrl }: Config): string {
  return storeUrl === '' ? resolve(dataFolder) : withoutSecrets(storeUrl);
}

/**
 * Where people reach the server: by its public address, else by the one that the server on the data folder wrote down,
 * which knows its port best; before its first start, by what the settings say.
 */
export function serverUrlOf({ publicUrl, dataFolder, logUrl, host, port }: Config): string {
  if (publicUrl !== '') return publicUrl;
  // Servers that share a log leave nothing in a data folder.
  const found = logUrl === '' ? serverUrlIn(dataFolder) : undefined;
  return found ?? baseUrlOf(host, port === 0 ? SETTINGS.port.default : port);
}
