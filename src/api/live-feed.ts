/**
 * Reads arrivals for all who listen: one reading a tenant, however many streams it has, POLLS a second and only after the
 * processor has stored something. A stream gets every event after its start, each once: one that starts in the past, or
 * while others are ahead, reads on by itself until it is level with its tenant, and then goes along.
 *
 * Limits: LISTENERS_MAX streams in all and LISTENERS_PER_TENANT_MAX a tenant, each edge for itself; a tenant that stores
 * more than PAGES_PER_POLL pages between two polls is shown late, and a stream that starts in the past reads no faster. What
 * it cannot show of that is counted and told as `skipped`, like all that comes too fast.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import type { TenantId } from '../model.ts';
import { type Arrivals, BadCursorError, type Store } from '../store.ts';
import { type People, peopleOf } from './person-of-event.ts';
import { LiveEvent, type LiveListener, type LiveStart } from './live-listener.ts';

export const LISTENERS_MAX = 200;
export const LISTENERS_PER_TENANT_MAX = 20;
const POLL_MS = 200;
const PAGE_EVENTS = 500;
const PAGES_PER_POLL = 10;
const NOBODY: People = new Map();

export interface LiveFeedParts {
  readonly store: Store;
  /** How many events the processor has stored so far, of all tenants; moves after they can be read. */
  readonly storedEvents: () => number;
  readonly now: () => number;
  /** Told when nothing can be read, with the trace_id of one who waits for it. Must not throw. */
  readonly onUnavailable: (error: Error, traceId: string) => void;
}

/** The streams of one tenant that are level with each other, and up to where they are. */
interface Channel {
  readonly listeners: Set<LiveListener>;
  at: LiveStart;
  /** There may be more to read. */
  isBehind: boolean;
  isReading: boolean;
}

export class LiveFeed {
  readonly #parts: LiveFeedParts;
  readonly #channels = new Map<TenantId, Channel>();
  /** Of all streams, level or not yet. */
  readonly #listeners = new Map<LiveListener, TenantId>();
  readonly #reserved = new Map<TenantId, number>();
  #reservedInAll = 0;
  #timer: NodeJS.Timeout | undefined;
  #storedEventsSeen = -1;
  #isClosed = false;

  constructor(parts: LiveFeedParts) {
    this.#parts = parts;
  }

  /** Keeps a place for a stream; gives what lets it go again, to be called once. Null when there is none. */
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

  /** Where a new stream starts: after the place that it names, or now. Rejects with `BadCursorError` for a made-up one. */
  async startOf(tenantId: TenantId, after: string | null): Promise<LiveStart> {
    const { last, lastSequence } = await this.#parts.store.arrivals(tenantId, after, 1);
    // Numbers start with 1: whoever names a place has to read from there.
    return after === null ? { place: last, sequence: lastSequence } : { place: after, sequence: 0 };
  }

  add(tenantId: TenantId, listener: LiveListener): void {
    if (this.#isClosed) {
      listener.close();
      return;
    }
    this.#listeners.set(listener, tenantId);
    this.#timer ??= setInterval(() => this.#tick(), POLL_MS).unref();
    void this.#bringLevel(tenantId, listener);
  }

  remove(listener: LiveListener): void {
    const tenantId = this.#listeners.get(listener);
    this.#listeners.delete(listener);
    if (this.#listeners.size === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
    }
    const channel = tenantId === undefined ? undefined : this.#channels.get(tenantId);
    if (tenantId === undefined || channel === undefined) return;
    channel.listeners.delete(listener);
    if (channel.listeners.size === 0) this.#channels.delete(tenantId);
  }

  /** Ends all streams, and takes no more. */
  close(): void {
    this.#isClosed = true;
    for (const listener of this.#listeners.keys()) listener.close();
  }

  #tick(): void {
    // Looked at before reading: what is stored meanwhile moves it again.
    const stored = this.#parts.storedEvents();
    const hasMoved = stored !== this.#storedEventsSeen;
    this.#storedEventsSeen = stored;
    for (const [tenantId, channel] of this.#channels) {
      if (hasMoved) channel.isBehind = true;
      if (channel.isBehind && !channel.isReading) void this.#readOn(tenantId, channel);
    }
    const now = this.#parts.now();
    for (const listener of this.#listeners.keys()) listener.tick(now);
  }

  async #readOn(tenantId: TenantId, channel: Channel): Promise<void> {
    channel.isReading = true;
    try {
      for (let pages = 0; pages < PAGES_PER_POLL && channel.listeners.size > 0; pages += 1) {
        channel.isBehind = false;
        const { page, people } = await this.#read(tenantId, channel.at, channel.listeners);
        // A page may end before the end. The one that finds nothing new is the last.
        channel.isBehind ||= page.last !== channel.at.place;
        this.#deliver(page, people, channel.listeners);
        channel.at = { place: page.last, sequence: page.lastSequence };
        if (page.events.length < PAGE_EVENTS) break;
      }
    } catch (error) {
      channel.isBehind = true;
      this.#tell(error, [...channel.listeners][0]);
      // The store was set back: clients come back with the places up to which they got, and are told what to do.
      if (error instanceof BadCursorError) this.#endChannel(tenantId, channel);
    } finally {
      channel.isReading = false;
    }
  }

  #endChannel(tenantId: TenantId, channel: Channel): void {
    this.#channels.delete(tenantId);
    for (const listener of channel.listeners) listener.close();
  }

  /** Nothing is awaited between the look at the channel and joining it, so no event falls in between. */
  async #bringLevel(tenantId: TenantId, listener: LiveListener): Promise<void> {
    try {
      for (let pages = 1; listener.isOpen; pages += 1) {
        const channel = this.#channels.get(tenantId);
        if (channel === undefined) {
          const { place, sequence } = listener;
          const listeners = new Set([listener]);
          this.#channels.set(tenantId, { listeners, at: { place, sequence }, isBehind: true, isReading: false });
          return;
        }
        if (listener.sequence >= channel.at.sequence) {
          channel.listeners.add(listener);
          return;
        }
        const { page, people } = await this.#read(tenantId, listener, [listener]);
        this.#deliver(page, people, [listener]);
        if (pages % PAGES_PER_POLL === 0) await sleep(POLL_MS, undefined, { ref: false });
      }
    } catch (error) {
      // It comes back by itself, with the place up to which it got.
      listener.close();
      this.#tell(error, listener);
    }
  }

  async #read(
    tenantId: TenantId,
    { place }: LiveStart,
    listeners: Iterable<LiveListener>,
  ): Promise<{ readonly page: Arrivals; readonly people: People }> {
    const { store } = this.#parts;
    const page = await store.arrivals(tenantId, place, PAGE_EVENTS);
    if (page.events.length === 0) return { page, people: NOBODY };
    // After the events were read, so that no merge between the two hides one.
    for (const listener of listeners) {
      if (listener.filter.profileId === null) continue;
      listener.person = await personOf(store, tenantId, listener.filter.profileId);
    }
    const shown = [...listeners].flatMap((listener) => listener.showsPersonOf(page.events));
    return { page, people: (await peopleOf(store, tenantId, shown.length > 0, shown)) ?? NOBODY };
  }

  #deliver({ events, last, lastSequence }: Arrivals, people: People, listeners: Iterable<LiveListener>): void {
    const now = this.#parts.now();
    const written = events.map((event) => new LiveEvent(event, people));
    for (const listener of listeners) {
      listener.offer(written, now);
      if (listener.sequence < lastSequence) listener.moveTo({ place: last, sequence: lastSequence });
    }
  }

  #tell(error: unknown, listener: LiveListener | undefined): void {
    const reason = error instanceof Error ? error : new Error(String(error));
    this.#parts.onUnavailable(reason, listener?.traceId ?? '');
  }
}

/** All ids that stand for a person now; none for one that there is not. */
export async function personOf(store: Store, tenantId: TenantId, id: string): Promise<ReadonlySet<string>> {
  const profile = await store.profile(tenantId, id);
  return new Set(profile === undefined ? [] : [profile.id, ...profile.mergedIds]);
}
