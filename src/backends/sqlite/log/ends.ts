/**
 * `log-ends`, a small text file beside the folder of the log, with one line:
 *
 * - the position after the last acknowledged record
 * - the position after the running commit
 * - the segment of the last acknowledged record: its first position and its id
 * - the name of the log, under which a removed log is recreated
 *
 * A writer updates the second position before each commit, and the whole line after the commit and before the 202, both
 * without a sync of their own. So after kill -9 the log ends between the two positions. A log that ends before the
 * first has lost acknowledged records, for whatever reason: a segment moved away, a truncated write-ahead log,
 * yesterday's `log/`. If a log ends after the second, `log-ends` is outdated (a restored copy, or the remains of an
 * unsynced file after a power loss) and says nothing about the end (`end-of-log.ts`).
 *
 * If the file is removed or replaced, the writer recreates it; if it cannot, it acknowledges nothing more, and its error
 * names the file.
 */

import { closeSync, mkdirSync, openSync, readFileSync, writeSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { inaccessibleText } from '../../../data-folder/access.ts';
import { FileIdentity } from '../../../data-folder/file-identity.ts';
import { LogUnavailableError } from '../../../log.ts';
import { isAccessDenied, isOutOfFiles } from '../disk.ts';
import { readIfThere, type SegmentId } from './segments.ts';

const DIGITS = 16;
/** Length of a UUID. */
const NAME_BYTES = 36;
const LINE_BYTES = 4 * (DIGITS + 1) + NAME_BYTES + 1;
/** Offset of the second number in a line. */
const NEXT_OFFSET = DIGITS + 1;
const LINE = /^(\d{16}) (\d{16}) (\d{16}) ([0-9a-f]{16}) ([0-9a-f-]{36})\n$/;
const LOCAL = 'local:';
/** For an end without a segment that has records; no segment begins at 0. */
export const NO_SEGMENT: SegmentId = { position: 0, id: '0'.repeat(DIGITS) };

/** The recorded end of a log. */
export interface LogEndNote {
  /** The position after the last acknowledged record. */
  readonly position: number;
  /** The position after the last record that can be in the log: that of the running commit. */
  readonly next: number;
  /** The segment of the last acknowledged record. */
  readonly segment: SegmentId;
  /** The log that the end belongs to. */
  readonly logName: string;
}

export class LogEnds {
  readonly #file: string;
  readonly #logName: string;
  #descriptor: number;
  #identity: FileIdentity;
  /** As in the file. */
  #line: string;

  /** Without a line so far, everything before `first` counts as acknowledged. */
  constructor(folder: string, logName: string, first: number) {
    this.#file = endsFileOf(folder);
    const note = readLogEndNote(folder);
    this.#logName = logName;
    const { position, segment, next } = note ?? { position: first, segment: NO_SEGMENT, next: first };
    this.#line = lineOf({ position, next, segment, logName });
    this.#descriptor = openForUpdate(this.#file);
    this.#identity = new FileIdentity(this.#file);
    if (note === undefined) this.#write(this.#line);
  }

  /** Call it before the commit that extends the log to `next`. */
  announce(next: number): void {
    this.#write(digitsOf(next), NEXT_OFFSET);
  }

  /** Call it after the commit, and before anything in it is acknowledged. */
  write(position: number, segment: SegmentId): void {
    this.#line = lineOf({ position, next: position, segment, logName: this.#logName });
    if (!this.remake()) this.#write(this.#line);
  }

  /** Recreates the file if it was removed or replaced. Returns whether it was. */
  remake(): boolean {
    if (this.#identity.isSame()) return false;
    const before = this.#descriptor;
    this.#descriptor = inWords(this.#file, () => openForUpdate(this.#file));
    // Closed only now: the operating system soon reuses the descriptor of a closed file.
    closeSync(before);
    this.#identity = new FileIdentity(this.#file);
    this.#write(this.#line);
    return true;
  }

  #write(text: string, at = 0): void {
    inWords(this.#file, () => writeSync(this.#descriptor, text, at, 'latin1'));
  }

  close(): void {
    closeSync(this.#descriptor);
  }
}

/** The position after the last acknowledged record; 0 without one. Creates no file. */
export function readLogEnd(folder: string): number {
  return readLogEndNote(folder)?.position ?? 0;
}

/** The same for a running server; 0 also where the file may not be read, which `problemOfLogEnds` reports. */
export function findLogEnd(folder: string): number {
  try {
    return readLogEnd(folder);
  } catch (error) {
    if (isAccessDenied(error)) return 0;
    throw error;
  }
}

/** Why it cannot be read, in words with what to do; null where it can, and where there is none. */
export function problemOfLogEnds(folder: string): string | null {
  try {
    readLogEndNote(folder);
    return null;
  } catch (error) {
    if (!isAccessDenied(error)) return null;
    return `${inaccessibleText(endsFileOf(folder), error as Error)} Until then it is not known whether the log has lost its end.`;
  }
}

/** Undefined without a readable one. */
export function readLogEndNote(folder: string): LogEndNote | undefined {
  const text = readIfThere(() => readFileSync(endsFileOf(folder), 'latin1'));
  return text === undefined ? undefined : noteIn(text.slice(0, LINE_BYTES));
}

/** Not in the folder: it must survive when a log is removed, or replaced by an older copy. */
function endsFileOf(folder: string): string {
  return `${folder}-ends`;
}

function digitsOf(position: number): string {
  return String(position).padStart(DIGITS, '0');
}

function lineOf({ position, next, segment, logName }: LogEndNote): string {
  const id = logName.slice(LOCAL.length);
  return `${digitsOf(position)} ${digitsOf(next)} ${digitsOf(segment.position)} ${segment.id} ${id}\n`;
}

function noteIn(line: string): LogEndNote | undefined {
  const [, position, next, segmentPosition, id, log] = LINE.exec(line) ?? [];
  if (id === undefined || log === undefined) return undefined;
  const segment = { position: Number(segmentPosition), id };
  return { position: Number(position), next: Number(next), segment, logName: LOCAL + log };
}

/** For a running server. What passes by itself, such as a full disk, is left to the caller. */
function inWords<T>(file: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (isOutOfFiles(error)) throw error;
    throw new LogUnavailableError(
      `${resolve(file)} cannot be written: ${(error as Error).message}. It notes up to where requests were acknowledged, ` +
        'so this server ends; nothing that it acknowledged is lost. If something else is under that name, move it elsewhere. ' +
        'Make sure that the user of the server may write the file and its folder (sluice doctor checks that), then start again.',
      true,
    );
  }
}

/** Creates it if it is missing, and never truncates it. */
function openForUpdate(file: string): number {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  closeSync(openSync(file, 'a', 0o600));
  return openSync(file, 'r+');
}
