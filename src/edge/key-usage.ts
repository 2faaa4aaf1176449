/**
 * Remembers when each key was last used and whether it looks leaked, and hands that over now and then, so that using a
 * key never waits for a write. Holds one row a key at most; what is lost in a crash is at most one interval.
 */

import type { KeyUsage } from '../keys.ts';

const FLUSH_INTERVAL_MS = 2_000;
const ORIGIN_CHARACTERS_MAX = 255;

export class KeyUsageTracker {
  #rows = new Map<string, { usedAt: number; leakOrigin: string | null }>();
  readonly #handOver: (keyUsage: KeyUsage[]) => void;
  readonly #timer: NodeJS.Timeout;

  constructor(handOver: (keyUsage: KeyUsage[]) => void) {
    this.#handOver = handOver;
    this.#timer = setInterval(() => this.flush(), FLUSH_INTERVAL_MS);
    this.#timer.unref();
  }

  note(keyId: string, usedAt: number, leakOrigin: string | undefined): void {
    const origin = leakOrigin === undefined ? null : readable(leakOrigin);
    const row = this.#rows.get(keyId);
    if (row === undefined) {
      this.#rows.set(keyId, { usedAt, leakOrigin: origin });
      return;
    }
    row.usedAt = usedAt;
    row.leakOrigin ??= origin;
  }

  flush(): void {
    if (this.#rows.size === 0) return;
    const rows = this.#rows;
    this.#rows = new Map();
    this.#handOver(Array.from(rows, ([keyId, row]) => ({ keyId, ...row })));
  }

  close(): void {
    clearInterval(this.#timer);
    this.flush();
  }
}

/** Anyone can send anything as an origin, and people will read this on a terminal. */
function readable(origin: string): string {
  const parsed = URL.parse(origin)?.origin ?? 'null';
  return parsed === 'null' ? 'an unnamed page' : parsed.slice(0, ORIGIN_CHARACTERS_MAX);
}
