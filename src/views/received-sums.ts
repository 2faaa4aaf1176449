/**
 * What the records of a transaction add to the ledger, by hour of receipt, and to the receipts, by minute of receipt.
 * Buffered until the store writes it, with the names of its columns. Pure.
 *
 * Invariant: a record counts once, when it is processed, whatever becomes of it. A dead letter that is retried moves from
 * dead letters to what becomes of it. A rejected user that is resubmitted is received from now on, in the hour of its
 * request; it stays one of the rejected users, as the response said, and receipts stay as they are.
 */

import { HOUR_MS, MINUTE_MS } from '../model.ts';
import type { LedgerSums } from '../store.ts';
import type { RecordHeader, Tally } from '../store-writer.ts';
import { startOf } from './sums.ts';

/** What can become of a received user or event. */
const OUTCOMES = ['received', 'stored', 'duplicates', 'erased', 'expired', 'dead_letters'] as const;
type Outcome = (typeof OUTCOMES)[number];

/** Columns of the ledger. */
export type LedgerSum =
  | `users_${Outcome}`
  | `events_${Outcome}`
  | 'users_rejected'
  | 'users_resubmitted'
  | 'dropped_by_clients';
export const LEDGER_SUMS: readonly LedgerSum[] = [
  ...OUTCOMES.map((outcome) => `users_${outcome}` as const),
  'users_rejected',
  'users_resubmitted',
  ...OUTCOMES.map((outcome) => `events_${outcome}` as const),
  'dropped_by_clients',
];
const RECEIPT_COLUMNS = ['users_accepted', 'users_rejected', 'events_accepted'] as const;

type LedgerRow = Record<'tenant' | 'hour' | LedgerSum, number>;
export type ReceiptRow = Record<'tenant' | 'minute' | (typeof RECEIPT_COLUMNS)[number], number>;

export class ReceivedSums {
  readonly #hours = new Map<string, LedgerRow>();
  readonly #minutes = new Map<string, ReceiptRow>();

  add(tenant: number, header: RecordHeader, users: Tally, events: Tally): void {
    const hour = this.#hourOf(tenant, header);
    hour.users_stored += users.stored;
    hour.users_duplicates += users.duplicates;
    hour.users_erased += users.erased;
    hour.events_stored += events.stored;
    hour.events_duplicates += events.duplicates;
    hour.events_erased += events.erased;
  }

  /** What a client reported with a record that is not a duplicate. */
  addDropped(tenant: number, { receivedAt, droppedByClient = 0 }: RecordHeader): void {
    if (droppedByClient > 0) this.#hour(tenant, receivedAt).dropped_by_clients += droppedByClient;
  }

  /** A record that cannot be processed. */
  addFailed(tenant: number, header: RecordHeader): void {
    const hour = this.#receive(tenant, header);
    hour.users_dead_letters += header.usersAccepted;
    hour.events_dead_letters += header.eventsAccepted;
  }

  /** Both in the same order for every writer, so that two writers never wait for each other. */
  take(): { readonly hours: LedgerRow[]; readonly minutes: ReceiptRow[] } {
    const hours = [...this.#hours.values()].sort((a, b) => a.tenant - b.tenant || a.hour - b.hour);
    const minutes = [...this.#minutes.values()].sort((a, b) => a.tenant - b.tenant || a.minute - b.minute);
    this.clear();
    return { hours, minutes };
  }

  clear(): void {
    this.#hours.clear();
    this.#minutes.clear();
  }

  #hourOf(tenant: number, header: RecordHeader): LedgerRow {
    const { receivedAt, usersAccepted, eventsAccepted } = header;
    if (header.isRetried === undefined && header.resubmitted === undefined) return this.#receive(tenant, header);
    const hour = this.#hour(tenant, receivedAt);
    if (header.isRetried) {
      hour.users_dead_letters -= usersAccepted;
      hour.events_dead_letters -= eventsAccepted;
    } else {
      hour.users_received += usersAccepted;
      hour.events_received += eventsAccepted;
      hour.users_resubmitted += usersAccepted;
    }
    return hour;
  }

  #receive(tenant: number, { receivedAt, usersAccepted, usersRejected, eventsAccepted }: RecordHeader): LedgerRow {
    const minute = sumsOf(this.#minutes, 'minute', RECEIPT_COLUMNS, tenant, startOf(receivedAt, MINUTE_MS));
    minute.users_accepted += usersAccepted;
    minute.users_rejected += usersRejected;
    minute.events_accepted += eventsAccepted;
    const hour = this.#hour(tenant, receivedAt);
    hour.users_received += usersAccepted;
    hour.users_rejected += usersRejected;
    hour.events_received += eventsAccepted;
    return hour;
  }

  #hour(tenant: number, receivedAt: number): LedgerRow {
    return sumsOf(this.#hours, 'hour', LEDGER_SUMS, tenant, startOf(receivedAt, HOUR_MS));
  }
}

function sumsOf<Start extends string, Column extends string>(
  all: Map<string, Record<'tenant' | Start | Column, number>>,
  start: Start,
  columns: readonly Column[],
  tenant: number,
  at: number,
): Record<'tenant' | Start | Column, number> {
  return all.getOrInsertComputed(`${tenant} ${at}`, () => {
    const zeros = Object.fromEntries(columns.map((column) => [column, 0]));
    return { tenant, [start]: at, ...zeros } as Record<'tenant' | Start | Column, number>;
  });
}

export const NO_SUMS = { received: 0, stored: 0, duplicates: 0, erased: 0, expired: 0, deadLetters: 0, pending: 0 };

/** The sums in columns such as `users_received`, without what is still in the log. */
export function ledgerSumsOf(row: Readonly<Record<string, number | null>>, what: 'users' | 'events'): LedgerSums {
  const sum = (column: Outcome): number => row[`${what}_${column}`] ?? 0;
  return {
    received: sum('received'),
    stored: sum('stored'),
    duplicates: sum('duplicates'),
    erased: sum('erased'),
    expired: sum('expired'),
    deadLetters: sum('dead_letters'),
    pending: 0,
  };
}
