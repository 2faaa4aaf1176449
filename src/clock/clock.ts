/**
 * The clock for `received_at`. It shows the wall clock's time as long as that can be trusted, and never goes back: not
 * while it runs, and not behind the newest time in the log at start.
 *
 * A wall clock that jumps ahead is followed up to a bound, and beyond it held: the clock continues from where it was, at
 * normal speed, until the wall clock is right again. The bound is larger at start, since a server may have been down for
 * long. If the wall clock is behind, the clock waits for it at half speed, and when the wall clock overtakes it, that
 * counts as a jump too.
 *
 * Limits: a jump within the bound is trusted. A server that has never stored anything trusts the first time that it
 * sees, even if its clock is set only after the start.
 */

import { uptime } from 'node:os';
import { DAY_MS, HOUR_MS } from '../model.ts';
import type { Logger } from '../telemetry/logger.ts';
import { METRIC, type MetricsWriter } from '../telemetry/metrics.ts';

/** All in milliseconds. */
export interface TimeSources {
  /** Since 1970; may be set forward and back. */
  readonly wall: () => number;
  /** Since any moment; never goes back, and may pause while the machine sleeps. Read for every request. */
  readonly monotonic: () => number;
  /** The same, and sleep counts. May be slow: only asked for when the wall clock has stepped. */
  readonly uptime: () => number;
}

interface ClockSetup {
  /** The newest `received_at` that is stored; 0 when nothing is. */
  readonly newest: number;
  /** How far the wall clock may step ahead while the server runs: at once, and again over each day. */
  readonly jumpMsMax: number;
  /** How far the wall clock may be ahead of `newest` at a start. */
  readonly gapMsMax: number;
  /**
   * One number, which all edges of a server share: the newest time that any of them has issued. Whole milliseconds,
   * since only integers can be compared and replaced in one step; null where there is one edge.
   */
  readonly shared?: BigInt64Array | null;
  readonly sources?: TimeSources;
}

/** Sluice is not older than this: a wall clock that shows less was never set. */
export const CLOCK_EARLIEST = Date.UTC(2026, 0, 1);
/** A wall clock that differs by more from what has passed since it was last read was set, or the machine slept. */
const STEP_MS = 1_000;
/** The clock is read every second. */
const PAUSE_MS = 10_000;
/** Fast enough to keep requests in order, and slow enough for the wall clock to catch up. */
const WAITING_SPEED = 0.5;
/** A jump from which on retention waits, while the server runs and at a start. */
const RETENTION_JUMP_MS = HOUR_MS;
const RETENTION_GAP_MS = 7 * DAY_MS;
/** How long retention waits: time for an operator to correct a wrong clock. */
const RETENTION_WAIT_MS = DAY_MS;

const SYSTEM: TimeSources = { wall: Date.now, monotonic: () => performance.now(), uptime: () => uptime() * 1_000 };

export class TrustedClock {
  readonly #sources: TimeSources;
  readonly #jumpMsMax: number;
  readonly #shared: BigInt64Array | null;
  /** What the clock showed last, with fractions. */
  #time: number;
  #wall: number;
  #monotonic: number;
  /** By how much `uptime` is ahead of `monotonic`: it grows when the machine sleeps. */
  #slept: number;
  /** What a correct wall clock shows about now: where it was last trusted, plus the time since. */
  #expected: number;
  /** How far ahead of `#expected` the wall clock is still trusted. */
  #aheadMsMax: number;
  /** Whether the wall clock is checked against the bound of a start. */
  #isStarting = true;
  #isHeld = false;
  /** Whether the wall clock was too far ahead at the start, and has not been right, or behind, since. */
  isHeldSinceStart = true;
  /** Until when retention waits, by `monotonic`, and the time that it goes by until then. */
  #retentionWaitsUntil = Number.NEGATIVE_INFINITY;
  #timeBeforeJump = 0;

  constructor({ newest, jumpMsMax, gapMsMax, shared = null, sources = SYSTEM }: ClockSetup) {
    this.#sources = sources;
    this.#shared = shared;
    this.#jumpMsMax = jumpMsMax;
    // One more than the newest: what comes now is newer.
    this.#time = Math.max(newest + 1, CLOCK_EARLIEST);
    this.#expected = this.#time;
    this.#aheadMsMax = newest === 0 ? Number.POSITIVE_INFINITY : gapMsMax;
    this.#wall = sources.wall();
    this.#monotonic = sources.monotonic();
    this.#slept = sources.uptime() - this.#monotonic;
    this.#advance(0);
    if (newest !== 0) this.#endStart();
  }

  /** Milliseconds since 1970, a whole number; never less than before. */
  readonly now = (): number => {
    const wall = this.#sources.wall();
    const monotonic = this.#sources.monotonic();
    let elapsed = monotonic - this.#monotonic;
    const stepped = wall - this.#wall - elapsed;
    this.#wall = wall;
    this.#monotonic = monotonic;
    // The wall clock was set, the machine slept, or there was a long pause: find out how long it really was.
    const isPlain = stepped <= STEP_MS && stepped >= -STEP_MS && elapsed >= 0 && elapsed <= PAUSE_MS;
    if (!isPlain) elapsed += this.#correction();
    this.#advance(Math.max(0, elapsed));
    this.#share();
    return Math.floor(this.#time);
  };

  /**
   * The time for retention: never ahead of the wall clock, and paused for a day after a jump ahead that was followed,
   * so that a wrong clock can be corrected before anything is removed because of it.
   */
  readonly retentionTime = (): number => {
    const now = this.now();
    return this.#monotonic < this.#retentionWaitsUntil ? this.#timeBeforeJump : Math.min(now, this.#wall);
  };

  /** How far the wall clock is ahead while it is not trusted; 0 while it is. As of the last reading. */
  get heldMs(): number {
    return this.#isHeld ? this.#wall - this.#time : 0;
  }

  /** How far the wall clock is behind; 0 when it is not. As of the last reading. */
  get behindMs(): number {
    return Math.max(0, Math.floor(this.#time) - this.#wall);
  }

  #advance(elapsed: number): void {
    this.#expected += elapsed;
    this.#isHeld = this.#wall - this.#expected > this.#aheadMsMax;
    const waited = this.#time + elapsed * WAITING_SPEED;
    if (this.#isHeld) {
      this.#time += elapsed;
    } else if (this.#wall < waited) {
      this.#time = waited;
    } else {
      const before = this.#time;
      this.#time = this.#wall;
      this.#waitBeforeRemoving(before, elapsed);
      this.#believe(elapsed);
    }
    if (!this.#isHeld) this.isHeldSinceStart = false;
    // A new installation starts when its clock is set. Any other has times to compare it with, however wrong it is.
    if (this.#isStarting && this.#wall >= CLOCK_EARLIEST) this.#endStart();
  }

  /**
   * A step that was followed counts against the bound, a whole bound for a day: many small steps within a short time are
   * one large one, and those of months are not.
   */
  #believe(elapsed: number): void {
    if (this.#isStarting) {
      this.#expected = this.#wall;
    } else if (this.#wall > this.#expected) {
      this.#expected = Math.min(this.#wall, this.#expected + (elapsed * this.#jumpMsMax) / DAY_MS);
    }
  }

  /** From now on the wall clock is that of a running server. */
  #endStart(): void {
    this.#isStarting = false;
    this.#aheadMsMax = this.#jumpMsMax;
  }

  #waitBeforeRemoving(before: number, elapsed: number): void {
    const jump = this.#time - before - elapsed;
    if (jump <= (this.#isStarting ? RETENTION_GAP_MS : RETENTION_JUMP_MS) || !Number.isFinite(this.#aheadMsMax)) return;
    const isWaiting = this.#monotonic < this.#retentionWaitsUntil;
    if (!isWaiting) this.#timeBeforeJump = Math.floor(before);
    this.#retentionWaitsUntil = this.#monotonic + RETENTION_WAIT_MS;
  }

  /** While the wall clock is not followed, each edge measures for itself: a request to another one must not be older. */
  #share(): void {
    if (this.#shared === null) return;
    const own = BigInt(Math.floor(this.#time));
    let newest = Atomics.load(this.#shared, 0);
    while (newest < own) {
      // Another edge may have raised it since it was read.
      const found = Atomics.compareExchange(this.#shared, 0, newest, own);
      if (found === newest) return;
      newest = found;
    }
    if (newest > own) this.#time = Number(newest);
  }

  /** What `monotonic` has missed since this was last asked, which is sleep; below 0 if it was set ahead as well. */
  #correction(): number {
    const slept = this.#sources.uptime() - this.#monotonic;
    const more = slept - this.#slept;
    this.#slept = slept;
    return Math.abs(more) > STEP_MS ? more : 0;
  }
}

const WATCH_INTERVAL_MS = 1_000;
/** A line again after so long, as long as it lasts. */
const REMINDER_MS = HOUR_MS;
/** What is not worth a line: clocks are corrected by that much now and then. */
const BEHIND_MS_MIN = 10_000;

interface ClockWatchParts {
  readonly clock: TrustedClock;
  readonly metrics: MetricsWriter;
  readonly logger: Logger;
}

/**
 * Reads the clock every second, so that a step is measured against a short time; sets the gauges, and says when the wall
 * clock is held or behind, and when it is right again. Returns a way to stop.
 */
export function watchClock({ clock, metrics, logger }: ClockWatchParts): () => void {
  let logged: 'held' | 'behind' | null = null;
  let loggedAt = 0;
  const check = (): void => {
    const time = clock.now();
    const { heldMs, behindMs } = clock;
    metrics.set(METRIC.clock_held, heldMs / 1_000);
    metrics.set(METRIC.clock_behind, behindMs / 1_000);
    // Once logged, until it is over: it may fall below the bound only slowly.
    const isBehind = behindMs > (logged === 'behind' ? 0 : BEHIND_MS_MIN);
    const state = heldMs > 0 ? 'held' : isBehind ? 'behind' : null;
    if (state === logged && (state === null || performance.now() - loggedAt < REMINDER_MS)) return;
    const line = {
      received_at: new Date(time).toISOString(),
      wall_clock_ahead_seconds: Math.round((heldMs - behindMs) / 1_000),
    };
    if (state === 'held') logger.error(line, heldText(clock.isHeldSinceStart));
    else if (state === 'behind') logger.warn(line, BEHIND_TEXT);
    else logger.info(line, 'the clock is right again: received_at follows it');
    logged = state;
    loggedAt = performance.now();
  };
  check();
  const timer = setInterval(check, WATCH_INTERVAL_MS).unref();
  return () => clearInterval(timer);
}

const BEHIND_TEXT =
  'the clock is behind the newest received_at, which continues at half speed until the clock has caught up; if the clock is wrong, set it';

function heldText(isHeldSinceStart: boolean): string {
  return isHeldSinceStart
    ? 'the clock was ahead of the newest received_at by more than SLUICE_CLOCK_GAP_MAX at the start: it is not trusted, and received_at continues from there; set the clock right, and restart the server if this persists; if the clock is right already, start once with a larger SLUICE_CLOCK_GAP_MAX'
    : 'the clock jumped ahead by more than SLUICE_CLOCK_JUMP_MAX: it is not trusted, and received_at continues from before; set the clock right, or restart the server if the clock is right';
}
