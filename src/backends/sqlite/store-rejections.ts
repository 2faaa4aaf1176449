/**
 * Writes rejected users with their reasons. What is kept of one is bounded, and so is, by the sweep, what is kept of
 * all of them: whoever sends nonsense cannot fill the disk with it.
 */

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { RecordHeader, RejectionToStore } from '../../store-writer.ts';
import { uuidBytes } from './uuids.ts';

/** In UTF-16 units: enough to see what is wrong. */
const PAYLOAD_LENGTH_MAX = 16_384;
/** A request full of nonsense shows by its first few users what is wrong; the trace has all messages. */
const REJECTIONS_PER_RECORD_MAX = 100;

export class StoreRejections {
  readonly #insert: StatementSync;

  constructor(database: DatabaseSync) {
    this.#insert = database.prepare('INSERT INTO rejections VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)');
  }

  write(tenant: number, { receivedAt, traceId }: RecordHeader, rejections: readonly RejectionToStore[]): void {
    for (const { userIndex, message, payload } of rejections.slice(0, REJECTIONS_PER_RECORD_MAX)) {
      const isCut = payload.length > PAYLOAD_LENGTH_MAX;
      const kept = isCut ? payload.slice(0, PAYLOAD_LENGTH_MAX).toWellFormed() : payload;
      this.#insert.run(
        tenant,
        receivedAt,
        uuidBytes(traceId),
        userIndex,
        message,
        reasonOf(message),
        kept,
        isCut ? 1 : 0,
      );
    }
  }
}

/** The message without indexes, so that the same mistake has the same reason wherever it is. */
function reasonOf(message: string): string {
  return message.replaceAll(/\[\d+\]/g, '[]');
}
