/**
 * Checks that a write-ahead log belongs to the database file next to it. SQLite does not: it applies any write-ahead
 * log that is consistent in itself, so a file restored without its own is silently mixed with pages of another moment.
 *
 * Every commit therefore sets a mark in the header of the file (`application_id`, on page 1): 12 random bits, and 20
 * bits of the hash of the previous mark. A checkpoint copies page 1 with the others. So the mark in the file is either
 * the predecessor of the first mark in its write-ahead log, or one of the marks in it. In any other pair, the two files
 * are from different moments. A wrong pair passes with a probability of one in a million; a matching pair always
 * passes. Files without marks pass.
 */

import { createHash, randomInt } from 'node:crypto';
import { closeSync, openSync, readSync } from 'node:fs';
import { DatabaseSync, type DatabaseSyncOptions } from 'node:sqlite';
import { pathToFileURL } from 'node:url';

const HASH_BITS = 20;
const HASH_MASK = 2 ** HASH_BITS - 1;
const RANDOM_END = 2 ** (32 - HASH_BITS);

/** https://sqlite.org/fileformat2.html#walformat. All numbers are big-endian. */
const WAL_HEADER_BYTES = 32;
const FRAME_HEADER_BYTES = 24;
const MARK_AT = 68;
/** If a file changes between two reads, another process is writing it, and that one has checked it. */
const ATTEMPTS_MAX = 10;

/** Call it within each write transaction, before its COMMIT. */
export function markCommit(database: DatabaseSync): void {
  database.exec(`PRAGMA application_id = ${markAfter(markIn(database))}`);
}

/** Call it before SQLite opens the file: opening merges the two. Takes no lock. */
export function isWalOfAnother(file: string): boolean {
  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt += 1) {
    const mark = readMark(file);
    const wal = readWal(file, mark);
    if (wal.belongs) return false;
    // A checkpoint between the two reads, or a restarted write-ahead log, only looks like a wrong pair.
    if (readMark(file) === mark && readWal(file, mark).salts === wal.salts) return true;
  }
  return false;
}

function markAfter(mark: number): number {
  return (randomInt(RANDOM_END) << HASH_BITS) | hashOf(mark) | 0;
}

function hashOf(mark: number): number {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(mark);
  return createHash('sha256').update(bytes).digest().readUInt32BE(0) & HASH_MASK;
}

/** Reads the file alone: nothing is created next to it, and a write-ahead log is ignored. */
export function openImmutable(file: string, options: DatabaseSyncOptions = {}): DatabaseSync {
  const url = pathToFileURL(file);
  url.searchParams.set('immutable', '1');
  return new DatabaseSync(url, { ...options, readOnly: true });
}

function readMark(file: string): number {
  // Not `openSync`: closing its descriptor would drop the locks that connections of this process have.
  using database = openImmutable(file, { defensive: false });
  // A checkpoint writes page 1 first, so the file may be shorter than page 1 says. With this pragma SQLite reads it
  // anyway.
  database.exec('PRAGMA writable_schema = ON');
  return markIn(database);
}

function markIn(database: DatabaseSync): number {
  return Number(database.prepare('PRAGMA application_id').get()?.['application_id']);
}

interface Wal {
  readonly belongs: boolean;
  /** They change each time the write-ahead log restarts. */
  readonly salts: string;
}

/** Scans the marks in it, up to the one that proves that it belongs to a file with `mark`. */
function readWal(file: string, mark: number): Wal {
  let descriptor: number;
  try {
    descriptor = openSync(`${file}-wal`, 'r');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return { belongs: true, salts: '' };
    throw error;
  }
  try {
    const header = Buffer.alloc(WAL_HEADER_BYTES);
    if (readSync(descriptor, header, 0, WAL_HEADER_BYTES, 0) < WAL_HEADER_BYTES) return { belongs: true, salts: '' };
    const salts = header.toString('hex', 16, 24);
    const frameBytes = FRAME_HEADER_BYTES + header.readUInt32BE(8);
    const start = Buffer.alloc(FRAME_HEADER_BYTES + MARK_AT + 4);
    let isFirst = true;
    for (let at = WAL_HEADER_BYTES; ; at += frameBytes) {
      if (readSync(descriptor, start, 0, start.byteLength, at) < start.byteLength) break;
      if (start.toString('hex', 8, 16) !== salts) break;
      if (start.readUInt32BE(0) !== 1) continue;
      const found = start.readInt32BE(FRAME_HEADER_BYTES + MARK_AT);
      if (found === mark || (isFirst && (found & HASH_MASK) === hashOf(mark))) return { belongs: true, salts };
      isFirst = false;
    }
    return { belongs: isFirst, salts };
  } finally {
    closeSync(descriptor);
  }
}
