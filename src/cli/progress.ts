/**
 * The progress of a long-running command: on a terminal a bar, redrawn at most ten times a second; elsewhere one line
 * every five seconds, so that logs stay readable. Written to stderr only. Rates count from the start of this run; work
 * of an earlier run counts toward the percentage, not the rate.
 */

import { SECOND_MS } from '../model.ts';
import { countOf, formatBytes, formatCount, formatSpan } from './local-time.ts';
import type { Shell } from './shell.ts';

const REDRAW_MS = 100;
const LINE_MS = 5_000;
const BAR_COLUMNS = 16;

interface ProgressCounts {
  readonly count: number;
  readonly bytes: number;
  /** What `done` is a part of, in any unit; null when unknown. */
  readonly total: number | null;
  readonly done: number;
  /** Said at the end: `3 rejected`, `waiting: …`. */
  readonly note?: string;
}

export class Progress {
  readonly #title: string;
  readonly #noun: string;
  readonly #shell: Pick<Shell, 'errTerminal' | 'err' | 'now'>;
  readonly #startedAt: number;
  #start: ProgressCounts | undefined;
  #drawnAt: number;

  /** `noun` is what is counted: `user`, `event`. Of files the speed is in bytes. */
  constructor(title: string, noun: string, shell: Pick<Shell, 'errTerminal' | 'err' | 'now'>) {
    this.#title = title;
    this.#noun = noun;
    this.#shell = shell;
    this.#startedAt = shell.now();
    this.#drawnAt = shell.errTerminal.isTty ? this.#startedAt - REDRAW_MS : this.#startedAt;
  }

  /** The first call says where this run begins. */
  show(counts: ProgressCounts): void {
    this.#start ??= counts;
    const { errTerminal: terminal, now, err } = this.#shell;
    const at = now();
    if (at - this.#drawnAt < (terminal.isTty ? REDRAW_MS : LINE_MS)) return;
    this.#drawnAt = at;
    const line = `${this.#title}  ${this.#describe(counts, at)}`;
    if (!terminal.isTty) {
      err(`${line}\n`);
      return;
    }
    err(`\r${line.slice(0, Math.max(1, terminal.columns - 1))}\u001b[K`);
  }

  /** Takes the bar away, so that what follows starts on a clean line. */
  end(): void {
    if (this.#shell.errTerminal.isTty) this.#shell.err('\r\u001b[K');
  }

  #describe(counts: ProgressCounts, at: number): string {
    const { total, done, bytes, count, note } = counts;
    const start = this.#start ?? counts;
    const seconds = (at - this.#startedAt) / SECOND_MS;
    const perSecond = (amount: number): number => (seconds > 0 ? amount / seconds : 0);
    const rate =
      this.#noun === 'file' ? formatBytes(perSecond(bytes - start.bytes)) : formatCount(perSecond(count - start.count));
    const parts = [countOf(count, this.#noun), formatBytes(bytes), `${rate}/s`];
    if (note !== undefined) parts.push(note);
    if (total !== null && total > 0) {
      const share = Math.min(1, done / total);
      const bar = this.#shell.errTerminal.isTty ? `${barOf(share)} ` : '';
      parts.unshift(`${bar}${String(Math.floor(share * 100)).padStart(3)}%`);
      const isAdvancing = done > start.done && seconds > 0;
      if (isAdvancing && share < 1) {
        const leftMs = ((total - done) / (done - start.done)) * seconds * SECOND_MS;
        parts.push(`about ${formatSpan(Math.max(SECOND_MS, leftMs))} left`);
      }
    }
    return parts.join('  ');
  }
}

function barOf(share: number): string {
  const full = Math.round(share * BAR_COLUMNS);
  return `${'█'.repeat(full)}${'░'.repeat(BAR_COLUMNS - full)}`;
}
