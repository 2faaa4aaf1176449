/**
 * The open streams of `GET /live`. `LiveFeed` reads arrivals once per POLL_MS for all streams of a tenant that have the
 * same filter; a stream that starts in the past reads on its own until it has caught up with them. A tenant that stores
 * more between two polls than the store looks through in one call is shown late.
 *
 * `LiveListener` is one stream. Each event is sent at most once, in order of arrival. When they arrive faster than
 * EVENTS_PER_SECOND_MAX, the newest wait for the next second and displace older ones; displaced and oversized events are
 * reported as `skipped`, in order. Memory is bounded by BUFFERED_BYTES_MAX, plus as much in the socket buffer.
 */

import type { ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { SECOND_MS, type TenantId } from '../model.ts';
import { maskedEvent } from '../plans/personal.ts';
import type { Plan } from '../plans/plan.ts';
import {
  type ArrivalFilter,
  type ArrivedEvent,
  BadCursorError,
  type EventReader,
  type NewestArrivals,
  type ProfileReader,
} from '../store.ts';
import type { ApiParts } from './parts.ts';
import { jsonText } from './responses.ts';
import { eventJson, maskedPeople, type People, peopleOf } from './stored-json.ts';

const LISTENERS_MAX = 200;
const LISTENERS_PER_TENANT_MAX = 20;
const POLL_MS = 200;
/** One in so many polls reads even if this server has stored nothing: others may store into the same database. */
const POLLS_PER_READ_MAX = 3;

interface LiveFeedParts extends Pick<ApiParts, 'now' | 'onUnavailable'> {
  readonly store: EventReader & Pick<ProfileReader, 'people'>;
  /** How many events the processor has stored so far, of all tenants; grows after they can be read. */
  readonly storedEvents: () => number;
  /** The tracking plan of a tenant, by which personal data is masked. */
  readonly planOf: (tenantId: TenantId) => Promise<Plan | null>;
}

/** The streams of one tenant with the same filter and the same position. */
interface Channel {
  readonly tenantId: TenantId;
  readonly filter: LiveFilter;
  readonly listeners: Set<LiveListener>;
  at: LivePosition;
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
  /** One entry for each stream that is open, or about to be. */
  readonly #reserved = new Map<symbol, TenantId>();
  #timer: NodeJS.Timeout | undefined;
  #storedEventsSeen = -1;
  #polls = 0;
  #isClosed = false;

  constructor(parts: LiveFeedParts) {
    this.#parts = parts;
  }

  /** Reserves a slot for a stream; returns the function that releases it. Null when all are taken. */
  reserve(tenantId: TenantId): (() => void) | null {
    const ofTenant = [...this.#reserved.values()].filter((one) => one === tenantId).length;
    if (this.#isClosed || this.#reserved.size >= LISTENERS_MAX || ofTenant >= LISTENERS_PER_TENANT_MAX) return null;
    const reservation = Symbol('reservation');
    this.#reserved.set(reservation, tenantId);
    return () => this.#reserved.delete(reservation);
  }

  /** Where a new stream starts: after its cursor, or now. Rejects with `BadCursorError` for a made-up one. */
  async startOf(tenantId: TenantId, after: string | null): Promise<LivePosition> {
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
    const name = channelName(channel.tenantId, channel.filter);
    // Meanwhile its last listener may have left, and another channel have its name.
    if (this.#channels.get(name) === channel) this.#channels.delete(name);
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
        if (isLevel(listener.at, channel.at)) {
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
    { cursor }: LivePosition,
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
      if (listener.at.sequence < lastSequence) listener.at = { cursor: last, sequence: lastSequence };
    }
  }

  #report(error: unknown, listener: LiveListener | undefined): void {
    const reason = error instanceof Error ? error : new Error(String(error));
    this.#parts.onUnavailable(reason, listener?.traceId ?? '');
  }
}

/** Whether a stream has everything that the channel has read. Before its first read neither has a number yet. */
function isLevel(stream: LivePosition, channel: LivePosition): boolean {
  return stream.cursor === channel.cursor || (stream.sequence > 0 && stream.sequence >= channel.sequence);
}

function channelName(
  tenantId: TenantId,
  { eventName, profileId, keyId, includesPerson, showsPersonal }: LiveFilter,
): string {
  return JSON.stringify([tenantId, eventName, profileId, keyId, includesPerson, showsPersonal]);
}

const EVENTS_PER_SECOND_MAX = 50;
/** A second's worth of ordinary events. What listeners of one tenant have in common is in memory once. */
const BUFFERED_BYTES_MAX = 2_097_152;
/** Larger ones are in the API; a page could not show them. */
const EVENT_BYTES_MAX = 1_048_576;
/** Often enough for proxies, which close what is silent for a minute or so. */
const HEARTBEAT_MS = 15_000;
const STUCK_MS = 30_000;
/** How long a reader may take to hear that it is over. */
const GOODBYE_MS = 1_000;
const RETRY_MS = 1_000;

export interface LiveFilter extends ArrivalFilter {
  /** Whether events come with what to call their person. */
  readonly includesPerson: boolean;
  /** Whether what the tracking plan marks as personal is shown. */
  readonly showsPersonal: boolean;
}

/** Up to where a stream or a channel has read. `sequence` is 0 if only the cursor is known. */
export interface LivePosition {
  readonly cursor: string;
  readonly sequence: number;
}

/** An event, written out once for all who listen, and where it is in the order of arrival. */
export interface LiveEvent extends LivePosition {
  readonly bytes: Buffer;
}

/** With `people`, also the person that it belongs to. */
export function liveEvent(event: ArrivedEvent, people: People | undefined): LiveEvent {
  const { cursor, sequence } = event;
  return { cursor, sequence, bytes: Buffer.from(serverSentEvent('event', cursor, jsonText(eventJson(event, people)))) };
}

/** An event that is to be written when there is room; or, without bytes, how many cannot be, up to this cursor. */
type Waiting =
  | { readonly cursor: string; readonly bytes: Buffer; readonly events: 1 }
  | { readonly cursor: string; readonly bytes: null; readonly events: number };

export class LiveListener {
  readonly filter: LiveFilter;
  /** Names the request that opened the stream. */
  readonly traceId: string;
  readonly #response: ServerResponse;
  /** Up to where it has been offered everything: nothing before it is of any more interest. */
  at: LivePosition;
  #secondStart = 0;
  #shownThisSecond = 0;
  /** In order of arrival. */
  #waiting: Waiting[] = [];
  #waitingBytes = 0;
  #skipped = 0;
  /** Cursor of the last skipped event. */
  #skippedCursor = '';
  #reportedSkippedAt = 0;
  #wroteAt: number;
  #stuckSince: number | null = null;

  constructor(
    response: ServerResponse,
    parts: { filter: LiveFilter; start: LivePosition; traceId: string; now: number },
  ) {
    this.#response = response;
    this.filter = parts.filter;
    this.traceId = parts.traceId;
    this.at = parts.start;
    this.#wroteAt = parts.now;
    // With an id from the start, a stream that breaks before its first event resumes without a gap.
    response.write(`retry: ${RETRY_MS}\nid: ${this.at.cursor}\n\n`);
  }

  get isOpen(): boolean {
    return !this.#response.writableEnded && !this.#response.destroyed;
  }

  /**
   * Events read together, in order of arrival, and those skipped before them. Events that the stream already had are
   * ignored; skipped events that it had in part are counted in full.
   */
  offer(events: readonly LiveEvent[], skipped: NewestArrivals['skipped'], now: number): void {
    const isNews = skipped !== null && skipped.sequence > this.at.sequence;
    if (isNews) this.at = skipped;
    if (!this.isOpen) return;
    if (isNews) this.#enqueue({ cursor: skipped.cursor, bytes: null, events: skipped.events });
    for (const event of events) {
      if (event.sequence <= this.at.sequence) continue;
      const { cursor, sequence, bytes } = event;
      this.at = { cursor, sequence };
      this.#enqueue(bytes.length > EVENT_BYTES_MAX ? { cursor, bytes: null, events: 1 } : { cursor, bytes, events: 1 });
    }
    this.#writeWaiting(now);
  }

  /** Called a few times a second: writes what waits, reports what was skipped, sends a heartbeat, closes a stuck reader. */
  tick(now: number): void {
    if (!this.isOpen) return;
    if (this.#isFull()) {
      this.#stuckSince ??= now;
      if (now - this.#stuckSince >= STUCK_MS) this.#response.destroy();
      return;
    }
    this.#stuckSince = null;
    this.#writeWaiting(now);
    if (this.#waiting.length > 0) return;
    if (now - this.#reportedSkippedAt >= SECOND_MS) this.#reportSkipped(now);
    // The id of a message without data is remembered all the same: a filter that shows nothing for hours costs nothing.
    if (now - this.#wroteAt >= HEARTBEAT_MS) this.#write(`: still here\nid: ${this.at.cursor}\n\n`, now);
  }

  close(): void {
    if (!this.isOpen) return;
    this.#response.end();
    const response = this.#response;
    const timer = setTimeout(() => response.destroy(), GOODBYE_MS).unref();
    response.once('close', () => clearTimeout(timer));
  }

  #enqueue(one: Waiting): void {
    this.#waiting.push(one);
    this.#waitingBytes += one.bytes?.length ?? 0;
    while (this.#waiting.length > EVENTS_PER_SECOND_MAX || this.#waitingBytes > BUFFERED_BYTES_MAX) {
      const oldest = this.#takeOldest();
      if (oldest !== undefined) this.#skip(oldest);
    }
  }

  #takeOldest(): Waiting | undefined {
    const oldest = this.#waiting.shift();
    this.#waitingBytes -= oldest?.bytes?.length ?? 0;
    return oldest;
  }

  #skip({ cursor, events }: Waiting): void {
    this.#skipped += events;
    this.#skippedCursor = cursor;
  }

  /** The oldest first, so that the cursors on the stream only ever go forward. */
  #writeWaiting(now: number): void {
    if (this.#waiting.length === 0) return;
    if (now - this.#secondStart >= SECOND_MS || now < this.#secondStart) {
      this.#secondStart = now;
      this.#shownThisSecond = 0;
    }
    while (this.#shownThisSecond < EVENTS_PER_SECOND_MAX && !this.#isFull()) {
      const oldest = this.#takeOldest();
      if (oldest === undefined) return;
      if (oldest.bytes === null) {
        this.#skip(oldest);
        continue;
      }
      this.#reportSkipped(now);
      this.#shownThisSecond += 1;
      this.#write(oldest.bytes, now);
    }
  }

  #isFull(): boolean {
    return this.#response.writableLength > BUFFERED_BYTES_MAX;
  }

  #reportSkipped(now: number): void {
    if (this.#skipped === 0) return;
    const data = JSON.stringify({ events: this.#skipped });
    this.#skipped = 0;
    this.#reportedSkippedAt = now;
    this.#write(serverSentEvent('skipped', this.#skippedCursor, data), now);
  }

  #write(message: string | Buffer, now: number): void {
    this.#wroteAt = now;
    this.#response.write(message);
  }
}

/** Line breaks can only stand between the tokens of JSON, where a space says the same. */
function serverSentEvent(name: string, cursor: string, json: string): string {
  return `id: ${cursor}\nevent: ${name}\ndata: ${json.replaceAll(/[\r\n]/g, ' ')}\n\n`;
}
