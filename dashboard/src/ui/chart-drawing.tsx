/**
 * The drawing of a chart, with uPlot. Loaded on its own, by `chart.tsx`. Colours are those of the theme, read when the
 * chart is drawn; it is drawn again when the theme or the width changes. Hidden from screen readers, which get a table.
 */

import { type ReactNode, useEffect, useEffectEvent, useRef } from 'react';
import UPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { onThemeChange } from '../theme.ts';
import type { Series } from './chart.tsx';

const HEIGHT_PIXELS = 200;
const AXIS_PIXELS = 44;
/** What half a bar's room is reckoned by; more bars get a little more than they need. */
const BARS_USUAL = 60;
const BAR_SECONDS_MIN = 60;
const BAR_WIDTH = 0.72;
const BAR_PIXELS_MAX = 28;

export interface ChartDrawingProps {
  readonly times: readonly number[];
  readonly series: readonly Series[];
  readonly kind: 'bars' | 'line';
  readonly format: (value: number) => string;
  readonly onCursor: (index: number | null) => void;
}

/** Made anew only when its shape changes: new figures must not take the cursor away from whoever reads them. */
export default function ChartDrawing(props: ChartDrawingProps): ReactNode {
  const names = props.series.map(({ label, tone }) => `${label}/${tone}`);
  return <Drawing key={[props.kind, ...names].join(' ')} {...props} />;
}

function Drawing(props: ChartDrawingProps): ReactNode {
  const { times, series, kind } = props;
  const frame = useRef<HTMLDivElement>(null);
  const plot = useRef<UPlot>(null);
  const make = useEffectEvent(
    (element: HTMLElement) =>
      new UPlot(optionsOf(props, element.clientWidth), alignedData(times, series, kind), element),
  );

  useEffect(() => {
    const element = frame.current;
    if (element === null) return undefined;
    const chart = make(element);
    plot.current = chart;
    const resizing = new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height: HEIGHT_PIXELS }));
    resizing.observe(element);
    const stopTheme = onThemeChange(() => chart.redraw(true, true));
    return () => {
      stopTheme();
      resizing.disconnect();
      chart.destroy();
      plot.current = null;
    };
  }, []);

  useEffect(() => {
    plot.current?.setData(alignedData(times, series, kind));
  }, [times, series, kind]);

  return <div className="chart__frame" ref={frame} />;
}

/** Stacked bars are drawn from the highest sum down, each over the one before: so series are given back to front. */
function alignedData(times: readonly number[], series: readonly Series[], kind: 'bars' | 'line'): UPlot.AlignedData {
  const seconds = times.map((time) => time / 1_000);
  if (kind === 'line') return [seconds, ...series.map(({ values }) => [...values])];
  const sums = seconds.map(() => 0);
  const stacked = series.map(({ values }) =>
    sums.map((sum, index) => {
      sums[index] = sum + (values[index] ?? 0);
      return sums[index];
    }),
  );
  return [seconds, ...stacked.toReversed()];
}

function optionsOf({ series, kind, onCursor }: ChartDrawingProps, width: number): UPlot.Options {
  const bars = UPlot.paths.bars?.({ size: [BAR_WIDTH, BAR_PIXELS_MAX], radius: 0.15 });
  const drawn = kind === 'bars' ? series.toReversed() : series;
  const axis: UPlot.Axis = {
    stroke: () => colour('--muted'),
    grid: { stroke: () => colour('--line'), width: 1 },
    ticks: { show: false },
    font: '12px system-ui, sans-serif',
  };
  return {
    width,
    height: HEIGHT_PIXELS,
    legend: { show: false },
    padding: [8, 20, 0, 0],
    cursor: {
      drag: { x: false, y: false, setScale: false },
      y: false,
      points: { show: kind === 'line' },
    },
    scales: {
      x: { range: (_plot, first, last) => withMargin(first, last, kind) },
      y: { range: (_plot, _least, most) => [0, Math.max(most * 1.08, 1)] },
    },
    axes: [
      { ...axis, grid: { show: false }, size: 28, space: 64, values: timeLabels },
      {
        ...axis,
        size: AXIS_PIXELS,
        space: 36,
        incrs: WHOLE_STEPS,
        values: (_plot, splits) => splits.map((value) => compact.format(value)),
      },
    ],
    series: [
      {},
      ...drawn.map(({ label, tone }): UPlot.Series => {
        const stroke = (): string => colour(tone === 'quiet' ? '--line-strong' : `--${tone}`);
        const line: UPlot.Series = { label, stroke, width: 2, points: { show: false } };
        if (kind === 'bars') Object.assign(line, { fill: stroke, width: 0, paths: bars });
        return line;
      }),
    ],
    hooks: { setCursor: [({ cursor }) => onCursor(cursor.idx ?? null)] },
  };
}

/** Half a bar's room at both ends, or the first and last bar would be cut in two. */
function withMargin(first: number, last: number, kind: 'bars' | 'line'): [number, number] {
  const margin = kind === 'line' ? 0 : Math.max((last - first) / BARS_USUAL / 2, BAR_SECONDS_MIN / 2);
  return [first - margin, last + margin];
}

const DECADES = [1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

/** Counts have no halves. */
const WHOLE_STEPS = DECADES.flatMap((decade) => [decade, 2 * decade, 5 * decade]);

/** Room beside a chart is for a few characters; the legend has the figures in full. */
const compact = new Intl.NumberFormat('en-GB', { notation: 'compact' });

const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });
const day = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });
const DAY_SECONDS = 86_400;

function timeLabels(_plot: UPlot, splits: number[]): string[] {
  const step = (splits[1] ?? 0) - (splits[0] ?? 0);
  return splits.map((seconds) => (step >= DAY_SECONDS ? day : clock).format(seconds * 1_000));
}

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
