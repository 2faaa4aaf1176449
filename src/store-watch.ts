/**
 * Looks every second whether the store can be reached, for those whose work is nothing without it. Nobody waits for a
 * look; the last one is what counts.
 */

const LOOK_INTERVAL_MS = 1_000;

export interface StoreWatch {
  /** Why the store cannot be reached, in words for an operator; null while it can. */
  trouble(): string | null;
  close(): void;
}

export function watchStore(ask: () => Promise<unknown>): StoreWatch {
  let trouble: string | null = null;
  let isUnderWay = false;
  const look = async (): Promise<void> => {
    if (isUnderWay) return;
    isUnderWay = true;
    try {
      await ask();
      trouble = null;
    } catch (error) {
      trouble = error instanceof Error ? error.message : String(error);
    }
    isUnderWay = false;
  };
  const timer = setInterval(() => void look(), LOOK_INTERVAL_MS);
  timer.unref();
  return { trouble: () => trouble, close: () => clearInterval(timer) };
}
