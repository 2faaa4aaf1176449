/**
 * Reads arrivals for all open streams: one read every POLL_MS for all streams of a tenant that have the same filter,
 * less often while this server stores nothing. A stream shows a few events of thousands a second; the store scans the
 * rest and counts it. A stream that starts in the past reads on its own until it has caught up with the others, and
 * then joins them.
 *
 * Limits: LISTENERS_MAX streams in all and LISTENERS_PER_TENANT_MAX a tenant, on each edge; a tenant that stores more
 * between two polls than the store looks through in one call is shown late.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import type { TenantId } from '../model.ts';
import { maskedEvent } from '../plans/personal.ts';
import type { Plan } from '../plans/plan.ts';
import { BadCursorError, type EventReader, type NewestArrivals, type ProfileReader } from '../store.ts';
import { maskedPeople, type People, peopleOf } from './person-of-event.ts';
import {
  EVENTS_PER_SECOND_MAX,
  liveEvent,
  type LiveFilter,
  type LiveListener,
  type LiveStart,
} from './live-listener.ts';

const LISTENERS_MAX = 200;
const LISTENERS_PER_TENANT_MAX = 20;
const POLL_MS = 200;
/** One in so many polls reads even if this server has stored nothing: others may store into the same database. */
const POLLS_PER_READ_MAX = 3;

export interface LiveFeedParts {
  readonly store: EventReader & Pick<ProfileReader, 'people'>;
  /** How many events the processor has stored so far, of all tenants; grows after they can be read. */
  readonly storedEvents: () => number;
  readonly now: () => number;
  /** The tracking plan of a tenant, by which personal data is masked. */
  readonly planOf: (tenantId: TenantId) => Promise<Plan | null>;
  /** Called when nothing can be read, with the trace_id of a waiting stream. Must not throw. */
  readonly onUnavailable: (error: Error, traceId: string) => void;
}

/** The streams of one tenant with the same filter and the same position. */
interface Channel {
  readonly tenantId: TenantId;
  readonly filter: LiveFilter;
  readonly listeners: Set<LiveListener>;
  at: LiveStart;
  /** There may be more to read. */
  isBehind: boolean;
  isReading: boolean;
}

export class LiveFeed {
  readonly #parts: LiveFeedParts;
  /** By `channelName`. */
  readonly #channels = new Map<string, Channel>();
  /** All streams, whether they have caught up or not. */
  readonly #listeners = new Map<LiveListener, TenantId>();
  readonly #reserved = new Map<TenantId, number>();
  #reservedInAll = 0;
  #timer: NodeJS.Timeout | undefined;
  #storedEventsSeen = -1;
  #polls = 0;
  #isClosed = false;

  constructor(parts: LiveFeedParts) {
    this.#parts = parts;
  }

  /** Reserves a slot for a stream; returns the function that releases it, to be called once. Null when all are taken. */
  reserve(tenantId: TenantId): (() => void) | null {
    const ofTenant = this.#reserved.get(tenantId) ?? 0;
    if (this.#isClosed || this.#reservedInAll >= LISTENERS_MAX || ofTenant >= LISTENERS_PER_TENANT_MAX) return null;
    this.#reservedInAll += 1;
    this.#reserved.set(tenantId, ofTenant + 1);
    return () => {
      this.#reservedInAll -= 1;
      const left = (this.#reserved.get(tenantId) ?? 1) - 1;
      if (left === 0) this.#reserved.delete(tenantId);
      else this.#reserved.set(tenantId, left);
    };
  }

  /** Where a new stream starts: after its cursor, or now. Rejects with `BadCursorError` for a made-up one. */
  async startOf(tenantId: TenantId, after: string | null): Promise<LiveStart> {
    const { last, lastSequence } = await this.#parts.store.arrivals(tenantId, after, 1);
    // Numbers start with 1: a stream with a cursor has to read from there.
    return after === null ? { cursor: last, sequence: lastSequence } : { cursor: after, sequence: 0 };
  }

  add(tenantId: TenantId, listener: LiveListener): void {
    if (this.#isClosed) {
      listener.close();
      return;
    }
    this.#listeners.set(listener, tenantId);
    this.#timer ??= setInterval(() => this.#tick(), POLL_MS).unref();
    void this.#catchUp(tenantId, listener);
  }

  remove(listener: LiveListener): void {
    const tenantId = this.#listeners.get(listener);
    this.#listeners.delete(listener);
    if (this.#listeners.size === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
    }
    if (tenantId === undefined) return;
    const name = channelName(tenantId, listener.filter);
    const channel = this.#channels.get(name);
    if (channel?.listeners.delete(listener) && channel.listeners.size === 0) this.#channels.delete(name);
  }

  /** Ends all streams, and takes no more. */
  close(): void {
    this.#isClosed = true;
    for (const listener of this.#listeners.keys()) listener.close();
  }

  #tick(): void {
    // Looked at before reading: what is stored meanwhile changes it again.
    const stored = this.#parts.storedEvents();
    this.#polls += 1;
    const mayHaveMore = stored !== this.#storedEventsSeen || this.#polls % POLLS_PER_READ_MAX === 0;
    this.#storedEventsSeen = stored;
    for (const channel of this.#channels.values()) {
      if (mayHaveMore) channel.isBehind = true;
      if (channel.isBehind && !channel.isReading) void this.#readOn(channel);
    }
    const now = this.#parts.now();
    for (const listener of this.#listeners.keys()) listener.tick(now);
  }

  async #readOn(channel: Channel): Promise<void> {
    channel.isReading = true;
    channel.isBehind = false;
    try {
      const { page, people } = await this.#read(channel.tenantId, channel.at, channel.filter);
      // A page may end before the end. The one that finds nothing new is the last.
      channel.isBehind ||= page.last !== channel.at.cursor;
      this.#deliver(page, people, channel.listeners);
      channel.at = { cursor: page.last, sequence: page.lastSequence };
    } catch (error) {
      channel.isBehind = true;
      this.#report(error, [...channel.listeners][0]);
      // The store was restored to an earlier state: clients reconnect with their cursors and get an error that says what to do.
      if (error instanceof BadCursorError) this.#endChannel(channel);
    } finally {
      channel.isReading = false;
    }
  }

  #endChannel(channel: Channel): void {
    this.#channels.delete(channelName(channel.tenantId, channel.filter));
    for (const listener of channel.listeners) listener.close();
  }

  /** Nothing is awaited between the look at the channel and joining it, so no event falls in between. */
  async #catchUp(tenantId: TenantId, listener: LiveListener): Promise<void> {
    const { filter } = listener;
    const name = channelName(tenantId, filter);
    try {
      while (listener.isOpen) {
        const channel = this.#channels.get(name);
        if (channel === undefined) {
          const listeners = new Set([listener]);
          this.#channels.set(name, { tenantId, filter, listeners, at: listener.at, isBehind: true, isReading: false });
          return;
        }
        if (listener.at.sequence >= channel.at.sequence) {
          channel.listeners.add(listener);
          return;
        }
        const { page, people } = await this.#read(tenantId, listener.at, filter);
        this.#deliver(page, people, [listener]);
        await sleep(POLL_MS, undefined, { ref: false });
      }
    } catch (error) {
      // The client reconnects with its last cursor.
      listener.close();
      this.#report(error, listener);
    }
  }

  async #read(
    tenantId: TenantId,
    { cursor }: LiveStart,
    filter: LiveFilter,
  ): Promise<{ readonly page: NewestArrivals; readonly people: People | undefined }> {
    const { store } = this.#parts;
    const { eventName, profileId, keyId, includesPerson, showsPersonal } = filter;
    const page = await store.newestArrivals(tenantId, cursor, { eventName, profileId, keyId }, EVENTS_PER_SECOND_MAX);
    const people = await peopleOf(store, tenantId, includesPerson, page.events);
    const plan = showsPersonal || page.events.length === 0 ? null : await this.#parts.planOf(tenantId);
    if (plan === null) return { page, people };
    const events = page.events.map((event) => maskedEvent(plan, event));
    return { page: { ...page, events }, people: people && maskedPeople(plan, people) };
  }

  #deliver(
    { events, last, lastSequence, skipped }: NewestArrivals,
    people: People | undefined,
    to: Iterable<LiveListener>,
  ): void {
    const now = this.#parts.now();
    const written = events.map((event) => liveEvent(event, people));
    for (const listener of to) {
      listener.offer(written, skipped, now);
      if (listener.at.sequence < lastSequence) listener.advanceTo({ cursor: last, sequence: lastSequence });
    }
  }

  #report(error: unknown, listener: LiveListener | undefined): void {
    const reason = error instanceof Error ? error : new Error(String(error));
    this.#parts.onUnavailable(reason, listener?.traceId ?? '');
  }
}

function channelName(
  tenantId: TenantId,
  { eventName, profileId, keyId, includesPerson, showsPersonal }: LiveFilter,
): string {
  return JSON.stringify([tenantId, eventName, profileId, keyId, includesPerson, showsPersonal]);
}
