/**
 * Opens the stores and the log that a server or a command works on, wherever the settings say they are: files in the
 * data folder, PostgreSQL, Kafka. `open*` creates what is missing unless it says otherwise, `find*` creates nothing.
 *
 * Only `main.ts` and the files of this folder name concrete backends; each backend is imported on first use, so that no
 * command loads a database client that it does not need.
 */

import { existsSync } from 'node:fs';
import { refuseUnfinishedRestore } from '../backup/notes.ts';
import type { Config } from '../config/config.ts';
import { matchOptionsOf } from '../config/match-options.ts';
import { refuseUnreadableFolder } from '../data-folder/access.ts';
import { keyFileOf, logFolderOf, serverUrlIn, sizeOfFile, storeFileOf } from '../data-folder/files.ts';
import { hasLostKeys, refuseLostKeys } from '../data-folder/lost-keys.ts';
import { OperatorError } from '../errors.ts';
import type { KeyStore } from '../keys.ts';
import type { LogReader } from '../log.ts';
import type { MemberStore } from '../members.ts';
import { refuseMigratedFolder } from '../migration/marker.ts';
import type { Store } from '../store.ts';
import { withPendingRecords } from '../views/reading.ts';
import {
  type Database,
  FEW_CONNECTIONS,
  findDatabase,
  openKeyStoreIn,
  openMemberStoreIn,
  openDatabase,
  prepareDatabase,
  openStoreIn,
} from './database.ts';

/** How long a command waits for a log that does not respond. */
const COMMAND_MS_MAX = 5_000;

/** Creates the key store if it is missing, except in a data folder that has lost its keys. */
export async function openKeyStore(config: Config): Promise<KeyStore> {
  if (config.storeUrl === '') {
    refuseUnusableFolder(config);
    refuseLostKeys(config.dataFolder);
    const { openSqliteKeyStore } = await import('../backends/embedded/keys.ts');
    return openSqliteKeyStore(keyFileOf(config.dataFolder));
  }
  await prepareDatabase(config);
  return openKeyStoreIn(await openDatabase(config, 'keys', FEW_CONNECTIONS));
}

/** Creates nothing: undefined if there is no key store. */
export async function findKeyStore(config: Config): Promise<KeyStore | undefined> {
  if (config.storeUrl === '') {
    refuseUnreadableFolder(config.dataFolder);
    // Before its keys are there, a folder would look like a new one.
    refuseUnfinishedRestore(config.dataFolder);
    if (hasLostKeys(config.dataFolder)) return undefined;
    return existsSync(keyFileOf(config.dataFolder)) ? openKeyStore(config) : undefined;
  }
  const pool = await findDatabase(config);
  return pool === undefined ? undefined : openKeyStoreIn(pool);
}

/** Creates a new key store in a data folder that has lost its own. */
export async function replaceLostKeys({ dataFolder, storeUrl }: Config, now: number): Promise<KeyStore> {
  if (storeUrl !== '')
    throw new OperatorError('The keys are in PostgreSQL (STORE_URL). Leave --replace-lost-keys out.');
  refuseUnusableFolder({ dataFolder });
  const lostAccounts = await import('../backends/embedded/lost-accounts.ts');
  return lostAccounts.replaceLostKeys(dataFolder, now);
}

export async function openMemberStore(config: Config): Promise<MemberStore> {
  if (config.storeUrl === '') {
    refuseUnusableFolder(config);
    refuseLostKeys(config.dataFolder);
    const { openSqliteMemberStore } = await import('../backends/embedded/keys.ts');
    return openSqliteMemberStore(keyFileOf(config.dataFolder));
  }
  return openMemberStoreIn(await openDatabase(config, 'members', FEW_CONNECTIONS));
}

/**
 * What commands read: the store plus the records that are still in the log. A command may block, so it needs no reader
 * thread. Creates nothing: undefined if there is no store.
 */
export async function openStore(config: Config): Promise<Store | undefined> {
  if (config.storeUrl === '') {
    refuseUnusableFolder(config);
    const file = storeFileOf(config.dataFolder);
    // An empty one has no tables, and is for a server to fill.
    if (sizeOfFile(file) === 0) return undefined;
    const { openSqliteStore } = await import('../backends/embedded/store/store.ts');
    const store = openSqliteStore(file, { matchOptions: matchOptionsOf(config), isForCommand: true });
    return withPendingRecords(store, await openLocalLogReader(config.dataFolder));
  }
  const pool = await findDatabase(config);
  return pool === undefined ? undefined : openReadingIn(pool, config);
}

/** The store in the database, completed by what is still in the log; closes both, and its connections. */
async function openReadingIn(pool: Database, config: Config): Promise<Store> {
  try {
    const log = await findLogReader(config);
    // A machine without a log can read a shared store. The name would be created, were it asked for.
    const logName = (): string => log?.name ?? 'none';
    return withPendingRecords(
      await openStoreIn(pool, config, logName),
      log ?? (await openLocalLogReader(config.dataFolder)),
    );
  } catch (error) {
    await pool.close();
    throw error;
  }
}

/**
 * A reader that deletes nothing. Unless `options` say otherwise, it waits for a Kafka that starts at the same time, and
 * creates a missing topic: for a server.
 */
export async function openLogReader(
  { dataFolder, logUrl, logRetentionMs }: Config,
  warn: (message: string) => void,
  options: { readonly createsTopic?: boolean; readonly openMsMax?: number } = {},
): Promise<LogReader> {
  if (logUrl === '') return openLocalLogReader(dataFolder);
  const { openKafkaLogReader } = await import('../backends/kafka/log.ts');
  return openKafkaLogReader({ url: logUrl, retentionMs: logRetentionMs, warn, ...options });
}

/** For a command: creates nothing, and waits only briefly. Undefined if there never was a log. */
export async function findLogReader(
  config: Config,
  warn: (message: string) => void = () => undefined,
): Promise<LogReader | undefined> {
  const { hasEverExisted } = await import('../backends/embedded/log/missing-end.ts');
  const isThere = config.logUrl !== '' || hasEverExisted(logFolderOf(config.dataFolder));
  return isThere ? openLogReader(config, warn, { createsTopic: false, openMsMax: COMMAND_MS_MAX }) : undefined;
}

export async function openLocalLogReader(dataFolder: string): Promise<LogReader> {
  const { openEmbeddedLogReader } = await import('../backends/embedded/log/reader.ts');
  return openEmbeddedLogReader({ folder: logFolderOf(dataFolder) });
}

/** The URL of the server running on the data folder; undefined if there is none, or if servers share a log. */
export async function findServer({ dataFolder, logUrl }: Config): Promise<string | undefined> {
  if (logUrl !== '') return undefined;
  const { lockHolderOf } = await import('../backends/embedded/folder-lock.ts');
  return lockHolderOf(dataFolder).isHeld ? serverUrlIn(dataFolder) : undefined;
}

/** One that may not be read, was migrated to PostgreSQL, or into which a backup is only half restored. */
function refuseUnusableFolder({ dataFolder }: Pick<Config, 'dataFolder'>): void {
  refuseUnreadableFolder(dataFolder);
  refuseMigratedFolder(dataFolder);
  refuseUnfinishedRestore(dataFolder);
}
