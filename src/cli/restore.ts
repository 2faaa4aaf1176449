/**
 * `sluice restore --from FOLDER|FILE`: puts a backup into an empty data folder, on which a server then starts without
 * further steps. Every file is compared with its hash in the manifest; --verify reads everything in them as well. A marker
 * in the folder keeps servers away until all is there and synced (`backup/notes.ts`); a restore that fails or is stopped
 * leaves the folder as empty as it was.
 */

import { existsSync, lstatSync, mkdirSync, readdirSync, readlinkSync, rmSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { bytesOfBackup, type CheckFolder, isFolder, unpack, verifyContents } from '../backup/files.ts';
import type { Manifest } from '../backup/manifest.ts';
import {
  isRestoreUnfinished,
  refuseDraft,
  removeRestoreMarker,
  restoreMarkerFileOf,
  writeRestoreMarker,
} from '../backup/notes.ts';
import { writeRetentionTime } from '../clock/retention-clock.ts';
import { retentionTimeFileOf } from '../data-folder/files.ts';
import type { Config } from '../config/config.ts';
import { OperatorError } from '../errors.ts';
import { readArguments } from './arguments.ts';
import { assertSpace, contentsOf, gapLines, pendingRecords, withProgress } from './backup.ts';
import { formatSpan, localTime } from './local-time.ts';
import { readSettings } from './location.ts';
import { asOperatorError, type Shell } from './shell.ts';

export interface RestoreShell extends Shell {
  /** Throws an `OperatorError` while a server runs on the folder, or another restore. */
  readonly lockFolder: (folder: string) => { release(): void };
  readonly checkDataFolder: CheckFolder;
  /** For its first start: the end of its log is noted, and cursors of the lost store stay valid. */
  readonly prepareRestored: (folder: string, now: number) => void;
  readonly freeBytesOf: (folder: string) => number;
}

/** The root of a separate disk has it. */
const LOST_AND_FOUND = 'lost+found';
/** Also what a restore leaves that was killed before it wrote its marker. */
const NO_DATA = new Set([LOST_AND_FOUND, 'lock.db', 'lock.db-journal', 'server.pid']);

type Options = ReturnType<typeof readOptions>;

export async function runRestore(args: readonly string[], shell: RestoreShell): Promise<number> {
  const options = readOptions(args, shell);
  const startedAt = shell.now();
  let manifest: Manifest;
  try {
    manifest = await restore(options, shell);
  } catch (error) {
    if (shell.stop.aborted) throw new OperatorError('Stopped. Nothing was restored.');
    throw asOperatorError(error, resolve(options.config.dataFolder));
  }
  shell.out(options.json ? jsonOf(options, manifest) : report(options, manifest, shell.now() - startedAt));
  return 0;
}

function jsonOf({ source, config, verify }: Options, manifest: Manifest): string {
  const result = {
    backup: source,
    data_folder: resolve(config.dataFolder),
    began_at: manifest.began_at,
    verified: verify,
    requests_to_process: pendingRecords(manifest),
  };
  return `${JSON.stringify(result)}\n`;
}

function readOptions(args: readonly string[], shell: Shell) {
  const flags = readArguments('restore', args);
  const { mistakes } = flags;
  const source = flags.values.get('from') ?? '';
  const isUnclear = mistakes.length > 0;
  const config = readSettings(flags, shell.env);
  flags.refuse(flags.positionals, 'the backup goes behind --from');
  if (source === '' && !isUnclear) mistakes.push('the backup is missing: --from FOLDER|FILE');
  if (mistakes.length > 0) throw flags.error();
  return {
    config,
    source,
    verify: flags.switches.has('verify'),
    json: flags.isJson,
  };
}

async function restore(options: Options, shell: RestoreShell): Promise<Manifest> {
  const { config, source, verify } = options;
  const folder = resolve(config.dataFolder);
  if (!existsSync(source)) throw new OperatorError(`There is no backup ${source}.`);
  refuseDraft(source);
  if (isFolder(source) && resolve(source) === folder) throw new OperatorError(`${source} is the data folder itself.`);
  if (config.logUrl !== '') {
    throw new OperatorError(
      'LOG_URL is set: such a server keeps nothing in a data folder, so there is nothing to restore there. docs/backup.md has the steps for PostgreSQL and Kafka.',
    );
  }
  const wasThere = existsSync(folder);
  assertEmpty(folder);
  if (!wasThere && !existsSync(dirname(folder))) {
    throw new OperatorError(`There is no folder ${dirname(folder)}. Create it first: mkdir -p "${dirname(folder)}"`);
  }
  assertSpace(bytesOfBackup(source), wasThere ? folder : dirname(folder), shell, 'to restore it');
  if (!wasThere) mkdirSync(folder, { mode: 0o700 });
  const lock = shell.lockFolder(folder);
  try {
    // A server may have used it until it was locked.
    assertEmpty(folder);
  } catch (error) {
    lock.release();
    throw error;
  }
  try {
    writeRestoreMarker(folder, resolve(source), shell.now());
    clear(folder, ['lock.db', restoreMarkerFileOf(folder)]);
    // The size of what a compressed archive holds is not known before it is read.
    const total = isFolder(source) || !/(gz|zst)$/i.test(source) ? bytesOfBackup(source) : null;
    const manifest = await withProgress('restore', total, shell, (options) => unpack(source, folder, options));
    if (verify) {
      await withProgress('check', null, shell, (options) =>
        verifyContents(folder, source, manifest, shell.checkDataFolder, options),
      );
    }
    assertScope(manifest, config, source);
    shell.stop.throwIfAborted();
    shell.prepareRestored(folder, shell.now());
    // Or else the first start would trust its clock, and a wrong one would remove everything at once.
    if (manifest.scope === 'all') {
      writeRetentionTime(retentionTimeFileOf(folder), Date.parse(manifest.retention_at ?? manifest.began_at));
    }
    // Left by the lock, not by a server.
    rmSync(join(folder, 'server.pid'), { force: true });
    removeRestoreMarker(folder);
    lock.release();
    return manifest;
  } catch (error) {
    // The marker last: whatever is left when this is cut short is not mistaken for data.
    clear(folder, ['lock.db', restoreMarkerFileOf(folder)]);
    lock.release();
    clear(folder, []);
    if (!wasThere) rmSync(folder, { recursive: true, force: true });
    throw error;
  }
}

function assertEmpty(folder: string): void {
  if (!existsSync(folder) && lstatSync(folder, { throwIfNoEntry: false }) !== undefined) {
    throw new OperatorError(
      `${folder} is a link to ${readlinkSync(folder)}, and nothing is there. Is a disk not mounted? Create that folder, or name another one: --data FOLDER`,
    );
  }
  if (!existsSync(folder) || isRestoreUnfinished(folder)) return;
  if (!isFolder(folder)) throw new OperatorError(`${folder} is not a folder. Name another one with --data FOLDER.`);
  const names = readdirSync(folder).filter((name) => !NO_DATA.has(name));
  if (names.length === 0) return;
  const shown = names.slice(0, 3).join(', ');
  throw new OperatorError(
    `${folder} is not empty (it has ${shown}${names.length > 3 ? ', …' : ''}), and a restore overwrites nothing. Stop the server and rename the folder, or choose another one: --data FOLDER`,
  );
}

function clear(folder: string, keep: readonly string[]): void {
  const kept = new Set(keep.map((path) => resolve(folder, path)));
  for (const name of readdirSync(folder)) {
    const path = resolve(folder, name);
    if (name !== LOST_AND_FOUND && !kept.has(path)) rmSync(path, { recursive: true, force: true });
  }
}

/** Half of an installation would start with an empty other half. */
function assertScope({ scope }: Manifest, { storeUrl }: Config, source: string): void {
  if (scope === 'log' && storeUrl === '') {
    throw new OperatorError(
      `${source} is a backup of the event log alone: its store and keys are in PostgreSQL. Restore the database first, then run this with STORE_URL set.`,
    );
  }
  if (scope === 'all' && storeUrl !== '') {
    throw new OperatorError(
      `${source} is a backup of an embedded installation, and STORE_URL is set, with which store.db and keys.db would not be used. Leave STORE_URL out; "sluice migrate" copies a restored folder to PostgreSQL.`,
    );
  }
}

function report({ config, verify }: Options, manifest: Manifest, spanMs: number): string {
  const folder = resolve(config.dataFolder);
  const began = localTime(Date.parse(manifest.began_at));
  const checked = verify ? ' Every page, record and sum in it was checked.' : '';
  const next =
    manifest.scope === 'log'
      ? 'Restore the database as it was BEFORE this backup, not after, then start the server: docs/backup.md'
      : `Start the server on it: sluice serve --data ${config.dataFolder}`;
  return `Restored ${folder} to its state at ${began} (${formatSpan(spanMs)}): ${contentsOf(manifest)}.${checked}
${gapLines(manifest)}
${next}
${manifest.scope === 'log' ? '' : `\n${undoneWords(began)}`}`;
}

function undoneWords(began: string): string {
  return `The restore undoes unmerges, erasures, key revocations and rolls, and member removals made after ${began}.
Repeat them: docs/backup.md has the order, and where to find them.
`;
}
