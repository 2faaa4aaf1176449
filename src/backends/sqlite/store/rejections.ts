/**
 * Writes rejected users with their reasons, as far as they are stored (views/kept-rejections.ts). The sweep removes the
 * oldest.
 */

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { RecordHeader, RejectionToStore } from '../../../store-writer.ts';
import { keptRejections } from '../../../views/kept-rejections.ts';

export class StoreRejections {
  readonly #insert: StatementSync;

  constructor(database: DatabaseSync) {
    this.#insert = database.prepare(
      'INSERT INTO rejections VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)',
    );
  }

  write(tenant: number, header: RecordHeader, rejections: readonly RejectionToStore[]): void {
    const { receivedAt, traceId, keyId, keyKind, format = null } = header;
    for (const rejection of keptRejections(rejections)) {
      const { userIndex, message, reason, reasonHash, payload, isCut, eventNames } = rejection;
      this.#insert.run(
        ...[tenant, receivedAt, traceId, userIndex, message, reason, reasonHash, payload, isCut ? 1 : 0],
        ...[keyId, keyKind, format, eventNames],
      );
    }
  }
}
