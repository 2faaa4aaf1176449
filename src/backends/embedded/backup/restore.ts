/**
 * The first steps after a restore: notes the end of the log, which no backup has, and skips event numbers that the lost
 * store may have given. Runs before the first server starts on the folder.
 */

import { logFolderOf, storeFileOf } from '../../../data-folder/files.ts';
import { rewriteLogEnds } from '../log/recovery.ts';
import { skipNumbersAfterRestore } from '../store/starts.ts';

export function prepareRestored(folder: string, now: number): void {
  skipNumbersAfterRestore(storeFileOf(folder), now);
  rewriteLogEnds(logFolderOf(folder));
}
