/**
 * The newest record of a local log below a position: a store that has processed everything below it must have it
 * (`log/continuity.ts`). Unreadable segments are skipped.
 */

import { LogCorruptError, type LogHeader } from '../../../log.ts';
import { findLogName } from './name.ts';
import { headerBefore } from './segment-reader.ts';
import { holdsRecords, listSegments } from './segments.ts';

export function newestRecordBefore(folder: string, position: number): LogHeader | undefined {
  const segments = listSegments(folder);
  const logName = findLogName(folder);
  for (const [index, segment] of [...segments.entries()].toReversed()) {
    if (!holdsRecords(segment) || segment.firstPosition >= position) continue;
    const stretch = { segment, logName, from: segment.firstPosition, until: segments[index + 1]?.firstPosition };
    try {
      const header = headerBefore(stretch, position);
      if (header !== undefined) return header;
    } catch (error) {
      if (!(error instanceof LogCorruptError)) throw error;
    }
  }
  return undefined;
}
