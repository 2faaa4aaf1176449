/**
 * `sluice import FILE.ndjson`: one user per line, sent to a server over HTTP like any client would. Up to four requests
 * are in flight; responses are recorded in the order of the file, so that an interrupted import continues after the
 * last line before which every line has its response. Rejected lines are in a file with the reason.
 */

import { createHash } from 'node:crypto';
import {
  createReadStream,
  existsSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import { basename } from 'node:path';
import { messageOf, OperatorError } from '../errors.ts';
import { isObject } from '../validation/shape.ts';
import { readArguments } from './arguments.ts';
import { type BadLine, type Batch, batchesOf, bodyOf, type FilePosition, type Line } from './import-lines.ts';
import { sendBody, type Target, targetOf, UnsentError } from './import-send.ts';
import { countOf, formatBytes, formatSpan } from './local-time.ts';
import { Progress } from './progress.ts';
import { readRetryTimeout, readServer } from './server.ts';
import { asOperatorError, type Shell } from './shell.ts';
import { printable } from './table.ts';

const REQUESTS_IN_FLIGHT_MAX = 4;
const RETRY_TIMEOUT_DEFAULT_MS = 600_000;
const READ_BYTES = 1_024 * 1_024;
const PREFIX_BYTES = 65_536;
const TOO_LARGE = 413;

type Options = Awaited<ReturnType<typeof readOptions>>;

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
  try {
    await sendAll(source, state, options, shell, progress);
  } catch (error) {
    if (!(error instanceof UnsentError)) throw error;
    const howToGoOn =
      source.file === null
        ? 'If you send all again within 24 hours, they are stored once.'
        : 'To continue from there, run the same command again.';
    throw new OperatorError(`${error.message}\nLines up to ${state.progress.lines} were sent. ${howToGoOn}`);
  } finally {
    progress.end();
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
  else if (file !== '-' && !existsSync(file)) mistakes.push(`there is no file ${file}`);
  flags.refuse(others, 'files are imported one at a time');
  const timeoutMs = readRetryTimeout(flags, RETRY_TIMEOUT_DEFAULT_MS);
  const server = await readServer(flags, shell);
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
): Promise<void> {
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
  const underWay: { readonly batch: Batch; readonly sent: Promise<readonly BadLine[]> }[] = [];
  const recordOldest = async (): Promise<void> => {
    const oldest = underWay.shift();
    if (oldest === undefined) return;
    const { batch } = oldest;
    const refused = await oldest.sent;
    const rejected = [...batch.badLines, ...refused].sort((a, b) => a.number - b.number);
    state.advance(batch.next, batch.lines.length - refused.length, rejected);
    show();
  };
  const chunks =
    options.file === null
      ? shell.stdin
      : createReadStream(options.file, { start: state.progress.offset, highWaterMark: READ_BYTES });
  try {
    for await (const batch of batchesOf(chunks, state.progress)) {
      const sent = sendLines(batch.lines, source, target);
      // Thrown when it is recorded.
      sent.catch(() => undefined);
      underWay.push({ batch, sent });
      if (underWay.length >= REQUESTS_IN_FLIGHT_MAX) await recordOldest();
      if (shell.stop.aborted) break;
    }
    while (underWay.length > 0) await recordOldest();
    if (shell.stop.aborted) throw new UnsentError('Stopped.');
  } finally {
    callOff.abort();
    await Promise.allSettled(underWay.map(({ sent }) => sent));
  }
}

/** The lines that were rejected. A proxy may allow less than Sluice does: what is too large goes in halves. */
async function sendLines(lines: readonly Line[], source: ImportSource, target: Target): Promise<readonly BadLine[]> {
  const [first, last] = [lines[0], lines.at(-1)];
  if (first === undefined || last === undefined) return [];
  const body = bodyOf(lines);
  const sent = await sendBody(body, idempotencyKeyOf(source, first.number, last.number, body), target);
  if (sent.status === TOO_LARGE && first !== last) {
    const middle = Math.ceil(lines.length / 2);
    return [
      ...(await sendLines(lines.slice(0, middle), source, target)),
      ...(await sendLines(lines.slice(middle), source, target)),
    ];
  }
  const { refusal } = sent;
  if (refusal !== null) return lines.map((line) => ({ ...line, reason: refusal, isJson: true }));
  return sent.rejected.flatMap(({ userIndex, message }) => {
    const line = lines[userIndex];
    return line === undefined ? [] : [{ ...line, reason: message, isJson: true }];
  });
}

function summary(source: ImportSource, state: ImportState, json: boolean, tookMs: number): string {
  const { usersAccepted, usersRejected, lines, offset } = state.progress;
  const rejectedFile = usersRejected === 0 ? null : rejectedFileOf(source);
  if (json) {
    const counts = { users_accepted: usersAccepted, users_rejected: usersRejected, lines, bytes: offset };
    return `${JSON.stringify({ ...counts, rejected_file: rejectedFile })}\n`;
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
  #isCut = false;

  /** `restart` ignores the progress of an earlier import. */
  constructor(source: ImportSource, server: string, restart: boolean) {
    this.#source = source;
    this.#server = server;
    if (restart) this.remove();
    const found = this.#read() ?? NOTHING_IMPORTED;
    const size = statSync(rejectedFileOf(source), { throwIfNoEntry: false })?.size ?? 0;
    // The file may have been removed meanwhile; the import continues nevertheless.
    this.progress = { ...found, rejectedBytes: Math.min(found.rejectedBytes, size) };
  }

  get #file(): string {
    return `${this.#source.file}.import`;
  }

  /** Records a batch that has its response; the one before it must be recorded already. */
  advance(next: FilePosition, usersAccepted: number, rejected: readonly BadLine[]): void {
    const before = this.progress;
    this.#cutRejected();
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
    writeFileSync(`${this.#file}.new`, `${JSON.stringify(state)}\n`, { mode: 0o600, flush: true });
    renameSync(`${this.#file}.new`, this.#file);
  }

  /**
   * Removes what an earlier import left behind the recorded part. Not before something was sent: a person may be fixing
   * the file, and an import with a wrong key must not remove it.
   */
  #cutRejected(): void {
    if (this.#isCut) return;
    this.#isCut = true;
    const rejectedFile = rejectedFileOf(this.#source);
    if (this.progress.rejectedBytes === 0) rmSync(rejectedFile, { force: true });
    else truncateSync(rejectedFile, this.progress.rejectedBytes);
  }

  /** The next import of the file begins at its first line. */
  remove(): void {
    if (this.#source.file !== null) rmSync(this.#file, { force: true });
  }

  #read(): ImportProgress | undefined {
    if (this.#source.file === null) return undefined;
    if (!existsSync(this.#file)) return undefined;
    const state = stateIn(readFileSync(this.#file, 'utf8'));
    if (state === undefined) throw this.#damaged();
    const { identity, server, ...progress } = state;
    if (identity !== this.#source.identity) {
      throw new OperatorError(
        `${this.#source.file} has changed since its import was interrupted at line ${progress.lines}. ` +
          'To import it from the beginning: --restart (what is unchanged may then be stored twice)',
      );
    }
    if (progress.offset > (this.#source.bytes ?? 0)) throw this.#damaged();
    if (server !== this.#server) {
      throw new OperatorError(
        `The interrupted import of ${this.#source.file} went to ${server}. Give that address with --url, ` +
          'or import from the beginning: --restart',
      );
    }
    return progress;
  }

  #damaged(): OperatorError {
    return new OperatorError(`${this.#file} is damaged. To import from the beginning: --restart`);
  }
}

/** Undefined where it is damaged. */
function stateIn(text: string): (ImportProgress & { readonly identity: string; readonly server: string }) | undefined {
  let state: unknown;
  try {
    state = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!isObject(state) || typeof state.identity !== 'string' || typeof state.server !== 'string') return undefined;
  const isWhole = Object.keys(NOTHING_IMPORTED).every((name) => isCount(state[name]));
  return isWhole ? (state as unknown as ReturnType<typeof stateIn>) : undefined;
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
