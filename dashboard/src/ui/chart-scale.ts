/**
 * The arithmetic of charts: where lines and labels stand on the two axes. Pure. Counts have no halves, so the value axis
 * goes by whole steps of 1, 2 and 5; the time axis by steps that clocks and calendars have, in the viewer's zone.
 */

import { DAY_MS, HOUR_MS, MINUTE_MS } from '../time-units.ts';

const TIME_STEPS_MS: readonly number[] = [
  ...[1, 2, 5, 10, 15, 30].map((minutes) => minutes * MINUTE_MS),
  ...[1, 2, 3, 6, 12].map((hours) => hours * HOUR_MS),
  ...[1, 2, 7, 14, 28].map((days) => days * DAY_MS),
];

/**
 * From the last step that is not above `least` up to the first that is not below `most`, over 0, in about as many steps
 * as there are lines wanted.
 */
export function valueTicks(most: number, linesWanted: number, least = 0): number[] {
  const [below, above] = [Math.max(0, -least), Math.max(0, most)];
  const span = Math.max(below + above, 1);
  const rough = span / linesWanted;
  const decade = 10 ** Math.max(Math.floor(Math.log10(rough)), 0);
  const step = [1, 2, 5, 10].map((factor) => factor * decade).find((each) => each >= rough) ?? 10 * decade;
  const stepsBelow = Math.ceil(below / step);
  const stepsAbove = Math.max(Math.ceil(above / step), stepsBelow === 0 ? 1 : 0);
  // Not -0, which reads as a number below zero.
  return Array.from({ length: stepsBelow + stepsAbove + 1 }, (_, index) => (index - stepsBelow) * step || 0);
}

interface TimeTicks {
  readonly at: readonly number[];
  readonly areDays: boolean;
}

export function timeTicks(first: number, last: number, countMax: number): TimeTicks {
  const least = (last - first) / Math.max(countMax, 1);
  const step = TIME_STEPS_MS.find((each) => each >= least) ?? Math.ceil(least / DAY_MS) * DAY_MS;
  // Hours and days of the viewer, not of UTC.
  const offset = new Date(first).getTimezoneOffset() * MINUTE_MS;
  const at: number[] = [];
  for (let time = Math.ceil((first - offset) / step) * step + offset; time <= last; time += step) at.push(time);
  return { at, areDays: step >= DAY_MS };
}

/** The least distance between two neighbours: how long the time is that one bar stands for. */
export function slotOf(times: readonly number[]): number {
  let least = Number.POSITIVE_INFINITY;
  for (let index = 1; index < times.length; index += 1) {
    least = Math.min(least, (times[index] ?? 0) - (times[index - 1] ?? 0));
  }
  return Number.isFinite(least) && least > 0 ? least : MINUTE_MS;
}

export function nearestIndex(times: readonly number[], wanted: number): number {
  let nearest = 0;
  for (const [index, time] of times.entries()) {
    if (Math.abs(time - wanted) < Math.abs((times[nearest] ?? 0) - wanted)) nearest = index;
  }
  return nearest;
}
