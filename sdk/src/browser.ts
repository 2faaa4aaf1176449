/**
 * Sluice for web pages. It identifies the visitor by an anonymous id, keeps calls in localStorage until the server has
 * them, and adds the page they were made on. Each page has its own queue there, named by a tab id and held by a Web
 * Lock while the page is open. A queue whose lock is free belonged to a closed page, and the next page that finds it
 * takes it over. Only one page sends at a time. When the visitor leaves, a page sends its remaining calls in a request
 * that outlives it.
 *
 * Invariant: a call that may be sent twice (by a page that was left, by two pages) has an `$event_id`, so it is stored
 * once. Limit: where storage is forbidden or full, calls are kept in memory only, and are lost with the page;
 * ids, and that the visitor opted out, are then kept in cookies.
 */

import { type AnyPlan, type PersonMemory, type Properties, SluiceClient, type SluiceOptions } from './core.ts';
import { DROPPED, type Keep, type Queue } from './queue.ts';
import { newId } from './uuid.ts';

export type * from './core.ts';
export type { DropReason, FlushResult, Limits, Rejection, SluiceEvents } from './queue.ts';

export interface BrowserOptions extends SluiceOptions {
  /** What every event says about the page; false for a field, or for all of them, switches it off. */
  readonly context?: false | Readonly<Partial<Record<ContextField, boolean>>>;
  /** Calls page() now and at every navigation within the page. */
  readonly autoPage?: boolean;
  /** Nothing is kept or sent where the browser asks for it (Do Not Track, Global Privacy Control); true unless set. */
  readonly respectDoNotTrack?: boolean;
}

export type ContextField = 'page_url' | 'referrer' | 'utm' | 'locale' | 'user_agent';

const LIMITS = {
  batchUsersMax: 100,
  batchBytesMax: 60_000,
  batchDelayMs: 1_000,
  queueUsersMax: 1_000,
  queueBytesMax: 1_000_000,
  requestTimeoutMs: 10_000,
  retryDelayMs: 500,
  retryDelayMaxMs: 30_000,
};
/** Browsers allow 64 kB to all requests of a page together that outlive it. */
const KEEPALIVE_BYTES_MAX = 60_000;
const TAKE_OVER_INTERVAL_MS = 30_000;
/**
 * Without Web Locks: a page opened longer ago than this counts as closed. If it is still open, its calls are sent twice
 * and stored once.
 */
const LEFT_AFTER_MS = 60_000;
const COOKIE_SECONDS = 34_560_000;

export class Sluice<Plan extends { [Name in keyof Plan]: object } = AnyPlan> extends SluiceClient<Plan> {
  readonly #values: KeptValues;
  readonly #person: ReturnType<typeof visitorOf>;
  readonly #tab: Tab;

  constructor(options: BrowserOptions) {
    const { key, context = {}, autoPage, respectDoNotTrack = true } = options;
    const prefix = `sluice.${key.slice(-8)}.`;
    const storage = attempt(() => localStorage);
    const values = keptValues(storage, prefix);
    const isAllowed = (): boolean => values.get('out') === null && !(respectDoNotTrack && isUnwanted());
    const person = visitorOf(values, isAllowed);
    const tab = openTab(storage, prefix);
    const canOutlive = 'keepalive' in Request.prototype;
    super(options, {
      limits: LIMITS,
      person,
      isAllowed,
      context: () => context && contextOf(context),
      keep: storage === null ? undefined : tab.keep,
      exclusively: tab.exclusively,
      keepaliveBytesMax: KEEPALIVE_BYTES_MAX,
      beacon: canOutlive ? undefined : (url, body) => void navigator.sendBeacon(url, body),
    });
    this.#values = values;
    this.#person = person;
    this.#tab = tab;
    this.#follow(isAllowed);
    if (autoPage === true) this.#pageAutomatically();
  }

  /** The id of this visitor until `reset()`. */
  get anonymousId(): string {
    return this.#person.anonymousId();
  }

  /** A view of this page. */
  page(properties?: Properties): string {
    return this.record('page_viewed', null, () => [{ title: document.title, ...properties }]);
  }

  /** Opts out: from now on nothing is stored or sent, on any page of this site, and queued calls are discarded. */
  optOut(): void {
    this.#values.set('out', '1');
    this.#forget();
  }

  optIn(): void {
    this.#values.set('out', null);
  }

  #forget(): void {
    this.#person.forget();
    this.queue.discard();
    this.#tab.forgetAll();
  }

  #follow(isAllowed: () => boolean): void {
    const { queue } = this;
    const tab = this.#tab;
    const takeOver = (): void => {
      if (isAllowed() && !queue.isClosed) tab.takeOver(queue);
    };
    tab.hold();
    // The browser may have begun to ask for it since the last visit.
    if (!isAllowed()) this.#forget();
    takeOver();
    setInterval(takeOver, TAKE_OVER_INTERVAL_MS);
    document.addEventListener('visibilitychange', () => {
      if (document.visibilityState === 'hidden') queue.leave();
      else takeOver();
    });
    addEventListener('pagehide', () => {
      queue.leave();
      // Browsers do not keep a page with a lock in the back/forward cache.
      tab.release();
    });
    addEventListener('pageshow', ({ persisted }) => {
      if (!persisted) return;
      tab.hold();
      queue.discard(tab.isTaken);
    });
    addEventListener('online', () => queue.retryNow());
    addEventListener('storage', () => isAllowed() || queue.discard());
  }

  #pageAutomatically(): void {
    let address = '';
    const look = (): void => {
      const { pathname, search } = location;
      if (address === pathname + search) return;
      address = pathname + search;
      this.page();
    };
    for (const method of ['pushState', 'replaceState'] as const) {
      const original = history[method];
      history[method] = (...args: Parameters<History['pushState']>) => {
        original.apply(history, args);
        // Single-page apps set the title after the address.
        setTimeout(look);
      };
    }
    addEventListener('popstate', () => setTimeout(look));
    look();
  }
}

/** Browsers may forbid storage and cookies, storage may be full, and anything may have written to it. */
function attempt<Result>(work: () => Result): Result | null {
  try {
    return work();
  } catch {
    return null;
  }
}

interface KeptValues {
  get(name: string): string | null;
  /** Null removes. */
  set(name: string, value: string | null): void;
}

/** A few values about the visitor: in localStorage, else in cookies, else in memory. */
function keptValues(storage: Storage | null, prefix: string): KeptValues {
  /** Only what could not be written: another page may change the rest. */
  const memory = new Map<string, string | null>();
  const stored = (name: string): string | null => attempt(() => storage?.getItem(prefix + name) ?? null);
  const inCookie = (name: string): string | null =>
    attempt(() => {
      const start = `${prefix + name}=`;
      const found = document.cookie.split('; ').find((cookie) => cookie.startsWith(start));
      return decodeURIComponent(found?.slice(start.length) ?? '') || null;
    });
  const read = (name: string): string | null => stored(name) ?? inCookie(name);
  return {
    get: (name) => memory.get(name) ?? read(name),
    set: (name, value) => {
      memory.delete(name);
      // An old value must not stay where there is no room for the new one.
      attempt(() => storage?.removeItem(prefix + name));
      attempt(() => value === null || storage?.setItem(prefix + name, value));
      const text = stored(name) === value ? null : value;
      attempt(() => {
        document.cookie = `${prefix + name}=${encodeURIComponent(text ?? '')}; path=/; max-age=${text ? COOKIE_SECONDS : 0}; samesite=lax`;
      });
      if (read(name) !== value) memory.set(name, value);
    },
  };
}

function visitorOf(values: KeptValues, isAllowed: () => boolean): PersonMemory & { anonymousId(): string } {
  /** An id that may not be kept. */
  let unkept: string | null = null;
  const anonymousId = (): string => {
    const known = values.get('anon');
    if (known !== null) return known;
    const made = (unkept ??= newId());
    if (isAllowed()) {
      values.set('anon', made);
      unkept = null;
    }
    return made;
  };
  const forget = (): void => {
    unkept = null;
    values.set('user', null);
    values.set('anon', null);
  };
  return {
    anonymousId,
    forget,
    identifiers: () => {
      const user_id = values.get('user');
      return { anon_id: anonymousId(), ...(user_id !== null && { user_id }) };
    },
    /** Only the user_id of the visitor is kept; `identify()` connects it with the other identifiers. */
    remember: ({ user_id, anon_id }) => {
      if (user_id !== undefined) {
        const before = values.get('user');
        // Another person on the same device, who must not be merged with the previous one.
        if (before !== null && before !== user_id) forget();
        // The server rejects other types; the calls that follow are not about the previous person either.
        if (typeof user_id === 'string') values.set('user', user_id);
      }
      if (typeof anon_id === 'string') values.set('anon', anon_id);
    },
  };
}

interface Tab {
  readonly keep: Keep;
  /** Says that the page lives, until `release`. */
  hold(): void;
  release(): void;
  /** Whether another page has taken it over since `release`: it is sent and reported there. */
  readonly isTaken: (entryId: string) => boolean;
  readonly exclusively: <Result>(send: () => Promise<Result>) => Promise<Result>;
  /** Puts what closed pages left behind into the queue of this one. */
  takeOver(queue: Queue): void;
  /** Removes what all pages have kept. */
  forgetAll(): void;
}

/** The queue of one page in localStorage, and the locks by which pages know of each other. */
function openTab(storage: Storage | null, prefix: string): Tab {
  const { locks } = navigator as { readonly locks?: LockManager };
  const id = newId();
  const queues = `${prefix}q.`;
  const own = `${queues + id}.`;
  const names = (tab = ''): string[] =>
    Object.keys(storage ?? {})
      .filter((name) => name.startsWith(queues + tab))
      .sort();
  let unlock = (): void => undefined;
  let left: string[] = [];

  const takeEntry = (name: string, queue: Queue): void => {
    const entryId = name.slice(own.length);
    const text = storage?.getItem(name) ?? '';
    // First in the queue of this page, which keeps it, then gone from the other.
    if (entryId === DROPPED) queue.takeOverDropped(Number(text) || 0);
    else if (isUser(text)) queue.add({ id: entryId, text });
    storage?.removeItem(name);
  };

  return {
    // Where it is full, the entry stays in memory.
    keep: (name, text) =>
      attempt(() => (text === null ? storage?.removeItem(own + name) : storage?.setItem(own + name, text))),
    hold: () => {
      const released = new Promise<void>((resolve) => {
        unlock = resolve;
      });
      locks?.request(prefix + id, () => released).catch(() => undefined);
    },
    release: () => {
      left = names(id);
      unlock();
    },
    isTaken: (entryId) => left.includes(own + entryId) && storage?.getItem(own + entryId) === null,
    // Rejected where locks are forbidden; sending itself never is.
    exclusively: (send) => locks?.request(`${prefix}send`, send).catch(send) ?? send(),
    takeOver: (queue) => {
      // All ids have the same length.
      for (const tab of new Set(names().map((name) => name.slice(queues.length, own.length - 1)))) {
        if (tab === id) continue;
        const take = (): void => names(tab).forEach((name) => takeEntry(name, queue));
        if (locks) locks.request(prefix + tab, { ifAvailable: true }, (lock) => lock && take()).catch(() => undefined);
        else if (Date.now() - Number.parseInt(tab.replace('-', ''), 16) > LEFT_AFTER_MS) take();
      }
    },
    forgetAll: () => names().forEach((name) => storage?.removeItem(name)),
  };
}

function isUser(text: string): boolean {
  return attempt(() => typeof JSON.parse(text).events[0].event_name) === 'string';
}

function isUnwanted(): boolean {
  const { doNotTrack, globalPrivacyControl } = navigator as Navigator & {
    readonly doNotTrack?: string | null;
    readonly globalPrivacyControl?: boolean;
  };
  return globalPrivacyControl === true || doNotTrack === '1';
}

function contextOf(wanted: Readonly<Partial<Record<ContextField, boolean>>>): Properties {
  const { language: locale, userAgent: user_agent } = navigator;
  // What is undefined is not in the JSON.
  const fields: Record<string, unknown> = {
    page_url: location.href,
    referrer: document.referrer || undefined,
    locale,
    user_agent,
  };
  for (const name in fields) if (wanted[name as ContextField] === false) fields[name] = undefined;
  if (wanted.utm !== false) {
    for (const [name, value] of new URLSearchParams(location.search)) if (name.startsWith('utm_')) fields[name] = value;
  }
  return fields;
}
