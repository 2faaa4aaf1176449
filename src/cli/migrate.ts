/**
 * `sluice migrate --to postgres://…`: copies an embedded installation to PostgreSQL. Holds the lock of the data folder
 * and changes no file in it but the marker (migration/marker.ts), which is written before the first row is copied, so
 * that the two sides never diverge. If interrupted at any point, the same command continues where it stopped. The
 * migration is complete only when both sides have the same rows and the same ledger: exit code 0; otherwise 1.
 */

import { randomUUID } from 'node:crypto';
import { resolve } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { withoutSecrets } from '../config/values.ts';
import { OperatorError } from '../errors.ts';
import {
  type MigrationMarker,
  migrationMarkerFileOf,
  readMigrationMarker,
  writeMigrationMarker,
} from '../migration/marker.ts';
import type { Chunk, MigrationSource, MigrationTarget, TargetState } from '../migration/parts.ts';
import { StoreConflictError, StoreUnavailableError } from '../store-writer.ts';
import { readArguments } from './arguments.ts';
import { countOf, formatCount, isoTime, localTime } from './local-time.ts';
import { readSettings } from './location.ts';
import { Progress } from './progress.ts';
import { asOperatorError, type Shell } from './shell.ts';
import { renderTable } from './table.ts';

export interface MigrateShell extends Shell {
  /** Throws an `OperatorError` while a server runs on the folder. */
  readonly lockFolder: (folder: string) => { release(): void };
  readonly openSource: (folder: string) => MigrationSource;
  readonly openTarget: (url: string) => Promise<MigrationTarget>;
}

const ATTEMPTS = 5;
/** Differences are shown for at most this many hours; one is enough to look into it. */
const DIFFERENCES_SHOWN = 10;
const GO_ON = 'What was copied so far is kept. To continue from there, run the same command again.';

type Counts = ReadonlyMap<string, number>;

type Options = ReturnType<typeof readOptions>;

export async function runMigrate(args: readonly string[], shell: MigrateShell): Promise<number> {
  const options = readOptions(args, shell);
  let target: MigrationTarget | undefined;
  let source: MigrationSource | undefined;
  let lock: { release(): void } | undefined;
  try {
    // Before the lock, which would make a folder that is not there.
    await shell.openSource(options.folder).close();
    lock = shell.lockFolder(options.folder);
    source = shell.openSource(options.folder);
    target = await openTarget(options, shell);
    return await migrate(options, source, target, shell);
  } catch (error) {
    if (error instanceof StoreUnavailableError || error instanceof StoreConflictError) {
      throw new OperatorError(`${error.message}\n${GO_ON}`, { cause: error });
    }
    throw asOperatorError(error);
  } finally {
    await target?.close();
    await source?.close();
    lock?.release();
  }
}

/** `urlName` is how the operator gave the address. */
function readOptions(args: readonly string[], shell: Shell) {
  const flags = readArguments('migrate', args);
  const { mistakes } = flags;
  const to = flags.values.get('to');
  const given = to === undefined ? flags : { ...flags, values: new Map([...flags.values, ['store-url', to]]) };
  const config = readSettings(given, shell.env);
  flags.refuse(flags.positionals, 'the database goes behind --to');
  if (config.storeUrl === '' && mistakes.length === 0) {
    mistakes.push('no database given; expected --to postgres://…, or STORE_URL in the environment');
  }
  if (to !== undefined) mistakes.splice(0, Infinity, ...mistakes.map((text) => text.replaceAll('--store-url', '--to')));
  if (mistakes.length > 0) throw flags.error();
  return {
    folder: config.dataFolder,
    url: config.storeUrl,
    urlName: to === undefined ? 'STORE_URL' : '--to',
    hasLogUrl: config.logUrl !== '',
    json: flags.isJson,
  };
}

/** Mistakes in the address are reported under the name of its flag or variable. */
async function openTarget({ url, urlName }: Options, shell: MigrateShell): Promise<MigrationTarget> {
  try {
    return await shell.openTarget(url);
  } catch (error) {
    if (error instanceof StoreUnavailableError) {
      throw new OperatorError(
        `The database ${withoutSecrets(url)} cannot be reached: ${error.message}. Is it running, does it have free connections, and is ${urlName} right?`,
        { cause: error },
      );
    }
    if (!(error instanceof OperatorError)) throw error;
    throw new OperatorError(error.message.replaceAll('STORE_URL', urlName), { cause: error });
  }
}

async function migrate(
  options: Options,
  source: MigrationSource,
  target: MigrationTarget,
  shell: MigrateShell,
): Promise<number> {
  const { folder } = options;
  const marker = readMigrationMarker(folder);
  const state = await target.state();
  const mayGoOn = state.kind === 'migrated' && state.id === marker?.id;
  if (mayGoOn && state.finishedAt !== null) {
    writeMigrationMarker(folder, { ...marker, state: 'migrated' });
    const words = `This data was migrated to ${target.location} at ${localTime(state.finishedAt)}.\n\n${startText(options)}`;
    shell.out(
      options.json
        ? `${JSON.stringify({ location: target.location, migrated_at: isoTime(state.finishedAt) })}\n`
        : words,
    );
    return 0;
  }
  if (mayGoOn) {
    shell.err(`Continuing the migration that began at ${localTime(state.startedAt)}.\n`);
  } else {
    refuse(options, target, marker, state);
    const at = shell.now();
    const started: MigrationMarker = {
      // A new one each time: with the id of a migration started elsewhere, two databases could finish under one id.
      id: randomUUID(),
      state: 'migrating',
      location: target.location,
      at: new Date(at).toISOString(),
    };
    writeMigrationMarker(folder, started);
    await target.begin({ id: started.id, logName: source.logName, storeId: source.storeId, at });
  }
  const counts = await countAll(source, source);
  await copy(source, target, counts, shell);
  const comparison = await compare(source, target, counts);
  if (comparison.differences.length === 0) await complete(folder, target, shell);
  shell.out(options.json ? jsonOf(target, comparison) : report(options, target, comparison));
  return comparison.differences.length === 0 ? 0 : 1;
}

/** A migration goes into an empty database, and from a folder that was not migrated elsewhere. */
function refuse(
  { folder }: Options,
  target: MigrationTarget,
  marker: MigrationMarker | undefined,
  state: TargetState,
): void {
  const file = resolve(migrationMarkerFileOf(folder));
  if (marker?.state === 'migrated') {
    throw new OperatorError(
      `The data in ${resolve(folder)} was migrated to ${marker.location} (${marker.at}) and continues there. To migrate it as it ` +
        `was then once more, without what was received since, remove ${file}.`,
    );
  }
  if (state.kind === 'foreign') {
    throw new OperatorError(
      `The database ${target.location} holds data already (in its table sluice.${state.part}), which this migration did not ` +
        'bring. Name an empty database; if that data is not needed, drop the schema "sluice" in it.',
    );
  }
  if (state.kind === 'migrated') {
    throw new OperatorError(
      `The database ${target.location} holds ${state.finishedAt === null ? 'a part of ' : ''}another migration, started at ` +
        `${localTime(state.startedAt)}: of another data folder, or of this one before ${file} was removed and the data may ` +
        'have changed. Name an empty database, or drop the schema "sluice" in this one to start over.',
    );
  }
}

/** Rows that were copied before are not touched again. */
async function copy(
  source: MigrationSource,
  target: MigrationTarget,
  counts: Counts,
  shell: MigrateShell,
): Promise<void> {
  const total = counts.values().reduce((sum, count) => sum + count, 0);
  const progress = new Progress(target.location, 'row', shell);
  let [rows, bytes] = [0, 0];
  const onRows = (more: Pick<Chunk, 'rows' | 'bytes'>): void => {
    rows += more.rows;
    bytes += more.bytes;
    progress.show({ count: rows, bytes, done: rows, total });
  };
  const before = (await target.progress()).values().reduce((sum, part) => sum + part.rows, 0);
  onRows({ rows: before, bytes: 0 });
  try {
    for (const part of source.parts) {
      for (let attempt = 1; (await target.progress()).get(part)?.isDone !== true; attempt += 1) {
        if (shell.stop.aborted) throw new OperatorError(`Stopped. ${GO_ON}`);
        try {
          await copyPart(source, target, part, onRows, shell.stop);
        } catch (error) {
          // Another process advanced it at the same moment: a killed run whose last statement was still executing.
          if (!(error instanceof StoreConflictError) || attempt === ATTEMPTS) throw error;
        }
      }
    }
    await target.prepareForWrites(source.nextNumber);
  } finally {
    progress.end();
  }
}

async function copyPart(
  source: MigrationSource,
  target: MigrationTarget,
  part: string,
  onRows: (more: Chunk) => void,
  stop: AbortSignal,
): Promise<void> {
  let position = (await target.progress()).get(part)?.position ?? null;
  for await (const chunk of source.chunks(part, position)) {
    await target.take(part, position, chunk);
    ({ position } = chunk);
    onRows(chunk);
    if (stop.aborted) return;
  }
  await target.take(part, position, null);
}

async function countAll({ parts }: MigrationSource, side: MigrationSource | MigrationTarget): Promise<Counts> {
  const counts = new Map<string, number>();
  for (const part of parts) counts.set(part, await side.count(part));
  return counts;
}

type Comparison = Awaited<ReturnType<typeof compare>>;

/** Rows of every part, and the ledger of every tenant hour by hour. `differences`: what is not the same, in words. */
async function compare(source: MigrationSource, target: MigrationTarget, here: Counts) {
  const there = await countAll(source, target);
  const differences: string[] = [];
  for (const [part, rows] of here) {
    if (rows === there.get(part)) continue;
    differences.push(`${partLabel(part)}: ${rows} rows here, ${there.get(part)} there`);
  }
  const [ledgersHere, ledgersThere] = [await source.ledger(), await target.ledger()];
  const tenants = new Set([...ledgersHere.keys(), ...ledgersThere.keys()]);
  let hours = 0;
  for (const tenantId of tenants) {
    const hoursHere = new Map(ledgersHere.get(tenantId)?.map((hour) => [hour.hour, hour]));
    const hoursThere = new Map(ledgersThere.get(tenantId)?.map((hour) => [hour.hour, hour]));
    const all = new Set([...hoursHere.keys(), ...hoursThere.keys()]);
    const differing = [...all].filter((hour) => !isDeepStrictEqual(hoursHere.get(hour), hoursThere.get(hour)));
    for (const hour of differing.slice(0, DIFFERENCES_SHOWN)) {
      differences.push(`ledger of ${tenantId}: the hour ${new Date(hour).toISOString()} is not the same`);
    }
    const untold = differing.length - DIFFERENCES_SHOWN;
    if (untold > 0) differences.push(`ledger of ${tenantId}: ${untold} more hours are not the same`);
    hours += all.size;
  }
  return { here, there, hours, tenants: tenants.size, differences };
}

/** `sign_in_attempts` as people read it. */
function partLabel(part: string): string {
  return part.replaceAll('_', ' ');
}

/** The marker first: from then on no server uses the embedded files, whatever becomes of this process. */
async function complete(folder: string, target: MigrationTarget, shell: MigrateShell): Promise<void> {
  const marker = readMigrationMarker(folder);
  if (marker === undefined)
    throw new OperatorError(`The file was removed meanwhile: ${resolve(migrationMarkerFileOf(folder))}`);
  const at = shell.now();
  writeMigrationMarker(folder, {
    ...marker,
    state: 'migrated',
    location: target.location,
    at: new Date(at).toISOString(),
  });
  await target.finish(at);
}

function report(options: Options, target: MigrationTarget, comparison: Comparison): string {
  const { here, there, hours, tenants, differences } = comparison;
  const rows = [...here].flatMap(([part, count]) => {
    const other = there.get(part) ?? 0;
    if (count === 0 && other === 0) return [];
    return [[partLabel(part), formatCount(count), formatCount(other), count === other ? '✓' : '✗']];
  });
  const table = renderTable(['what', 'rows here', 'rows there', ''], rows);
  const compared = `Ledger compared: ${countOf(hours, 'hour')} of ${countOf(tenants, 'tenant')}`;
  if (differences.length > 0) {
    return `${table}

${compared}.
The two sides are NOT the same:
${differences.map((difference) => `  - ${difference}`).join('\n')}

Nothing here was changed, and no server will start on ${target.location} as it is. Start over: drop the schema
"sluice" there and run the same command again. To continue without migrating, remove
${resolve(migrationMarkerFileOf(options.folder))}
`;
  }
  return `${table}\n\n${compared}, the same on both sides.\n\n${startText(options)}`;
}

function startText({ folder, url, hasLogUrl }: Options): string {
  const logWords = hasLogUrl
    ? '\nLOG_URL is set: leave it out until the server has processed what is still in the log of the folder, which it\nwould not read otherwise ("sluice doctor" says when).\n'
    : '';
  return `From now on, start the server on the same data folder with the database:

  STORE_URL=${withoutSecrets(url)} npm start -- --data ${folder}

The event log stays in that folder and continues from where it is. The files store.db and keys.db in it are as
they were, and not used any more: keep them as a backup for as long as you like. No server starts on them
while ${resolve(migrationMarkerFileOf(folder))} is there.
${logWords}`;
}

function jsonOf(target: MigrationTarget, { here, there, hours, differences }: Comparison): string {
  const parts = Object.fromEntries(
    [...here].map(([part, rows]) => [part, { here: rows, there: there.get(part) ?? 0 }]),
  );
  const result = {
    location: target.location,
    parts,
    hours_compared: hours,
    differences,
    is_equal: differences.length === 0,
  };
  return `${JSON.stringify(result)}\n`;
}
