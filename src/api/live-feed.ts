/**
 * The open streams of `GET /live`. `LiveFeed` reads arrivals once per POLL_MS for all streams of a tenant that have the
 * same filter and are level; a new stream reads on its own until it is. A tenant that stores more between two polls than
 * the store looks through in one call is shown late.
 *
 * `LiveListener` is one stream. Each event is sent at most once, in order of arrival. When they arrive faster than
 * EVENTS_PER_SECOND_MAX, the newest wait for the next second and displace older ones; displaced and oversized events are
 * reported as `skipped`, in order. Memory is bounded by BUFFERED_BYTES_MAX, plus as much in the socket buffer.
 */

import type { ServerResponse } from 'node:http';
import { isDeepStrictEqual } from 'node:util';
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

/** The streams of one tenant with the same filter that have read up to the same event. */
interface Channel {
  readonly tenantId: TenantId;
  readonly filter: LiveFilter;
  readonly listeners: Set<LiveListener>;
  at: LivePosition;
  isBehind: boolean;
  isReading: boolean;
}

export class LiveFeed {
  readonly #parts: LiveFeedParts;
  readonly #channels = new Set<Channel>();
  #timer: NodeJS.Timeout | undefined;
  #storedEventsSeen = -1;
  #polls = 0;
  #isClosed = false;

  constructor(parts: LiveFeedParts) {
    this.#parts = parts;
  }

  /** Whether there is no room for another stream of this tenant. */
  isFull(tenantId: TenantId): boolean {
    const open = [...this.#channels].flatMap((channel) => [...channel.listeners].map(() => channel.tenantId));
    const ofTenant = open.filter((one) => one === tenantId).length;
    return this.#isClosed || open.length >= LISTENERS_MAX || ofTenant >= LISTENERS_PER_TENANT_MAX;
  }

  /** Where a new stream starts: after its cursor, or now. Rejects with `BadCursorError` for a made-up one. */
  async startOf(tenantId: TenantId, after: string | null): Promise<LivePosition> {
    const { last, lastSequence } = await this.#parts.store.arrivals(tenantId, after, 1);
    // Numbers start with 1: a stream with a cursor has to read from there.
    return after === null ? { cursor: last, sequence: lastSequence } : { cursor: after, sequence: 0 };
  }

  /** It reads on its own until it is level with another channel. */
  add(tenantId: TenantId, listener: LiveListener): void {
    const { filter, at } = listener;
    const channel = { tenantId, filter, listeners: new Set([listener]), at, isBehind: true, isReading: false };
    this.#channels.add(channel);
    this.#timer ??= setInterval(() => this.#tick(), POLL_MS).unref();
    void this.#readOn(channel);
  }

  remove(listener: LiveListener): void {
    for (const channel of this.#channels) {
      if (channel.listeners.delete(listener) && channel.listeners.size === 0) this.#channels.delete(channel);
    }
    if (this.#channels.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  close(): void {
    this.#isClosed = true;
    for (const channel of this.#channels) this.#end(channel);
  }

  #end(channel: Channel): void {
    this.#channels.delete(channel);
    for (const listener of channel.listeners) listener.close();
  }

  #tick(): void {
    // Looked at before reading: what is stored meanwhile changes it again.
    const stored = this.#parts.storedEvents();
    this.#polls += 1;
    const mayHaveMore = stored !== this.#storedEventsSeen || this.#polls % POLLS_PER_READ_MAX === 0;
    this.#storedEventsSeen = stored;
    const now = this.#parts.now();
    for (const channel of this.#channels) {
      if (mayHaveMore) channel.isBehind = true;
      if (channel.isBehind && !channel.isReading) void this.#readOn(channel);
      for (const listener of channel.listeners) listener.tick(now);
    }
  }

  async #readOn(channel: Channel): Promise<void> {
    channel.isReading = true;
    channel.isBehind = false;
    try {
      const { page, people } = await this.#read(channel);
      const { last: cursor, lastSequence: sequence } = page;
      const written = page.events.map((event) => liveEvent(event, people));
      const now = this.#parts.now();
      for (const listener of channel.listeners) {
        listener.offer(written, page.skipped, now);
        if (listener.at.sequence < sequence) listener.at = { cursor, sequence };
      }
      // A page may end before the end. The one that finds nothing new is the last.
      channel.isBehind ||= cursor !== channel.at.cursor;
      channel.at = { cursor, sequence };
      this.#join(channel);
    } catch (error) {
      channel.isBehind = true;
      this.#parts.onUnavailable(error instanceof Error ? error : new Error(String(error)));
      // The store was restored to an earlier state: clients reconnect with their cursors and get an error that says what to do.
      if (error instanceof BadCursorError) this.#end(channel);
    } finally {
      channel.isReading = false;
    }
  }

  /**
   * Moves the streams of a channel to the oldest one with its filter, once they have had all that it has read: they
   * ignore what they have had beyond. The oldest one itself stays, or it would wait for each new one that starts behind.
   */
  #join(channel: Channel): void {
    const oldest = [...this.#channels].find(
      ({ tenantId, filter }) => tenantId === channel.tenantId && isDeepStrictEqual(filter, channel.filter),
    );
    if (oldest === undefined || oldest === channel) return;
    const { at, listeners } = oldest;
    // Before its first read a channel has no number.
    const isLevel = at.cursor === channel.at.cursor || (at.sequence > 0 && at.sequence <= channel.at.sequence);
    if (!isLevel) return;
    for (const listener of channel.listeners) listeners.add(listener);
    oldest.isBehind = true;
    this.#channels.delete(channel);
  }

  async #read({ tenantId, at, filter }: Channel): Promise<{ page: NewestArrivals; people: People | undefined }> {
    const { store } = this.#parts;
    const { eventName, profileId, keyId, includesPerson, showsPersonal } = filter;
    const which = { eventName, profileId, keyId };
    const page = await store.newestArrivals(tenantId, at.cursor, which, EVENTS_PER_SECOND_MAX);
    const people = await peopleOf(store, tenantId, includesPerson, page.events);
    const plan = showsPersonal || page.events.length === 0 ? null : await this.#parts.planOf(tenantId);
    if (plan === null) return { page, people };
    const events = page.events.map((event) => maskedEvent(plan, event));
    return { page: { ...page, events }, people: people && maskedPeople(plan, people) };
  }
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
  readonly includesPerson: boolean;
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

export function liveEvent(event: ArrivedEvent, people: People | undefined): LiveEvent {
  const { cursor, sequence } = event;
  return { cursor, sequence, bytes: Buffer.from(serverSentEvent('event', cursor, jsonText(eventJson(event, people)))) };
}

/** An event that is to be written when there is room; or, without bytes, how many cannot be, up to this cursor. */
interface Waiting {
  readonly cursor: string;
  readonly bytes: Buffer | null;
  readonly events: number;
}

export class LiveListener {
  readonly filter: LiveFilter;
  readonly #response: ServerResponse;
  /** Up to where it has been offered everything: nothing before it is of any more interest. */
  at: LivePosition;
  #secondStart = 0;
  #shownThisSecond = 0;
  #waiting: Waiting[] = [];
  #waitingBytes = 0;
  #skipped = 0;
  #skippedCursor = '';
  #reportedSkippedAt = 0;
  #wroteAt: number;
  #stuckSince: number | null = null;

  constructor(response: ServerResponse, parts: { filter: LiveFilter; start: LivePosition; now: number }) {
    this.#response = response;
    this.filter = parts.filter;
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
      this.#enqueue({ cursor, bytes: bytes.length > EVENT_BYTES_MAX ? null : bytes, events: 1 });
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
