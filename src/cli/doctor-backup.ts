/**
 * The doctor's check of backups: when the last successful one of this data folder began, as `sluice backup` noted it
 * there. Copies made by other means leave no note, so a missing or old one is a warning, never more.
 */

import { readLastBackup } from '../backup/last-backup.ts';
import { leftoversOf, readUnfinishedBackup } from '../backup/unfinished-backup.ts';
import { HOUR_MS } from '../model.ts';
import { type Check, type DoctorParts, type Finding, warning, ok } from './doctor-checks.ts';
import { formatBytes, formatSpan } from './local-time.ts';

/** A day, and time for a nightly backup to run late. */
const OLD_MS = 26 * HOUR_MS;
const ADVICE = 'Create one, on another disk: sluice backup --to FILE.tar.zst --verify (docs/backup.md).';

export const checkBackup: Check = async (parts) => {
  // With Kafka, nothing is in the folder; backups of PostgreSQL are not visible from here.
  if (parts.config.logUrl !== '') return [];
  return [...unfinishedFindings(parts), ...(await lastFindings(parts))];
};

function unfinishedFindings({ dataFolder, isBackupRunning, now }: DoctorParts): Finding[] {
  // Checked first: a backup that ends between the two checks has removed its note by then.
  const isRunning = isBackupRunning();
  const unfinished = readUnfinishedBackup(dataFolder);
  if (unfinished === undefined) return [];
  const began = `${formatSpan(Math.max(0, now() - Date.parse(unfinished.began_at)))} ago`;
  if (isRunning) return [ok('backup', `one started ${began} and is running: ${unfinished.target}`)];
  const left = leftoversOf(unfinished.target);
  const what = left.length === 0 ? 'It left nothing' : `It left ${left.join(' and ')}, which no restore takes`;
  return [
    warning(
      'backup',
      `the one to ${unfinished.target} that began ${began} was killed`,
      `${what}. The next "sluice backup" of this data folder removes that.`,
    ),
  ];
}

async function lastFindings({ config, dataFolder, store, now }: DoctorParts): Promise<Finding[]> {
  const last = readLastBackup(dataFolder);
  if (last !== undefined) {
    const age = now() - Date.parse(last.began_at);
    const what = config.storeUrl === '' ? 'the last one' : 'the last one of the log';
    const words = `${what} began ${formatSpan(age)} ago: ${last.target} (${formatBytes(last.bytes)}, ${last.verified ? 'checked' : 'not checked'})`;
    return [age > OLD_MS ? warning('backup', words, ADVICE) : ok('backup', words)];
  }
  if (config.storeUrl !== '') return [];
  const hours = (await (await store())?.ledger(null, { from: null, to: null }))?.hours ?? [];
  const oldest = hours.reduce((earliest, { hour }) => Math.min(earliest, hour), now());
  if (now() - oldest <= OLD_MS) return [ok('backup', 'none yet, and the data is less than a day old')];
  return [warning('backup', `there was never one, and the oldest data is ${formatSpan(now() - oldest)} old`, ADVICE)];
}
