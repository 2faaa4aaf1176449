/**
 * Compresses segments that are processed: `….log` becomes `….log.zst`, a fifth of its size. They are only read again to
 * rebuild a store, so they are decompressed whole. Compression runs in Node's thread pool.
 *
 * The new file is complete and synced before it gets its name, and the old one is removed after that. While both are
 * there, the old one counts.
 */

import { createReadStream, createWriteStream, renameSync, statSync } from 'node:fs';
import { utimes } from 'node:fs/promises';
import { dirname } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { constants, createZstdCompress } from 'node:zlib';
import { syncPath } from '../../../data-folder/write-durably.ts';
import { SECOND_MS } from '../../../model.ts';
import { removeSegment, type Segment } from './segments.ts';

/** Higher levels save little more, and take several times as long. */
const LEVEL = 1;

/** The time of the new file is that of its newest record: retention goes by it. If it rejects, the segment is as it was. */
export async function compressSegment({ file }: Segment, newestReceivedAt: number): Promise<void> {
  const [target, draft] = [`${file}.zst`, `${file}.zst.draft`];
  const params = { [constants.ZSTD_c_compressionLevel]: LEVEL, [constants.ZSTD_c_checksumFlag]: 1 };
  try {
    await pipeline(
      createReadStream(file),
      createZstdCompress({ params }),
      createWriteStream(draft, { mode: 0o600, flush: true }),
    );
    await utimes(draft, newestReceivedAt / SECOND_MS, newestReceivedAt / SECOND_MS);
    renameSync(draft, target);
    syncPath(dirname(file));
  } catch (error) {
    removeSegment(draft);
    throw error;
  }
  removeSegment(file);
}

/** When the newest record of a compressed segment was received, or later: a copy may have the time of copying. */
export function newestReceivedAtOf({ file }: Segment): number {
  return statSync(file).mtimeMs;
}
