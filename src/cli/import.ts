/**
 * `sluice import FILE.ndjson`: one user per line, sent to a server over HTTP like any client would. Up to four requests
 * are in flight; responses are recorded in the order of the file, so that an interrupted import continues after the
 * last line before which every line has its response. Exit code 0: all were accepted; 2: some were rejected, and are in
 * a file with the reason; 1: it stopped, and can be started again.
 */

import { createHash } from 'node:crypto';
import { createReadStream, readFileSync, renameSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { basename } from 'node:path';
import { messageOf, OperatorError } from '../errors.ts';
import { isObject } from '../validation/shape.ts';
import { readArguments } from './arguments.ts';
import { type BadLine, type Batch, batchesOf, bodyOf, type FilePosition, type Line } from './import-lines.ts';
import { sendBody, type Sent, type Target, targetOf } from './import-send.ts';
import { countOf, formatBytes, formatSpan } from './local-time.ts';
import { Progress } from './progress.ts';
import { readRetryTimeout, readServer } from './server.ts';
import { asOperatorError, type Shell } from './shell.ts';
import { printable } from './table.ts';

const REQUESTS_IN_FLIGHT_MAX = 4;
const RETRY_TIMEOUT_DEFAULT_MS = 600_000;
const READ_BYTES = 1_024 * 1_024;
const PREFIX_BYTES = 65_536;

type Options = Awaited<ReturnType<typeof readOptions>>;

type Unsent = Extract<Sent, { readonly kind: 'unsent' }>;
type SentLines = Unsent | { readonly kind: 'acknowledged'; readonly rejected: readonly BadLine[] };

export async function runImport(args: readonly string[], shell: Shell): Promise<number> {
  const options = await readOptions(args, shell);
  try {
    return await importAll(options, shell);
  } catch (error) {
    throw asOperatorError(error);
  }
}

async function importAll(options: Options, shell: Shell): Promise<number> {
  const source = await identify(options.file);
  const state = new ImportState(source, options.server.url.href, options.restart);
  const startedAt = shell.now();
  const resumedAt = state.progress.lines;
  if (resumedAt > 0) shell.err(`Continuing after line ${resumedAt}, where the last import of this file stopped.\n`);
  const title = options.file === null ? 'stdin' : basename(options.file);
  const progress = new Progress(title, 'user', shell);
  const ended = await sendAll(source, state, options, shell, progress);
  progress.end();
  if (ended.kind === 'unsent') {
    const { lines } = state.progress;
    const reason = ended.problem?.message ?? 'Stopped.';
    const howToGoOn =
      source.file === null
        ? `Lines up to ${lines} were sent. If you send all again within 24 hours, they are stored once.`
        : `Lines up to ${lines} were sent. To continue from there, run the same command again.`;
    throw new OperatorError(`${reason}\n${howToGoOn}`);
  }
  state.remove();
  shell.out(summary(source, state, options.json, shell.now() - startedAt));
  return state.progress.usersRejected === 0 ? 0 : 2;
}

async function readOptions(args: readonly string[], shell: Shell) {
  const flags = readArguments('import', args);
  const { mistakes } = flags;
  const [file, ...others] = flags.positionals;
  if (file === undefined) mistakes.push('no file given; expected a file with one user per line, or - for stdin');
  flags.refuse(others, 'files are imported one at a time');
  const server = await readServer(flags, shell);
  const timeoutMs = readRetryTimeout(flags, RETRY_TIMEOUT_DEFAULT_MS);
  if (server === undefined || timeoutMs === undefined || mistakes.length > 0) throw flags.error();
  if (server.isLocal) shell.err(`Sending to ${server.url.origin}, the server on this data folder.\n`);
  return {
    file: file === '-' || file === undefined ? null : file,
    server,
    timeoutMs,
    restart: flags.switches.has('restart'),
    json: flags.isJson,
  };
}

async function sendAll(
  source: ImportSource,
  state: ImportState,
  options: Options,
  shell: Shell,
  progress: Progress,
): Promise<{ kind: 'all' } | Unsent> {
  // One batch that cannot be sent calls the others off.
  const callOff = new AbortController();
  let problem: string | null = null;
  const show = (): void => {
    const { offset, usersAccepted, usersRejected } = state.progress;
    const notes = [usersRejected > 0 ? `${usersRejected} rejected` : '', problem === null ? '' : `waiting: ${problem}`];
    const note = notes.filter((text) => text !== '').join('  ');
    const counts = { count: usersAccepted, bytes: offset, done: offset, total: source.bytes };
    progress.show(note === '' ? counts : { ...counts, note });
  };
  const target: Target = {
    ...targetOf(options.server, options.timeoutMs, shell),
    stop: AbortSignal.any([shell.stop, callOff.signal]),
    onWait: (reason) => {
      problem = reason;
      show();
    },
  };
  show();
  const underWay: { readonly batch: Batch; readonly sent: Promise<SentLines> }[] = [];
  const recordOldest = async (): Promise<Unsent | undefined> => {
    const oldest = underWay.shift();
    if (oldest === undefined) return undefined;
    const { batch } = oldest;
    const sent = await oldest.sent;
    if (sent.kind === 'unsent') return sent;
    const rejected = [...batch.badLines, ...sent.rejected].sort((a, b) => a.number - b.number);
    state.advance(batch.next, batch.lines.length - sent.rejected.length, rejected);
    show();
    return undefined;
  };
  const chunks =
    options.file === null
      ? shell.stdin
      : createReadStream(options.file, { start: state.progress.offset, highWaterMark: READ_BYTES });
  let failed: Unsent | undefined;
  for await (const batch of batchesOf(chunks, state.progress)) {
    underWay.push({ batch, sent: sendLines(batch.lines, source, target) });
    if (underWay.length >= REQUESTS_IN_FLIGHT_MAX) failed = await recordOldest();
    if (failed !== undefined || shell.stop.aborted) break;
  }
  while (failed === undefined && underWay.length > 0) failed = await recordOldest();
  callOff.abort();
  await Promise.all(underWay.map(({ sent }) => sent));
  if (failed === undefined && shell.stop.aborted) return { kind: 'unsent', problem: null };
  return failed ?? { kind: 'all' };
}

/** A proxy may allow less than Sluice does: what is too large goes in halves. */
async function sendLines(lines: readonly Line[], source: ImportSource, target: Target): Promise<SentLines> {
  const [first, last] = [lines[0], lines.at(-1)];
  if (first === undefined || last === undefined) return { kind: 'acknowledged', rejected: [] };
  const body = bodyOf(lines);
  const sent = await sendBody(body, idempotencyKeyOf(source, first.number, last.number, body), target);
  switch (sent.kind) {
    case 'taken': {
      const rejected = sent.rejected.flatMap(({ userIndex, message }) => {
        const line = lines[userIndex];
        return line === undefined ? [] : [{ ...line, reason: message, isJson: true }];
      });
      return { kind: 'acknowledged', rejected };
    }
    case 'refused':
      return { kind: 'acknowledged', rejected: lines.map((line) => ({ ...line, reason: sent.message, isJson: true })) };
    case 'too large': {
      if (lines.length === 1) {
        const reason = 'the server says that it is too large (413)';
        return { kind: 'acknowledged', rejected: [{ ...first, reason, isJson: true }] };
      }
      const middle = Math.ceil(lines.length / 2);
      const before = await sendLines(lines.slice(0, middle), source, target);
      if (before.kind === 'unsent') return before;
      const after = await sendLines(lines.slice(middle), source, target);
      return after.kind === 'unsent'
        ? after
        : { kind: 'acknowledged', rejected: [...before.rejected, ...after.rejected] };
    }
    case 'unsent':
      return sent;
    default:
      return sent satisfies never;
  }
}

function summary(source: ImportSource, state: ImportState, json: boolean, tookMs: number): string {
  const { usersAccepted, usersRejected, lines, offset } = state.progress;
  const rejectedFile = usersRejected === 0 ? null : rejectedFileOf(source);
  if (json) {
    const result = {
      users_accepted: usersAccepted,
      users_rejected: usersRejected,
      lines,
      bytes: offset,
      rejected_file: rejectedFile,
    };
    return `${JSON.stringify(result)}\n`;
  }
  if (usersAccepted === 0 && usersRejected === 0)
    return `${source.file ?? 'stdin'} is empty: there are no users to send.\n`;
  // The response is the same for users that the server had already.
  const sender = source.file === null ? 'the same lines' : 'this file';
  const once = `; users that ${sender} sent before, within 24 hours, are stored once`;
  const done = `${countOf(usersAccepted, 'user')} accepted (${formatBytes(offset)}, ${formatSpan(tookMs)})${once}.\n`;
  return rejectedFile === null ? done : `${done}${rejectedWords(rejectedFile, usersRejected, state.firstRejected)}`;
}

function rejectedWords(rejectedFile: string, usersRejected: number, first: BadLine | undefined): string {
  const example = first === undefined ? '' : ` Line ${first.number}: ${printable(first.reason)}.`;
  return (
    `${countOf(usersRejected, 'line')} ${usersRejected === 1 ? 'was' : 'were'} rejected.${example}\n` +
    `${rejectedFile} has each with its number and the reason.\n` +
    `Fix them there and run: sluice import ${rejectedFile}\n`
  );
}

interface ImportProgress extends FilePosition {
  readonly usersAccepted: number;
  readonly usersRejected: number;
  readonly rejectedBytes: number;
}

const NOTHING_IMPORTED: ImportProgress = { offset: 0, lines: 0, usersAccepted: 0, usersRejected: 0, rejectedBytes: 0 };

interface ImportSource {
  /** Null for stdin, which cannot be read again. */
  readonly file: string | null;
  /** The same for the same content, wherever the file is; new for every stdin. */
  readonly identity: string;
  /** Null when unknown. */
  readonly bytes: number | null;
}

/** The identity of a file is its size and first 64 kB: enough to notice that it is not the one it was. Of stdin nothing is known. */
async function identify(file: string | null): Promise<ImportSource> {
  if (file === null) return { file, identity: 'stdin', bytes: null };
  try {
    await using handle = await open(file);
    const stat = await handle.stat();
    if (stat.isDirectory()) throw new OperatorError(`${file} is a folder; expected a file of one user a line.`);
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(PREFIX_BYTES), 0, PREFIX_BYTES, 0);
    const hash = createHash('sha256').update(`${stat.size}\n`).update(buffer.subarray(0, bytesRead));
    return { file, identity: hash.digest('hex'), bytes: stat.size };
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    throw new OperatorError(`${file} cannot be read: ${messageOf(error)}.`);
  }
}

/** Includes the bytes: a file that was fixed in the middle must not be mistaken for the old one. */
function idempotencyKeyOf(source: ImportSource, firstLine: number, lastLine: number, body: Buffer): string {
  const hash = createHash('sha256').update(`${source.identity}\n${firstLine}\n${lastLine}\n`).update(body);
  return `import-${hash.digest('hex')}`;
}

function rejectedFileOf(source: ImportSource): string {
  return `${source.file ?? 'stdin'}.rejected.ndjson`;
}

/**
 * The progress of an import, next to the file: `FILE.import` has the position up to which every line has a response,
 * and `FILE.rejected.ndjson` has the rejected lines. Both cover only the acknowledged part of the file, so after a
 * crash at any moment the import continues from there, and no rejected line is written twice.
 */
class ImportState {
  readonly #source: ImportSource;
  readonly #server: string;
  progress: ImportProgress;
  firstRejected: BadLine | undefined;

  /** `restart` ignores the progress of an earlier import. */
  constructor(source: ImportSource, server: string, restart: boolean) {
    this.#source = source;
    this.#server = server;
    if (restart) this.remove();
    const found = this.#read() ?? NOTHING_IMPORTED;
    const rejectedFile = rejectedFileOf(source);
    const size = statSync(rejectedFile, { throwIfNoEntry: false })?.size ?? 0;
    // The file may have been removed meanwhile; the import continues nevertheless.
    this.progress = { ...found, rejectedBytes: Math.min(found.rejectedBytes, size) };
    if (this.progress.rejectedBytes === 0) rmSync(rejectedFile, { force: true });
    else truncateSync(rejectedFile, this.progress.rejectedBytes);
  }

  get #file(): string {
    return `${this.#source.file}.import`;
  }

  /** Records a batch that has its response; the one before it must be recorded already. */
  advance(next: FilePosition, usersAccepted: number, rejected: readonly BadLine[]): void {
    const before = this.progress;
    this.firstRejected ??= rejected[0];
    const text = rejected.map((line) => `${rejectedLine(line)}\n`).join('');
    if (text !== '') writeFileSync(rejectedFileOf(this.#source), text, { flag: 'a', mode: 0o600 });
    this.progress = {
      ...next,
      usersAccepted: before.usersAccepted + usersAccepted,
      usersRejected: before.usersRejected + rejected.length,
      rejectedBytes: before.rejectedBytes + Buffer.byteLength(text),
    };
    if (this.#source.file === null) return;
    const state = { ...this.progress, identity: this.#source.identity, server: this.#server };
    writeFileSync(`${this.#file}.new`, `${JSON.stringify(state)}\n`, { mode: 0o600 });
    renameSync(`${this.#file}.new`, this.#file);
  }

  /** The next import of the file begins at its first line. */
  remove(): void {
    if (this.#source.file !== null) rmSync(this.#file, { force: true });
  }

  #read(): ImportProgress | undefined {
    if (this.#source.file === null) return undefined;
    let text: string;
    try {
      text = readFileSync(this.#file, 'utf8');
    } catch {
      return undefined;
    }
    const state = parse(text);
    if (state === undefined) {
      throw new OperatorError(`${this.#file} is damaged. To import from the beginning: --restart`);
    }
    if (state.identity !== this.#source.identity) {
      throw new OperatorError(
        `${this.#source.file} has changed since its import was interrupted at line ${state.progress.lines}. ` +
          'To import it from the beginning: --restart (what is unchanged may then be stored twice)',
      );
    }
    if (state.server !== this.#server) {
      throw new OperatorError(
        `The interrupted import of ${this.#source.file} went to ${state.server}. Give that address with --url, ` +
          'or import from the beginning: --restart',
      );
    }
    return state.progress;
  }
}

function parse(text: string): { progress: ImportProgress; identity: string; server: string } | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!isObject(value)) return undefined;
  const { identity, server, ...progress } = value;
  if (typeof identity !== 'string' || typeof server !== 'string') return undefined;
  if (!Object.keys(NOTHING_IMPORTED).every((name) => isCount(progress[name]))) return undefined;
  return { identity, server, progress: progress as unknown as ImportProgress };
}

function isCount(value: unknown): boolean {
  return Number.isSafeInteger(value) && Number(value) >= 0;
}

/** What was JSON stays the bytes that it was; anything else becomes a text. */
function rejectedLine({ number, reason, bytes, isJson }: BadLine): string {
  const text = bytes.toString('utf8');
  const sent = isJson ? `"user":${text.trim()}` : `"text":${JSON.stringify(text)}`;
  return `{"line":${number},"reason":${JSON.stringify(reason)},${sent}}`;
}
