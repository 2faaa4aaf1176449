/**
 * The newest table of events with its index, as the writer fills it. A new one starts after `tableEvents` events,
 * always between two records, so that a record and its events are in tables of the same number.
 */

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { NodeNumber } from '../../../model.ts';
import type { EventToStore } from '../../../store-writer.ts';
import { BlockWriter } from './event-blocks.ts';
import { EVENTS_BY_NODE, EVENTS_BY_TENANT, INDEX_SIZES } from './stored-events.ts';
import { BufferedRuns, type RunsSizes } from '../sorted-runs/sorted-runs.ts';
import { eventTableSchema } from './schema.ts';

const NO_VALUES: readonly number[] = [];

/** Times are infinite while there is no event. */
interface Newest {
  readonly no: number;
  events: number;
  timestampMin: number;
  timestampMax: number;
  receivedMax: number;
  readonly insertBlock: StatementSync;
  readonly insertRecord: StatementSync;
}

const SELECT_NEWEST = `SELECT no, events, coalesce(timestamp_min, 9e999) AS "timestampMin",
    coalesce(timestamp_max, -9e999) AS "timestampMax", coalesce(received_max, -9e999) AS "receivedMax"
  FROM event_tables ORDER BY no DESC LIMIT 1`;

export class EventTables {
  readonly #database: DatabaseSync;
  readonly #tableEvents: number;
  readonly #byNode: BufferedRuns;
  readonly #byTenant: BufferedRuns;
  /** The sorted runs of the index. */
  readonly index: readonly BufferedRuns[];
  readonly #block = new BlockWriter();
  #blockStart = 0;
  #blockTenant = 0;
  #newest: Newest | undefined;

  constructor(database: DatabaseSync, tableEvents: number, indexSizes: RunsSizes = {}) {
    this.#database = database;
    this.#tableEvents = tableEvents;
    const group = (): number => (this.#newest as Newest).no;
    const sizes = { ...INDEX_SIZES, ...indexSizes };
    this.#byNode = new BufferedRuns(database, EVENTS_BY_NODE, group, sizes);
    this.#byTenant = new BufferedRuns(database, EVENTS_BY_TENANT, group, sizes);
    this.index = [this.#byNode, this.#byTenant];
  }

  /** The table for the next record: a new one if the newest is full. */
  forRecord(nextEvent: number): Newest {
    this.#newest ??= this.#load();
    if (this.#newest === undefined || this.#newest.events >= this.#tableEvents) {
      this.flush();
      this.#newest = this.#create((this.#newest?.no ?? 0) + 1, nextEvent);
    }
    return this.#newest;
  }

  add(
    tenant: number,
    no: number,
    node: NodeNumber | null,
    record: number,
    userIndex: number,
    event: EventToStore,
  ): void {
    const table = this.#newest as Newest;
    const { timestamp } = event;
    this.#byTenant.put([tenant, timestamp, no], NO_VALUES);
    if (node !== null) this.#byNode.put([node, timestamp, no], NO_VALUES);
    if (tenant !== this.#blockTenant) this.#endBlock();
    if (!this.#block.add(no, node, record, userIndex, event)) {
      this.#endBlock();
      this.#block.add(no, node, record, userIndex, event);
    }
    if (this.#block.events === 1) {
      this.#blockStart = no;
      this.#blockTenant = tenant;
    }
    table.events += 1;
    if (timestamp < table.timestampMin) table.timestampMin = timestamp;
    if (timestamp > table.timestampMax) table.timestampMax = timestamp;
  }

  #endBlock(): void {
    const { events } = this.#block;
    if (events === 0) return;
    const { numbers, texts, crc } = this.#block.take();
    this.#newest?.insertBlock.run(this.#blockStart, this.#blockTenant, events, numbers, texts, crc);
  }

  /** Call it before the transaction is committed. */
  flush(): void {
    if (this.#newest === undefined) return;
    this.#endBlock();
    const { no, events, timestampMin, timestampMax, receivedMax } = this.#newest;
    for (const index of this.index) index.flush();
    this.#database
      .prepare(
        `UPDATE event_tables SET events = ?, timestamp_min = ?, timestamp_max = ?, received_max = ? WHERE no = ?`,
      )
      .run(events, finite(timestampMin), finite(timestampMax), finite(receivedMax), no);
  }

  forget(): void {
    this.#newest = undefined;
    for (const index of this.index) index.forget();
    this.#block.clear();
  }

  #load(): Newest | undefined {
    const row = this.#database.prepare(SELECT_NEWEST).get() as Omit<Newest, 'insertBlock' | 'insertRecord'> | undefined;
    return (
      row && {
        ...row,
        insertBlock: this.#database.prepare(`INSERT INTO events_${row.no} VALUES (?, ?, ?, ?, ?, ?)`),
        insertRecord: this.#database.prepare(
          `INSERT INTO records_${row.no} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
        ),
      }
    );
  }

  #create(no: number, firstEvent: number): Newest {
    this.#database.exec(eventTableSchema(no));
    this.#database
      .prepare('INSERT INTO event_tables (no, first_event, first_kept, events) VALUES (?1, ?2, ?2, 0)')
      .run(no, firstEvent);
    return this.#load() as Newest;
  }
}

function finite(value: number): number | null {
  return Number.isFinite(value) ? value : null;
}
