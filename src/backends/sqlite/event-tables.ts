/**
 * The newest table of events, as the writer fills it. A new one is begun when it holds `tableEvents` events, always
 * between two records, so that the events of a record and the record itself are in tables of the same number.
 */

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { eventTableSchema } from './store-schema.ts';

interface Newest {
  readonly no: number;
  events: number;
  timestampMin: number;
  timestampMax: number;
  receivedMax: number;
  readonly insertEvent: StatementSync;
  readonly insertRecord: StatementSync;
}

interface TableRow {
  readonly no: number;
  readonly events: number;
  readonly timestamp_min: number | null;
  readonly timestamp_max: number | null;
  readonly received_max: number | null;
}

export class EventTables {
  readonly #database: DatabaseSync;
  readonly #tableEvents: number;
  #newest: Newest | undefined;

  constructor(database: DatabaseSync, tableEvents: number) {
    this.#database = database;
    this.#tableEvents = tableEvents;
  }

  /** The table for the next record. */
  forRecord(nextEvent: number): Newest {
    this.#newest ??= this.#load();
    if (this.#newest === undefined || this.#newest.events >= this.#tableEvents) {
      this.flush();
      this.#newest = this.#create((this.#newest?.no ?? 0) + 1, nextEvent);
    }
    return this.#newest;
  }

  flush(): void {
    if (this.#newest === undefined) return;
    const { no, events, timestampMin, timestampMax, receivedMax } = this.#newest;
    this.#database
      .prepare(
        'UPDATE event_tables SET events = ?, timestamp_min = ?, timestamp_max = ?, received_max = ? WHERE no = ?',
      )
      .run(events, finite(timestampMin), finite(timestampMax), finite(receivedMax), no);
  }

  forget(): void {
    this.#newest = undefined;
  }

  #load(): Newest | undefined {
    const row = this.#database.prepare('SELECT * FROM event_tables ORDER BY no DESC LIMIT 1').get() as
      | TableRow
      | undefined;
    return row === undefined ? undefined : this.#open(row);
  }

  #create(no: number, firstEvent: number): Newest {
    this.#database.exec(eventTableSchema(no));
    this.#database.prepare('INSERT INTO event_tables (no, first_event, events) VALUES (?, ?, 0)').run(no, firstEvent);
    return this.#open({ no, events: 0, timestamp_min: null, timestamp_max: null, received_max: null });
  }

  #open(row: TableRow): Newest {
    return {
      no: row.no,
      events: row.events,
      timestampMin: row.timestamp_min ?? Number.POSITIVE_INFINITY,
      timestampMax: row.timestamp_max ?? Number.NEGATIVE_INFINITY,
      receivedMax: row.received_max ?? Number.NEGATIVE_INFINITY,
      insertEvent: this.#database.prepare(`INSERT INTO events_${row.no} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`),
      insertRecord: this.#database.prepare(
        `INSERT INTO records_${row.no} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      ),
    };
  }
}

function finite(value: number): number | null {
  return Number.isFinite(value) ? value : null;
}
