/**
 * The writer's side of reading people ahead: starts a thread for it (`people-reader.ts`) and takes what it found: people,
 * unless all were forgotten meanwhile, and which keys there are, which only the writer itself adds to. People that are
 * erased or unmerged while they are read are dropped before the writer's next transaction (`people-ahead.ts`).
 */

import { Worker } from 'node:worker_threads';
import type { NodeNumber } from '../../model.ts';
import { threadFile } from '../../threads.ts';
import type { KeyFilter } from './key-filter.ts';
import type { PeopleAhead } from './people-ahead.ts';
import type { KeysRead, PeopleRead, PeopleReaderSetup } from './people-reader.ts';

/** Fewer are met soon enough, and the writer itself looks which keys there are. */
export const PEOPLE_MIN = 5_000;
/** After all were forgotten: because of very many erases, which need the write-ahead log to themselves for a moment. */
const DELAY_MS = 5_000;
/** Where all are forgotten again and again, reading ahead each time would cost more than it saves. */
const PAUSE_MS = 60_000;

export class PeopleReading {
  readonly #setup: Omit<PeopleReaderSetup, 'generation'>;
  readonly #people: PeopleAhead;
  readonly #keys: KeyFilter;
  #generation = 0;
  #isWanted = true;
  #startedAt = Number.NEGATIVE_INFINITY;
  #forgottenAt = Number.NEGATIVE_INFINITY;
  #thread: Worker | undefined;

  constructor(setup: Omit<PeopleReaderSetup, 'generation'>, people: PeopleAhead, keys: KeyFilter) {
    this.#setup = setup;
    this.#people = people;
    this.#keys = keys;
  }

  forget(now = performance.now()): void {
    this.#generation++;
    this.#isWanted = true;
    this.#forgottenAt = now;
    this.#people.clear();
  }

  /** Drops some people, and forgets all when too many were dropped to remember them. */
  drop(nodes: ReadonlySet<NodeNumber>): void {
    if (!this.#people.drop(nodes)) this.forget();
  }

  /** To be called in a transaction, with how many people there are about. */
  start(people: number, now = performance.now()): void {
    if (!this.#isWanted || this.#thread !== undefined || this.#isTooSoon(now)) return;
    // Whoever comes from now on is met, and need not be read.
    this.#isWanted = false;
    if (people < PEOPLE_MIN) return;
    this.#startedAt = now;
    this.#people.makeRoom(people);
    const setup: PeopleReaderSetup = { ...this.#setup, generation: this.#generation };
    const url = threadFile('./people-reader', import.meta.url);
    let thread: Worker;
    try {
      thread = new Worker(url, { workerData: setup, name: 'people-reader' });
    } catch {
      // No thread is to be had: everybody is looked up.
      return;
    }
    thread.unref();
    thread.on('message', (read: PeopleRead | KeysRead) => {
      if ('layers' in read) {
        if (!this.#keys.isComplete) this.#keys.complete(read.layers);
      } else if (read.generation === this.#generation) this.#people.add(read.people);
    });
    // As when no file can be opened. The process must not end for that.
    thread.on('error', () => undefined);
    thread.once('exit', () => (this.#thread = undefined));
    this.#thread = thread;
  }

  /** The first time, nothing can be too soon. */
  #isTooSoon(now: number): boolean {
    if (this.#startedAt === Number.NEGATIVE_INFINITY) return false;
    return now - this.#startedAt < PAUSE_MS || now - this.#forgottenAt < DELAY_MS;
  }

  /** When nobody reads any more. */
  async ended(): Promise<void> {
    const thread = this.#thread;
    thread?.ref();
    if (thread !== undefined) await new Promise((resolve) => thread.once('exit', resolve));
  }

  async close(): Promise<void> {
    await this.#thread?.terminate();
  }
}
