/**
 * What `sluice doctor` asks the backends: facts, and what a start would refuse. Creates and changes nothing.
 */

import { existsSync } from 'node:fs';
import type { DatabaseFacts, DoctorShell } from '../cli/doctor-checks.ts';
import type { Shell } from '../cli/shell.ts';
import type { Config } from '../config/config.ts';
import { logFolderOf } from '../data-folder/files.ts';
import { OperatorError } from '../errors.ts';
import { LogCorruptError } from '../log.ts';
import type { LogInspection } from '../log/continuity.ts';
import { problemOfOtherDatabase } from '../migration/marker.ts';
import type { Store } from '../store.ts';
import {
  type Database,
  FEW_CONNECTIONS,
  findLogReader,
  openDatabase,
  problemOfLocalLog,
  useAndClose,
} from './opening.ts';
import { assertLogOfStore, problemOfLogLeftBehind, processedBy } from './start-checks.ts';

export async function doctorParts(): Promise<Omit<DoctorShell, keyof Shell>> {
  return {
    ...(await import('../backends/embedded/checkup.ts')),
    ...(await import('../backends/embedded/folder-lock.ts')),
    ...(await import('../backends/embedded/installation.ts')),
    ...(await import('../backends/embedded/log/segments.ts')),
    findLogReader,
    inspectLocalLog,
    lookAtDatabase,
  };
}

async function lookAtDatabase(config: Config): Promise<DatabaseFacts> {
  const { databaseFacts } = await import('../backends/postgres/checkup.ts');
  const { findMigration, problemOfUnfinishedMigration } = await import('../backends/postgres/migration-state.ts');
  const pool = await openDatabase(config, 'doctor', FEW_CONNECTIONS);
  return useAndClose(pool, async () => {
    const facts = await databaseFacts(pool);
    const migration = await findMigration(pool);
    const problemOfFolder = config.logUrl === '' ? problemOfOtherDatabase(config.dataFolder, migration?.id) : null;
    return {
      ...facts,
      problemOfMigration: problemOfFolder ?? problemOfUnfinishedMigration(migration),
      problemOfLog: facts.hasTables ? await problemOfAnyLog(config, pool) : null,
    };
  });
}

/** Why a start would refuse the log of these settings with this database; null if it would not. Creates nothing. */
async function problemOfAnyLog(config: Config, pool: Database): Promise<string | null> {
  const { problemOfTopic, problemWithoutTopic } = await import('../backends/postgres/identity.ts');
  if (config.logUrl === '') {
    const problem = await problemWithoutTopic(pool);
    return problem ?? (existsSync(logFolderOf(config.dataFolder)) ? problemOfLocalLog(config, pool) : null);
  }
  // The check of the log reports why it cannot be opened.
  const log = await findLogReader(config).catch(() => undefined);
  const problem = log === undefined ? null : await problemOfTopic(pool, log.name);
  await log?.close();
  return problem ?? problemOfLogLeftBehind(config, pool);
}

/**
 * What a start would report about the local log, determined by the same functions. Read-only. `store`: undefined if
 * there is none yet, null if it cannot be read.
 */
async function inspectLocalLog(config: Config, store: Store | undefined | null): Promise<LogInspection> {
  const { readLogInstallation, wasUsedByServer } = await import('../backends/embedded/installation.ts');
  const { assertOwnSegments } = await import('../backends/embedded/log/name.ts');
  const { isEndUnknown, missingAtEnd, outdatedMarkers, unknownEndText } = await import(
    '../backends/embedded/log/recovery.ts'
  );
  const { readLogWarnings } = await import('../backends/embedded/log/warnings.ts');
  const { problemOfNewestSegment } = await import('../backends/embedded/checkup.ts');
  const { lockHolderOf } = await import('../backends/embedded/folder-lock.ts');
  const folder = logFolderOf(config.dataFolder);
  const refusals = [
    await refusalBy(async () => void readLogInstallation(folder)),
    await refusalBy(async () => assertOwnSegments(folder)),
    store ? await refusalBy(() => assertLogOfStore(config, store)) : null,
  ].filter((refusal) => refusal !== null);
  const always = { refusals, outdatedMarkers: outdatedMarkers(folder), noted: readLogWarnings(folder) };
  // While a server writes the log, its end changes.
  const isAtRest = !lockHolderOf(config.dataFolder).isHeld;
  const newestRefused = isAtRest ? problemOfNewestSegment(folder) : null;
  if (!isAtRest || refusals.length > 0 || newestRefused !== null) {
    return { ...always, newestRefused, unknownEnd: null, missing: null };
  }
  const processed = store ? await processedBy(store) : 0;
  const isUnknown = isEndUnknown(folder, processed, wasUsedByServer(config.dataFolder));
  const unknownEnd = isUnknown ? unknownEndText(folder) : null;
  const missing = store === null ? null : missingAtEnd(folder, processed);
  return { ...always, newestRefused, unknownEnd, missing };
}

async function refusalBy(check: () => Promise<void>): Promise<string | null> {
  try {
    await check();
    return null;
  } catch (error) {
    if (!(error instanceof LogCorruptError) && !(error instanceof OperatorError)) throw error;
    return error.message;
  }
}
