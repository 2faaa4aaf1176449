/**
 * `log-ends`, a small text file beside the folder of the log. It holds, for each partition, the position after the last
 * acknowledged record, and the first position and the id of the segment that it is in: one line of 16 digits each a
 * partition. A writer updates its line after each commit and before the 202, without a sync of its own. So the file is
 * never ahead of what was committed, and survives kill -9; after a power loss it may be older. A writer whose file was
 * removed or replaced makes it again with its own line. A
 * start that finds the log ending before it knows that acknowledged records are gone, however that came about: a
 * segment moved away, a write-ahead log cut short, a `log/` of yesterday.
 */

import { closeSync, fstatSync, ftruncateSync, mkdirSync, openSync, readFileSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';
import { FileIdentity } from '../../../file-identity.ts';
import { LogUnavailableError } from '../../../log.ts';
import { isOutOfFiles } from '../disk.ts';
import type { SegmentId } from './segments.ts';

const DIGITS = 16;
const LINE_BYTES = 3 * (DIGITS + 1);
const LINE = /^(\d{16}) (\d{16}) ([0-9a-f]{16})\n$/;

/** What is known of the end of a partition. */
export interface LogEndNote {
  /** The position after the last acknowledged record. */
  readonly position: number;
  /** Of the segment that it is in. */
  readonly segmentPosition: number;
  readonly segmentId: string;
}

export class LogEnds {
  readonly #file: string;
  readonly #offset: number;
  #descriptor: number;
  #identity: FileIdentity;
  /** As in the file; undefined where that has none that can be read. */
  #line: string | undefined;

  /** One writer a partition; several may have the file open. */
  constructor(folder: string, partition: number) {
    this.#file = endsFileOf(folder);
    this.#offset = partition * LINE_BYTES;
    const note = readLogEndNote(folder, partition);
    this.#line = note && lineOf(note.position, { position: note.segmentPosition, id: note.segmentId });
    this.#descriptor = openForUpdate(this.#file, this.#offset + LINE_BYTES);
    this.#identity = new FileIdentity(this.#file);
  }

  write(position: number, segment: SegmentId): void {
    this.#line = lineOf(position, segment);
    if (!this.remake()) writeSync(this.#descriptor, this.#line, this.#offset, 'latin1');
  }

  /** Makes the file again, with the line of this partition, if it was removed or replaced. Returns whether it was. */
  remake(): boolean {
    if (this.#identity.isSame()) return false;
    closeSync(this.#descriptor);
    this.#descriptor = openForUpdate(this.#file, this.#offset + LINE_BYTES);
    this.#identity = new FileIdentity(this.#file);
    if (this.#line !== undefined) writeSync(this.#descriptor, this.#line, this.#offset, 'latin1');
    return true;
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

function lineOf(position: number, segment: SegmentId): string {
  return `${digitsOf(position)} ${digitsOf(segment.position)} ${segment.id}\n`;
}

function noteIn(line: string): LogEndNote | undefined {
  const [, position, segmentPosition, segmentId] = LINE.exec(line) ?? [];
  if (segmentId === undefined) return undefined;
  return { position: Number(position), segmentPosition: Number(segmentPosition), segmentId };
}

/** Made if it is missing, and never emptied; at least so long. */
function openForUpdate(file: string, bytes: number): number {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  closeSync(openSync(file, 'a', 0o600));
  const descriptor = openSync(file, 'r+');
  if (fstatSync(descriptor).size < bytes) ftruncateSync(descriptor, bytes);
  return descriptor;
}
