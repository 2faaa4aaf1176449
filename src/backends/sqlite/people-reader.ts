/**
 * A thread that reads through the match keys of the store once and tells the processor of the people it finds
 * (`people-ahead.ts`), and in the end which keys there are (`key-filter.ts`): a person in the order of the table costs a tenth
 * of one who is looked up by chance. It reads a piece at a time, so that nothing keeps the write-ahead log from being copied.
 *
 * It only saves time: what cannot be read is left out, and whoever looks it up hears why.
 */

import { DatabaseSync } from 'node:sqlite';
import { parentPort, workerData } from 'node:worker_threads';
import { yieldToOthers } from '../../threads.ts';
import { type FilterLayer, KeyFilter } from './key-filter.ts';
import { PEOPLE_AHEAD_MAX, PERSON_NUMBERS } from './people-ahead.ts';
import { storeFile } from './store-schema.ts';

export interface PeopleReaderSetup {
  readonly file: string;
  /** Sent with what was read, so that it can be told from what was read before something changed. */
  readonly generation: number;
  /** Of the filter of keys. */
  readonly filterBitsMax?: number;
}

export interface PeopleRead {
  readonly generation: number;
  /** One after the other: hash, company, node. */
  readonly people: Float64Array<ArrayBuffer>;
}

/** Comes last. Keys that were inserted since the thread was started may be missing. */
export interface KeysRead {
  readonly layers: readonly FilterLayer[];
}

const PIECE_KEYS = 50_000;
const BUSY_TIMEOUT_MS = 5_000;

type Row = readonly [hash: number, rest: number, node: number, company: number | null];

if (parentPort !== null) readPeople(workerData as PeopleReaderSetup);

function readPeople({ file, generation, filterBitsMax }: PeopleReaderSetup): void {
  yieldToOthers();
  try {
    const database = openToRead(file);
    const filter = new KeyFilter(filterBitsMax);
    let left = PEOPLE_AHEAD_MAX;
    for (const rows of piecesOf(database)) {
      for (const [hash, rest] of rows) filter.add({ hash, rest });
      if (left <= 0 && filter.hasGivenUp) break;
      if (left <= 0) continue;
      const people = peopleIn(rows);
      left -= people.length / PERSON_NUMBERS;
      const message: PeopleRead = { generation, people };
      parentPort?.postMessage(message, [people.buffer]);
    }
    database.close();
    // Without some keys it would say of them that nobody has them.
    if (filter.hasGivenUp) return;
    const message: KeysRead = { layers: filter.layers };
    parentPort?.postMessage(
      message,
      filter.layers.map(({ words }) => words.buffer),
    );
  } catch {
    // Left out.
  }
}

/** Only to read: a thread that is started late may be of a newer version than the writer, and must not change the file. */
function openToRead(file: string): DatabaseSync {
  const database = new DatabaseSync(file, { readOnly: true, timeout: BUSY_TIMEOUT_MS });
  const version = database.prepare('PRAGMA user_version').get()?.['user_version'];
  if (version === storeFile(file, 'reader').migrations.length) return database;
  database.close();
  throw new Error('the store is of another version');
}

function* piecesOf(database: DatabaseSync): Generator<readonly Row[]> {
  const select = database.prepare(
    'SELECT hash, rest, node, company FROM match_keys WHERE (hash, rest) > (?, ?) ORDER BY hash, rest LIMIT ?',
  );
  select.setReturnArrays(true);
  let [hash, rest] = [Number.MIN_SAFE_INTEGER, 0];
  for (;;) {
    const rows = select.all(hash, rest, PIECE_KEYS) as unknown as readonly Row[];
    yield rows;
    const last = rows.at(-1);
    if (last === undefined || rows.length < PIECE_KEYS) return;
    [hash, rest] = last;
  }
}

function peopleIn(rows: readonly Row[]): Float64Array<ArrayBuffer> {
  const people = new Float64Array(rows.filter(([, , , company]) => company !== null).length * PERSON_NUMBERS);
  let at = 0;
  for (const [hash, , node, company] of rows) {
    if (company === null) continue;
    people[at++] = hash;
    people[at++] = company;
    people[at++] = node;
  }
  return people;
}
