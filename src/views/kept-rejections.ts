/**
 * What is kept of rejected users: bounded for each user and for each record, so that a client that sends nonsense cannot fill
 * the disk with it. What is kept of all of them is bounded by the sweep.
 */

import type { RejectionToStore } from '../store-writer.ts';

/** In UTF-16 units: enough to see what is wrong. */
const PAYLOAD_LENGTH_MAX = 16_384;
/** A request full of nonsense shows by its first few users what is wrong; the trace has all messages. */
const REJECTIONS_PER_RECORD_MAX = 100;

export interface KeptRejection {
  readonly userIndex: number;
  readonly message: string;
  readonly reason: string;
  readonly payload: string;
  readonly isCut: boolean;
}

/** Those of one record. */
export function keptRejections(rejections: readonly RejectionToStore[]): KeptRejection[] {
  return rejections.slice(0, REJECTIONS_PER_RECORD_MAX).map(({ userIndex, message, payload }) => {
    const isCut = payload.length > PAYLOAD_LENGTH_MAX;
    const kept = isCut ? payload.slice(0, PAYLOAD_LENGTH_MAX).toWellFormed() : payload;
    return { userIndex, message, reason: reasonOf(message), payload: kept, isCut };
  });
}

/** The message without indexes, so that the same mistake has the same reason wherever it is. */
function reasonOf(message: string): string {
  return message.replaceAll(/\[\d+\]/g, '[]');
}
