/**
 * Names of people by profile id, looked up when first wanted: a few at once, the newest first, so that a burst of events
 * does not become a burst of requests. Each is asked for once. A name that is known stays; that there is none is believed
 * only when the server says so. What could not be found out is asked for again after a pause, for as long as anybody
 * listens. Without React or network, so that it can be tested as it is. Never more than KEPT_MAX names are kept.
 */

/** A browser has six connections for a server, and others need some of them. */
export const AT_ONCE_MAX = 3;
const WAITING_MAX = 100;
const KEPT_MAX = 2_000;
const RETRY_MS = 3_000;

/** Gives null when there is no such person, or no name; rejects when that cannot be found out now. */
type Ask = (key: string) => Promise<string | null>;

export class PersonNames {
  readonly #ask: Ask;
  readonly #retryMs: number;
  readonly #names = new Map<string, string | null>();
  readonly #listeners = new Set<() => void>();
  readonly #asking = new Set<string>();
  #waiting: string[] = [];
  #retryTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(ask: Ask, retryMs = RETRY_MS) {
    this.#ask = ask;
    this.#retryMs = retryMs;
  }

  /** Undefined until it is known; null when there is none. */
  get(key: string): string | null | undefined {
    return this.#names.get(key);
  }

  /** Gets the name looked up unless it is known, and tells when any name came. Gives back what ends it. */
  listen(key: string, listener: () => void): () => void {
    this.#listeners.add(listener);
    this.#want(key);
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size > 0) return;
      this.#waiting = [];
      clearTimeout(this.#retryTimer);
      this.#retryTimer = undefined;
    };
  }

  #want(key: string): void {
    if (this.#names.has(key) || this.#asking.has(key) || this.#waiting.includes(key)) return;
    // The newest first, and the oldest forgotten: those are further down, or gone.
    this.#waiting = [key, ...this.#waiting].slice(0, WAITING_MAX);
    this.#start();
  }

  #start(): void {
    while (this.#retryTimer === undefined && this.#asking.size < AT_ONCE_MAX) {
      const key = this.#waiting.shift();
      if (key === undefined) return;
      void this.#lookUp(key);
    }
  }

  async #lookUp(key: string): Promise<void> {
    this.#asking.add(key);
    try {
      this.#keep(key, await this.#ask(key));
      for (const listener of this.#listeners) listener();
    } catch {
      this.#tryLater(key);
    }
    this.#asking.delete(key);
    this.#start();
  }

  #tryLater(key: string): void {
    if (this.#listeners.size === 0) return;
    this.#waiting = [...this.#waiting, key].slice(0, WAITING_MAX);
    this.#retryTimer ??= setTimeout(() => {
      this.#retryTimer = undefined;
      this.#start();
    }, this.#retryMs);
  }

  #keep(key: string, name: string | null): void {
    if (name === null && this.#names.has(key)) return;
    const [oldest] = this.#names.keys();
    if (this.#names.size >= KEPT_MAX && oldest !== undefined) this.#names.delete(oldest);
    this.#names.set(key, name);
  }
}
