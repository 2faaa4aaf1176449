/**
 * Events and their index, as the writer adds them. A new group of the index starts after `groupEvents` events, always
 * between two records, so that the groups divide the records as well.
 */

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { NodeNumber } from '../../../model.ts';
import type { EventToStore } from '../../../store-writer.ts';
import { BlockWriter } from './event-blocks.ts';
import { EVENTS_BY_NODE, EVENTS_BY_TENANT, INDEX_SIZES } from './stored-events.ts';
import { BufferedRuns, type RunsSizes } from '../sorted-runs/sorted-runs.ts';

const NO_VALUES: readonly number[] = [];

/** Times are infinite while there is no event. */
interface Newest {
  readonly no: number;
  events: number;
  timestampMin: number;
  timestampMax: number;
  receivedMax: number;
}

const SELECT_NEWEST = `SELECT no, events, coalesce(timestamp_min, 9e999) AS "timestampMin",
    coalesce(timestamp_max, -9e999) AS "timestampMax", coalesce(received_max, -9e999) AS "receivedMax"
  FROM event_groups ORDER BY no DESC LIMIT 1`;

export class EventGroups {
  readonly #database: DatabaseSync;
  readonly #groupEvents: number;
  readonly #byNode: BufferedRuns;
  readonly #byTenant: BufferedRuns;
  /** The sorted runs of the index. */
  readonly index: readonly BufferedRuns[];
  readonly insertRecord: StatementSync;
  readonly #insertBlock: StatementSync;
  readonly #block = new BlockWriter();
  #blockStart = 0;
  #blockTenant = 0;
  #newest: Newest | undefined;

  constructor(database: DatabaseSync, groupEvents: number, indexSizes: RunsSizes = {}) {
    this.#database = database;
    this.#groupEvents = groupEvents;
    const group = (): number => (this.#newest as Newest).no;
    const sizes = { ...INDEX_SIZES, ...indexSizes };
    this.#byNode = new BufferedRuns(database, EVENTS_BY_NODE, group, sizes);
    this.#byTenant = new BufferedRuns(database, EVENTS_BY_TENANT, group, sizes);
    this.index = [this.#byNode, this.#byTenant];
    this.insertRecord = database.prepare('INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)');
    this.#insertBlock = database.prepare('INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)');
  }

  /** The group for the next record: a new one if the newest is full. */
  forRecord(nextRecord: number): Newest {
    this.#newest ??= this.#load();
    if (this.#newest === undefined || this.#newest.events >= this.#groupEvents) {
      this.flush();
      this.#newest = this.#create((this.#newest?.no ?? 0) + 1, nextRecord);
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
    const group = this.#newest as Newest;
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
    group.events += 1;
    if (timestamp < group.timestampMin) group.timestampMin = timestamp;
    if (timestamp > group.timestampMax) group.timestampMax = timestamp;
  }

  #endBlock(): void {
    const { events } = this.#block;
    if (events === 0) return;
    const { numbers, texts, crc } = this.#block.take();
    this.#insertBlock.run(this.#blockStart, this.#blockTenant, events, numbers, texts, crc);
  }

  /** Call it before the transaction is committed. */
  flush(): void {
    if (this.#newest === undefined) return;
    this.#endBlock();
    const { no, events, timestampMin, timestampMax, receivedMax } = this.#newest;
    for (const index of this.index) index.flush();
    this.#database
      .prepare(
        `UPDATE event_groups SET events = ?, timestamp_min = ?, timestamp_max = ?, received_max = ? WHERE no = ?`,
      )
      .run(events, finite(timestampMin), finite(timestampMax), finite(receivedMax), no);
  }

  forget(): void {
    this.#newest = undefined;
    for (const index of this.index) index.forget();
    this.#block.clear();
  }

  #load(): Newest | undefined {
    return this.#database.prepare(SELECT_NEWEST).get() as Newest | undefined;
  }

  #create(no: number, firstRecord: number): Newest {
    this.#database.prepare('INSERT INTO event_groups (no, first_record, events) VALUES (?, ?, 0)').run(no, firstRecord);
    return this.#load() as Newest;
  }
}

function finite(value: number): number | null {
  return Number.isFinite(value) ? value : null;
}
