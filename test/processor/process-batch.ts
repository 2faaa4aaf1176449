/** One batch of log records through a transaction of a store, prepared on the spot. */

import type { MatchOptions } from '../../src/identity/match-keys.ts';
import type { LogRecord } from '../../src/log.ts';
import { type BatchContext, processPrepared } from '../../src/processor/batch.ts';
import { prepareRecord } from '../../src/processor/prepare.ts';
import type { WriteTransaction } from '../../src/store-writer.ts';

export async function processBatch(
  transaction: WriteTransaction,
  records: readonly LogRecord[],
  context: BatchContext & { readonly options: MatchOptions },
): Promise<void> {
  const prepared = records.map((record) => prepareRecord(record, context.options));
  await processPrepared(transaction, prepared, context);
}
