/**
 * The sums that the writer keeps: events by minute and hour, with their revenue by currency, the number of profiles, and
 * the books by hour of receipt. They are gathered in
 * memory and written once per transaction, however many batches it has.
 *
 * Invariant: a sum of revenues does not depend on where transactions end. The stored sum is fetched at the first event
 * of a bucket, and each event is added to it in the order of the log.
 */

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { EventToStore, RecordHeader, Tally } from '../../../store-writer.ts';
import { amountToSum, type CountedCurrency } from '../../../stored/currency.ts';
import { HOUR_MS, MINUTE_MS } from '../../../stored/sums.ts';

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

interface LedgerRow {
  readonly tenant: number;
  readonly hour: number;
  usersReceived: number;
  usersStored: number;
  usersDuplicates: number;
  usersErased: number;
  usersSetAside: number;
  usersRejected: number;
  eventsReceived: number;
  eventsStored: number;
  eventsDuplicates: number;
  eventsErased: number;
  eventsSetAside: number;
}

const LEDGER_COLUMNS = [
  'users_received',
  'users_stored',
  'users_duplicates',
  'users_erased',
  'users_set_aside',
  'users_rejected',
  'events_received',
  'events_stored',
  'events_duplicates',
  'events_erased',
  'events_set_aside',
] as const;

/** The tenant, and how many more profiles it has. */
export const ADD_PROFILES =
  'INSERT INTO profile_counts VALUES (?, ?) ON CONFLICT DO UPDATE SET profiles = profiles + excluded.profiles';

export class StoreBooks {
  readonly #selectBucket: StatementSync;
  readonly #writeBucket: StatementSync;
  readonly #addToLedger: StatementSync;
  /** By tenant, then start of the minute. */
  readonly #minutes = new Map<number, Map<number, MinutesOfStart>>();
  readonly #hours = new Map<string, Bucket>();
  readonly #ledger = new Map<string, LedgerRow>();
  readonly #addProfiles: StatementSync;
  /** By tenant: how many more profiles there are. */
  readonly #profiles = new Map<number, number>();
  #lastRow: LedgerRow | undefined;

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
    const names = LEDGER_COLUMNS.join(', ');
    const sums = LEDGER_COLUMNS.map((name) => `${name} = ${name} + excluded.${name}`).join(', ');
    this.#addToLedger = database.prepare(
      `INSERT INTO ledger (tenant, hour, ${names}, users_expired, events_expired)
       VALUES (?, ?, ${LEDGER_COLUMNS.map(() => '?').join(', ')}, 0, 0) ON CONFLICT DO UPDATE SET ${sums}`,
    );
  }

  /** More profiles; fewer where it is below 0. */
  countProfiles(tenant: number, more: number): void {
    if (more !== 0) this.#profiles.set(tenant, (this.#profiles.get(tenant) ?? 0) + more);
  }

  countEvent(tenant: number, event: Pick<EventToStore, 'timestamp' | 'name' | 'revenue' | 'currency'>): void {
    const { timestamp, name, revenue, currency } = event;
    const start = Math.floor(timestamp / MINUTE_MS) * MINUTE_MS;
    // Not by one text made of both: making it would cost more than looking up twice.
    const names = this.#minutes.get(tenant)?.get(start)?.get(currency);
    const minute = names?.get(name) ?? this.#minute(tenant, start, name, currency);
    const amount = amountToSum(revenue, currency);
    add(minute, amount);
    add(minute.hour, amount);
  }

  bookRecord(tenant: number, header: RecordHeader, users: Tally, events: Tally): void {
    const row = this.#ledgerRow(tenant, header.receivedAt);
    row.usersReceived += header.usersAccepted;
    row.usersRejected += header.usersRejected;
    row.eventsReceived += header.eventsAccepted;
    row.usersStored += users.stored;
    row.usersDuplicates += users.duplicates;
    row.usersErased += users.erased;
    row.eventsStored += events.stored;
    row.eventsDuplicates += events.duplicates;
    row.eventsErased += events.erased;
  }

  bookSetAside(tenant: number, header: RecordHeader): void {
    const row = this.#ledgerRow(tenant, header.receivedAt);
    row.usersReceived += header.usersAccepted;
    row.usersRejected += header.usersRejected;
    row.eventsReceived += header.eventsAccepted;
    row.usersSetAside += header.usersAccepted;
    row.eventsSetAside += header.eventsAccepted;
  }

  /** To be called before the transaction is committed. */
  flush(): void {
    for (const starts of this.#minutes.values()) {
      for (const currencies of starts.values()) {
        for (const names of currencies.values()) for (const minute of names.values()) this.#write(minute);
      }
    }
    for (const hour of this.#hours.values()) this.#write(hour);
    for (const row of this.#ledger.values()) {
      this.#addToLedger.run(
        row.tenant,
        row.hour,
        row.usersReceived,
        row.usersStored,
        row.usersDuplicates,
        row.usersErased,
        row.usersSetAside,
        row.usersRejected,
        row.eventsReceived,
        row.eventsStored,
        row.eventsDuplicates,
        row.eventsErased,
        row.eventsSetAside,
      );
    }
    for (const [tenant, more] of this.#profiles) this.#addProfiles.run(tenant, more);
    this.forget();
  }

  forget(): void {
    this.#profiles.clear();
    this.#minutes.clear();
    this.#hours.clear();
    this.#ledger.clear();
    this.#lastRow = undefined;
  }

  #write({ tenant, width, start, eventName, currency, events, revenue }: Bucket): void {
    this.#writeBucket.run(tenant, width, start, eventName, currency, events, revenue);
  }

  #minute(tenant: number, start: number, name: string, currency: CountedCurrency): Minute {
    const hourStart = Math.floor(start / HOUR_MS) * HOUR_MS;
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

  #ledgerRow(tenant: number, receivedAt: number): LedgerRow {
    const hour = Math.floor(receivedAt / HOUR_MS) * HOUR_MS;
    // Nearly always that of the record before.
    if (this.#lastRow?.hour === hour && this.#lastRow.tenant === tenant) return this.#lastRow;
    const name = `${tenant} ${hour}`;
    const known = this.#ledger.get(name);
    if (known !== undefined) return (this.#lastRow = known);
    const row: LedgerRow = {
      tenant,
      hour,
      usersReceived: 0,
      usersStored: 0,
      usersDuplicates: 0,
      usersErased: 0,
      usersSetAside: 0,
      usersRejected: 0,
      eventsReceived: 0,
      eventsStored: 0,
      eventsDuplicates: 0,
      eventsErased: 0,
      eventsSetAside: 0,
    };
    this.#ledger.set(name, row);
    this.#lastRow = row;
    return row;
  }
}

function add(bucket: Bucket, revenue: number): void {
  bucket.events += 1;
  // Two absurd amounts must not add up to something that is no number.
  bucket.revenue = Math.max(-Number.MAX_VALUE, Math.min(Number.MAX_VALUE, bucket.revenue + revenue));
}
