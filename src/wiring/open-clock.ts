/**
 * Opens the clock of a thread that receives or processes events (`clock/clock.ts`). It continues from the newest time in
 * the log, of an erase in the store, and, in an embedded store, of the newest event, in case the log was removed.
 */

import { existsSync } from 'node:fs';
import type { TrustedClock } from '../clock/clock.ts';
import type { Config } from '../config/config.ts';
import { storeFileOf } from '../data-folder/files.ts';
import { isUnavailable } from '../runtime/unavailable.ts';
import { connectLater, openLogReader, useAndClose } from './opening.ts';

/** Call it after the log was checked. */
export async function openClock(
  config: Config,
  warn: (message: string) => void,
  shared: BigInt64Array | null = null,
): Promise<TrustedClock> {
  const { TrustedClock } = await import('../clock/clock.ts');
  const newest = Math.max(
    await ifReachable('the newest event', warn, () => newestInLog(config)),
    await ifReachable('the times in the database', warn, () => newestInStore(config)),
  );
  const { clockJumpMsMax: jumpMsMax, clockGapMsMax: gapMsMax } = config;
  return new TrustedClock({ newest, jumpMsMax, gapMsMax, shared });
}

/** A log or a database that was there a moment ago and does not respond now is no reason not to start. */
async function ifReachable(
  what: string,
  warn: (message: string) => void,
  read: () => Promise<number>,
): Promise<number> {
  try {
    return await read();
  } catch (error) {
    if (!isUnavailable(error)) throw error;
    warn(`the clock cannot be compared with ${what}: ${error.message}`);
    return 0;
  }
}

async function newestInLog(config: Config): Promise<number> {
  const log = await openLogReader(config, () => undefined);
  return useAndClose(log, () => log.newestReceivedAt());
}

async function newestInStore(config: Config): Promise<number> {
  if (config.storeUrl !== '') {
    const { newestErasure } = await import('../backends/postgres/profile-changes.ts');
    const database = await connectLater(config, 'start', 1);
    return useAndClose(database, () => newestErasure(database));
  }
  const file = storeFileOf(config.dataFolder);
  if (!existsSync(file)) return 0;
  const { newestProcessed } = await import('../backends/embedded/store/schema.ts');
  return newestProcessed(file);
}
