/**
 * Whether a server can do its work now, by its role, with the reasons if it cannot. A server that receives events needs
 * the log and not the store: events are accepted while the store is unavailable, and processed later. But it needs the
 * keys: it is not ready while keys cannot be looked up and all that it knows have expired. Other roles need the store.
 */

import { WAS_REPLACED } from '../data-folder/file-identity.ts';
import type { LogAppender } from '../log.ts';
import type { Logger } from '../telemetry/logger.ts';
import type { Role } from '../model.ts';
import { servesIngest } from '../config/roles.ts';

/** Flags in shared memory, read on every request. The supervisor sets them, unless said otherwise. */
export interface ServerStatus {
  isShuttingDown(): boolean;
  /** About to shut down: not ready, and still serving. */
  isDraining(): boolean;
  isDiskLow(): boolean;
  /** STORE_URL now points to the database of another installation. Set by any thread that connects to it. */
  isOtherDatabase(): boolean;
  /** Files of the data folder that were removed or replaced under this server. */
  replacedFiles(): readonly string[];
  /** More than SLUICE_BACKLOG_MAX waits to be processed. Set by the processor, with Kafka by the first edge. */
  isBacklogFull(): boolean;
}

export interface ReadinessParts {
  readonly role: Role;
  readonly status: ServerStatus;
  readonly log: LogAppender | null;
  /** Why the store cannot be reached, by the last check; null while it can. */
  readonly storeProblem: () => string | null;
  /** Why no key can be checked, so that no request can be accepted; null while one may be. */
  readonly keysProblem: () => string | null;
}

export function readinessOf(parts: ReadinessParts) {
  const { role, status, log, storeProblem, keysProblem } = parts;
  const reasons: string[] = [];
  if (isStopping(status)) reasons.push('shutting down');
  if (status.isDiskLow()) reasons.push('disk space is below SLUICE_DISK_FREE_MIN');
  for (const name of status.replacedFiles())
    reasons.push(`${name} ${WAS_REPLACED}: move it back, or restart the server (docs/operating.md)`);
  if (status.isOtherDatabase()) {
    reasons.push(
      'STORE_URL now points to a different database than at startup: nothing is processed until it is the right one',
    );
  }
  if (servesIngest(role)) {
    if (status.isBacklogFull()) reasons.push('more than SLUICE_BACKLOG_MAX waits to be processed');
    const problem = log?.problem() ?? null;
    if (problem !== null) reasons.push(`the log cannot be written: ${problem}`);
    const problemOfKeys = keysProblem();
    if (problemOfKeys !== null) {
      reasons.push(`keys cannot be read, and none was confirmed within the last ten minutes: ${problemOfKeys}`);
    }
  } else {
    const problem = storeProblem();
    if (problem !== null) reasons.push(`the store cannot be reached: ${problem}`);
  }
  return { ready: reasons.length === 0, reasons };
}

/** Connections end with their next response, so that clients that keep them alive move to another server. */
export function isStopping(status: ServerStatus): boolean {
  return status.isDraining() || status.isShuttingDown();
}

export function outageReporter(log: LogAppender, logger: Logger): () => void {
  let logged: string | null = null;
  return () => {
    const problem = log.problem();
    if (problem === logged) return;
    logged = problem;
    if (problem === null) logger.info('the log can be written again');
    else logger.error({ reason: problem }, 'the log cannot be written: responding with 503 until it can');
  };
}
