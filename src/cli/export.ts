/**
 * `sluice export`: events or profiles of a tenant as NDJSON, CSV or parquet. Reads the store page by page through its
 * cursor, so memory stays flat and a running server is not held up; events come newest first, profiles oldest first.
 * Events that arrive meanwhile and are newer than the first page are not part of it. NDJSON and CSV files are resumable.
 */

import {
  appendFileSync,
  closeSync,
  existsSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
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
import { isObject } from '../validation/shape.ts';
import { readArguments, readChoice } from './arguments.ts';
import { EXPORT_FORMATS, EXPORT_KINDS } from './commands.ts';
import { csvHeader, csvLine, EVENT_SHAPE, PROFILE_SHAPE, type Shape, writeParquet } from './export-formats.ts';
import { countOf, formatBytes, readMoment } from './local-time.ts';
import { Progress } from './progress.ts';
import { asOperatorError, type Shell } from './shell.ts';
import { chooseTenant, planOfTenant, readDataSource, type Tenant, withStore } from './tenant.ts';

const PAGE_ROWS = 1_000;
/** How much work a crash may cost. */
const CHECKPOINT_MS = 2_000;

type ExportOptions = ReturnType<typeof readOptions>;

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
    const asked = { command: `${options.command} ${tenant.id}`, masked: masked && JSON.stringify(masked) };
    const checkpoint = out === null || options.restart ? undefined : readCheckpoint(out, asked, shell);
    if (checkpoint !== undefined) {
      shell.err(`Continuing after ${countOf(checkpoint.rows, 'row')}, where the last run of this export stopped.\n`);
    }
    const range = checkpoint ?? options;
    const title = out === null ? 'stdout' : basename(out);
    const progress = new Progress(title, options.what === 'events' ? 'event' : 'profile', shell);
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

/** `command` has the arguments as given: exports with the same ones are the same export. */
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
  const [from, to] = [readMoment(flags, 'from', now) ?? null, readMoment(flags, 'to', now) ?? null];
  if (from !== null && to !== null && from >= to) mistakes.push('--from is not before --to');
  const eventName = flags.values.get('event') ?? null;
  const out = flags.values.get('out') ?? null;
  if (out === '') mistakes.push('--out is empty; expected a file');
  if (what === 'profiles' && (from !== null || to !== null || eventName !== null)) {
    mistakes.push('--from, --to and --event choose among events; with --what profiles all are exported');
  }
  const [raw, personal] = [flags.switches.has('raw'), flags.switches.has('personal')];
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
    personal,
    json: flags.isJson,
    command: JSON.stringify([format, what, flags.values.get('from'), flags.values.get('to'), eventName, raw, personal]),
  };
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
  return format === 'parquet' && out !== null ? writeParquetFile(source, out, job) : writeText(source, job);
}

async function writeText<Row>({ shape, ...source }: Source<Row>, job: Job): Promise<number> {
  const { shell, options, asked, checkpoint, progress } = job;
  const { out, format, from, to } = options;
  const part = out === null ? undefined : new PartFile(out, asked, checkpoint);
  let { cursor, rows, bytes } = checkpoint ?? { cursor: null, rows: 0, bytes: 0 };
  const put = (text: string): void => {
    if (part === undefined) shell.out(text);
    else part.write(text);
    bytes += Buffer.byteLength(text);
  };
  try {
    if (checkpoint === undefined && format === 'csv') put(csvHeader(shape.columns));
    for await (const page of pagesOf(source, cursor, job)) {
      put(formatRows(page.rows, shape, options));
      rows += page.rows.length;
      cursor = page.nextCursor;
      // On a terminal the rows themselves are the progress, and a bar between them would be a mess.
      const isSeen = part === undefined && shell.outTerminal.isTty;
      if (!isSeen) progress.show({ count: rows, bytes, done: rows, total: source.total });
      if (cursor !== null) part?.reach({ cursor, rows, bytes, from, to }, shell.now(), shell.stop.aborted);
      await shell.drained();
    }
  } finally {
    part?.close();
  }
  if (out === null) return cursor === null ? 0 : 1;
  if (cursor !== null) {
    throw new OperatorError(`Stopped. To continue after ${countOf(rows, shape.noun)}, run the same command again.`);
  }
  return finish(shape.noun, rows, out, job);
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
    if (!isWhole) throw new OperatorError('Stopped. A parquet export starts over when it is run again.');
  } catch (error) {
    removePart(out);
    throw error;
  }
  return finish(source.shape.noun, rows, out, job);
}

/** Ends early, without an error, when the command is to stop; the caller checks `shell.stop` then. */
async function* pagesOf<Row>(
  source: Pick<Source<Row>, 'page'>,
  from: string | null,
  { shell }: Job,
): AsyncGenerator<Page<Row>> {
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

/** The file gets its name when it is complete. */
function finish(noun: string, rows: number, out: string, { shell, options, progress }: Job): number {
  syncPath(partOf(out));
  renameSync(partOf(out), out);
  rmSync(stateFileOf(out), { force: true });
  progress.end();
  const bytes = statSync(out).size;
  shell.out(
    options.json
      ? `${JSON.stringify({ file: out, rows, bytes })}\n`
      : `${countOf(rows, noun)} in ${out} (${formatBytes(bytes)}).\n`,
  );
  return 0;
}

/** The options as typed, and what is masked: the partial file of another export is not continued. */
interface RequestedExport {
  readonly command: string;
  readonly masked: string | null;
}

interface Checkpoint {
  /** Where to continue in the store. */
  readonly cursor: string;
  readonly rows: number;
  /** Bytes of `FILE.part` that are synced. */
  readonly bytes: number;
  /** Times that were relative when the export began. */
  readonly from: number | null;
  readonly to: number | null;
}

function partOf(file: string): string {
  return `${file}.part`;
}

function stateFileOf(file: string): string {
  return `${partOf(file)}.state`;
}

/** What an earlier run of the same export left; undefined if nothing, or it is damaged. Throws if it was another export. */
function readCheckpoint(file: string, { command, masked }: RequestedExport, { err }: Shell): Checkpoint | undefined {
  if (!existsSync(stateFileOf(file))) return undefined;
  const state = stateIn(readFileSync(stateFileOf(file), 'utf8'));
  if (state === undefined) {
    err(`${stateFileOf(file)} is damaged: the export starts over.\n`);
    return undefined;
  }
  if (state.command !== command) {
    throw new OperatorError(
      `${partOf(file)} is part of an interrupted export with other options. Run it with the same options to continue, or start over with --restart.`,
    );
  }
  if (state.masked !== masked) {
    throw new OperatorError(
      `${partOf(file)} cannot be continued: the tracking plan no longer marks the same data as personal. Start over with --restart.`,
    );
  }
  return state.checkpoint;
}

/** Undefined where it is damaged. */
function stateIn(text: string): (RequestedExport & { readonly checkpoint: Checkpoint }) | undefined {
  let state: unknown;
  try {
    state = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!isObject(state) || typeof state.command !== 'string' || !isObject(state.checkpoint)) return undefined;
  const { cursor, rows, bytes, from, to } = state.checkpoint;
  const isWhole =
    typeof cursor === 'string' &&
    [rows, bytes].every((count) => Number.isSafeInteger(count) && Number(count) >= 0) &&
    [from, to].every((time) => time === null || typeof time === 'number');
  return isWhole ? (state as unknown as ReturnType<typeof stateIn>) : undefined;
}

/**
 * The file of an export while it is being written: `FILE.part`, and next to it `FILE.part.state`, which records how
 * much of it is synced, where to continue in the store, and the options.
 */
class PartFile {
  readonly #file: string;
  readonly #asked: RequestedExport;
  readonly #descriptor: number;
  /** Long ago at first, so that the first page is noted down. */
  #syncedAt = Number.NEGATIVE_INFINITY;

  /** Cuts off what came after the checkpoint, or starts over without one. */
  constructor(file: string, asked: RequestedExport, checkpoint: Checkpoint | undefined) {
    this.#file = file;
    this.#asked = asked;
    // The state of another export must not be taken for that of this one.
    if (checkpoint === undefined) removePart(file);
    this.#descriptor = openSync(partOf(file), checkpoint === undefined ? 'ax' : 'a', 0o600);
    const bytes = checkpoint?.bytes ?? 0;
    if (fstatSync(this.#descriptor).size < bytes) {
      this.close();
      throw new OperatorError(`${partOf(file)} is shorter than it was. Start over with --restart.`);
    }
    ftruncateSync(this.#descriptor, bytes);
  }

  write(text: string): void {
    appendFileSync(this.#descriptor, text);
  }

  /** Called between pages; syncs at the first, now and then, and when the command is to stop. */
  reach(checkpoint: Checkpoint, now: number, isStopping: boolean): void {
    // A clock may be set back.
    if (Math.abs(now - this.#syncedAt) < CHECKPOINT_MS && !isStopping) return;
    fsyncSync(this.#descriptor);
    // The folder is not synced: it may be one that this user may not read.
    const draft = `${stateFileOf(this.#file)}.draft`;
    writeFileSync(draft, `${JSON.stringify({ ...this.#asked, checkpoint })}\n`, { mode: 0o600, flush: true });
    renameSync(draft, stateFileOf(this.#file));
    this.#syncedAt = now;
  }

  close(): void {
    closeSync(this.#descriptor);
  }
}

/** What an earlier export left of a file that was to get this name. */
function removePart(file: string): void {
  // The state first: without it the part is not continued.
  rmSync(stateFileOf(file), { force: true });
  rmSync(partOf(file), { force: true });
}
