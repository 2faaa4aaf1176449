/**
 * Events of a transaction by minute and hour of their own timestamps, buffered until the store writes them. Pure.
 */

import { HOUR_MS, MINUTE_MS } from '../model.ts';
import type { EventToStore } from '../store-writer.ts';
import { amountToSum, type CountedCurrency } from './currency.ts';
import { Decimal } from './decimal.ts';
import { startOf } from './sums.ts';

export interface CountedBucket {
  readonly tenant: number;
  /** In milliseconds. */
  readonly width: number;
  readonly start: number;
  readonly eventName: string;
  readonly currency: CountedCurrency;
  events: number;
  revenue: Decimal;
}

/** A minute, and the hour that it is part of. */
interface Minute extends CountedBucket {
  readonly hour: CountedBucket;
}

/** By currency, then name. */
type MinutesOfStart = Map<CountedCurrency, Map<string, Minute>>;

const NOTHING = { events: 0, revenue: Decimal.ZERO };

type BucketKey = Pick<CountedBucket, 'width' | 'start' | 'eventName' | 'currency'> & Partial<CountedBucket>;

/** The order in which all writers lock buckets, so that two never deadlock. */
export function compareBuckets(a: BucketKey, b: BucketKey): number {
  return (
    (a.tenant ?? 0) - (b.tenant ?? 0) ||
    a.width - b.width ||
    a.start - b.start ||
    (a.eventName < b.eventName ? -1 : +(a.eventName > b.eventName)) ||
    (a.currency < b.currency ? -1 : +(a.currency > b.currency))
  );
}

export class EventCounts {
  /** By tenant, then start. */
  readonly #minutes = new Map<number, Map<number, MinutesOfStart>>();
  readonly #hours = new Map<string, CountedBucket>();
  readonly #listed: Minute[] = [];

  add(tenant: number, { timestamp, name, revenue, currency }: CountedEvent): void {
    const start = startOf(timestamp, MINUTE_MS);
    // Not by one text made of all: making it would cost more than looking up four times.
    const names = this.#minutes.get(tenant)?.get(start)?.get(currency);
    const minute = names?.get(name) ?? this.#minute(tenant, start, name, currency);
    minute.events += 1;
    const amount = amountToSum(revenue, currency);
    if (amount !== 0) minute.revenue = minute.revenue.plus(Decimal.of(amount));
  }

  take(): CountedBucket[] {
    for (const { hour, events, revenue } of this.#listed) {
      hour.events += events;
      hour.revenue = hour.revenue.plus(revenue);
    }
    const buckets = [...this.#hours.values(), ...this.#listed];
    this.clear();
    return buckets;
  }

  clear(): void {
    this.#minutes.clear();
    this.#hours.clear();
    this.#listed.length = 0;
  }

  #minute(tenant: number, start: number, eventName: string, currency: CountedCurrency): Minute {
    const hourStart = startOf(start, HOUR_MS);
    // A currency has no space in it.
    const hourName = `${tenant} ${hourStart} ${currency} ${eventName}`;
    let hour = this.#hours.get(hourName);
    if (hour === undefined) {
      hour = { tenant, width: HOUR_MS, start: hourStart, eventName, currency, ...NOTHING };
      this.#hours.set(hourName, hour);
    }
    const minute = { tenant, width: MINUTE_MS, start, eventName, currency, ...NOTHING, hour };
    this.#listed.push(minute);
    const starts = this.#minutes.get(tenant) ?? new Map<number, MinutesOfStart>();
    const currencies: MinutesOfStart = starts.get(start) ?? new Map();
    const names = currencies.get(currency) ?? new Map<string, Minute>();
    this.#minutes.set(tenant, starts.set(start, currencies.set(currency, names.set(eventName, minute))));
    return minute;
  }
}

type CountedEvent = Pick<EventToStore, 'timestamp' | 'name' | 'revenue' | 'currency'>;
