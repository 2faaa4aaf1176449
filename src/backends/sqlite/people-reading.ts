/**
 * The writer's side of reading people ahead: starts a thread for it (`people-reader.ts`) and takes what it found: people,
 * unless something was forgotten meanwhile, and which keys there are, which does not change but by the writer itself. People that are erased or parted while they are read are not a concern: the next
 * transaction sees that another connection has written, and forgets everybody.
 */

import { Worker } from 'node:worker_threads';
import { threadFile } from '../../threads.ts';
import type { KeyFilter } from './key-filter.ts';
import type { PeopleAhead } from './people-ahead.ts';
import type { KeysRead, PeopleRead, PeopleReaderSetup } from './people-reader.ts';

/** Fewer are met soon enough. */
const PEOPLE_MIN = 5_000;
/** Where people are erased all the time, reading ahead each time would cost more than it saves. */
const PAUSE_MS = 60_000;

export class PeopleReading {
  readonly #file: string;
  readonly #people: PeopleAhead;
  readonly #keys: KeyFilter;
  #generation = 0;
  #isWanted = true;
  #startedAt = Number.NEGATIVE_INFINITY;
  #thread: Worker | undefined;

  constructor(file: string, people: PeopleAhead, keys: KeyFilter) {
    this.#file = file;
    this.#people = people;
    this.#keys = keys;
  }

  forget(): void {
    this.#generation++;
    this.#isWanted = true;
    this.#people.clear();
  }

  /** To be called in a transaction, with how many people there are about. */
  start(people: number, now = performance.now()): void {
    if (!this.#isWanted || this.#thread !== undefined || now - this.#startedAt < PAUSE_MS) return;
    // Whoever comes from now on is met, and need not be read.
    this.#isWanted = false;
    if (people < PEOPLE_MIN) return;
    this.#startedAt = now;
    this.#people.makeRoom(people);
    const setup: PeopleReaderSetup = { file: this.#file, generation: this.#generation };
    const url = threadFile('./people-reader', import.meta.url);
    const thread = new Worker(url, { workerData: setup, name: 'people-reader' });
    thread.unref();
    thread.on('message', (read: PeopleRead | KeysRead) => {
      if ('layers' in read) {
        if (!this.#keys.isComplete) this.#keys.complete(read.layers);
      } else if (read.generation === this.#generation) this.#people.add(read.people);
    });
    thread.once('exit', () => (this.#thread = undefined));
    this.#thread = thread;
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
