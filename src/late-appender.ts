/**
 * The local log of a server that started while its database is away. Where the log goes on depends on how far the
 * database has processed it, so it is opened once that can be read; until then appends are refused as unavailable, which
 * costs nothing, since keys cannot be read either. A log that is refused when its time comes ends the server.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { type LogAppender, type LogEntry, LogUnavailableError } from './log.ts';
import { StoreUnavailableError } from './store-writer.ts';

const RETRY_MS = 250;
const NOT_YET = 'the database has not been reached yet';

export class LateAppender implements LogAppender {
  #log: LogAppender | null = null;
  #isClosed = false;
  readonly #opening: Promise<void>;

  constructor(open: () => Promise<LogAppender>, onRefused: (message: string) => void) {
    this.#opening = this.#openWhenPossible(open).catch((error: unknown) => {
      onRefused(error instanceof Error ? error.message : String(error));
    });
  }

  append(entry: LogEntry): Promise<void> {
    return this.#log?.append(entry) ?? Promise.reject(new LogUnavailableError(NOT_YET));
  }

  trouble(): string | null {
    return this.#log === null ? NOT_YET : this.#log.trouble();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#opening;
    await this.#log?.close();
  }

  async #openWhenPossible(open: () => Promise<LogAppender>): Promise<void> {
    while (!this.#isClosed && this.#log === null) {
      try {
        this.#log = await open();
      } catch (error) {
        if (!(error instanceof StoreUnavailableError)) throw error;
        await sleep(RETRY_MS);
      }
    }
  }
}
