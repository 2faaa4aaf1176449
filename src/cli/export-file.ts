/**
 * The file of an export while it is being written: `FILE.part`, and next to it `FILE.part.state`, which records how
 * much of it is synced, where to continue in the store, and the options. An interrupted export continues from there
 * when it is run with the same options. The file gets its name only when it is complete.
 */

import {
  closeSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import { OperatorError } from '../errors.ts';
import { isObject, type JsonObject } from '../validation/shape.ts';

/** How much work a crash may cost: whichever comes first. */
const CHECKPOINT_BYTES = 32 * 1_024 * 1_024;
const CHECKPOINT_MS = 2_000;

/** The options as typed, and what is masked: the partial file of another export is not continued. */
export type RequestedExport = Readonly<Record<string, string | null>>;

export interface Checkpoint {
  /** Where to continue in the store. */
  readonly cursor: string;
  readonly rows: number;
  /** Bytes of `FILE.part` that are synced. */
  readonly bytes: number;
  /** Times that were relative when the export began. */
  readonly from: number | null;
  readonly to: number | null;
}

export function partOf(file: string): string {
  return `${file}.part`;
}

/** What an earlier run of the same export left; undefined if nothing. Throws if it was another export. */
export function readCheckpoint(file: string, asked: RequestedExport): Checkpoint | undefined {
  const stateFile = `${partOf(file)}.state`;
  let text: string;
  try {
    text = readFileSync(stateFile, 'utf8');
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

export class PartFile {
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
    this.#descriptor = openSync(part, checkpoint === undefined ? 'wx' : 'r+', 0o600);
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
    for (let at = 0; at < bytes.length; )
      at += writeSync(this.#descriptor, bytes, at, bytes.length - at, this.#bytes + at);
    this.#bytes += bytes.length;
  }

  /** Called between pages; syncs at the first, now and then, and when the command is to stop. */
  reach(place: Omit<Checkpoint, 'bytes'>, now: number, isStopping: boolean): void {
    const isDue = now - this.#syncedAt >= CHECKPOINT_MS || this.#bytes - this.#syncedBytes >= CHECKPOINT_BYTES;
    if (!isDue && !isStopping) return;
    fsyncSync(this.#descriptor);
    const stateFile = `${partOf(this.#file)}.state`;
    const state = { asked: this.#asked, checkpoint: { ...place, bytes: this.#bytes } };
    writeFileSync(`${stateFile}.new`, `${JSON.stringify(state)}\n`, { mode: 0o600, flush: true });
    renameSync(`${stateFile}.new`, stateFile);
    this.#syncedBytes = this.#bytes;
    this.#syncedAt = now;
  }

  /** It is whole: gives it its name. */
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
export function removePart(file: string): void {
  // The state first: without it the part is not continued.
  rmSync(`${partOf(file)}.state`, { force: true });
  rmSync(partOf(file), { force: true });
}

/** From `FILE.part` to `FILE`. */
export function finishPart(file: string): void {
  renameSync(partOf(file), file);
  rmSync(`${partOf(file)}.state`, { force: true });
}

function parse(text: string): { asked: JsonObject; checkpoint: Checkpoint } | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!isObject(value) || !isObject(value['asked']) || !isObject(value['checkpoint'])) return undefined;
  const { cursor, rows, bytes, from, to } = value['checkpoint'];
  if (typeof cursor !== 'string' || typeof rows !== 'number' || typeof bytes !== 'number') return undefined;
  if (!isNumberOrNull(from) || !isNumberOrNull(to)) return undefined;
  return { asked: value['asked'], checkpoint: { cursor, rows, bytes, from, to } };
}

function isNumberOrNull(value: unknown): value is number | null {
  return value === null || typeof value === 'number';
}
