/**
 * Writes rejected users with their reasons, as far as they are stored (views/kept-rejections.ts). The sweep removes the
 * oldest.
 */

import type { RecordHeader, RejectionToStore } from '../../../store-writer.ts';
import { keptRejections } from '../../../views/kept-rejections.ts';
import type { StoreConnection } from './connection.ts';

export function insertRejections(
  store: StoreConnection,
  tenant: number,
  { receivedAt, traceId, keyId, keyKind, format }: RecordHeader,
  rejections: readonly RejectionToStore[],
): void {
  for (const rejection of keptRejections(rejections)) {
    const { userIndex, message, reason, reasonHash, payload, isCut, eventNames } = rejection;
    store.run(
      'INSERT INTO rejections VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)',
      ...[tenant, receivedAt, traceId, userIndex, message, reason, reasonHash, payload, isCut ? 1 : 0],
      ...[keyId, keyKind, format ?? null, eventNames],
    );
  }
}
