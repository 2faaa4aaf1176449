/**
 * `log-ends`, a small text file next to the folder of the log, says up to where requests are acknowledged: one line with
 * two positions, after the last acknowledged record and after the running commit (`LogEndsLine`).
 *
 * The writer writes the line before each commit, with the second position, and after the commit and before the 202, both
 * without a sync of their own. The processor reads the newest segment up to the first position: what lies behind it is
 * not synced yet. After kill -9 the log ends between the two positions. A log that ends before the first has lost
 * acknowledged records, for whatever reason: a segment moved away or cut short, yesterday's `log/`. If a log ends after
 * the second, `log-ends` is outdated (a restored copy, or the remains of an unsynced file after a power loss) and says
 * nothing about the end. `./recovery.ts` compares the two.
 *
 * If the file is removed or replaced while a server runs, the writer recreates it; if it cannot, it acknowledges nothing
 * more, and its error names the file.
 */

import { closeSync, mkdirSync, openSync, readFileSync, writeSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { crc32 } from 'node:zlib';
import { inaccessibleText } from '../../../data-folder/access.ts';
import { FileIdentity } from '../../../data-folder/file-identity.ts';
import { LogUnavailableError } from '../../../log.ts';
import { isAccessDenied, mayPassByItself } from '../disk.ts';
import type { DurableEnd } from './segment-reader.ts';
import { readIfThere, type SegmentId } from './segments.ts';

const DIGITS = 16;
const LINE = /^((\d{16}) (\d{16}) (\d{16}) ([0-9a-f]{16}) (\d{16}) ([0-9a-f-]{36})) ([0-9a-f]{8})\n/;
/** A line that is just being written is read again. */
const ATTEMPTS_MAX = 100;
const LOCAL = 'local:';
/** For an end without a segment that has records; no segment begins at 0. */
export const NO_SEGMENT: SegmentId = { firstPosition: 0, id: '0'.repeat(DIGITS) };

/** What the line says. */
interface LogEndsLine extends DurableEnd {
  /** The position after the running commit: no record can be in the log from there on. */
  readonly next: number;
  readonly logName: string;
}

export class LogEnds {
  readonly #file: string;
  readonly #logName: string;
  #descriptor: number;
  #identity: FileIdentity;
  #end: DurableEnd;

  /** Without a line so far, everything before `first` counts as acknowledged. */
  constructor(folder: string, logName: string, first: number) {
    this.#file = endsFileOf(folder);
    const line = readLogEnds(folder);
    this.#logName = logName;
    this.#end = line ?? { position: first, segment: NO_SEGMENT, bytes: 0 };
    this.#descriptor = openForUpdate(this.#file);
    this.#identity = new FileIdentity(this.#file);
    if (line === undefined) this.#write(first);
  }

  /** For the commit that extends the log to `next`. */
  beforeCommit(next: number): void {
    this.#write(next);
  }

  /** Call it before anything in the commit is acknowledged. */
  afterCommit(end: DurableEnd): void {
    this.#end = end;
    if (!this.recreateIfReplaced()) this.#write(end.position);
  }

  /** Also if it was removed. Returns whether it did. */
  recreateIfReplaced(): boolean {
    if (this.#identity.isSame()) return false;
    const before = this.#descriptor;
    this.#descriptor = withOperatorMessage(this.#file, () => openForUpdate(this.#file));
    // Closed only now: the operating system soon reuses the descriptor of a closed file.
    closeSync(before);
    this.#identity = new FileIdentity(this.#file);
    this.#write(this.#end.position);
    return true;
  }

  #write(next: number): void {
    const line = encodeLine({ ...this.#end, next, logName: this.#logName });
    withOperatorMessage(this.#file, () => writeSync(this.#descriptor, line, 0, 'latin1'));
  }

  close(): void {
    closeSync(this.#descriptor);
  }
}

/** Undefined without a readable line. */
export function readLogEnds(folder: string): LogEndsLine | undefined {
  for (let attempt = 1; attempt <= ATTEMPTS_MAX; attempt += 1) {
    const text = readIfThere(() => readFileSync(endsFileOf(folder), 'latin1'));
    if (text === undefined || !LINE.test(text)) return undefined;
    const line = decodeLine(text);
    if (line !== undefined) return line;
  }
  return undefined;
}

/** Undefined where it is not known, also because this user may not read it. */
export function findDurableEnd(folder: string): DurableEnd | undefined {
  try {
    return readLogEnds(folder);
  } catch (error) {
    if (isAccessDenied(error)) return undefined;
    throw error;
  }
}

/** The position after the last acknowledged record; 0 without one. */
export function readAcknowledgedEnd(folder: string): number {
  return readLogEnds(folder)?.position ?? 0;
}

/** Why it cannot be read, with what to do about it; null if it can be, and if there is none. */
export function problemOfLogEnds(folder: string): string | null {
  try {
    readLogEnds(folder);
    return null;
  } catch (error) {
    if (!isAccessDenied(error)) return null;
    return `${inaccessibleText(endsFileOf(folder), error as Error)} Until then it is not known whether the log has lost its end.`;
  }
}

/** Not in the folder: it must survive when a log is removed, or replaced by an older copy. */
function endsFileOf(folder: string): string {
  return `${folder}-ends`;
}

function encodeLine({ position, next, segment, bytes, logName }: LogEndsLine): string {
  const name = logName.slice(LOCAL.length);
  const line = `${pad(position)} ${pad(next)} ${pad(segment.firstPosition)} ${segment.id} ${pad(bytes)} ${name}`;
  return `${line} ${checksumOf(line)}\n`;
}

function decodeLine(text: string): LogEndsLine | undefined {
  const [, line, position, next, firstPosition, id, bytes, name, checksum] = LINE.exec(text) ?? [];
  if (line === undefined || id === undefined || name === undefined || checksumOf(line) !== checksum) return undefined;
  return {
    position: Number(position),
    next: Number(next),
    segment: { firstPosition: Number(firstPosition), id },
    bytes: Number(bytes),
    logName: LOCAL + name,
  };
}

function pad(number: number): string {
  return String(number).padStart(DIGITS, '0');
}

function checksumOf(line: string): string {
  return crc32(line).toString(16).padStart(8, '0');
}

/** For a running server. What passes by itself, such as a full disk, is left to the caller. */
function withOperatorMessage<T>(file: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (mayPassByItself(error)) throw error;
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
