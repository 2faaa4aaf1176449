/**
 * How much of rejected users is stored: limited per user and per record, so that a client that sends garbage cannot
 * fill the disk. The total is limited by the retention sweep.
 */

import { hash } from 'node:crypto';
import type { RejectionToStore } from '../store-writer.ts';
import { withoutNul } from './storable-text.ts';

/** In UTF-16 units: enough to see what is wrong. */
const PAYLOAD_LENGTH_MAX = 16_384;
/** The first few users of a garbage request show what is wrong; the trace has all messages. */
const REJECTIONS_PER_RECORD_MAX = 100;
const HASH_BYTES = 16;

export interface KeptRejection {
  readonly userIndex: number;
  readonly message: string;
  readonly reason: string;
  readonly reasonHash: Uint8Array;
  readonly payload: string;
  readonly isCut: boolean;
}

/** Those of one record. */
export function keptRejections(rejections: readonly RejectionToStore[]): KeptRejection[] {
  return rejections.slice(0, REJECTIONS_PER_RECORD_MAX).map(({ userIndex, message: given, payload }) => {
    const isCut = payload.length > PAYLOAD_LENGTH_MAX;
    const kept = isCut ? payload.slice(0, PAYLOAD_LENGTH_MAX).toWellFormed() : payload;
    const message = withoutNul(given);
    const reason = reasonOf(message);
    return { userIndex, message, reason, reasonHash: reasonHash(reason), payload: withoutNul(kept), isCut };
  });
}

/** By which a reason is found; as clients ask for it, or as it is kept. */
export function reasonHash(reason: string): Uint8Array {
  return hash('sha256', withoutNul(reason), 'buffer').subarray(0, HASH_BYTES);
}

/** The message without indexes, so that the same mistake has the same reason wherever it is. */
function reasonOf(message: string): string {
  return message.replaceAll(/\[\d+\]/g, '[]');
}
