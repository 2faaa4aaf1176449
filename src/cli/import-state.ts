/**
 * The progress of an import, next to the file: `FILE.import` has the position up to which every line has a response,
 * and `FILE.rejected.ndjson` has the rejected lines. Both cover only the acknowledged part of the file, so after a
 * crash at any moment the import continues from there, and no rejected line is written twice.
 */

import { createHash } from 'node:crypto';
import {
  closeSync,
  fstatSync,
  openSync,
  readFileSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { messageOf, OperatorError } from '../errors.ts';
import { isObject } from '../validation/shape.ts';
import type { BadLine, FilePosition } from './import-lines.ts';

const PREFIX_BYTES = 65_536;

interface ImportProgress extends FilePosition {
  readonly usersAccepted: number;
  readonly usersRejected: number;
  readonly rejectedBytes: number;
}

const NOTHING_IMPORTED: ImportProgress = { offset: 0, lines: 0, usersAccepted: 0, usersRejected: 0, rejectedBytes: 0 };

export interface ImportSource {
  /** Null for stdin, which cannot be read again. */
  readonly file: string | null;
  /** The same for the same content, wherever the file is; new for every stdin. */
  readonly identity: string;
  /** Null when unknown. */
  readonly bytes: number | null;
}

/** The identity of a file is its size and first 64 kB: enough to notice that it is not the one it was. Of stdin nothing is known. */
export function identify(file: string | null): ImportSource {
  if (file === null) return { file, identity: 'stdin', bytes: null };
  try {
    const descriptor = openSync(file, 'r');
    try {
      const stat = fstatSync(descriptor);
      if (stat.isDirectory()) throw new OperatorError(`${file} is a folder; expected a file of one user a line.`);
      const prefix = Buffer.alloc(PREFIX_BYTES);
      const read = readSync(descriptor, prefix, 0, PREFIX_BYTES, 0);
      const hash = createHash('sha256').update(`${stat.size}\n`).update(prefix.subarray(0, read));
      return { file, identity: hash.digest('hex'), bytes: stat.size };
    } finally {
      closeSync(descriptor);
    }
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    throw new OperatorError(`${file} cannot be read: ${messageOf(error)}.`);
  }
}

/** Includes the bytes: a file that was fixed in the middle must not be mistaken for the old one. */
export function idempotencyKeyOf(source: ImportSource, firstLine: number, lastLine: number, body: Buffer): string {
  const hash = createHash('sha256').update(`${source.identity}\n${firstLine}\n${lastLine}\n`).update(body);
  return `import-${hash.digest('hex')}`;
}

export function rejectedFileOf(source: ImportSource): string {
  return `${source.file ?? 'stdin'}.rejected.ndjson`;
}

export class ImportState {
  readonly #source: ImportSource;
  readonly #server: string;
  progress: ImportProgress;
  /** The first rejected line of this run. */
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
