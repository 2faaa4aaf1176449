/**
 * Times, numbers, sizes and durations in words. Times are shown in the viewer's zone, with UTC in the title and for
 * screen readers, because logs and traces are in UTC. All relative times on the page move on by one shared clock.
 */

import { type ReactNode, useSyncExternalStore } from 'react';
import { SECOND_MS } from './time-units.ts';

const LOCALE = 'en-GB';
const TICK_MS = 1_000;
const MINUTE_SECONDS = 60;
const HOUR_SECONDS = 3_600;
const DAY_SECONDS = 86_400;

const dateAndTime = new Intl.DateTimeFormat(LOCALE, {
  day: 'numeric',
  month: 'short',
  year: 'numeric',
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
});
const dayAndTime = new Intl.DateTimeFormat(LOCALE, {
  day: 'numeric',
  month: 'short',
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
});
const date = new Intl.DateTimeFormat(LOCALE, { day: 'numeric', month: 'short', year: 'numeric' });
const timeOfDay = new Intl.DateTimeFormat(LOCALE, { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const number = new Intl.NumberFormat(LOCALE, { maximumFractionDigits: 2 });
const oneDecimal = new Intl.NumberFormat(LOCALE, { maximumFractionDigits: 1 });

let now = Date.now();
const listeners = new Set<() => void>();
let ticking: ReturnType<typeof setInterval> | undefined;

/** The same for as long as a tick lasts, so that what is drawn together agrees. */
function tick(): number {
  const real = Date.now();
  if (Math.abs(real - now) >= TICK_MS) now = real;
  return now;
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  ticking ??= setInterval(() => {
    for (const each of listeners) each();
  }, TICK_MS);
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    clearInterval(ticking);
    ticking = undefined;
  };
}

/** The time, moving on every second. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, tick);
}

interface TimeProps {
  readonly at: string;
  readonly relative?: boolean;
  /** The day matters, the time of day does not. */
  readonly isDate?: boolean;
}

export function Time({ at, relative = false, isDate = false }: TimeProps): ReactNode {
  const milliseconds = Date.parse(at);
  if (Number.isNaN(milliseconds)) return <span>{at}</span>;
  const utc = formatUtc(milliseconds);
  return (
    <time dateTime={at} title={relative || isDate ? `${formatTime(milliseconds)} here; ${utc}` : utc}>
      {relative ? <Ago at={milliseconds} /> : formatAs(milliseconds, isDate)}
      <span className="for-screen-readers"> ({utc})</span>
    </time>
  );
}

function formatAs(milliseconds: number, isDate: boolean): string {
  return isDate ? date.format(milliseconds) : formatTime(milliseconds);
}

/** Subscribes to the words, not to the time: drawn again only when they change. */
function Ago({ at }: { at: number }): ReactNode {
  return useSyncExternalStore(subscribe, () => formatRelative(at, tick()));
}

/** In the viewer's zone: "15 Nov 2025, 09:30:12"; without the year if it is this one, without the day if it is today. */
export function formatTime(milliseconds: number): string {
  const at = new Date(milliseconds);
  const today = new Date();
  if (at.toDateString() === today.toDateString()) return timeOfDay.format(at);
  return (at.getFullYear() === today.getFullYear() ? dayAndTime : dateAndTime).format(at);
}

export function formatUtc(milliseconds: number): string {
  const text = new Date(milliseconds).toISOString();
  return `${text.slice(0, 10)} ${text.slice(11, 19)} UTC`;
}

/** "4 min ago", "in 3 days". */
function formatRelative(at: number, from: number): string {
  const seconds = Math.round((from - at) / SECOND_MS);
  if (Math.abs(seconds) < 5) return 'just now';
  const words = roughDuration(Math.abs(seconds));
  return seconds > 0 ? `${words} ago` : `in ${words}`;
}

function roughDuration(seconds: number): string {
  if (seconds < MINUTE_SECONDS) return `${seconds} s`;
  if (seconds < HOUR_SECONDS) return `${Math.floor(seconds / MINUTE_SECONDS)} min`;
  if (seconds < DAY_SECONDS) return `${Math.floor(seconds / HOUR_SECONDS)} h`;
  const days = Math.floor(seconds / DAY_SECONDS);
  return days === 1 ? '1 day' : `${formatNumber(days)} days`;
}

export function formatNumber(n: number): string {
  return number.format(n);
}

const BYTES_STEP = 1_024;
const BYTE_UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'] as const;

/** In steps of 1,024, as the settings of the server are: "4.2 MB". */
export function formatBytes(n: number): string {
  let rest = n;
  let step = 0;
  while (Math.abs(rest) >= BYTES_STEP - 0.05 && step < BYTE_UNITS.length - 1) {
    rest /= BYTES_STEP;
    step += 1;
  }
  return `${step === 0 ? formatNumber(rest) : oneDecimal.format(rest)} ${BYTE_UNITS[step]}`;
}

/** The two largest units: "350 ms", "2 min 5 s", "3 days 4 h". */
export function formatDuration(seconds: number): string {
  if (seconds < 0.9995) return `${Math.round(Math.max(seconds, 0) * 1_000)} ms`;
  if (seconds < 10) return `${oneDecimal.format(seconds)} s`;
  const whole = Math.round(seconds);
  if (whole < MINUTE_SECONDS) return `${whole} s`;
  if (whole < HOUR_SECONDS) return twoUnits(whole, MINUTE_SECONDS, 'min', 1, 's');
  if (whole < DAY_SECONDS) return twoUnits(whole, HOUR_SECONDS, 'h', MINUTE_SECONDS, 'min');
  return twoUnits(whole, DAY_SECONDS, whole < 2 * DAY_SECONDS ? 'day' : 'days', HOUR_SECONDS, 'h');
}

function twoUnits(seconds: number, large: number, largeName: string, small: number, smallName: string): string {
  const rest = Math.floor((seconds % large) / small);
  const first = `${formatNumber(Math.floor(seconds / large))} ${largeName}`;
  return rest === 0 ? first : `${first} ${rest} ${smallName}`;
}
