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
import { isDeepStrictEqual } from 'node:util';
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
import { readArguments, readChoice } from './arguments.ts';
import { EXPORT_FORMATS, EXPORT_KINDS } from './commands.ts';
import { csvHeader, csvLine, EVENT_SHAPE, PROFILE_SHAPE, type Shape, writeParquet } from './export-formats.ts';
import { countOf, formatBytes, MOMENT_EXPECTED, readMoment } from './local-time.ts';
import { Progress } from './progress.ts';
import { asOperatorError, type Shell } from './shell.ts';
import { chooseTenant, planOfTenant, readDataSource, type Tenant, withStore } from './tenant.ts';

const PAGE_ROWS = 1_000;
/** How much work a crash may cost: whichever comes first. */
const CHECKPOINT_BYTES = 32 * 1_024 * 1_024;
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
    if (!isWhole) {
      const where = countOf(rows, source.shape.noun);
      throw new OperatorError(`Stopped. To continue after ${where}, run the same command again.`);
    }
  } catch (error) {
    part.close();
    throw error;
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
    if (!isWhole) throw new OperatorError('Stopped. A parquet export starts over when it is run again.');
  } catch (error) {
    removePart(out);
    throw error;
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

/** The options as typed, and what is masked: the partial file of another export is not continued. */
type RequestedExport = Readonly<Record<string, string | null>>;

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

/** What is in `FILE.part.state`. */
interface State {
  readonly asked: RequestedExport;
  readonly checkpoint: Checkpoint;
}

function partOf(file: string): string {
  return `${file}.part`;
}

function stateFileOf(file: string): string {
  return `${partOf(file)}.state`;
}

/** What an earlier run of the same export left; undefined if nothing. Throws if it was another export. */
function readCheckpoint(file: string, asked: RequestedExport): Checkpoint | undefined {
  let text: string;
  try {
    text = readFileSync(stateFileOf(file), 'utf8');
  } catch {
    return undefined;
  }
  const found = parse(text);
  if (isDeepStrictEqual(found?.asked, asked)) return found?.checkpoint;
  const isMaskedOnly = isDeepStrictEqual({ ...found?.asked, masked: asked.masked }, asked);
  throw new OperatorError(
    isMaskedOnly
      ? `${partOf(file)} cannot be continued: the tracking plan no longer marks the same data as personal. Start over with --restart.`
      : `${partOf(file)} is part of an interrupted export with other options. Run it with the same options to continue, or start over with --restart.`,
  );
}

/**
 * The file of an export while it is being written: `FILE.part`, and next to it `FILE.part.state`, which records how
 * much of it is synced, where to continue in the store, and the options. An interrupted export continues from there
 * when it is run with the same options. The file gets its name only when it is complete.
 */
class PartFile {
  readonly #file: string;
  readonly #asked: RequestedExport;
  readonly #descriptor: number;
  #bytes: number;
  #syncedBytes: number;
  /** Long ago at first, so that the first page is noted down. */
  #syncedAt = Number.NEGATIVE_INFINITY;

  /** Cuts off what came after the checkpoint, or starts over without one. */
  constructor(file: string, asked: RequestedExport, checkpoint: Checkpoint | undefined) {
    this.#file = file;
    this.#asked = asked;
    this.#bytes = checkpoint?.bytes ?? 0;
    this.#syncedBytes = this.#bytes;
    const part = partOf(file);
    // The state of another export must not be taken for that of this one.
    if (checkpoint === undefined) removePart(file);
    this.#descriptor = openSync(part, checkpoint === undefined ? 'ax' : 'a', 0o600);
    if (fstatSync(this.#descriptor).size < this.#bytes) {
      closeSync(this.#descriptor);
      throw new OperatorError(`${part} is shorter than it was. Start over with --restart.`);
    }
    ftruncateSync(this.#descriptor, this.#bytes);
  }

  get bytes(): number {
    return this.#bytes;
  }

  write(text: string): void {
    const bytes = Buffer.from(text);
    appendFileSync(this.#descriptor, bytes);
    this.#bytes += bytes.length;
  }

  /** Called between pages; syncs at the first, now and then, and when the command is to stop. */
  reach(place: Omit<Checkpoint, 'bytes'>, now: number, isStopping: boolean): void {
    const isDue = now - this.#syncedAt >= CHECKPOINT_MS || this.#bytes - this.#syncedBytes >= CHECKPOINT_BYTES;
    if (!isDue && !isStopping) return;
    fsyncSync(this.#descriptor);
    const state: State = { asked: this.#asked, checkpoint: { ...place, bytes: this.#bytes } };
    const draft = `${stateFileOf(this.#file)}.new`;
    writeFileSync(draft, `${JSON.stringify(state)}\n`, { mode: 0o600, flush: true });
    renameSync(draft, stateFileOf(this.#file));
    this.#syncedBytes = this.#bytes;
    this.#syncedAt = now;
  }

  finish(): void {
    fsyncSync(this.#descriptor);
    closeSync(this.#descriptor);
    finishPart(this.#file);
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

function finishPart(file: string): void {
  renameSync(partOf(file), file);
  rmSync(stateFileOf(file), { force: true });
}

/** Undefined for what this program did not write: the file is written whole or not at all. */
function parse(text: string): State | undefined {
  try {
    return JSON.parse(text) as State;
  } catch {
    return undefined;
  }
}
