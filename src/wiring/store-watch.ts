/**
 * Checks every second whether the store is reachable, for threads that depend on it. Requests never wait for a check;
 * they use the last result. Logs when an outage begins and ends, with reminders while it lasts.
 */

import type { Logger } from '../telemetry/logger.ts';
import { OutageLog } from '../telemetry/outage-log.ts';
import { messageOf } from '../errors.ts';

const LOOK_INTERVAL_MS = 1_000;

export interface StoreWatch {
  /** Why the store cannot be reached, in words for an operator; null while it can. */
  problem(): string | null;
  close(): void;
}

export function watchStore(ask: () => Promise<unknown>, logger: Logger): StoreWatch {
  const outage = new OutageLog(logger, {
    failing: 'the store cannot be reached: not ready until it can',
    working: 'the store can be reached again',
  });
  let problem: string | null = null;
  let isUnderWay = false;
  const look = async (): Promise<void> => {
    if (isUnderWay) return;
    isUnderWay = true;
    try {
      await ask();
      problem = null;
      outage.worked();
    } catch (error) {
      outage.failed(error);
      problem = messageOf(error);
    }
    isUnderWay = false;
  };
  const timer = setInterval(() => void look(), LOOK_INTERVAL_MS);
  timer.unref();
  return { problem: () => problem, close: () => clearInterval(timer) };
}
