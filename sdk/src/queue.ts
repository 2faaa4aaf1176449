/**
 * The queue between a call and the server. It owns batching, retries and the bounds, and it is in one of these states:
 *
 *   idle         nothing waits
 *   collecting   entries wait for a full batch, for the timer, or for flush()
 *   sending      one batch is on its way; new entries collect behind it
 *   backing off  the batch waits for its next attempt, with the same bytes and the same Idempotency-Key
 *   closed       nothing is added or sent any more
 *
 * Invariants: one request at a time, in the order of the calls. An entry leaves the queue exactly once: delivered (the
 * server responded 202 and did not reject it), rejected (by the server, with its message), or dropped (the queue is full or
 * closed), and each of these is reported. A request may be repeated, because every event has an `$event_id`.
 *
 * Limits: the queue is bounded by entries and by bytes, the batch under way included. Retries continue until the server
 * responds, so during a long outage the oldest entries are dropped and counted.
 */

import { newId } from './uuid.ts';

export interface Limits {
  /** A batch is sent when it has this many calls; at most 1,000. */
  readonly batchUsersMax: number;
  readonly batchBytesMax: number;
  /** A batch that is not full is sent after this time. */
  readonly batchDelayMs: number;
  readonly queueUsersMax: number;
  readonly queueBytesMax: number;
  readonly requestTimeoutMs: number;
  /** The longest pause after the first failure; it doubles with each further one up to `retryDelayMaxMs`. */
  readonly retryDelayMs: number;
  readonly retryDelayMaxMs: number;
}

/** One call: a user with one event, as the server takes it. */
export interface Entry {
  /** The `$event_id`. */
  readonly id: string;
  /** The user as JSON. */
  readonly text: string;
}

/** A call that the server, or this client, did not accept. */
export interface Rejection {
  /** The event as it was sent, with its `$event_id`. */
  readonly event: Readonly<Record<string, unknown>>;
  /** What is wrong, in the words of the server. */
  readonly message: string;
  /** The status of the response; 0 when it was never sent. */
  readonly status: number;
}

export type DropReason = 'queue_full' | 'too_large' | 'closed';

export interface SluiceEvents {
  delivered: { readonly event_ids: readonly string[]; readonly trace_id: string };
  rejected: Rejection;
  dropped: { readonly events: number; readonly reason: DropReason };
  /** An attempt failed and is repeated; `status` is 0 without a response. */
  retry: { readonly status: number; readonly delay_ms: number; readonly message: string };
}

/**
 * What became of the calls that were waiting when flush() or close() was called. `rejected` begins with the calls since
 * the last flush() that could not be sent (status 0), at most the first 100.
 */
export interface FlushResult {
  readonly delivered: number;
  readonly rejected: readonly Rejection[];
  readonly dropped: number;
  /** Not settled within the time given; after flush() they are still retried. */
  readonly pending: number;
}

/**
 * Storage in which the queue outlives the page: the JSON of each entry by its id, and under DROPPED the number of
 * dropped entries not yet reported to the server. Null removes. Never throws.
 */
export type Keep = (name: string, text: string | null) => void;

/** No event has this id. */
export const DROPPED = '';

export interface QueueParts {
  readonly endpoint: string;
  readonly key: string;
  readonly limits: Limits;
  readonly emit: <Name extends keyof SluiceEvents>(name: Name, detail: SluiceEvents[Name]) => void;
  readonly keep?: Keep | undefined;
  /** False while the person does not want to be tracked: then nothing is sent, and what waits is discarded. */
  readonly isAllowed?: (() => boolean) | undefined;
  /** Runs while no other page of the site sends. */
  readonly exclusively?: <Result>(send: () => Promise<Result>) => Promise<Result>;
  /** For requests that outlive their page: how many bytes they may have together. */
  readonly keepaliveBytesMax?: number;
  /** Hands over a body without a response; for browsers without keepalive. */
  readonly beacon?: ((url: string, body: string) => void) | undefined;
}

interface QueuedEntry extends Entry {
  readonly bytes: number;
  readonly sequence: number;
}

interface Batch {
  entries: QueuedEntry[];
  readonly idempotencyKey: string;
  /** What it reports of `dropped_by_client`; repeated in another batch until one of them is delivered. */
  dropped: number;
  readonly body: string;
  readonly bytes: number;
}

interface Outcome {
  readonly status: number;
  readonly message: string;
  readonly retryAfterMs: number;
  readonly body: ResponseBody;
}

interface ResponseBody {
  readonly trace_id?: string;
  readonly users_accepted?: number;
  readonly message?: string;
  readonly error?: string;
  readonly errors?: readonly { readonly userIndex: number; readonly message: string }[];
}

/** A FlushResult in the making. */
interface Counts {
  delivered: number;
  readonly rejected: Rejection[];
  dropped: number;
  pending: number;
}

interface Waiter {
  /** The newest entry that it waits for. */
  readonly until: number;
  readonly counts: Counts;
  readonly finish: () => void;
}

/** Longer than `{"dropped_by_client":…,"users":[]}` gets. */
const ENVELOPE_BYTES = 64;
const RETRY_AFTER_MS_MAX = 600_000;
/** 24.8 days: timers are no longer than that. */
const TIMER_MS_MAX = 2 ** 31 - 1;
const UNSENDABLE_MAX = 100;

const encoder = new TextEncoder();

export class Queue {
  readonly #parts: QueueParts;
  readonly #limits: Limits;
  /** Smaller than the limit once the server, or a proxy, has refused a batch as too large. */
  #batchBytesMax: number;
  #queued: QueuedEntry[] = [];
  /** Of all that is not settled, the batches under way included. */
  #count = 0;
  #bytes = 0;
  #sequence = 0;
  /** Everything up to this entry is sent without waiting for a full batch. */
  #due = 0;
  #dropped = 0;
  #batch: Batch | null = null;
  #isRunning = false;
  #isClosed = false;
  #timer: Timer | undefined;
  /** Ends the pause before the next attempt; null while there is none. */
  #endPause: (() => void) | null = null;
  /** Handed over when the page was left, and without a response so far. */
  readonly #left = new Set<Batch>();
  readonly #waiters = new Set<Waiter>();
  readonly #unsendable: Rejection[] = [];

  constructor(parts: QueueParts) {
    this.#parts = parts;
    this.#limits = parts.limits;
    this.#batchBytesMax = parts.limits.batchBytesMax;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  add(entry: Entry): void {
    const bytes = encoder.encode(entry.text).length + 1;
    const { queueUsersMax, queueBytesMax, batchUsersMax } = this.#limits;
    if (this.#isClosed || bytes > queueBytesMax) {
      this.#noteDropped(1, this.#isClosed ? 'closed' : 'too_large');
      return;
    }
    // Written before it is sent.
    this.#parts.keep?.(entry.id, entry.text);
    this.#queued.push({ ...entry, bytes, sequence: ++this.#sequence });
    this.#count++;
    this.#bytes += bytes;
    this.#dropOldest(() => this.#count > queueUsersMax || this.#bytes > queueBytesMax, 'queue_full');
    const queuedBytes = this.#bytes - (this.#batch?.bytes ?? 0);
    if (this.#queued.length >= batchUsersMax || queuedBytes >= this.#batchBytesMax) this.#sendAll();
    else this.#goOn();
  }

  /** A call that could not become an entry: reports it, also in the result of the next flush(). */
  reject(rejection: Rejection): void {
    if (this.#unsendable.length < UNSENDABLE_MAX) this.#unsendable.push(rejection);
    this.#parts.emit('rejected', rejection);
  }

  /** Counts as dropped what an earlier page had dropped and could not report any more. */
  takeOverDropped(events: number): void {
    this.#setDropped(this.#dropped + events);
  }

  /** `giveUp` runs after `timeoutMs`, and otherwise settles what is pending. */
  flush(timeoutMs: number, giveUp?: () => void): Promise<FlushResult> {
    return new Promise((resolve) => {
      const counts: Counts = {
        delivered: 0,
        rejected: this.#unsendable.splice(0),
        dropped: 0,
        pending: this.#count,
      };
      const finish = (): void => {
        clearTimeout(timer);
        this.#waiters.delete(waiter);
        resolve({ ...counts });
      };
      const waiter: Waiter = { until: this.#sequence, counts, finish };
      // The only timer that keeps a process alive: its caller waits.
      const timer = timerOf(giveUp ?? finish, timeoutMs);
      this.#waiters.add(waiter);
      if (counts.pending === 0 || (this.#isClosed && !this.#isRunning)) finish();
      else this.#sendAll();
    });
  }

  /**
   * Sends what waits; no request begins after `timeoutMs`. The request in flight is completed, because only its response
   * says what the server has. What is left then is dropped, unless it is stored for the next page.
   */
  async close(timeoutMs: number): Promise<FlushResult> {
    const stop = (): void => {
      this.#isClosed = true;
      clearTimeout(this.#timer);
      this.#endPause?.();
      this.#goOn();
    };
    const result = await this.flush(timeoutMs, this.#parts.keep === undefined ? stop : undefined);
    stop();
    return result;
  }

  /** Discards entries, by default all, without reporting them: the person opted out, or another page has them. */
  discard(isUnwanted: (id: string) => boolean = () => true): void {
    for (const batch of [...this.#left, this.#batch]) if (batch !== null) this.#putBack(batch);
    if (isUnwanted(DROPPED)) this.#dropped = 0;
    this.#queued = this.#queued.filter((entry) => {
      if (!isUnwanted(entry.id)) return true;
      this.#settle(entry);
      return false;
    });
    this.#endPause?.();
    this.#goOn();
  }

  /** Skips the rest of the pause before the next attempt, for example when the network is back. */
  retryNow(): void {
    this.#endPause?.();
  }

  /** The page may be gone after this call: hands over what a request that outlives it may carry. */
  leave(): void {
    if (this.#isUnwanted()) return;
    // Whatever waits for its next attempt has no other chance on this page.
    if (this.#endPause !== null && this.#batch !== null) this.#putBack(this.#batch);
    const room = (this.#parts.keepaliveBytesMax ?? 0) - (this.#batch?.bytes ?? 0);
    if ((this.#queued[0]?.bytes ?? Infinity) + ENVELOPE_BYTES > room) return;
    const batch = this.#take(Math.min(room, this.#batchBytesMax));
    const { endpoint, key, beacon } = this.#parts;
    const url = `${endpoint}?key=${encodeURIComponent(key)}`;
    if (beacon !== undefined) {
      beacon(url, batch.body);
      this.#putBack(batch);
      this.#goOn();
      return;
    }
    // Without headers of its own there is no preflight, for which a closing page has no time.
    const init = { method: 'POST', body: batch.body, keepalive: true, headers: { 'content-type': 'text/plain' } };
    this.#left.add(batch);
    void this.#request(url, init).then((outcome) => {
      this.#left.delete(batch);
      if (!this.#apply(batch, outcome)) this.#putBack(batch);
      this.#goOn();
    });
  }

  #sendAll(): void {
    this.#due = this.#sequence;
    void this.#run();
  }

  /** While nothing is sent: waits for the next batch or, once closed, drops what is left. */
  #goOn(): void {
    if (this.#isRunning) return;
    if (this.#isClosed) {
      if (this.#left.size === 0 && this.#parts.keep === undefined) this.#dropOldest(() => true, 'closed');
    } else if (this.#queued.length > 0) {
      this.#timer ??= unreferenced(() => this.#sendAll(), this.#limits.batchDelayMs);
    }
  }

  async #run(): Promise<void> {
    if (this.#isRunning || this.#isClosed) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#isRunning = true;
    // Calls of the same moment go together.
    await Promise.resolve();
    while (!this.#isClosed && (this.#queued[0]?.sequence ?? Infinity) <= this.#due) {
      const batch = this.#take(this.#batchBytesMax);
      this.#batch = batch;
      await this.#deliver(batch);
      // What is not settled.
      this.#putBack(batch);
    }
    this.#isRunning = false;
    this.#goOn();
  }

  #take(bytesMax: number): Batch {
    let bytes = ENVELOPE_BYTES;
    let users = 0;
    for (const entry of this.#queued) {
      if (users === this.#limits.batchUsersMax || (users > 0 && bytes + entry.bytes > bytesMax)) break;
      bytes += entry.bytes;
      users++;
    }
    const entries = this.#queued.splice(0, users);
    const dropped = this.#dropped;
    this.#dropped = 0;
    const head = dropped === 0 ? '' : `"dropped_by_client":${dropped},`;
    const body = `{${head}"users":[${entries.map(({ text }) => text).join()}]}`;
    return { entries, idempotencyKey: newId(), dropped, body, bytes };
  }

  /** The entries go back to where they were, and will be sent in another batch. */
  #putBack(batch: Batch): void {
    this.#queued = [...batch.entries, ...this.#queued].sort((a, b) => a.sequence - b.sequence);
    batch.entries = [];
    this.#takeBackDropped(batch);
    if (batch === this.#batch) this.#batch = null;
  }

  #takeBackDropped(batch: Batch): void {
    this.#dropped += batch.dropped;
    batch.dropped = 0;
  }

  async #deliver(batch: Batch): Promise<void> {
    const { endpoint, key, keepaliveBytesMax = 0, exclusively = (send) => send() } = this.#parts;
    const { retryDelayMs, retryDelayMaxMs } = this.#limits;
    const init = {
      method: 'POST',
      body: batch.body,
      // It outlives a page that is left in the middle of it.
      keepalive: batch.bytes <= keepaliveBytesMax,
      headers: {
        authorization: `Bearer ${key}`,
        'content-type': 'application/json',
        'idempotency-key': batch.idempotencyKey,
      },
    };
    // It is empty once it was put back.
    for (let attempt = 0; batch.entries.length > 0 && !this.#isClosed; attempt++) {
      const outcome = await exclusively(async () => (this.#isUnwanted() ? null : this.#request(endpoint, init)));
      if (outcome === null || this.#apply(batch, outcome) || this.#isClosed) return;
      // Full jitter: clients that failed together do not come back together.
      const backoffMs = Math.random() * Math.min(retryDelayMaxMs, retryDelayMs * 2 ** attempt);
      const delayMs = Math.round(outcome.retryAfterMs + backoffMs);
      this.#parts.emit('retry', { status: outcome.status, delay_ms: delayMs, message: outcome.message });
      await this.#pause(delayMs);
    }
  }

  /** Another page may have opted out, also while this one waited. */
  #isUnwanted(): boolean {
    if (this.#parts.isAllowed?.() !== false) return false;
    this.discard();
    return true;
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = unreferenced(() => this.#endPause?.(), ms);
      this.#endPause = () => {
        clearTimeout(timer);
        this.#endPause = null;
        resolve();
      };
    });
  }

  async #request(url: string, init: RequestInit): Promise<Outcome> {
    const abort = new AbortController();
    const timer = unreferenced(() => abort.abort(), this.#limits.requestTimeoutMs);
    try {
      const response = await fetch(url, { ...init, signal: abort.signal });
      const body = ((await response.json().catch(() => null)) ?? {}) as ResponseBody;
      const message = body.message ?? body.error ?? `the server responded ${response.status}`;
      return { status: response.status, message, retryAfterMs: retryAfterOf(response), body };
    } catch (error) {
      return { status: 0, message: `no response: ${String(error)}`, retryAfterMs: 0, body: {} };
    } finally {
      clearTimeout(timer);
    }
  }

  /** Settles the entries of a batch by the response; false if it has to be sent again. */
  #apply(batch: Batch, { status, message, body }: Outcome): boolean {
    const { entries } = batch;
    // They were put back in the meantime.
    if (entries.length === 0) return true;
    // Some proxies and sign-in pages of networks respond with a success of their own.
    const isDelivered = status === 202 && body.users_accepted !== undefined;
    const messages = new Map(body.errors?.map(({ userIndex, message: reason }) => [userIndex, reason]));
    if (isDelivered) {
      const ids = entries.filter((_, index) => !messages.has(index)).map(({ id }) => id);
      this.#parts.emit('delivered', { event_ids: ids, trace_id: body.trace_id ?? '' });
      batch.dropped = 0;
      this.#setDropped(this.#dropped);
    } else if (status === 413 && entries.length > 1) {
      this.#batchBytesMax = Math.ceil(batch.bytes / 2);
      this.#putBack(batch);
      return true;
    } else if (status < 400 || status === 408 || status === 429 || status >= 500) {
      return false;
    } else {
      this.#takeBackDropped(batch);
    }
    batch.entries = [];
    for (const [index, entry] of entries.entries()) {
      const reason = messages.get(index) ?? (isDelivered ? undefined : message);
      if (reason === undefined) this.#settle(entry, (counts) => counts.delivered++);
      else this.#reject(entry, reason, status);
    }
    return true;
  }

  #reject(entry: QueuedEntry, message: string, status: number): void {
    const [event] = (JSON.parse(entry.text) as { events: [Rejection['event']] }).events;
    const rejection = { event, message, status };
    this.#parts.emit('rejected', rejection);
    this.#settle(entry, (counts) => counts.rejected.push(rejection));
  }

  #dropOldest(isWanted: () => boolean, reason: DropReason): void {
    let events = 0;
    for (; events < this.#queued.length && isWanted(); events++) {
      this.#settle(this.#queued[events] as QueuedEntry, (counts) => counts.dropped++);
    }
    if (events === 0) return;
    this.#queued.splice(0, events);
    this.#noteDropped(events, reason);
  }

  #noteDropped(events: number, reason: DropReason): void {
    this.#setDropped(this.#dropped + events);
    this.#parts.emit('dropped', { events, reason });
  }

  #setDropped(events: number): void {
    this.#dropped = events;
    const unreported = events + (this.#batch?.dropped ?? 0);
    this.#parts.keep?.(DROPPED, unreported === 0 ? null : String(unreported));
  }

  #settle(entry: QueuedEntry, note?: (counts: Counts) => void): void {
    this.#count--;
    this.#bytes -= entry.bytes;
    this.#parts.keep?.(entry.id, null);
    for (const waiter of this.#waiters) {
      if (entry.sequence > waiter.until) continue;
      note?.(waiter.counts);
      if (--waiter.counts.pending === 0) waiter.finish();
    }
  }
}

type Timer = ReturnType<typeof setTimeout>;

/** Longer times would end at once. */
function timerOf(action: () => void, ms: number): Timer {
  return setTimeout(action, Math.min(ms, TIMER_MS_MAX));
}

/** Nothing that this package waits for by itself keeps a process alive. */
function unreferenced(action: () => void, ms: number): Timer {
  const timer = timerOf(action, ms);
  (timer as unknown as { unref?: () => void }).unref?.();
  return timer;
}

function retryAfterOf(response: Response): number {
  const header = response.headers.get('retry-after') ?? '';
  // Seconds, or a date.
  const ms = Number(header) * 1_000 || Date.parse(header) - Date.now();
  return Math.min(Math.max(ms, 0) || 0, RETRY_AFTER_MS_MAX);
}
