/**
 * `log-ends`, a small text file beside the folder of the log. It holds one line for each partition: the position after the
 * last acknowledged record; the position after the commit under way; the first position and the id of the segment that the
 * last acknowledged record is in; the name of the log, which a log that was removed is made again under. A writer updates
 * the second number before each commit, and the line after it and before the 202, both without a sync of their own. So kill -9 leaves a log that ends between the two numbers. A log that ends
 * before the first has lost acknowledged records, however that came about: a segment moved away, a write-ahead log cut
 * short, a `log/` of yesterday. A log that ends behind the second has a `log-ends` of an earlier time: a copy that was put
 * back, or what a power loss left of a file that is never synced. It then says nothing about the end (`end-of-log.ts`). A
 * writer whose file was removed or replaced makes it again with its own line.
 */

import { closeSync, mkdirSync, openSync, readFileSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';
import { FileIdentity } from '../../../data-folder/file-identity.ts';
import { LogUnavailableError } from '../../../log.ts';
import { isOutOfFiles } from '../disk.ts';

/** A segment, as other files refer to it: its first position and a random id. */
export interface SegmentId {
  readonly position: number;
  readonly id: string;
}

const DIGITS = 16;
/** Of a UUID. */
const NAME_BYTES = 36;
const LINE_BYTES = 4 * (DIGITS + 1) + NAME_BYTES + 1;
/** Of the second number in a line. */
const NEXT_OFFSET = DIGITS + 1;
const LINE = /^(\d{16}) (\d{16}) (\d{16}) ([0-9a-f]{16}) ([0-9a-f-]{36})\n$/;
const LOCAL = 'local:';
/** Of an end behind which no segment with records is known; no segment begins at 0. */
export const NO_SEGMENT: SegmentId = { position: 0, id: '0'.repeat(DIGITS) };

/** What is known of the end of a partition. */
export interface LogEndNote {
  /** The position after the last acknowledged record. */
  readonly position: number;
  /** The position after the last record that can be in the log: of the commit that was under way. */
  readonly next: number;
  /** The one that the last acknowledged record is in. */
  readonly segment: SegmentId;
  /** The log that it is of. */
  readonly logName: string;
}

export class LogEnds {
  readonly #file: string;
  readonly #offset: number;
  readonly #logName: string;
  #descriptor: number;
  #identity: FileIdentity;
  /** As in the file. */
  #line: string;

  /** One writer a partition; several may have the file open. Where nothing is known yet, nothing is acknowledged from `first` on. */
  constructor(folder: string, logName: string, partition: number, first: number) {
    this.#file = endsFileOf(folder);
    this.#offset = partition * LINE_BYTES;
    const note = readLogEndNote(folder, partition);
    this.#logName = logName;
    const { position, segment, next } = note ?? { position: first, segment: NO_SEGMENT, next: first };
    this.#line = lineOf({ position, next, segment, logName });
    this.#descriptor = openForUpdate(this.#file);
    this.#identity = new FileIdentity(this.#file);
    if (note === undefined) this.#write(this.#line);
  }

  /** Before the commit that takes the log up to `next`. */
  announce(next: number): void {
    this.#write(digitsOf(next), NEXT_OFFSET);
  }

  /** After the commit, and before anything in it is acknowledged. */
  write(position: number, segment: SegmentId): void {
    this.#line = lineOf({ position, next: position, segment, logName: this.#logName });
    if (!this.remake()) this.#write(this.#line);
  }

  /** Makes the file again, with the line of this partition, if it was removed or replaced. Returns whether it was. */
  remake(): boolean {
    if (this.#identity.isSame()) return false;
    closeSync(this.#descriptor);
    this.#descriptor = openForUpdate(this.#file);
    this.#identity = new FileIdentity(this.#file);
    this.#write(this.#line);
    return true;
  }

  #write(text: string, at = 0): void {
    writeSync(this.#descriptor, text, this.#offset + at, 'latin1');
  }

  close(): void {
    closeSync(this.#descriptor);
  }
}

/** The position after the last acknowledged record; 0 where nothing is known. Makes no file. */
export function readLogEnd(folder: string, partition: number): number {
  return readLogEndNote(folder, partition)?.position ?? 0;
}

/** Of all partitions, in order; none where there is no file. */
export function readLogEnds(folder: string): number[] {
  const partitions = Math.floor((readEnds(folder)?.length ?? 0) / LINE_BYTES);
  return Array.from({ length: partitions }, (_, partition) => readLogEnd(folder, partition));
}

/** Undefined where nothing is known. */
export function readLogEndNote(folder: string, partition: number): LogEndNote | undefined {
  const text = readEnds(folder);
  return text === undefined ? undefined : noteIn(text.slice(partition * LINE_BYTES, (partition + 1) * LINE_BYTES));
}

/** The logs that its lines are of; one, unless files of several were mixed. */
export function logNamesInEnds(folder: string): string[] {
  const names = readLogEnds(folder).map((_, partition) => readLogEndNote(folder, partition)?.logName);
  return [...new Set(names.filter((name) => name !== undefined))];
}

/** Undefined where there is no file. */
function readEnds(folder: string): string | undefined {
  try {
    return readFileSync(endsFileOf(folder), 'latin1');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    if (isOutOfFiles(error)) throw new LogUnavailableError(`The log cannot be read now: ${(error as Error).message}.`);
    throw error;
  }
}

/** Not in the folder: a log that is removed, or replaced by an older copy, must not take it along. */
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

/** Made if it is missing, and never emptied. */
function openForUpdate(file: string): number {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  closeSync(openSync(file, 'a', 0o600));
  return openSync(file, 'r+');
}
