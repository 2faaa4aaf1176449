/**
 * Buffers when each key was last used, what was received with it and whether it looks leaked, and hands that over at
 * intervals, so that using a key never waits for a write. Holds at most one row per key; a crash loses at most one
 * interval.
 */

import type { KeyUsage, KeyVolume } from '../keys.ts';

const FLUSH_INTERVAL_MS = 2_000;
const ORIGIN_CHARACTERS_MAX = 255;

interface Row {
  usedAt: number;
  leakOrigin: string | null;
  /** As the client sent it; null where no request came from a web page. */
  origin: string | null;
  volume: { -readonly [Name in keyof KeyVolume]: number } | null;
}

export class KeyUsageTracker {
  #rows = new Map<string, Row>();
  readonly #handOver: (keyUsage: KeyUsage[]) => void;
  readonly #timer: NodeJS.Timeout;

  constructor(handOver: (keyUsage: KeyUsage[]) => void) {
    this.#handOver = handOver;
    this.#timer = setInterval(() => this.#flush(), FLUSH_INTERVAL_MS);
    this.#timer.unref();
  }

  /** `origin` is that of the request, if it has one; `isLeaked`: the key must not be used there. */
  note(keyId: string, usedAt: number, origin: string | undefined, isLeaked: boolean): void {
    const row = this.#row(keyId, usedAt);
    row.usedAt = usedAt;
    if (origin === undefined) return;
    row.origin = origin;
    if (isLeaked) row.leakOrigin ??= readable(origin);
  }

  /** Adds the counts of one request; call `note` first. */
  add(keyId: string, now: number, volume: KeyVolume): void {
    const row = this.#row(keyId, now);
    if (row.volume === null) {
      row.volume = { ...volume };
      return;
    }
    row.volume.users += volume.users;
    row.volume.events += volume.events;
    row.volume.usersRejected += volume.usersRejected;
    row.volume.requestsLimited += volume.requestsLimited;
  }

  #flush(): void {
    if (this.#rows.size === 0) return;
    const rows = this.#rows;
    this.#rows = new Map();
    this.#handOver(
      Array.from(rows, ([keyId, { usedAt, leakOrigin, origin, volume }]) => ({
        keyId,
        usedAt,
        leakOrigin,
        ...(origin !== null && { origin: readable(origin) }),
        ...(volume !== null && { volume }),
      })),
    );
  }

  #row(keyId: string, usedAt: number): Row {
    return this.#rows.getOrInsertComputed(keyId, () => ({ usedAt, leakOrigin: null, origin: null, volume: null }));
  }

  close(): void {
    clearInterval(this.#timer);
    this.#flush();
  }
}

/** Anyone can send anything as an origin, and people will read this on a terminal. */
function readable(origin: string): string {
  const parsed = URL.parse(origin)?.origin ?? 'null';
  return parsed === 'null' ? 'an unnamed page' : parsed.slice(0, ORIGIN_CHARACTERS_MAX);
}
