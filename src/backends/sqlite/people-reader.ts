/**
 * A thread that reads through the match keys of the store once and tells the processor of the people it finds
 * (`people-ahead.ts`): a person in the order of the table costs a tenth of one who is looked up by chance. It reads a piece at
 * a time, so that nothing keeps the write-ahead log from being copied, and ends when all is read.
 *
 * It only saves time: what cannot be read is left out, and whoever looks it up hears why.
 */

import type { DatabaseSync } from 'node:sqlite';
import { parentPort, workerData } from 'node:worker_threads';
import { yieldToOthers } from '../../threads.ts';
import { PEOPLE_AHEAD_MAX, PERSON_NUMBERS } from './people-ahead.ts';
import { openStoreFile } from './store-schema.ts';

export interface PeopleReaderSetup {
  readonly file: string;
  /** Sent with what was read, so that it can be told from what was read before something changed. */
  readonly generation: number;
}

export interface PeopleRead {
  readonly generation: number;
  /** One after the other: hash, company, node. */
  readonly people: Float64Array<ArrayBuffer>;
}

const PIECE_PEOPLE = 20_000;

if (parentPort !== null) readPeople(workerData as PeopleReaderSetup);

function readPeople({ file, generation }: PeopleReaderSetup): void {
  yieldToOthers();
  try {
    const database = openStoreFile(file, 'reader');
    for (const people of piecesOf(database)) {
      const message: PeopleRead = { generation, people };
      parentPort?.postMessage(message, [people.buffer]);
    }
    database.close();
  } catch {
    // Left out.
  }
}

function* piecesOf(database: DatabaseSync): Generator<Float64Array<ArrayBuffer>> {
  const select = database.prepare(
    'SELECT hash, company, node FROM match_keys WHERE hash > ? AND company IS NOT NULL ORDER BY hash LIMIT ?',
  );
  select.setReturnArrays(true);
  let after = Number.MIN_SAFE_INTEGER;
  for (let read = 0; read < PEOPLE_AHEAD_MAX; read += PIECE_PEOPLE) {
    const rows = select.all(after, PIECE_PEOPLE) as unknown as readonly (readonly number[])[];
    const people = new Float64Array(rows.length * PERSON_NUMBERS);
    for (let at = 0; at < rows.length; at++) people.set(rows[at] as readonly number[], at * PERSON_NUMBERS);
    yield people;
    if (rows.length < PIECE_PEOPLE) return;
    after = rows.at(-1)?.[0] as number;
  }
}
