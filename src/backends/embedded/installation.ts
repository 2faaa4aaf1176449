/**
 * One random id ties the parts of a data folder together: `log/`, `store.db` and `keys.db` each carry it. A start with
 * parts of different installations is refused, and the message names them: a store would take another log for its own,
 * and keys would give access to other accounts' data. A new part gets the id of the others. With PostgreSQL, `log/`
 * carries the id of the database instead.
 */

import { randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import type { DatabaseSync } from 'node:sqlite';
import { keyFileOf, logFolderOf, serverUrlFileOf, sizeOfFile, storeFileOf } from '../../data-folder/files.ts';
import { OperatorError } from '../../errors.ts';
import { fullDiskText, isFullDisk } from './disk.ts';
import { refuseLostKeys } from '../../data-folder/lost-keys.ts';
import { BUSY_TIMEOUT_MS, isBusy, isDamage, openDatabase, textsIn, transaction } from './database.ts';
import { keysFile } from './keys.ts';
import { createLogEnds } from './log/recovery.ts';
import { localLogName } from './log/name.ts';
import { holdsRecords, listSegments, type Segment } from './log/segments.ts';
import { noteLogWarning } from './log/warnings.ts';
import { openStoreFile, openStoreFileForCommand, storeDamageText } from './store/schema.ts';
import { hasStarts, recordStart } from './store/starts.ts';
import { writeDurably } from '../../data-folder/write-durably.ts';

const FILE = 'installation';
const ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

interface Part {
  readonly name: string;
  readonly id: string | undefined;
  write(id: string): void;
}

/** For a server that holds the lock of the folder. Returns warnings for the operator, which are also in `log-warnings`. */
export function tieDataFolder(dataFolder: string): string[] {
  const [storeFile, keyFile] = [storeFileOf(dataFolder), keyFileOf(dataFolder)];
  refuseLostKeys(dataFolder);
  const isServed = wasUsedByServer(dataFolder);
  const segments = listSegments(logFolderOf(dataFolder));
  // Keys first: an interrupted first start must not look like a folder that has lost them.
  const keys = openDatabase(keysFile(keyFile));
  const store = openStoreFile(storeFile, 'writer');
  try {
    const storePart = inDatabase('store.db', store);
    tie(dataFolder, [inFolder(dataFolder), storePart, inDatabase('keys.db', keys)]);
    const warnings = segments.length > 0 && storePart.id === undefined ? [rebuiltText(segments)] : [];
    for (const warning of warnings) noteLogWarning(logFolderOf(dataFolder), warning);
    // Before anything records that there was a start: see wasUsedByServer.
    if (!isServed) createLogEnds(logFolderOf(dataFolder));
    recordStart(store, Date.now());
    return warnings;
  } catch (error) {
    throw asOperatorError(error, storeFile);
  } finally {
    store.close();
    keys.close();
  }
}

function rebuiltText(segments: readonly Segment[]): string {
  const hasAll = segments[0]?.firstPosition === 1 && segments.every(holdsRecords);
  const what = hasAll ? 'the log, which begins with the first request' : 'what the log still has, which may not be all';
  return `store.db was gone, so the store was rebuilt from ${what}. People who had been erased may be back: erase them again`;
}

/**
 * Whether a server was ever started on the folder, judging by the files outside of its log: then there was a
 * `log-ends`, created before either of these. A store that was migrated to PostgreSQL counts, too: the log stayed.
 */
export function wasUsedByServer(dataFolder: string): boolean {
  return existsSync(serverUrlFileOf(dataFolder)) || hasStarts(storeFileOf(dataFolder));
}

function asOperatorError(error: unknown, storeFile: string): unknown {
  if (isFullDisk(error)) return new OperatorError(fullDiskText(storeFile), { cause: error });
  if (isDamage(error)) return new OperatorError(storeDamageText(storeFile, (error as Error).message), { cause: error });
  if (!isBusy(error)) return error;
  return new OperatorError(
    `A program holds a lock on ${resolve(storeFile)} or keys.db next to it for more than ${BUSY_TIMEOUT_MS / 1_000} s. End that program (fuser or lsof names it), then start again; nothing was changed.`,
    { cause: error },
  );
}

function tie(dataFolder: string, parts: readonly Part[]): void {
  const problem = mixedPartsText(dataFolder, parts);
  if (problem !== null) throw new OperatorError(problem);
  const id = parts.find((part) => part.id !== undefined)?.id ?? randomUUID();
  for (const part of parts) if (part.id === undefined) part.write(id);
  localLogName(logFolderOf(dataFolder), id);
}

/** Null if all parts that have an id have the same. */
function mixedPartsText(dataFolder: string, parts: readonly Pick<Part, 'name' | 'id'>[]): string | null {
  const [first, ...others] = parts.filter(({ id }) => id !== undefined);
  const other = others.find(({ id }) => id !== first?.id);
  if (first === undefined || other === undefined) return null;
  return (
    `The parts of ${resolve(dataFolder)} do not belong together: ${first.name} is of the installation ${first.id}, ` +
    `${other.name} of ${other.id}. Put back the ${other.name} that belongs to this ${first.name}, or the other way round: ` +
    'all of log/, store.db and keys.db come from one data folder, or one backup of it.'
  );
}

/** Why a start would refuse parts of different installations; null if it would not. Reads only. */
export function problemOfInstallation(dataFolder: string): string | null {
  return mixedPartsText(dataFolder, [
    { name: 'log/', id: idIn(() => readLogInstallation(logFolderOf(dataFolder))) },
    { name: 'store.db', id: idInFile(storeFileOf(dataFolder), openStoreFileForCommand) },
    { name: 'keys.db', id: idInFile(keyFileOf(dataFolder), (file) => openDatabase(keysFile(file))) },
  ]);
}

function idInFile(file: string, open: (file: string) => DatabaseSync): string | undefined {
  if (sizeOfFile(file) === 0) return undefined;
  return idIn(() => {
    using database = open(file);
    return inDatabase('', database).id;
  });
}

/** A part that cannot be read is reported where it is read. */
function idIn(read: () => string | undefined): string | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}

function inFolder(dataFolder: string): Part {
  const folder = logFolderOf(dataFolder);
  return { name: 'log/', id: readLogInstallation(folder), write: (id) => writeLogInstallation(folder, id) };
}

function inDatabase(name: string, database: DatabaseSync): Part {
  return {
    name,
    id: textsIn(database, 'SELECT installation FROM belongs_to')[0],
    write: (id) => transaction(database, () => void database.prepare('INSERT INTO belongs_to VALUES (?)').run(id)),
  };
}

/** Undefined if the log has none yet. */
export function readLogInstallation(folder: string): string | undefined {
  const file = join(folder, FILE);
  let id: string;
  try {
    id = readFileSync(file, 'utf8').trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  if (!ID.test(id)) throw new OperatorError(`${resolve(file)} is damaged. Put it back from a backup, or remove it.`);
  return id;
}

export function writeLogInstallation(folder: string, id: string): void {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  writeDurably(join(folder, FILE), `${id}\n`);
}
