/**
 * Notes on the users of a record, beyond what follows from its stored events: which were rejected, merged or got a
 * warning. Stored as JSON, only where there is something to note. Every store writes the same text.
 */

import type { ForeignFormat } from '../model.ts';
import type { Resubmission } from '../store.ts';
import type { RecordToStore, UserNote } from '../store-writer.ts';

/** What `records.notes` holds, as JSON; absent members mean "none". */
export interface RecordNotes {
  /** As `UserNote` in store-writer.ts, in order of userIndex. */
  readonly users?: readonly UserNote[];
  /** Format of the request, if not our own. */
  readonly format?: ForeignFormat;
  readonly rejected?: readonly (readonly [userIndex: number, message: string])[];
  /** Set if the record holds a resubmitted user. */
  readonly resubmitted?: Resubmission;
}

/** Null when there is nothing to note. */
export function notesOf({ header: { format, resubmitted }, notes, rejections }: RecordToStore): string | null {
  const isPlain = format === undefined && resubmitted === undefined;
  if (notes.length === 0 && rejections.length === 0 && isPlain) return null;
  const kept: RecordNotes = {
    ...(notes.length > 0 && { users: notes }),
    ...(format !== undefined && { format }),
    ...(resubmitted !== undefined && { resubmitted }),
    ...(rejections.length > 0 && { rejected: rejections.map(({ userIndex, message }) => [userIndex, message]) }),
  };
  return JSON.stringify(kept);
}
