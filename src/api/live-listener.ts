/**
 * One open stream of `GET /live`: filters, rate-limits and writes events. Each event is sent at most once, in order of
 * arrival, at most EVENTS_PER_SECOND_MAX per second. When events arrive faster, the newest are buffered for the next
 * second and displace older ones; displaced and oversized events are counted and reported as `skipped`, in order.
 * Memory is bounded by EVENTS_PER_SECOND_MAX events within BUFFERED_BYTES_MAX, plus as much in the socket buffer. A
 * client that reads nothing for STUCK_MS is disconnected.
 */

import type { ServerResponse } from 'node:http';
import { SECOND_MS } from '../model.ts';
import type { ArrivalFilter, ArrivedEvent, NewestArrivals } from '../store.ts';
import { jsonText } from './json-text.ts';
import type { People } from './person-of-event.ts';
import { eventJson } from './stored-json.ts';

export const EVENTS_PER_SECOND_MAX = 50;
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

/** Where a stream starts. */
export interface LiveStart {
  readonly cursor: string;
  readonly sequence: number;
}

/** An event, written out once for all who listen, and where it is in the order of arrival. */
export interface LiveEvent extends LiveStart {
  readonly bytes: Buffer;
}

/** With `people`, also the person that it belongs to. */
export function liveEvent(event: ArrivedEvent, people: People | undefined): LiveEvent {
  const { cursor, sequence } = event;
  return { cursor, sequence, bytes: Buffer.from(messageOf('event', cursor, jsonText(eventJson(event, people)))) };
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
  #at: LiveStart;
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

  constructor(response: ServerResponse, parts: { filter: LiveFilter; start: LiveStart; traceId: string; now: number }) {
    this.#response = response;
    this.filter = parts.filter;
    this.traceId = parts.traceId;
    this.#at = parts.start;
    this.#wroteAt = parts.now;
    // With an id from the start, a stream that breaks before its first event resumes without a gap.
    response.write(`retry: ${RETRY_MS}\nid: ${this.#at.cursor}\n\n`);
  }

  /** Up to where it has been offered everything. */
  get at(): LiveStart {
    return this.#at;
  }

  get isOpen(): boolean {
    return !this.#response.writableEnded && !this.#response.destroyed;
  }

  /**
   * Events read together, in order of arrival, and those skipped before them. Events that the stream already had are
   * ignored; skipped events that it had in part are counted in full.
   */
  offer(lives: readonly LiveEvent[], skipped: NewestArrivals['skipped'], now: number): void {
    const isNews = skipped !== null && skipped.sequence > this.#at.sequence;
    if (isNews) this.advanceTo(skipped);
    if (!this.isOpen) return;
    if (isNews) this.#wait({ cursor: skipped.cursor, bytes: null, events: skipped.events });
    for (const live of lives) {
      if (live.sequence <= this.#at.sequence) continue;
      this.advanceTo(live);
      const { cursor, bytes } = live;
      this.#wait(bytes.length > EVENT_BYTES_MAX ? { cursor, bytes: null, events: 1 } : { cursor, bytes, events: 1 });
    }
    this.#writeWaiting(now);
  }

  /** Nothing before it is of any more interest. */
  advanceTo({ cursor, sequence }: LiveStart): void {
    this.#at = { cursor, sequence };
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
    if (now - this.#wroteAt >= HEARTBEAT_MS) this.#write(`: still here\nid: ${this.#at.cursor}\n\n`, now);
  }

  close(): void {
    if (!this.isOpen) return;
    this.#response.end();
    const response = this.#response;
    const timer = setTimeout(() => response.destroy(), GOODBYE_MS).unref();
    response.once('close', () => clearTimeout(timer));
  }

  #wait(one: Waiting): void {
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
    this.#write(messageOf('skipped', this.#skippedCursor, data), now);
  }

  #write(message: string | Buffer, now: number): void {
    this.#wroteAt = now;
    this.#response.write(message);
  }
}

/** Line breaks can only stand between the tokens of JSON, where a space says the same. */
function messageOf(name: string, cursor: string, json: string): string {
  return `id: ${cursor}\nevent: ${name}\ndata: ${json.replaceAll(/[\r\n]/g, ' ')}\n\n`;
}
