/**
 * `sluice export`: events or profiles of a tenant as NDJSON, CSV or parquet. Reads the store page by page through its
 * cursor, so memory stays flat and a running server is not held up; events come newest first, profiles oldest first.
 * Events that arrive meanwhile and are newer than the first page are not part of it. NDJSON and CSV files are resumable
 * (`export-file.ts`).
 */

import { closeSync, existsSync, openSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import type { FlagsRead } from '../config/flags.ts';
import { syncPath } from '../data-folder/write-durably.ts';
import { OperatorError } from '../errors.ts';
import { maskedEvent, maskedProfile, personalDataIn } from '../plans/personal.ts';
import type { Plan } from '../plans/plan.ts';
import {
  BadCursorError,
  type EventReader,
  type LedgerReader,
  type Page,
  type ProfileReader,
  type StoredEvent,
  type StoredProfile,
} from '../store.ts';
import { readArguments } from './arguments.ts';
import { readChoice } from './choices.ts';
import { EXPORT_FORMATS, EXPORT_KINDS } from './commands.ts';
import { csvHeader, csvLine, EVENT_SHAPE, PROFILE_SHAPE, type Shape, writeParquet } from './export-formats.ts';
import {
  type RequestedExport,
  type Checkpoint,
  removePart,
  finishPart,
  PartFile,
  partOf,
  readCheckpoint,
} from './export-file.ts';
import { countOf, formatBytes, MOMENT_EXPECTED, readMoment } from './local-time.ts';
import { Progress } from './progress.ts';
import { asOperatorError, type Shell } from './shell.ts';
import { chooseTenant, planOfTenant, readDataSource, type Tenant, withStore } from './tenant.ts';

const PAGE_ROWS = 1_000;

type ExportOptions = ReturnType<typeof readOptions>;

/** Rows of one kind, and how to get a page of them. */
interface Source<Row> {
  readonly shape: Shape<Row>;
  /** How many there are; null when that is not known without reading them. */
  readonly total: number | null;
  page(cursor: string | null): Promise<Page<Row>>;
}

interface Job {
  readonly shell: Shell;
  readonly options: ExportOptions;
  readonly asked: RequestedExport;
  readonly checkpoint: Checkpoint | undefined;
  readonly progress: Progress;
}

export async function runExport(args: readonly string[], shell: Shell): Promise<number> {
  const options = readOptions(args, shell);
  const { out } = options;
  if (out !== null && existsSync(out)) {
    if (statSync(out).isDirectory()) {
      throw new OperatorError(`${out} is a folder. Name a file: --out "${join(out, `export.${options.format}`)}"`);
    }
    if (!options.overwrite) {
      throw new OperatorError(`${out} exists already. Choose another name, or replace it with --overwrite.`);
    }
  }
  const folder = out === null ? '.' : dirname(out);
  if (!existsSync(folder)) {
    throw new OperatorError(`The folder ${folder} for ${out} does not exist. Create it first: mkdir -p "${folder}"`);
  }
  return withStore(shell, options.dataSource.config, async (store) => {
    const tenant = await chooseTenant(shell, store, options.dataSource);
    const plan = options.personal ? null : await planOfTenant(shell, options.dataSource.config, tenant);
    const masked = personalDataIn(plan);
    const asked = { ...options.asked, tenant: tenant.id, masked: masked && JSON.stringify(masked) };
    const checkpoint = out === null || options.restart ? undefined : readCheckpoint(out, asked);
    if (checkpoint !== undefined) {
      shell.err(`Continuing after ${countOf(checkpoint.rows, 'row')}, where the last run of this export stopped.\n`);
    }
    const range = checkpoint ?? options;
    const title = out === null ? 'stdout' : basename(out);
    const noun = options.what === 'events' ? EVENT_SHAPE.noun : PROFILE_SHAPE.noun;
    const progress = new Progress(title, noun, shell);
    const job = { shell, options: { ...options, from: range.from, to: range.to }, asked, checkpoint, progress };
    try {
      return options.what === 'events'
        ? await write(await eventSource(store, tenant, plan, job.options), job)
        : await write(profileSource(store, tenant, plan), job);
    } catch (error) {
      if (!(error instanceof BadCursorError)) throw asOperatorError(error);
      throw new OperatorError(
        `${partOf(out ?? title)} cannot be continued: the store has changed. Start over with --restart.`,
      );
    } finally {
      progress.end();
    }
  });
}

/** `asked` are the arguments as given: exports with the same ones are the same export. */
function readOptions(args: readonly string[], shell: Shell) {
  const flags = readArguments('export', args);
  const { mistakes } = flags;
  const dataSource = readDataSource(flags, shell);
  mistakes.push(
    ...flags.positionals.map((word) => `unexpected argument "${word}"; a file to write to: --out "${word}"`),
  );
  const format = readChoice(flags, 'format', EXPORT_FORMATS);
  const what = readChoice(flags, 'what', EXPORT_KINDS, 'events');
  const now = shell.now();
  const from = readTime('from', flags, now);
  const to = readTime('to', flags, now);
  if (from !== null && to !== null && from >= to) mistakes.push('--from is not before --to');
  const eventName = flags.values.get('event') ?? null;
  const out = flags.values.get('out') ?? null;
  if (what === 'profiles' && (from !== null || to !== null || eventName !== null)) {
    mistakes.push('--from, --to and --event choose among events; with --what profiles all are exported');
  }
  const raw = flags.switches.has('raw');
  if (raw && format !== undefined && format !== 'csv') {
    mistakes.push(`--raw is for csv; ${format} always holds the data as it is`);
  }
  if (format === 'parquet' && out === null) mistakes.push('parquet needs a file; say which with --out FILE');
  if (out === null && flags.isJson) {
    mistakes.push('--json is for the summary of an export to a file; for JSON on stdout: --format ndjson');
  }
  if (format === undefined || what === undefined || mistakes.length > 0) throw flags.error();
  return {
    dataSource,
    format,
    what,
    from,
    to,
    eventName,
    out,
    restart: flags.switches.has('restart'),
    overwrite: flags.switches.has('overwrite'),
    raw,
    personal: flags.switches.has('personal'),
    json: flags.isJson,
    asked: {
      format,
      what,
      from: flags.values.get('from') ?? null,
      to: flags.values.get('to') ?? null,
      event: eventName,
      raw: raw ? 'yes' : null,
      personal: flags.switches.has('personal') ? 'yes' : null,
    },
  };
}

function readTime(flag: string, flags: FlagsRead, now: number): number | null {
  const given = flags.values.get(flag);
  if (given === undefined) return null;
  const time = readMoment(given, now);
  if (time === undefined) flags.mistakes.push(`--${flag} is "${given}"; expected ${MOMENT_EXPECTED}`);
  return time ?? null;
}

async function eventSource(
  store: EventReader & LedgerReader,
  tenant: Tenant,
  plan: Plan | null,
  { eventName, from, to }: ExportOptions,
): Promise<Source<StoredEvent>> {
  const isAll = eventName === null && from === null && to === null;
  const ledger = isAll ? await store.ledger(tenant.id, { from: null, to: null }) : undefined;
  return {
    shape: EVENT_SHAPE,
    total: ledger?.hours.reduce((sum, { events }) => sum + events.stored, 0) ?? null,
    page: async (cursor) => {
      const query = { profileId: null, eventName, from, to, limit: PAGE_ROWS, cursor };
      const page = (await store.events(tenant.id, query)) ?? { rows: [], nextCursor: null };
      return { ...page, rows: page.rows.map((event) => maskedEvent(plan, event)) };
    },
  };
}

function profileSource(store: ProfileReader, tenant: Tenant, plan: Plan | null): Source<StoredProfile> {
  return {
    shape: PROFILE_SHAPE,
    total: null,
    page: async (cursor) => {
      const page = await store.profiles(tenant.id, { limit: PAGE_ROWS, cursor });
      return { ...page, rows: page.rows.map((profile) => maskedProfile(plan, profile)) };
    },
  };
}

async function write<Row>(source: Source<Row>, job: Job): Promise<number> {
  const { format, out } = job.options;
  if (format === 'parquet' && out !== null) return writeParquetFile(source, out, job);
  return out === null ? writeStdout(source, job) : writeTextFile(source, out, job);
}

async function writeStdout<Row>(source: Source<Row>, job: Job): Promise<number> {
  const { shell, options } = job;
  let [rows, bytes] = [0, 0];
  let isWhole = false;
  const put = (text: string): void => {
    shell.out(text);
    bytes += Buffer.byteLength(text);
  };
  if (options.format === 'csv') put(csvHeader(source.shape.columns));
  for await (const page of pagesOf(source, null, job)) {
    put(formatRows(page.rows, source.shape, options));
    rows += page.rows.length;
    // On a terminal the rows themselves are the progress, and a bar between them would be a mess.
    if (!shell.outTerminal.isTty) job.progress.show({ count: rows, bytes, done: rows, total: source.total });
    isWhole = page.nextCursor === null;
    await shell.drained();
  }
  return isWhole ? 0 : 1;
}

async function writeTextFile<Row>(source: Source<Row>, out: string, job: Job): Promise<number> {
  const { shell, options, asked, checkpoint, progress } = job;
  const part = new PartFile(out, asked, checkpoint);
  let rows = checkpoint?.rows ?? 0;
  let isWhole = false;
  try {
    if (checkpoint === undefined && options.format === 'csv') part.write(csvHeader(source.shape.columns));
    for await (const page of pagesOf(source, checkpoint?.cursor ?? null, job)) {
      part.write(formatRows(page.rows, source.shape, options));
      rows += page.rows.length;
      progress.show({ count: rows, bytes: part.bytes, done: rows, total: source.total });
      isWhole = page.nextCursor === null;
      if (page.nextCursor === null) break;
      const place = { cursor: page.nextCursor, rows, from: options.from, to: options.to };
      part.reach(place, shell.now(), shell.stop.aborted);
    }
  } catch (error) {
    part.close();
    throw error;
  }
  if (!isWhole) {
    part.close();
    throw new OperatorError(
      `Stopped. To continue after ${countOf(rows, source.shape.noun)}, run the same command again.`,
    );
  }
  part.finish();
  return done(source.shape.noun, rows, part.bytes, out, job);
}

async function writeParquetFile<Row>(source: Source<Row>, out: string, job: Job): Promise<number> {
  const { progress } = job;
  let rows = 0;
  let isWhole = false;
  async function* rowsOf(): AsyncGenerator<Row> {
    for await (const page of pagesOf(source, null, job)) {
      yield* page.rows;
      rows += page.rows.length;
      isWhole = page.nextCursor === null;
      progress.show({ count: rows, bytes: statSync(partOf(out)).size, done: rows, total: source.total });
    }
  }
  // The writer of parquet makes files that all may read; this one is there before it looks.
  removePart(out);
  closeSync(openSync(partOf(out), 'wx', 0o600));
  try {
    await writeParquet(partOf(out), source.shape.columns, rowsOf());
  } catch (error) {
    removePart(out);
    throw error;
  }
  if (!isWhole) {
    removePart(out);
    throw new OperatorError('Stopped. A parquet export starts over when it is run again.');
  }
  syncPath(partOf(out));
  finishPart(out);
  return done(source.shape.noun, rows, statSync(out).size, out, job);
}

/** Ends early, without an error, when the command is to stop; the caller checks `shell.stop` then. */
async function* pagesOf<Row>(source: Source<Row>, from: string | null, { shell }: Job): AsyncGenerator<Page<Row>> {
  let cursor = from;
  do {
    const page: Page<Row> = await source.page(cursor);
    // The store blocks: without this, signals would be heard when all is done.
    await setImmediate();
    yield page;
    cursor = page.nextCursor;
  } while (cursor !== null && !shell.stop.aborted);
}

function formatRows<Row>(rows: readonly Row[], shape: Shape<Row>, { format, raw }: ExportOptions): string {
  const lines =
    format === 'csv' ? rows.map((row) => csvLine(shape.columns, row, raw)) : rows.map((row) => `${shape.json(row)}\n`);
  return lines.join('');
}

function done(noun: string, rows: number, bytes: number, out: string, { shell, options, progress }: Job): number {
  progress.end();
  shell.out(
    options.json
      ? `${JSON.stringify({ file: out, rows, bytes })}\n`
      : `${countOf(rows, noun)} in ${out} (${formatBytes(bytes)}).\n`,
  );
  return 0;
}
