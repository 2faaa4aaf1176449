/**
 * Whether a data folder has lost `keys.db`: it is missing or empty, and the log or the store next to it has been used.
 * A new one would have other accounts, so clients with the old keys would get 401 and drop their data, and the stored data
 * would belong to no account. So neither a server nor a command creates one on its own; `sluice keys create
 * --replace-lost-keys` does, for an operator who has decided so.
 */

import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { hasSegments, keyFileOf, logFolderOf, sizeOfFile, storeFileOf } from './files.ts';
import { OperatorError } from '../errors.ts';

export const LOST_KEYS_ADVICE =
  'Put keys.db back, from a backup or from where it was moved to. If the keys are in PostgreSQL, set STORE_URL. If keys.db is gone permanently, ' +
  'stop the server and make new keys for the accounts of this data: sluice keys create --name NAME --kind secret --env ' +
  'production --replace-lost-keys. Clients get 401 until they have the new key, and people sign in again by "sluice invite".';

export function hasLostKeys(dataFolder: string): boolean {
  return sizeOfFile(keyFileOf(dataFolder)) === 0 && whatIsLeft(dataFolder) !== undefined;
}

export function refuseLostKeys(dataFolder: string): void {
  if (hasLostKeys(dataFolder)) throw new OperatorError(`${lostKeysText(dataFolder)} ${LOST_KEYS_ADVICE}`);
}

export function lostKeysText(dataFolder: string): string {
  const lack = existsSync(keyFileOf(dataFolder)) ? 'and its keys.db is empty' : 'but no keys.db';
  return (
    `${resolve(dataFolder)} has a ${whatIsLeft(dataFolder)} ${lack}: that file holds the accounts that the data belongs to, ` +
    'and their keys.'
  );
}

function whatIsLeft(dataFolder: string): string | undefined {
  if (sizeOfFile(storeFileOf(dataFolder)) > 0) return 'store.db';
  const log = logFolderOf(dataFolder);
  return existsSync(join(log, 'installation')) || hasSegments(dataFolder) ? 'log/' : undefined;
}
