/**
 * Overview: is it working? The figures of the last hour or day, what they are made of, and whether the server keeps up
 * and its books balance. The range stands in the address. Where nothing was ever received it shows the way to a first
 * event instead, and stays with that until the reader goes on.
 */

import { type ReactNode, useState } from 'react';
import { Link, useEnvironment, useQueryValue, viewPath } from '../router.tsx';
import { formatNumber, useNow } from '../time.tsx';
import type { Counts, Ledger, Receipts } from '../types.ts';
import { Chart } from '../ui/chart.tsx';
import { Card } from '../ui/card.tsx';
import { ErrorNotice, Loading } from '../ui/notice.tsx';
import { Page } from '../ui/page.tsx';
import { useData } from '../use-data.ts';
import { FirstEvent } from './first-event.tsx';
import { BooksCard, FlowCard, NamesCard, ReasonsCard } from './overview-cards.tsx';
import { addUp, bucketStarts, MINUTE_MS, RANGES, type Range, rangeOf, totalOf } from './overview-figures.ts';
import '../styles/overview.css';

const RELOAD_MS = 5_000;
const LEDGER_RELOAD_MS = 10_000;

const money = new Intl.NumberFormat('en-GB', { minimumFractionDigits: 2, maximumFractionDigits: 2 });

/** Sums of doubles have a tail that nobody sent. */
function formatRevenue(revenue: number): string {
  return money.format(revenue);
}

export default function OverviewPage(): ReactNode {
  const [rangeValue] = useQueryValue('range');
  const ledger = useData<Ledger>('/ledger', { everyMs: LEDGER_RELOAD_MS });
  const [isFirst, setIsFirst] = useState(false);
  const isEmpty = ledger.data !== undefined && ledger.data.totals.users.received === 0;
  if (isEmpty && !isFirst) setIsFirst(true);

  if (ledger.data === undefined) {
    return (
      <Page title="Overview">
        {ledger.error === undefined ? (
          <Loading what="the overview" />
        ) : (
          <ErrorNotice error={ledger.error} onRetry={ledger.reload} />
        )}
      </Page>
    );
  }
  if (isFirst) return <FirstEvent onDone={() => setIsFirst(false)} isDone={!isEmpty} />;
  const range = rangeOf(rangeValue);
  return (
    <Page title="Overview" actions={<RangeSwitch range={range} />}>
      <Figures range={range} />
      <div className="overview-pair">
        <NamesCard range={range} />
        <ReasonsCard range={range} />
      </div>
      <div className="overview-pair">
        <FlowCard />
        <BooksCard ledger={ledger.data} error={ledger.error} onRetry={ledger.reload} />
      </div>
    </Page>
  );
}

function RangeSwitch({ range }: { range: Range }): ReactNode {
  const path = viewPath(useEnvironment(), '');
  return (
    <nav className="switch" aria-label="Range">
      {RANGES.map(({ value, label }) => (
        <Link
          key={value}
          className="switch__choice"
          to={value === '' ? path : `${path}?range=${value}`}
          aria-current={value === range.value ? 'true' : undefined}
        >
          {label}
        </Link>
      ))}
    </nav>
  );
}

/** What was received, by time of receipt, and revenue, by the events' own times. */
function Figures({ range }: { range: Range }): ReactNode {
  const now = useNow();
  const { spanMs, bucketMs, interval, intervalMs } = range;
  const starts = bucketStarts(now, spanMs, bucketMs);
  const from = new Date(starts[0] ?? now).toISOString();
  // Given, because the server's clock may be ahead of this one, and no more than a day is answered.
  const to = new Date((starts.at(-1) ?? now) + bucketMs).toISOString();
  const revenueStarts = bucketStarts(now, spanMs, intervalMs);
  const revenueFrom = new Date(revenueStarts[0] ?? now).toISOString();

  const receipts = useData<Receipts>(`/receipts?from=${from}&to=${to}`, { everyMs: RELOAD_MS });
  const counts = useData<Counts>(`/events/counts?interval=${interval}&from=${revenueFrom}`, { everyMs: RELOAD_MS });
  const minutes = receipts.data?.minutes ?? [];
  const accepted = addUp(minutes, starts, bucketMs, (minute) => minute.users_accepted);
  const rejected = addUp(minutes, starts, bucketMs, (minute) => minute.users_rejected);
  const events = addUp(minutes, starts, bucketMs, (minute) => minute.events_accepted);
  const revenue = addUp(counts.data?.buckets ?? [], revenueStarts, intervalMs, (bucket) => bucket.revenue);
  const isKnown = receipts.data !== undefined;
  const error = receipts.error ?? counts.error;
  const nothing = `Nothing received in the ${range.label.toLowerCase()}.`;
  return (
    <>
      {error !== undefined && <ErrorNotice error={error} onRetry={receipts.reload} />}
      <dl className="figures">
        <Figure
          label="Users accepted"
          value={isKnown ? formatNumber(totalOf(accepted)) : null}
          detail={perMinuteWords(totalOf(accepted), spanMs)}
          tone="accent"
        />
        <Figure
          label="Users rejected"
          value={isKnown ? formatNumber(totalOf(rejected)) : null}
          detail={shareWords(totalOf(rejected), totalOf(accepted))}
          tone={totalOf(rejected) > 0 ? 'bad' : 'quiet'}
        />
        <Figure
          label="Events"
          value={isKnown ? formatNumber(totalOf(events)) : null}
          detail={perMinuteWords(totalOf(events), spanMs)}
          tone="accent"
        />
        <Figure
          label="Revenue"
          value={counts.data === undefined ? null : formatRevenue(totalOf(revenue))}
          detail="by the events’ own times"
          tone="good"
        />
      </dl>
      <Card>
        <Chart
          title={`Users ${range.bucketWords}`}
          kind="bars"
          times={starts}
          series={[
            { label: 'Accepted', values: accepted, tone: 'accent' },
            { label: 'Rejected', values: rejected, tone: 'bad' },
          ]}
          emptyText={nothing}
        />
      </Card>
      <div className="overview-pair">
        <Card>
          <Chart
            title={`Events ${range.bucketWords}`}
            kind="bars"
            times={starts}
            series={[{ label: 'Events', values: events, tone: 'accent' }]}
            emptyText={nothing}
          />
        </Card>
        <Card>
          <Chart
            title={`Revenue per ${interval}`}
            kind="bars"
            times={revenueStarts}
            series={[{ label: 'Revenue', values: revenue, tone: 'good' }]}
            emptyText={`No revenue in the ${range.label.toLowerCase()}.`}
            format={formatRevenue}
          />
        </Card>
      </div>
    </>
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
