/**
 * The migration that made counts per currency (decision 030): before it, `counts` had one sum of revenue for all
 * currencies of a bucket. Counts are exactly those of the stored events, so they are made anew from them, table by table.
 */

import type { DatabaseSync } from 'node:sqlite';
import { currencyOfStored } from '../../stored/currency.ts';
import { StoreBooks } from './store-books.ts';
import { StoreConnection } from './store-connection.ts';
import { eventsBetween } from './stored-events.ts';

const TABLE = `
  DROP TABLE counts;
  -- Events by minute and by hour (width in milliseconds) of their own timestamps; currencies as in stored/currency.ts.
  CREATE TABLE counts (
    tenant     INTEGER NOT NULL,
    width      INTEGER NOT NULL,
    start      INTEGER NOT NULL,
    event_name TEXT    NOT NULL,
    currency   TEXT    NOT NULL,
    events     INTEGER NOT NULL,
    revenue    REAL    NOT NULL,
    PRIMARY KEY (tenant, width, start, event_name, currency)
  ) STRICT, WITHOUT ROWID;`;

export function countsByCurrency(database: DatabaseSync): void {
  database.exec(TABLE);
  const store = new StoreConnection(database);
  const books = new StoreBooks(database);
  for (const { no } of store.tables()) {
    for (const event of eventsBetween(store, no, 0, Number.MAX_SAFE_INTEGER)) {
      const { timestamp, name, revenue, properties } = event;
      books.countEvent(event.tenant, { timestamp, name, revenue, currency: currencyOfStored(revenue, properties) });
    }
    books.flush();
  }
}
