/**
 * The segment that a writer has open. An operating system lets any process move or remove an open file:
 * the writer then commits to a file that no start finds, without an error. So after each commit and before anything in
 * it is acknowledged, the writer checks that both files are still the ones under their names: the database, and the
 * write-ahead log of the commit. The names are those that a start uses, so a link on the way that was pointed elsewhere
 * is noticed, too. Content that was overwritten in place is not noticed.
 */

import { resolve } from 'node:path';
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { identityOf } from '../../../data-folder/file-identity.ts';
import { LogUnavailableError } from '../../../log.ts';
import { localLogName } from './name.ts';
import { createSegment, newSegmentId, segmentFile, type SegmentId } from './segments.ts';

export class OpenSegment {
  readonly database: DatabaseSync;
  readonly id: SegmentId;
  readonly insert: StatementSync;
  /** Without links, as SQLite has opened it. */
  readonly file: string;
  readonly #identities: readonly (readonly [file: string, identity: string])[];

  /** A new one, which begins at `position`. */
  constructor(folder: string, position: number, previous: SegmentId | undefined) {
    this.id = newSegmentId(position);
    this.database = createSegment(folder, { ...this.id, logName: localLogName(folder), previous });
    this.insert = this.database.prepare('INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)');
    this.file = this.database.location() ?? '';
    const name = segmentFile(folder, position);
    // It has its first commit, so both exist.
    this.#identities = ['', '-wal'].map((suffix) => [name + suffix, identityOf(this.file + suffix)]);
  }

  /** Two `stat`s. Also throws if they fail. */
  assertInPlace(): void {
    for (const [file, identity] of this.#identities) {
      if (identity === '' || identityOf(file) !== identity) throw notInPlace(file);
    }
  }
}

function notInPlace(file: string): LogUnavailableError {
  return new LogUnavailableError(
    `${resolve(file)} was moved, removed or replaced while this server was writing to it, or a link on the way to it was pointed elsewhere, ` +
      'so a restart would not find what is written now. This server ends. Requests that it acknowledged before may be in ' +
      'that file: put it back in its place, beside the files that are there, or the link, then start the server. If it is gone, start the server: it reports acknowledged requests ' +
      'that are missing.',
    true,
  );
}
