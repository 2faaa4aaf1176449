/**
 * `sluice migrate --to postgres://…`: carries an embedded installation over to PostgreSQL. It holds the lock of the data
 * folder meanwhile and leaves the files in it as they are, but for a marker (migration/marker.ts), which is there before the
 * first row is moved: so the two sides never go on apart from each other. Interrupted at any moment, the same command
 * goes on where it stopped. The move counts only when both sides are the same by rows and by books: exit code 0; else 1.
 */

import { randomUUID } from 'node:crypto';
import { resolve } from 'node:path';
import { withoutSecrets } from '../config/values.ts';
import { OperatorError } from '../errors.ts';
import { type MoveMarker, moveMarkerFileOf, readMoveMarker, writeMoveMarker } from '../migration/marker.ts';
import { type MovingSource, type MovingTarget, PART_NAMES, type TargetState } from '../migration/parts.ts';
import { StoreConflictError, StoreUnavailableError } from '../store-writer.ts';
import { COMMANDS, flagKinds } from './commands.ts';
import { mistakesError, readFlags } from '../config/flags.ts';
import { countOf, formatCount, isoTime, localTime } from './local-time.ts';
import { compare, countAll, type Counts, moveAll, partWords, type Verdict } from './migrate-move.ts';
import { readSettings } from './place.ts';
import { Progress } from './progress.ts';
import { inWords, type Shell } from './shell.ts';
import { inkFor, renderTable } from './table.ts';

export interface MigrateShell extends Shell {
  /** Throws an `OperatorError` while a server runs on the folder. */
  readonly lockFolder: (folder: string) => { release(): void };
  readonly openSource: (folder: string) => MovingSource;
  readonly openTarget: (url: string) => Promise<MovingTarget>;
}

const HINT = 'For help: sluice help migrate';
const GO_ON = 'What was copied so far is kept. To continue from there, run the same command again.';

interface Wishes {
  readonly folder: string;
  readonly url: string;
  /** How the operator gave the address. */
  readonly urlName: '--to' | 'STORE_URL';
  /** Whether the settings name a log that is shared, too. */
  readonly hasLogUrl: boolean;
  readonly json: boolean;
}

export async function runMigrate(args: readonly string[], shell: MigrateShell): Promise<number> {
  const wishes = readWishes(args, shell);
  let target: MovingTarget | undefined;
  let source: MovingSource | undefined;
  let lock: { release(): void } | undefined;
  try {
    // Before the lock, which would make a folder that is not there.
    await shell.openSource(wishes.folder).close();
    lock = shell.lockFolder(wishes.folder);
    source = shell.openSource(wishes.folder);
    target = await openTarget(wishes, shell);
    return await migrate(wishes, source, target, shell);
  } catch (error) {
    if (error instanceof StoreUnavailableError || error instanceof StoreConflictError) {
      throw new OperatorError(`${error.message}\n${GO_ON}`, { cause: error });
    }
    throw inWords(error);
  } finally {
    await target?.close();
    await source?.close();
    lock?.release();
  }
}

function readWishes(args: readonly string[], shell: Shell): Wishes {
  const flags = readFlags(args, flagKinds(COMMANDS.migrate));
  const to = flags.values.get('to');
  const given = to === undefined ? flags : { ...flags, values: new Map([...flags.values, ['store-url', to]]) };
  const { config, mistakes } = readSettings(given, shell.env);
  mistakes.push(...flags.positionals.map((word) => `unexpected argument "${word}"; the database goes behind --to`));
  if (config.storeUrl === '' && mistakes.length === 0) {
    mistakes.push('no database given; expected --to postgres://…, or STORE_URL in the environment');
  }
  if (mistakes.length > 0) {
    throw mistakesError(
      mistakes.map((mistake) => (to === undefined ? mistake : mistake.replaceAll('--store-url', '--to'))),
      HINT,
    );
  }
  return {
    folder: config.dataFolder,
    url: config.storeUrl,
    urlName: to === undefined ? 'STORE_URL' : '--to',
    hasLogUrl: config.logUrl !== '',
    json: flags.switches.has('json'),
  };
}

/** What is wrong with the address is told by the name that it was given under. */
async function openTarget({ url, urlName }: Wishes, shell: MigrateShell): Promise<MovingTarget> {
  try {
    return await shell.openTarget(url);
  } catch (error) {
    if (error instanceof StoreUnavailableError) {
      throw new OperatorError(
        `The database ${withoutSecrets(url)} cannot be reached: ${error.message}\nIs it running, and is ${urlName} right?`,
        { cause: error },
      );
    }
    if (!(error instanceof OperatorError)) throw error;
    throw new OperatorError(error.message.replaceAll('STORE_URL', urlName), { cause: error });
  }
}

async function migrate(
  wishes: Wishes,
  source: MovingSource,
  target: MovingTarget,
  shell: MigrateShell,
): Promise<number> {
  const { folder } = wishes;
  const marker = readMoveMarker(folder);
  const state = await target.state();
  const mayGoOn = state.kind === 'moved' && state.id === marker?.id;
  if (mayGoOn && state.finishedAt !== null) {
    writeMoveMarker(folder, { ...marker, state: 'moved' });
    const words = `This data was moved to ${target.place} at ${localTime(state.finishedAt)}.\n\n${startWords(wishes)}`;
    shell.out(
      wishes.json ? `${JSON.stringify({ place: target.place, moved_at: isoTime(state.finishedAt) })}\n` : words,
    );
    return 0;
  }
  if (mayGoOn) {
    shell.err(`Continuing the migration that began at ${localTime(state.begunAt)}.\n`);
  } else {
    refuse(wishes, target, marker, state);
    const at = shell.now();
    const begun: MoveMarker = {
      // A new one each time: with that of a move that was begun elsewhere, two databases could finish under one id.
      id: randomUUID(),
      state: 'moving',
      place: target.place,
      at: new Date(at).toISOString(),
    };
    writeMoveMarker(folder, begun);
    await target.begin({ id: begun.id, logName: source.logName, storeId: source.storeId, at });
  }
  const counts = await countAll(source);
  await move(source, target, counts, shell);
  const verdict = await compare(source, target, counts);
  if (verdict.differences.length === 0) await complete(folder, target, shell);
  shell.out(wishes.json ? jsonOf(target, verdict) : report(wishes, target, verdict, shell));
  return verdict.differences.length === 0 ? 0 : 1;
}

/** A move goes into a database that is empty, and from a folder that was not moved elsewhere. */
function refuse({ folder }: Wishes, target: MovingTarget, marker: MoveMarker | undefined, state: TargetState): void {
  const file = resolve(moveMarkerFileOf(folder));
  if (marker?.state === 'moved') {
    throw new OperatorError(
      `The data in ${resolve(folder)} was moved to ${marker.place} (${marker.at}) and goes on there. To move it as it ` +
        `was then once more, leaving behind what came in since, remove ${file}.`,
    );
  }
  if (state.kind === 'foreign') {
    throw new OperatorError(
      `The database ${target.place} holds data already (in its table sluice.${state.part}), which this move did not ` +
        'bring. Name an empty database; if nobody needs that data, drop the schema "sluice" in it.',
    );
  }
  if (state.kind === 'moved') {
    throw new OperatorError(
      `The database ${target.place} holds ${state.finishedAt === null ? 'a part of ' : ''}another move, begun at ` +
        `${localTime(state.begunAt)}: of another data folder, or of this one before ${file} was removed and the data may ` +
        'have changed. Name an empty database, or drop the schema "sluice" in this one to begin anew.',
    );
  }
}

async function move(source: MovingSource, target: MovingTarget, counts: Counts, shell: MigrateShell): Promise<void> {
  const total = counts.values().reduce((sum, count) => sum + count, 0);
  const { errTerminal: terminal, err, now, stop } = shell;
  const progress = new Progress({ title: target.place, noun: 'row', terminal, err, now });
  try {
    const isWhole = await moveAll({
      source,
      target,
      stop,
      onProgress: (rows, bytes) => progress.show({ count: rows, bytes, done: rows, total }),
    });
    if (!isWhole) throw new OperatorError(`Stopped. ${GO_ON}`);
  } finally {
    progress.end();
  }
}

/** The marker first: from then on nobody goes on with the embedded files, whatever becomes of this process. */
async function complete(folder: string, target: MovingTarget, shell: MigrateShell): Promise<void> {
  const marker = readMoveMarker(folder);
  if (marker === undefined) throw new OperatorError(`Somebody removed ${resolve(moveMarkerFileOf(folder))} meanwhile.`);
  const at = shell.now();
  writeMoveMarker(folder, { ...marker, state: 'moved', place: target.place, at: new Date(at).toISOString() });
  await target.finish(at);
}

function report(wishes: Wishes, target: MovingTarget, verdict: Verdict, shell: MigrateShell): string {
  const { here, there, hours, tenants, differences } = verdict;
  const rows = PART_NAMES.filter((part) => here.get(part) !== 0 || there.get(part) !== 0).map((part) => [
    partWords(part),
    formatCount(here.get(part) ?? 0),
    formatCount(there.get(part) ?? 0),
    here.get(part) === there.get(part) ? '✓' : '✗',
  ]);
  const ink = inkFor(shell.outTerminal.isTty, shell.env);
  const table = renderTable(['what', 'rows here', 'rows there', ''], rows, ink);
  const compared = `Ledger compared: ${countOf(hours, 'hour')} of ${countOf(tenants, 'tenant')}`;
  if (differences.length > 0) {
    return `${table}

${compared}.
The two sides are NOT the same:
${differences.map((difference) => `  - ${difference}`).join('\n')}

Nothing here was changed, and no server will start on ${target.place} as it is. Begin anew: drop the schema
"sluice" there and run the same command again. To go on without moving, remove
${resolve(moveMarkerFileOf(wishes.folder))}
`;
  }
  return `${table}\n\n${compared}, the same on both sides.\n\n${startWords(wishes)}`;
}

function startWords({ folder, url, hasLogUrl }: Wishes): string {
  const logWords = hasLogUrl
    ? '\nLOG_URL is set: leave it out until the server has processed what is still in the log of the folder, which it\nwould not read otherwise ("sluice doctor" says when).\n'
    : '';
  return `From now on, start the server on the same data folder with the database:

  STORE_URL=${withoutSecrets(url)} npm start -- --data ${folder}

The event log stays in that folder and goes on from where it is. The files store.db and keys.db in it are as
they were, and not used any more: keep them as a backup for as long as you like. No server starts on them
while ${resolve(moveMarkerFileOf(folder))} is there.
${logWords}`;
}

function jsonOf(target: MovingTarget, { here, there, hours, differences }: Verdict): string {
  const parts = Object.fromEntries(
    PART_NAMES.map((part) => [part, { here: here.get(part) ?? 0, there: there.get(part) ?? 0 }]),
  );
  const result = { place: target.place, parts, hours_compared: hours, differences, is_equal: differences.length === 0 };
  return `${JSON.stringify(result)}\n`;
}
