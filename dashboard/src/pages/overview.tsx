/**
 * Overview: is it working? The figures of the last hour or day, what they are made of, and whether the server keeps up
 * and its books balance. The range stands in the address. Where nothing was ever received it shows the way to a first
 * event instead, and stays with that until the reader goes on.
 */

import { type ReactNode, useState } from 'react';
import { Link, useEnvironment, useQueryValue, viewPath } from '../router.tsx';
import { useNow } from '../time.tsx';
import type { Counts, Ledger, Receipts } from '../types.ts';
import { ErrorNotice, Loading } from '../ui/notice.tsx';
import { Page } from '../ui/page.tsx';
import { type Data, useData } from '../use-data.ts';
import { FirstEvent } from './first-event.tsx';
import { AsOf, BooksCard, FlowCard, NamesCard, ReasonsCard } from './overview-cards.tsx';
import { FigureCards } from './overview-charts.tsx';
import { bucketStarts, RANGES, type Range, rangeOf, receivedIn, revenueIn } from './overview-figures.ts';
import '../styles/overview.css';

const RELOAD_MS = 5_000;
const LEDGER_RELOAD_MS = 10_000;

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
      <Figures key={`figures ${range.value}`} range={range} />
      <div className="overview-pair">
        <NamesCard key={`names ${range.value}`} range={range} />
        <ReasonsCard key={`reasons ${range.value}`} range={range} />
      </div>
      <div className="overview-pair">
        <FlowCard />
        <BooksCard ledger={ledger.data} error={ledger.error} readAt={ledger.readAt} onRetry={ledger.reload} />
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
  const asked = bucketStarts(now, spanMs, bucketMs);
  const from = new Date(asked[0] ?? now).toISOString();
  // Given, because the server's clock may be ahead of this one, and no more than a day is answered.
  const to = new Date((asked.at(-1) ?? now) + bucketMs).toISOString();
  const revenueFrom = new Date(bucketStarts(now, spanMs, intervalMs)[0] ?? now).toISOString();

  const moving = { everyMs: RELOAD_MS, isMoving: true };
  const receipts = useData<Receipts>(`/receipts?from=${from}&to=${to}`, moving);
  const counts = useData<Counts>(`/events/counts?interval=${interval}&from=${revenueFrom}`, moving);
  const error = receipts.error ?? counts.error;
  const reload = (): void => {
    receipts.reload();
    counts.reload();
  };
  return (
    <>
      {error !== undefined && <ErrorNotice error={error} onRetry={reload} />}
      {error !== undefined && <AsOf readAt={receipts.readAt} />}
      <FigureCards
        range={range}
        received={
          receipts.data === undefined ? null : receivedIn(range, receipts.data.minutes, knownUntil(receipts, now))
        }
        revenue={counts.data === undefined ? null : revenueIn(range, counts.data.buckets, knownUntil(counts, now))}
      />
    </>
  );
}

/** While figures cannot be read, what came since the last time is not nothing, but not known. */
function knownUntil({ error, readAt }: Data<unknown>, now: number): number {
  return error === undefined ? now : (readAt ?? now);
}
