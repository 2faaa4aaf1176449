/** What one pass of a pipeline benchmark measured: requests sent until their events could be read back. */

import type { StreamResult } from './generator.ts';
import type { ThreadTime } from './proc.ts';

export interface StoredResult {
  readonly events: number;
  /** From the first request until all of it could be read back. */
  readonly seconds: number;
  readonly perSecond: number;
  readonly edge: StreamResult;
  readonly serverCpuSeconds: number;
  /** The same by thread, the busiest first, without threads that have ended. */
  readonly threads: readonly ThreadTime[];
  readonly serverDiskBytes: number;
  /** The most so far, since the server was started. */
  readonly serverMegabytes: number;
  readonly transactions: number;
  readonly usersPerTransaction: number;
  readonly merges: number;
  /** As `LoadResult.otherCpu`, and the least of `capacity.ts` before and after. */
  readonly otherCpu: number;
  readonly cores: number;
}
