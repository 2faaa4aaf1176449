/**
 * The sums that the writer keeps: events by minute and hour, with their revenue by currency, the number of profiles, the
 * ledger by hour of receipt, and what came in by minute of receipt. They are gathered in memory and written once per
 * transaction, however many batches it has.
 *
 * Invariant: a sum of revenues does not depend on where transactions end. The stored sum is fetched at the first event
 * of a bucket, and each event is added to it in the order of the log.
 */

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { EventToStore, RecordHeader, Tally } from '../../../store-writer.ts';
import { amountToSum, type CountedCurrency } from '../../../views/currency.ts';
import { LEDGER_COLUMNS, RECEIPT_COLUMNS, ReceivedSums } from '../../../views/received-sums.ts';
import { finite, HOUR_MS, MINUTE_MS, startOf } from '../../../views/sums.ts';

interface Bucket {
  readonly tenant: number;
  readonly width: number;
  readonly start: number;
  readonly eventName: string;
  readonly currency: CountedCurrency;
  events: number;
  revenue: number;
}

/** A minute, and the hour that it is part of. */
interface Minute extends Bucket {
  readonly hour: Bucket;
}

/** By currency, then name. */
type MinutesOfStart = Map<CountedCurrency, Map<string, Minute>>;

/** The tenant, and how many more profiles it has. */
export const ADD_PROFILES =
  'INSERT INTO profile_counts VALUES (?, ?) ON CONFLICT DO UPDATE SET profiles = profiles + excluded.profiles';

export class StoreBooks {
  readonly #selectBucket: StatementSync;
  readonly #writeBucket: StatementSync;
  readonly #addToLedger: StatementSync;
  readonly #addToReceipts: StatementSync;
  /** By tenant, then start of the minute. */
  readonly #minutes = new Map<number, Map<number, MinutesOfStart>>();
  readonly #hours = new Map<string, Bucket>();
  readonly #received = new ReceivedSums();
  readonly #addProfiles: StatementSync;
  /** By tenant: how many more profiles there are. */
  readonly #profiles = new Map<number, number>();

  constructor(database: DatabaseSync) {
    this.#selectBucket = database.prepare(
      `SELECT events, revenue FROM counts
       WHERE tenant = ? AND width = ? AND start = ? AND event_name = ? AND currency = ?`,
    );
    this.#writeBucket = database.prepare(
      `INSERT INTO counts VALUES (?, ?, ?, ?, ?, ?, ?)
       ON CONFLICT DO UPDATE SET events = excluded.events, revenue = excluded.revenue`,
    );
    this.#addProfiles = database.prepare(ADD_PROFILES);
    this.#addToLedger = database.prepare(addTo('ledger', 'hour', LEDGER_COLUMNS, ['users_expired', 'events_expired']));
    this.#addToReceipts = database.prepare(addTo('receipts', 'minute', RECEIPT_COLUMNS));
  }

  /** More profiles; fewer where it is below 0. */
  countProfiles(tenant: number, more: number): void {
    if (more !== 0) this.#profiles.set(tenant, (this.#profiles.get(tenant) ?? 0) + more);
  }

  countEvent(tenant: number, event: Pick<EventToStore, 'timestamp' | 'name' | 'revenue' | 'currency'>): void {
    const { timestamp, name, revenue, currency } = event;
    const start = startOf(timestamp, MINUTE_MS);
    // Not by one text made of both: making it would cost more than looking up twice.
    const names = this.#minutes.get(tenant)?.get(start)?.get(currency);
    const minute = names?.get(name) ?? this.#minute(tenant, start, name, currency);
    const amount = amountToSum(revenue, currency);
    add(minute, amount);
    add(minute.hour, amount);
  }

  bookRecord(tenant: number, header: RecordHeader, users: Tally, events: Tally): void {
    this.#received.add(tenant, header, users, events);
  }

  addDeadLetter(tenant: number, header: RecordHeader): void {
    this.#received.addFailed(tenant, header);
  }

  /** To be called before the transaction is committed. */
  flush(): void {
    for (const starts of this.#minutes.values()) {
      for (const currencies of starts.values()) {
        for (const names of currencies.values()) for (const minute of names.values()) this.#write(minute);
      }
    }
    for (const hour of this.#hours.values()) this.#write(hour);
    const { hours, minutes } = this.#received.take();
    for (const sums of hours) {
      this.#addToLedger.run(sums.tenant, sums.start, ...LEDGER_COLUMNS.map((column) => sums[column]));
    }
    for (const sums of minutes) {
      this.#addToReceipts.run(sums.tenant, sums.start, ...RECEIPT_COLUMNS.map((column) => sums[column]));
    }
    for (const [tenant, more] of this.#profiles) this.#addProfiles.run(tenant, more);
    this.forget();
  }

  forget(): void {
    this.#profiles.clear();
    this.#minutes.clear();
    this.#hours.clear();
    this.#received.clear();
  }

  #write({ tenant, width, start, eventName, currency, events, revenue }: Bucket): void {
    this.#writeBucket.run(tenant, width, start, eventName, currency, events, revenue);
  }

  #minute(tenant: number, start: number, name: string, currency: CountedCurrency): Minute {
    const hourStart = startOf(start, HOUR_MS);
    // A currency has no space in it.
    const hourName = `${tenant} ${hourStart} ${currency} ${name}`;
    const hour = this.#hours.get(hourName) ?? this.#stored(tenant, HOUR_MS, hourStart, name, currency);
    this.#hours.set(hourName, hour);
    const minute = { ...this.#stored(tenant, MINUTE_MS, start, name, currency), hour };
    const starts = this.#minutes.get(tenant) ?? new Map<number, MinutesOfStart>();
    const currencies: MinutesOfStart = starts.get(start) ?? new Map();
    const names = currencies.get(currency) ?? new Map<string, Minute>();
    this.#minutes.set(tenant, starts.set(start, currencies.set(currency, names.set(name, minute))));
    return minute;
  }

  #stored(tenant: number, width: number, start: number, eventName: string, currency: CountedCurrency): Bucket {
    const row = this.#selectBucket.get(tenant, width, start, eventName, currency);
    const { events = 0, revenue = 0 } = (row ?? {}) as { events?: number; revenue?: number };
    return { tenant, width, start, eventName, currency, events, revenue };
  }
}

/** `others` are columns that begin with 0, and are changed elsewhere. */
function addTo(table: string, start: string, columns: readonly string[], others: readonly string[] = []): string {
  const values = [...columns.map(() => '?'), ...others.map(() => '0')].join(', ');
  const sums = columns.map((name) => `${name} = ${name} + excluded.${name}`).join(', ');
  return `INSERT INTO ${table} (tenant, ${[start, ...columns, ...others].join(', ')}) VALUES (?, ?, ${values})
    ON CONFLICT DO UPDATE SET ${sums}`;
}

function add(bucket: Bucket, revenue: number): void {
  bucket.events += 1;
  bucket.revenue = finite(bucket.revenue + revenue);
}
