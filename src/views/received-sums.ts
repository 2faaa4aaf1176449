/**
 * What the records of a transaction add to the ledger, by hour of receipt, and to the received counts, by minute of receipt.
 * Gathered in memory until the store writes it, with the names of its columns. Pure.
 *
 * Invariant: a record counts once, when it is processed, whatever becomes of it.
 */

import type { RecordHeader, Tally } from '../store-writer.ts';
import { HOUR_MS, MINUTE_MS, startOf } from './sums.ts';

export const LEDGER_COLUMNS = [
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
export const RECEIPT_COLUMNS = ['users_accepted', 'users_rejected', 'events_accepted'] as const;

type Sums<Column extends string> = Record<Column, number> & { readonly tenant: number; readonly start: number };
export type LedgerSums = Sums<(typeof LEDGER_COLUMNS)[number]>;
export type ReceiptSums = Sums<(typeof RECEIPT_COLUMNS)[number]>;

export class ReceivedSums {
  readonly #hours = new Map<string, LedgerSums>();
  readonly #minutes = new Map<string, ReceiptSums>();

  add(tenant: number, header: RecordHeader, users: Tally, events: Tally): void {
    const hour = this.#receive(tenant, header);
    hour.users_stored += users.stored;
    hour.users_duplicates += users.duplicates;
    hour.users_erased += users.erased;
    hour.events_stored += events.stored;
    hour.events_duplicates += events.duplicates;
    hour.events_erased += events.erased;
  }

  /** A record that cannot be processed. */
  addFailed(tenant: number, header: RecordHeader): void {
    const hour = this.#receive(tenant, header);
    hour.users_set_aside += header.usersAccepted;
    hour.events_set_aside += header.eventsAccepted;
  }

  /** Both in the same order for every writer, so that two writers never wait for each other. */
  take(): { readonly hours: LedgerSums[]; readonly minutes: ReceiptSums[] } {
    const [hours, minutes] = [[...this.#hours.values()].sort(compare), [...this.#minutes.values()].sort(compare)];
    this.clear();
    return { hours, minutes };
  }

  clear(): void {
    this.#hours.clear();
    this.#minutes.clear();
  }

  #receive(tenant: number, { receivedAt, usersAccepted, usersRejected, eventsAccepted }: RecordHeader): LedgerSums {
    const minute = sumsOf(this.#minutes, RECEIPT_COLUMNS, tenant, startOf(receivedAt, MINUTE_MS));
    minute.users_accepted += usersAccepted;
    minute.users_rejected += usersRejected;
    minute.events_accepted += eventsAccepted;
    const hour = sumsOf(this.#hours, LEDGER_COLUMNS, tenant, startOf(receivedAt, HOUR_MS));
    hour.users_received += usersAccepted;
    hour.users_rejected += usersRejected;
    hour.events_received += eventsAccepted;
    return hour;
  }
}

function sumsOf<Column extends string>(
  all: Map<string, Sums<Column>>,
  columns: readonly Column[],
  tenant: number,
  start: number,
): Sums<Column> {
  const name = `${tenant} ${start}`;
  const known = all.get(name);
  if (known !== undefined) return known;
  const zeros = Object.fromEntries(columns.map((column) => [column, 0])) as Record<Column, number>;
  const sums = { tenant, start, ...zeros };
  all.set(name, sums);
  return sums;
}

function compare(a: { tenant: number; start: number }, b: { tenant: number; start: number }): number {
  return a.tenant - b.tenant || a.start - b.start;
}
