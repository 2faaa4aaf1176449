/**
 * A chart over time, with a table of the same figures for screen readers. Bars are stacked; lines are not. The legend
 * says the sums, or the figures of the place that is pointed at.
 */

import { type ReactNode, useId, useState } from 'react';
import { formatNumber, formatTime } from '../time.tsx';
import { ChartDrawing, type Series } from './chart-drawing.tsx';

interface ChartProps {
  readonly title: string;
  /** Milliseconds, oldest first; each series has a value for each. */
  readonly times: readonly number[];
  readonly series: readonly Series[];
  readonly kind: 'bars' | 'line';
  readonly emptyText: string;
  readonly format?: (value: number) => string;
}

/** Enough to hear what happened; a day of minutes would be too long. */
const TABLE_ROWS_MAX = 60;

export function Chart({ title, times, series, kind, emptyText, format = formatNumber }: ChartProps): ReactNode {
  const id = useId();
  const [at, setAt] = useState<number | null>(null);
  const isEmpty = series.every(({ values }) => values.every((value) => value === 0));
  const index = at !== null && at < times.length ? at : null;
  const time = index === null ? undefined : times[index];
  return (
    <figure className="chart" aria-labelledby={id}>
      <figcaption className="chart__head">
        <span className="chart__title" id={id}>
          {title}
        </span>
        <span className="chart__legend" aria-hidden="true">
          <span className="chart__time">{time === undefined ? 'in all' : formatTime(time)}</span>
          {series.map(({ label, values, tone }) => (
            <span key={label} className="chart__key">
              <span className={`chart__swatch chart__swatch--${tone}`} />
              {label}
              <b>{format(index === null ? values.reduce((sum, value) => sum + value, 0) : (values[index] ?? 0))}</b>
            </span>
          ))}
        </span>
      </figcaption>
      <div className="chart__drawing" aria-hidden="true">
        {isEmpty ? (
          <p className="chart__empty">{emptyText}</p>
        ) : (
          <ChartDrawing times={times} series={series} kind={kind} at={index} onPoint={setAt} />
        )}
      </div>
      <ChartTable title={title} times={times} series={series} format={format} />
    </figure>
  );
}

function ChartTable({
  title,
  times,
  series,
  format,
}: Pick<ChartProps, 'title' | 'times' | 'series'> & { format: (value: number) => string }): ReactNode {
  const rows = times
    .map((time, index) => ({ time, values: series.map(({ values }) => values[index] ?? 0) }))
    .filter(({ values }) => values.some((value) => value !== 0))
    .slice(-TABLE_ROWS_MAX);
  if (rows.length === 0) return <p className="for-screen-readers">{title}: nothing in this time.</p>;
  return (
    <div className="for-screen-readers">
      <table>
        <caption>{title}, the last times with something in them</caption>
        <thead>
          <tr>
            <th scope="col">Time</th>
            {series.map(({ label }) => (
              <th key={label} scope="col">
                {label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(({ time, values }) => (
            <tr key={time}>
              <th scope="row">{formatTime(time)}</th>
              {series.map(({ label }, index) => (
                <td key={label}>{format(values[index] ?? 0)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
