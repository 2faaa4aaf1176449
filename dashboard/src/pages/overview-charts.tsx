/**
 * The figures of the overview and their charts, as they are handed in. What is not known is said to be not known, and
 * never shown as zero: that would say that nothing came.
 */

import type { ReactNode } from 'react';
import { formatNumber } from '../time.tsx';
import { Card } from '../ui/card.tsx';
import { Chart, type Series } from '../ui/chart.tsx';
import { MINUTE_MS, type Range, type Received, type Revenue } from './overview-figures.ts';

const money = new Intl.NumberFormat('en-GB', { minimumFractionDigits: 2, maximumFractionDigits: 2 });

/** Sums of doubles have a tail that nobody sent. */
function formatRevenue(revenue: number): string {
  return money.format(revenue);
}

interface FigureCardsProps {
  readonly range: Range;
  /** Null while it is not known. */
  readonly received: Received | null;
  readonly revenue: Revenue | null;
}

export function FigureCards({ range, received, revenue }: FigureCardsProps): ReactNode {
  const { spanMs } = range;
  const accepted = received?.accepted.total ?? null;
  const rejected = received?.rejected.total ?? null;
  const events = received?.events.total ?? null;
  return (
    <>
      <dl className="figures">
        <Figure
          label="Users accepted"
          value={accepted === null ? null : formatNumber(accepted)}
          detail={perMinuteWords(accepted ?? 0, spanMs)}
          tone="accent"
        />
        <Figure
          label="Users rejected"
          value={rejected === null ? null : formatNumber(rejected)}
          detail={shareWords(rejected ?? 0, accepted ?? 0)}
          tone={rejected !== null && rejected > 0 ? 'bad' : 'quiet'}
        />
        <Figure
          label="Events"
          value={events === null ? null : formatNumber(events)}
          detail={perMinuteWords(events ?? 0, spanMs)}
          tone="accent"
        />
        <Figure
          label="Revenue"
          value={revenue === null ? null : formatRevenue(revenue.revenue.total)}
          detail="by the events’ own times"
          tone="good"
        />
      </dl>
      <Charts range={range} received={received} revenue={revenue} />
    </>
  );
}

function Charts({ range, received, revenue }: FigureCardsProps): ReactNode {
  const inRange = `in the ${range.label.toLowerCase()}.`;
  return (
    <>
      <Card>
        <KnownChart
          title={`Users ${range.bucketWords}`}
          known={received}
          series={({ accepted, rejected }) => [
            { label: 'Accepted', values: accepted.values, tone: 'accent' },
            { label: 'Rejected', values: rejected.values, tone: 'bad' },
          ]}
          emptyText={`Nothing received ${inRange}`}
        />
      </Card>
      <div className="overview-pair">
        <Card>
          <KnownChart
            title={`Events ${range.bucketWords}`}
            known={received}
            series={({ events }) => [{ label: 'Events', values: events.values, tone: 'accent' }]}
            emptyText={`Nothing received ${inRange}`}
          />
        </Card>
        <Card>
          <KnownChart
            title={`Revenue per ${range.interval}`}
            known={revenue}
            series={({ revenue: { values } }) => [{ label: 'Revenue', values, tone: 'good' }]}
            emptyText={`No revenue ${inRange}`}
            format={formatRevenue}
          />
        </Card>
      </div>
    </>
  );
}

interface KnownChartProps<Known> {
  readonly title: string;
  readonly known: Known | null;
  readonly series: (known: Known) => Series[];
  readonly emptyText: string;
  readonly format?: (value: number) => string;
}

/** Nothing that came and nothing that is known are two things. */
function KnownChart<Known extends { readonly starts: readonly number[] }>(props: KnownChartProps<Known>): ReactNode {
  const { title, known, series, emptyText, format = formatNumber } = props;
  if (known !== null) {
    return (
      <Chart
        title={title}
        kind="bars"
        times={known.starts}
        series={series(known)}
        emptyText={emptyText}
        format={format}
      />
    );
  }
  return (
    <figure className="chart">
      <figcaption className="chart__head">
        <span className="chart__title">{title}</span>
      </figcaption>
      <div className="chart__drawing">
        <p className="chart__empty">Not known yet.</p>
      </div>
    </figure>
  );
}

interface FigureProps {
  readonly label: string;
  /** Null while it is not known yet. */
  readonly value: string | null;
  readonly detail?: string;
  readonly tone: 'accent' | 'good' | 'bad' | 'quiet';
}

function Figure({ label, value, detail, tone }: FigureProps): ReactNode {
  return (
    <div className={`figure figure--${tone}`}>
      <dt className="figure__label">{label}</dt>
      <dd className="figure__value">{value ?? <span className="muted">…</span>}</dd>
      {detail !== undefined && value !== null && <dd className="figure__detail">{detail}</dd>}
    </div>
  );
}

function perMinuteWords(count: number, spanMs: number): string {
  return `${formatNumber(Math.round((10 * count * MINUTE_MS) / spanMs) / 10)} per minute`;
}

function shareWords(rejected: number, accepted: number): string {
  if (rejected + accepted === 0) return 'none came';
  if (rejected === 0) return 'all were valid';
  const percent = (100 * rejected) / (rejected + accepted);
  return percent < 0.1 ? 'under 0.1 % of all' : `${formatNumber(Math.round(percent * 10) / 10)} % of all`;
}
