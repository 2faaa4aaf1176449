/**
 * How the processor waits for more without asking the disk: the threads that write the log count what they made durable
 * in memory that all threads share, and that count is looked at every few milliseconds.
 */

const LOOK_INTERVAL_MS = 5;
/** After this the log is read anyway. */
const WAIT_MS_MAX = 500;

export function waitForAppends(appended: () => number): () => Promise<void> {
  let seen = -1;
  return () =>
    new Promise((resolve) => {
      const since = performance.now();
      const look = (): void => {
        const count = appended();
        if (count === seen && performance.now() - since < WAIT_MS_MAX) {
          setTimeout(look, LOOK_INTERVAL_MS);
          return;
        }
        seen = count;
        resolve();
      };
      look();
    });
}
