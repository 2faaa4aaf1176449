/**
 * The open streams of `GET /live`, as the text of server-sent events. Every POLL_MS a stream reads what arrived after its
 * cursor; streams of a tenant that have the same filter and are level read together. A tenant that stores more between
 * two polls than the store looks through in one call is shown late.
 *
 * Each event is sent at most once, in order of arrival. When they arrive faster than EVENTS_PER_SECOND_MAX, the newest
 * wait for the next second and displace older ones; displaced and oversized events are reported as `skipped`, in order.
 * A stream reads no faster than its client does: what that misses is counted by the store. Memory is bounded: at most
 * WAITING_BYTES_MAX wait in a stream, and as much twice on the way to its socket.
 */

import type { ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { SECOND_MS, type TenantId } from '../model.ts';
import { maskedEvent } from '../plans/personal.ts';
import type { Plan } from '../plans/plan.ts';
import { type ArrivalFilter, BadCursorError, type EventReader, type ProfileReader } from '../store.ts';
import type { ApiParts } from './parts.ts';
import { jsonText } from './responses.ts';
import { eventJson, maskedPeople, peopleOf } from './stored-json.ts';

const STREAMS_MAX = 200;
const STREAMS_PER_TENANT_MAX = 20;
const POLL_MS = 200;
/** One in so many polls reads even if this server has stored nothing: others may store into the same database. */
const POLLS_PER_READ_MAX = 3;
const EVENTS_PER_SECOND_MAX = 50;
/** A second's worth of ordinary events. */
const WAITING_BYTES_MAX = 2_097_152;
/** Larger ones are in the API; a page could not show them. */
const EVENT_BYTES_MAX = 1_048_576;
/** Often enough for proxies, which close what is silent for a minute or so. */
const HEARTBEAT_MS = 15_000;
/** How long a client may take to hear that it is over. */
const GOODBYE_MS = 1_000;
const RETRY_MS = 1_000;

interface LiveFeedParts extends Pick<ApiParts, 'onUnavailable'> {
  /** A clock that only goes forward. */
  readonly now: () => number;
  readonly store: EventReader & Pick<ProfileReader, 'people'>;
  /** How many events the processor has stored so far, of all tenants; grows after they can be read. */
  readonly storedEvents: () => number;
  /** The tracking plan of a tenant, by which personal data is masked. */
  readonly planOf: (tenantId: TenantId) => Promise<Plan | null>;
}

export interface LiveFilter extends ArrivalFilter {
  readonly includesPerson: boolean;
  readonly showsPersonal: boolean;
}

/** What a stream shows: events of a tenant, by filter, after a cursor. */
interface LivePosition {
  readonly tenantId: TenantId;
  readonly filter: LiveFilter;
  readonly cursor: string;
}

/**
 * An event, written once for all streams that read it together; or, without text, how many are left out, up to the cursor.
 */
interface Message {
  readonly cursor: string;
  readonly text: Buffer | null;
  readonly events: number;
}

interface LivePage {
  readonly messages: readonly Message[];
  /** Where it ends. */
  readonly last: string;
}

export class LiveFeed {
  readonly #parts: LiveFeedParts;
  readonly #open = new Map<ServerResponse, TenantId>();
  readonly #reads = new Map<string, Promise<LivePage>>();
  #nextPoll: Promise<void> | undefined;
  #polls = 0;
  #isClosed = false;

  constructor(parts: LiveFeedParts) {
    this.#parts = parts;
  }

  /** Reserves a place until the response is closed; false if there is none. */
  open(tenantId: TenantId, response: ServerResponse): boolean {
    const ofTenant = [...this.#open.values()].filter((one) => one === tenantId).length;
    if (this.#isClosed || this.#open.size >= STREAMS_MAX || ofTenant >= STREAMS_PER_TENANT_MAX) return false;
    this.#open.set(response, tenantId);
    response.once('close', () => this.#open.delete(response));
    return true;
  }

  /** Streams end with their next poll, which one that waits for its client does not come to. */
  close(): void {
    this.#isClosed = true;
    setTimeout(() => {
      for (const response of this.#open.keys()) response.destroy();
    }, GOODBYE_MS).unref();
  }

  /** Where a new stream starts: after its cursor, or now. Rejects with `BadCursorError` for a made-up one. */
  async startOf(tenantId: TenantId, after: string | null): Promise<string> {
    const { last } = await this.#parts.store.arrivals(tenantId, after, 1);
    return after ?? last;
  }

  /** `isOver` is asked after each read, before anything of it is sent. */
  async *stream(start: LivePosition, isOver: () => Promise<boolean>): AsyncGenerator<Buffer | string, void> {
    const { now, storedEvents, onUnavailable } = this.#parts;
    const waiting = new Waiting();
    let { cursor } = start;
    let storedEventsSeen = -1;
    let wroteAt = now();
    // With an id from the start, a stream that breaks before its first event resumes without a gap.
    yield `retry: ${RETRY_MS}\nid: ${cursor}\n\n`;
    for (;;) {
      // Looked at before reading: what is stored meanwhile changes it again.
      const stored = storedEvents();
      if (stored !== storedEventsSeen || this.#polls % POLLS_PER_READ_MAX === 0) {
        try {
          const { messages, last } = await this.#readTogether({ ...start, cursor });
          waiting.add(messages);
          // A page may end before the end. The one that finds nothing new is the last.
          storedEventsSeen = last === cursor ? stored : -1;
          cursor = last;
        } catch (error) {
          onUnavailable(error instanceof Error ? error : new Error(String(error)));
          // The store was restored to an earlier state: clients reconnect with their cursors and get an error that says what to do.
          if (error instanceof BadCursorError) return;
        }
      }
      if (this.#isClosed || (await isOver())) return;
      const at = now();
      // The id of a message without data is remembered all the same: a filter that shows nothing for hours costs nothing.
      const heartbeat = at - wroteAt >= HEARTBEAT_MS ? `: still here\nid: ${cursor}\n\n` : null;
      const text = waiting.take(at) ?? heartbeat;
      if (text !== null) {
        yield text;
        wroteAt = at;
      }
      await this.#poll();
    }
  }

  /** At the same moment for all streams: those that are level stay so. */
  #poll(): Promise<void> {
    this.#nextPoll ??= sleep(POLL_MS).then(() => {
      this.#nextPoll = undefined;
      this.#polls += 1;
    });
    return this.#nextPoll;
  }

  #readTogether(from: LivePosition): Promise<LivePage> {
    const key = JSON.stringify(from);
    return this.#reads.getOrInsertComputed(key, () => this.#read(from).finally(() => this.#reads.delete(key)));
  }

  async #read({ tenantId, filter, cursor }: LivePosition): Promise<LivePage> {
    const { store, planOf } = this.#parts;
    const { eventName, profileId, keyId, includesPerson, showsPersonal } = filter;
    const which = { eventName, profileId, keyId };
    const { events, skipped, last } = await store.newestArrivals(tenantId, cursor, which, EVENTS_PER_SECOND_MAX);
    const people = await peopleOf(store, tenantId, includesPerson, events);
    const plan = showsPersonal || events.length === 0 ? null : await planOf(tenantId);
    const shownPeople = plan === null ? people : people && maskedPeople(plan, people);
    const shown = events.map((event): Message => {
      const json = jsonText(eventJson(plan === null ? event : maskedEvent(plan, event), shownPeople));
      const text = serverSentEvent('event', event.cursor, json);
      return { cursor: event.cursor, text: text.length > EVENT_BYTES_MAX ? null : text, events: 1 };
    });
    return { messages: skipped === null ? shown : [{ ...skipped, text: null }, ...shown], last };
  }
}

/** What a stream has to show: the newest wait, older ones are counted as skipped. */
class Waiting {
  readonly #messages: Message[] = [];
  #skipped = 0;
  #skippedCursor = '';
  #secondStart = Number.NEGATIVE_INFINITY;
  #shownThisSecond = 0;

  add(messages: readonly Message[]): void {
    this.#messages.push(...messages);
    let bytes = this.#messages.reduce((sum, { text }) => sum + (text?.length ?? 0), 0);
    while (this.#messages.length > EVENTS_PER_SECOND_MAX || bytes > WAITING_BYTES_MAX) {
      const oldest = this.#messages.shift() as Message;
      bytes -= oldest.text?.length ?? 0;
      this.#skip(oldest);
    }
  }

  /** What may be shown now, the oldest first, so that the cursors on the stream only ever go forward. */
  take(now: number): Buffer | null {
    if (now - this.#secondStart >= SECOND_MS) {
      this.#secondStart = now;
      this.#shownThisSecond = 0;
    }
    const texts: Buffer[] = [];
    while (this.#shownThisSecond < EVENTS_PER_SECOND_MAX) {
      const oldest = this.#messages.shift();
      if (oldest?.text === null) {
        this.#skip(oldest);
        continue;
      }
      texts.push(this.#reportSkipped());
      if (oldest === undefined) break;
      texts.push(oldest.text);
      this.#shownThisSecond += 1;
    }
    const text = Buffer.concat(texts);
    return text.length === 0 ? null : text;
  }

  #skip({ cursor, events }: Message): void {
    this.#skipped += events;
    this.#skippedCursor = cursor;
  }

  #reportSkipped(): Buffer {
    if (this.#skipped === 0) return Buffer.alloc(0);
    const data = JSON.stringify({ events: this.#skipped });
    this.#skipped = 0;
    return serverSentEvent('skipped', this.#skippedCursor, data);
  }
}

/** Line breaks can only stand between the tokens of JSON, where a space says the same. */
function serverSentEvent(name: string, cursor: string, json: string): Buffer {
  return Buffer.from(`id: ${cursor}\nevent: ${name}\ndata: ${json.replaceAll(/[\r\n]/g, ' ')}\n\n`);
}
