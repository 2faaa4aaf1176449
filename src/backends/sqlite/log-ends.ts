/**
 * `log-ends`, a small text file beside the folder of the log. It holds, for each partition, the position after the last
 * acknowledged record: one line of 16 digits a partition. A writer updates its line after each commit and before the 202, without a sync of its
 * own. So the file is never ahead of what was committed, and survives kill -9; after a power loss it may be older. A
 * start that finds the log ending before it knows that acknowledged records are gone, however that came about: a
 * segment moved away, a write-ahead log cut short, a `log/` of yesterday.
 */

import { closeSync, fstatSync, ftruncateSync, mkdirSync, openSync, readFileSync, readSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';
import { LogUnavailableError } from '../../log.ts';
import { isOutOfFiles } from './disk.ts';

const DIGITS = 16;
const LINE_BYTES = DIGITS + 1;
const LINE = /^\d{16}\n$/;

export class LogEnds {
  readonly #descriptor: number;
  readonly #offset: number;

  /** One writer a partition; several may have the file open. */
  constructor(folder: string, partition: number) {
    this.#descriptor = openForUpdate(endsFileOf(folder));
    this.#offset = partition * LINE_BYTES;
    const end = this.#offset + LINE_BYTES;
    if (fstatSync(this.#descriptor).size < end) ftruncateSync(this.#descriptor, end);
  }

  /** The position after the last acknowledged record; 0 where nothing is known. */
  read(): number {
    const line = Buffer.alloc(LINE_BYTES);
    readSync(this.#descriptor, line, 0, LINE_BYTES, this.#offset);
    return positionIn(line.toString('latin1'));
  }

  write(position: number): void {
    writeSync(this.#descriptor, `${String(position).padStart(DIGITS, '0')}\n`, this.#offset, 'latin1');
  }

  close(): void {
    closeSync(this.#descriptor);
  }
}

/** As `LogEnds.read`, beside the writers. Makes no file. */
export function readLogEnd(folder: string, partition: number): number {
  return readLogEnds(folder)[partition] ?? 0;
}

/** Of all partitions, in order; none where there is no file. */
export function readLogEnds(folder: string): number[] {
  let text: string;
  try {
    text = readFileSync(endsFileOf(folder), 'latin1');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    if (isOutOfFiles(error)) throw new LogUnavailableError(`The log cannot be read now: ${(error as Error).message}.`);
    throw error;
  }
  const partitions = Math.floor(text.length / LINE_BYTES);
  return Array.from({ length: partitions }, (_, partition) =>
    positionIn(text.slice(partition * LINE_BYTES, (partition + 1) * LINE_BYTES)),
  );
}

/** Not in the folder: a log that is removed, or replaced by an older copy, must not take it along. */
function endsFileOf(folder: string): string {
  return `${folder}-ends`;
}

function positionIn(line: string): number {
  return LINE.test(line) ? Number(line) : 0;
}

/** Made if it is missing, and never emptied. */
function openForUpdate(file: string): number {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  closeSync(openSync(file, 'a', 0o600));
  return openSync(file, 'r+');
}
