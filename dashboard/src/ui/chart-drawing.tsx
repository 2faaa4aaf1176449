/**
 * The drawing of a chart, as SVG: one path per series, however many points it has. Colours come from the style sheet,
 * so that it follows the theme. Hidden from screen readers, which get the table of `chart.tsx`. Drawn here rather than
 * by a library: the one that was tried (uPlot) is a seventh of what the whole page may weigh.
 */

import { type PointerEvent, type ReactNode, type RefObject, useEffect, useRef, useState } from 'react';
import { nearestIndex, slotOf, timeTicks, valueTicks } from './chart-scale.ts';

const HEIGHT = 200;
const LEFT = 46;
const RIGHT = 10;
const TOP = 10;
const BOTTOM = 26;
const LINES_WANTED = 5;
const LABEL_PIXELS = 72;
const LABEL_HALF_PIXELS = 22;
const BAR_SHARE = 0.74;
const BAR_PIXELS_MAX = 28;

/** Short, because there is little room: 500, 1.5K, 2M. */
const compact = new Intl.NumberFormat('en-GB', { notation: 'compact', maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });
const day = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });

type SeriesTone = 'accent' | 'good' | 'warn' | 'bad' | 'quiet';

export interface Series {
  readonly label: string;
  readonly values: readonly number[];
  readonly tone: SeriesTone;
}

interface ChartDrawingProps {
  readonly times: readonly number[];
  readonly series: readonly Series[];
  readonly kind: 'bars' | 'line';
  /** The place that is pointed at. */
  readonly at: number | null;
  readonly onPoint: (index: number | null) => void;
}

export function ChartDrawing({ times, series, kind, at, onPoint }: ChartDrawingProps): ReactNode {
  const [frame, width] = useWidth();
  const slot = slotOf(times);
  const margin = kind === 'bars' ? slot / 2 : 0;
  const first = (times[0] ?? 0) - margin;
  const last = Math.max((times.at(-1) ?? 0) + margin, first + 1);
  const stack = stackOf(times, series, kind);
  const ends = stack.flatMap(({ bottoms, tops }) => [...bottoms, ...tops]);
  const ticks = valueTicks(Math.max(0, ...ends), LINES_WANTED, Math.min(0, ...ends));
  const [least, most] = [ticks[0] ?? 0, ticks.at(-1) ?? 1];
  const plotWidth = Math.max(width - LEFT - RIGHT, 1);
  const x = (time: number): number => LEFT + ((time - first) / (last - first)) * plotWidth;
  const y = (value: number): number => HEIGHT - BOTTOM - ((value - least) / (most - least)) * (HEIGHT - TOP - BOTTOM);
  const dates = timeTicks(first, last, plotWidth / LABEL_PIXELS);
  // A label that would be cut off at the edge says less than none.
  const labelled = dates.at.filter((time) => x(time) <= width - LABEL_HALF_PIXELS);
  const barWidth = Math.min((slot / (last - first)) * plotWidth * BAR_SHARE, BAR_PIXELS_MAX);
  const pointed = at === null ? undefined : times[at];

  const point = (event: PointerEvent<SVGSVGElement>): void => {
    const pixels = event.clientX - event.currentTarget.getBoundingClientRect().left;
    onPoint(nearestIndex(times, first + ((pixels - LEFT) / plotWidth) * (last - first)));
  };

  return (
    <div className="chart__frame" ref={frame}>
      {width > 0 && (
        <svg width={width} height={HEIGHT} onPointerMove={point} onPointerLeave={() => onPoint(null)}>
          {ticks.map((value) => (
            <g key={value}>
              <line
                className={value === 0 && least < 0 ? 'chart__zero' : 'chart__line'}
                x1={LEFT}
                x2={width - RIGHT}
                y1={y(value)}
                y2={y(value)}
              />
              <text className="chart__label chart__label--value" x={LEFT - 8} y={y(value)} dy="0.32em">
                {compact.format(value)}
              </text>
            </g>
          ))}
          {labelled.map((time) => (
            <text key={time} className="chart__label" x={x(time)} y={HEIGHT - 8}>
              {(dates.areDays ? day : clock).format(time)}
            </text>
          ))}
          {pointed !== undefined && (
            <line className="chart__pointed" x1={x(pointed)} x2={x(pointed)} y1={TOP} y2={HEIGHT - BOTTOM} />
          )}
          {stack.map(({ label, tone, bottoms, tops }) => (
            <path
              key={label}
              className={`chart__${kind} chart__${kind}--${tone}`}
              d={kind === 'bars' ? barsPath(times, bottoms, tops, x, y, barWidth) : linePath(times, tops, x, y)}
            />
          ))}
        </svg>
      )}
    </div>
  );
}

interface Layer extends Series {
  readonly bottoms: readonly number[];
  readonly tops: readonly number[];
}

/**
 * Bars stand upon one another in the order of the series, those below zero hang from one another; lines all start from 0.
 */
function stackOf(times: readonly number[], series: readonly Series[], kind: 'bars' | 'line'): Layer[] {
  const above = times.map(() => 0);
  const below = times.map(() => 0);
  return series.map(({ label, tone, values }) => {
    const bottoms = times.map((_, index) => ((values[index] ?? 0) < 0 ? below : above)[index] ?? 0);
    const tops = bottoms.map((bottom, index) => bottom + (values[index] ?? 0));
    for (const [index, top] of tops.entries()) {
      if (kind === 'bars') ((values[index] ?? 0) < 0 ? below : above)[index] = top;
    }
    return { label, tone, values, bottoms, tops };
  });
}

type Scale = (value: number) => number;

function barsPath(
  times: readonly number[],
  bottoms: readonly number[],
  tops: readonly number[],
  x: Scale,
  y: Scale,
  width: number,
): string {
  const parts = times.map((time, index) => {
    const bottom = bottoms[index] ?? 0;
    const top = tops[index] ?? 0;
    if (top === bottom) return '';
    // Below zero it is the other way round, and so is the height.
    const height = y(bottom) - y(top);
    return `M${round(x(time) - width / 2)} ${round(y(bottom))}v${round(-height)}h${round(width)}v${round(height)}z`;
  });
  return parts.join('');
}

function linePath(times: readonly number[], tops: readonly number[], x: Scale, y: Scale): string {
  const points = times.map((time, index) => `${round(x(time))} ${round(y(tops[index] ?? 0))}`);
  return points.length === 0 ? '' : `M${points.join('L')}`;
}

function round(pixels: number): number {
  return Math.round(pixels * 10) / 10;
}

function useWidth(): [frame: RefObject<HTMLDivElement | null>, width: number] {
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const element = frame.current;
    if (element === null) return undefined;
    const watching = new ResizeObserver(() => setWidth(Math.floor(element.clientWidth)));
    watching.observe(element);
    return () => watching.disconnect();
  }, []);
  return [frame, width];
}
