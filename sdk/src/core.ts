/**
 * The client, the same on every platform: it turns calls into users with one event each and puts them into the queue
 * (`queue.ts`, which describes its states).
 *
 *   const sluice = new Sluice({ url, key });
 *   sluice.identify({ user_id: 'ada' }, { plan: 'pro' });   who the following calls are about
 *   sluice.track('order_placed', { revenue: 42.5 });
 *   sluice.user({ user_id: 'bob' }).track('signed_up');     one call about another person: for servers
 *   sluice.on('rejected' | 'dropped' | 'delivered' | 'retry', listener);
 *   await sluice.flush();                                   what was delivered, and what was rejected and why
 *   await sluice.close({ timeoutMs: 5_000 });
 *
 * Calls never throw for what is wrong with their data and never wait: `$event_id` and `timestamp` are of the moment of the
 * call. A platform (`server.ts`, `browser.ts`) adds limits, storage and who the person is.
 */

import { type FlushResult, type Limits, Queue, type QueueParts, type SluiceEvents } from './queue.ts';
import { newId } from './uuid.ts';

/** Who it is about: at least one of the four identifiers, and profile fields such as `first_name` or `city`. */
export interface Identifiers {
  readonly user_id?: string;
  readonly email?: string;
  readonly phone_number?: string;
  readonly anon_id?: string;
  readonly [profileField: string]: string | undefined;
}

export type Properties = Readonly<Record<string, unknown>>;

/** Event names and their properties: `{ order_placed: { revenue: number } }`. Without one, any name and any properties. */
export type AnyPlan = Record<string, Properties>;

/** One call before it is sent. `before` may return another one, or null to drop it. */
export interface Call {
  readonly identifiers: Identifiers;
  readonly user_properties?: Properties;
  readonly event: Readonly<{ event_name: string; $event_id: string; timestamp: string }> & Properties;
}

export interface SluiceOptions extends Partial<Limits> {
  /** The address of the server, such as `https://events.example.com`. */
  readonly url: string;
  /** A publishable key in browsers and apps, a secret one on servers. */
  readonly key: string;
  /** Sees every call before it is queued: returns it, a changed one, or null to drop it. */
  readonly before?: (call: Call) => Call | null;
}

export interface TrackOptions {
  /** When it happened, if not now. */
  readonly timestamp?: Date;
  /** An id of your own, so that the same event sent again is stored once. */
  readonly event_id?: string;
}

export interface WaitOptions {
  readonly timeoutMs?: number;
}

/** Properties may be left out where the plan requires none. */
export type TrackArguments<EventProperties> =
  Partial<EventProperties> extends EventProperties
    ? [properties?: EventProperties, options?: TrackOptions]
    : [properties: EventProperties, options?: TrackOptions];

/** Calls about one person. */
export interface Person<Plan> {
  identify(userProperties?: Properties): string;
  track<Name extends keyof Plan & string>(name: Name, ...rest: TrackArguments<Plan[Name]>): string;
}

/** What a platform adds. */
export interface Platform
  extends Pick<QueueParts, 'keep' | 'isAllowed' | 'exclusively' | 'keepaliveBytesMax' | 'beacon'> {
  readonly limits: Limits;
  /** Who calls without a person are about. */
  readonly person: PersonMemory;
  /** Properties that every event gets. */
  readonly context?: () => Properties | false;
}

export interface PersonMemory {
  identifiers(): Identifiers;
  remember(identifiers: Identifiers): void;
  forget(): void;
}

/** What a call says: properties of the event, whom it is about if not the person of `identify()`, user properties. */
export type Content = readonly [
  properties: object | undefined,
  identifiers?: Identifiers | undefined,
  userProperties?: Properties | undefined,
];

type Listener<Name extends keyof SluiceEvents> = (detail: SluiceEvents[Name]) => void;

const IDENTIFY = '$identify';
const WAIT_MS = 10_000;
/** The server rejects larger requests. */
const USERS_MAX = 1_000;
/** Reported on the console as long as the program does not listen. */
const WARNED_OF = /^(rejected|dropped)$/;

export class SluiceClient<Plan extends { [Name in keyof Plan]: object } = AnyPlan> {
  protected readonly queue: Queue;
  readonly #options: SluiceOptions;
  readonly #platform: Platform;
  readonly #listeners = new Map<keyof SluiceEvents, Set<Listener<never>>>();

  constructor(options: SluiceOptions, platform: Platform) {
    const { url, key } = options;
    if (!/^https?:\/\//.test(url)) throw new TypeError('url must be https://…');
    if (!key) throw new TypeError('key must be pk_… or sk_…');
    this.#options = options;
    this.#platform = platform;
    this.queue = new Queue({
      ...platform,
      endpoint: `${url.replace(/\/+$/, '')}/ingest/events`,
      key,
      limits: limitsOf(options, platform.limits),
      emit: (name, detail) => this.#emit(name, detail),
    });
  }

  /** Says who the following calls are about; without identifiers still the same. Returns the `$event_id` of the call. */
  identify(identifiers?: Identifiers | null, userProperties?: Properties): string {
    return this.record(IDENTIFY, null, () => {
      let given = identifiers ?? {};
      // What is not an object is rejected by the server, and not taken for one.
      if (typeof given === 'object') {
        const { person } = this.#platform;
        given = { ...given };
        person.remember(given);
        given = { ...person.identifiers(), ...given };
      }
      return [{}, given, userProperties];
    });
  }

  track<Name extends keyof Plan & string>(name: Name, ...[properties, options]: TrackArguments<Plan[Name]>): string {
    return this.record(name, options, () => [properties]);
  }

  /** Calls about another person than the one of `identify()`; for servers, which act for many. */
  user(identifiers: Identifiers): Person<Plan> {
    return {
      identify: (userProperties) => this.record(IDENTIFY, null, () => [{}, identifiers, userProperties]),
      track: (name, ...[properties, options]) => this.record(name, options, () => [properties, identifiers]),
    };
  }

  /** At sign-out: the following calls are about an unknown person. */
  reset(): void {
    this.#platform.person.forget();
  }

  /** Returns a function that stops listening. */
  on<Name extends keyof SluiceEvents>(name: Name, listener: Listener<Name>): () => void {
    const listeners = this.#listeners.get(name) ?? new Set();
    this.#listeners.set(name, listeners.add(listener));
    return () => void listeners.delete(listener);
  }

  /** Sends what waits. Resolves when all of it is settled, or after `timeoutMs` (10 seconds); never rejects. */
  flush(options?: WaitOptions | null): Promise<FlushResult> {
    return this.queue.flush(options?.timeoutMs ?? WAIT_MS);
  }

  /** Sends what waits and ends: no request begins after `timeoutMs`. What was not sent is dropped and reported. */
  close(options?: WaitOptions | null): Promise<FlushResult> {
    return this.queue.close(options?.timeoutMs ?? WAIT_MS);
  }

  /**
   * All calls go through here. `contentOf` reads what the program gave, which may throw. Returns the `$event_id`, or ''
   * if the call was dropped.
   */
  protected record(name: string, options: TrackOptions | null | undefined, contentOf: () => Content): string {
    const { isAllowed, person, context } = this.#platform;
    // Nothing is kept about a person who does not want it.
    if (isAllowed?.() === false) return '';
    let id = newId();
    try {
      const { timestamp = new Date(), event_id = id } = options ?? {};
      id = validId(event_id);
      const { before = (call: Call) => call } = this.#options;
      const [properties, who, update] = contentOf();
      const given: Properties = { ...properties };
      const call = before({
        identifiers: who ?? person.identifiers(),
        ...(update !== undefined && { user_properties: update }),
        event: {
          ...context?.(),
          // What is undefined is not in the JSON.
          property_event_name: given.event_name,
          property_timestamp: given.timestamp,
          property_$event_id: given.$event_id,
          ...given,
          // JSON.stringify would call it, and write what it returns instead of the event.
          ...(typeof given.toJSON === 'function' && { toJSON: undefined }),
          event_name: name,
          $event_id: id,
          timestamp: timestamp.toISOString(),
        },
      });
      if (call === null) return '';
      const { identifiers, user_properties, event } = call;
      id = validId(event.$event_id);
      this.queue.add({ id, text: JSON.stringify({ identifiers, user_properties, events: [event] }) });
    } catch (error) {
      this.queue.reject({
        event: { event_name: name, $event_id: id },
        message: `the call cannot be sent: ${String(error)}`,
        status: 0,
      });
    }
    return id;
  }

  #emit<Name extends keyof SluiceEvents>(name: Name, detail: SluiceEvents[Name]): void {
    const listeners = this.#listeners.get(name) as Set<Listener<Name>> | undefined;
    if (!listeners?.size && WARNED_OF.test(name)) console.warn(`Sluice: ${name}`, detail);
    for (const listener of listeners ?? []) {
      try {
        listener(detail);
      } catch (error) {
        // What is wrong in a listener must not stop the queue.
        console.error(error);
      }
    }
  }
}

function validId(id: unknown): string {
  if (typeof id === 'string' && id !== '') return id;
  throw new TypeError('event_id must be a string');
}

function limitsOf(options: Partial<Limits>, defaults: Limits): Limits {
  const limits: Record<keyof Limits, number> = { ...defaults };
  for (const key in limits) {
    const name = key as keyof Limits;
    limits[name] = options[name] ?? limits[name];
    if (!(limits[name] >= 1)) throw new TypeError(`${name} must be at least 1`);
  }
  if (limits.batchUsersMax > USERS_MAX) throw new TypeError(`batchUsersMax must be at most ${USERS_MAX}`);
  return limits;
}
