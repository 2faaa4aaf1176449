/**
 * The figures of the overview and their charts, by one clock at a time. By event time: events, revenue by currency, event
 * names. By receipt time: entries accepted and rejected, events received, reasons. What is not known is said to be not
 * known, and never shown as zero: that would say that nothing came. Amounts of different currencies share no sum and no
 * axis.
 */

import type { ReactNode } from 'react';
import { type Range, timesQuery } from '../overview-range.ts';
import { Link, useEnvironment, useQueryValue, viewPath } from '../router.tsx';
import { formatNumber } from '../time.tsx';
import { DAY_MS, MINUTE_MS } from '../time-units.ts';
import type { Counts, Ledger, ProfileCount, Receipts } from '../api-types.ts';
import { Button } from '../ui/button.tsx';
import { Card } from '../ui/card.tsx';
import type { Series } from '../ui/chart-drawing.tsx';
import { Chart } from '../ui/chart.tsx';
import { ErrorNotice } from '../ui/notice.tsx';
import { type Data, useData } from '../use-data.ts';
import { AsOf, NamesCard, ReasonsCard } from './overview-cards.tsx';
import {
  type Counted,
  countedIn,
  type CurrencyRow,
  currencyLabel,
  currencyName,
  formatMoney,
  type Received,
  receivedByHour,
  receivedByMinute,
} from './overview-figures.ts';

const PEOPLE_RELOAD_MS = 10_000;
const RELOAD_MS = { minute: 5_000, hour: 10_000, day: 30_000 } as const;
/** Those of most events; all of them are in the chart. */
const CURRENCY_FIGURES_MAX = 3;

interface FiguresProps {
  readonly range: Range;
  /** As it was at another time. */
  readonly rangeAt: (time: number) => Range;
  readonly now: number;
  /** The query of the same range by the other clock. */
  readonly otherClock: string;
}

/** While figures cannot be read, what came since the last time is not nothing, but not known. */
function knownUntil({ error, readAt }: Data<unknown>, now: number): number {
  return error === undefined ? now : (readAt ?? now);
}

export function EventFigures({ range, rangeAt, now, otherClock }: FiguresProps): ReactNode {
  const interval = range.unit === 'minute' ? 'minute' : 'hour';
  const counts = useData<Counts>(`/events/counts?interval=${interval}&${timesQuery(range)}`, {
    everyMs: RELOAD_MS[range.unit],
    isMoving: true,
  });
  const counted = counts.data === undefined ? null : countedIn(rangeAt(knownUntil(counts, now)), counts.data.buckets);
  return (
    <>
      <Trouble data={counts} />
      <dl className="figures">
        <PeopleFigure />
        <Figure
          label="Events"
          value={counted === null ? null : formatNumber(counted.events.total)}
          detail={rateWords(counted?.events.total ?? 0, range, now)}
          tone="accent"
        />
        <RevenueFigures revenue={counted?.revenue ?? null} />
      </dl>
      <Card>
        <KnownChart
          title={`Events per ${range.unit}`}
          known={counted}
          series={({ events }) => [{ label: 'Events', values: events.values, tone: 'accent' }]}
          emptyText={`No events ${range.words}.`}
        />
      </Card>
      <div className="overview-pair">
        <RevenueCard range={range} counted={counted} />
        <NamesCard range={range} />
      </div>
      <RejectedWords range={range} rangeAt={rangeAt} now={now} otherClock={otherClock} />
    </>
  );
}

export function ReceiptFigures({ range, rangeAt, now, otherClock }: FiguresProps): ReactNode {
  const environment = useEnvironment();
  const [received, data] = useReceived(range, rangeAt, now);
  const accepted = received?.accepted.total ?? null;
  const rejected = received?.rejected.total ?? null;
  const events = received?.events.total ?? null;
  const resubmitted = received?.resubmitted ?? 0;
  return (
    <>
      <Trouble data={data} />
      <dl className="figures">
        <PeopleFigure />
        <Figure
          label="User entries accepted"
          value={accepted === null ? null : formatNumber(accepted)}
          detail={`entries in requests, not people; ${rateWords(accepted ?? 0, range, now)}`}
          tone="accent"
        />
        <Figure
          label="User entries rejected"
          value={rejected === null ? null : formatNumber(rejected)}
          detail={shareWords(rejected ?? 0, accepted ?? 0)}
          tone={rejected !== null && rejected > 0 ? 'bad' : 'quiet'}
        />
        <Figure
          label="Events received"
          value={events === null ? null : formatNumber(events)}
          detail={rateWords(events ?? 0, range, now)}
          tone="accent"
        />
      </dl>
      <Card>
        <KnownChart
          title={`User entries per ${range.unit}`}
          known={received}
          series={(known) => [
            { label: 'Accepted', values: known.accepted.values, tone: 'accent' },
            { label: 'Rejected', values: known.rejected.values, tone: 'bad' },
          ]}
          emptyText={`Nothing received ${range.words}.`}
        />
      </Card>
      <div className="overview-pair">
        <Card>
          <KnownChart
            title={`Events received per ${range.unit}`}
            known={received}
            series={(known) => [{ label: 'Events', values: known.events.values, tone: 'accent' }]}
            emptyText={`Nothing received ${range.words}.`}
          />
        </Card>
        <ReasonsCard range={range} />
      </div>
      {resubmitted > 0 && (
        <p className="muted">
          Events received include those of {formatNumber(resubmitted)} user{' '}
          {resubmitted === 1 ? 'entry that was' : 'entries that were'} rejected at first and resubmitted later.
        </p>
      )}
      <p className="muted">
        Event names and revenue are counted by event time:{' '}
        <Link to={viewPath(environment, '') + otherClock}>show them</Link>.
      </p>
    </>
  );
}

/** By minute where minutes are shown; further back, and for longer, from the hours of the ledger. */
function useReceived(
  range: Range,
  rangeAt: (time: number) => Range,
  now: number,
): [received: Received | null, data: Data<unknown>] {
  const options = { everyMs: RELOAD_MS[range.unit], isMoving: true };
  const isByMinute = range.unit === 'minute';
  const receipts = useData<Receipts>(isByMinute ? `/receipts?${timesQuery(range)}` : null, options);
  const ledger = useData<Ledger>(isByMinute ? null : `/ledger?${timesQuery(range)}`, options);
  if (isByMinute) {
    const { data } = receipts;
    return [data === undefined ? null : receivedByMinute(rangeAt(knownUntil(receipts, now)), data.minutes), receipts];
  }
  const { data } = ledger;
  return [data === undefined ? null : receivedByHour(rangeAt(knownUntil(ledger, now)), data.hours), ledger];
}

/** Who was rejected has no event time; that there were some must not be missed all the same. */
function RejectedWords({ range, rangeAt, now, otherClock }: FiguresProps): ReactNode {
  const environment = useEnvironment();
  const [received] = useReceived(range, rangeAt, now);
  const rejected = received?.rejected.total ?? 0;
  if (rejected === 0) return null;
  return (
    <p className="muted">
      {formatNumber(rejected)} {rejected === 1 ? 'user entry was' : 'user entries were'} rejected {range.words}, by time
      of receipt: <Link to={viewPath(environment, '') + otherClock}>show by time of receipt</Link>.
    </p>
  );
}

function Trouble({ data: { error, readAt, reload } }: { data: Data<unknown> }): ReactNode {
  if (error === undefined) return null;
  return (
    <>
      <ErrorNotice error={error} onRetry={reload} />
      <AsOf readAt={readAt} />
    </>
  );
}

function PeopleFigure(): ReactNode {
  const environment = useEnvironment();
  const { data } = useData<ProfileCount>('/profiles/count', { everyMs: PEOPLE_RELOAD_MS });
  const value = data === undefined ? null : formatNumber(data.profiles);
  return (
    <Figure
      label={<Link to={viewPath(environment, 'people')}>People</Link>}
      value={value}
      detail="now, whatever the range"
      tone="accent"
    />
  );
}

function RevenueFigures({ revenue }: { revenue: readonly CurrencyRow[] | null }): ReactNode {
  if (revenue === null) return <Figure label="Revenue" value={null} tone="good" />;
  if (revenue.length === 0) return <Figure label="Revenue" value="None" tone="quiet" />;
  const more = revenue.length - CURRENCY_FIGURES_MAX;
  return revenue
    .slice(0, CURRENCY_FIGURES_MAX)
    .map((row, index) => (
      <Figure
        key={currencyName(row.currency)}
        label={`Revenue, ${currencyLabel(row.currency)}`}
        value={row.revenue === null ? 'Not summed' : formatMoney(row.revenue.total, row.currency)}
        detail={index === CURRENCY_FIGURES_MAX - 1 && more > 0 ? `and ${more} more below` : eventsWords(row)}
        tone="good"
      />
    ));
}

function eventsWords({ events, revenue }: CurrencyRow): string {
  const words = `${formatNumber(events)} ${events === 1 ? 'event' : 'events'}`;
  return revenue === null ? `${words} whose currency is not three letters` : words;
}

/** One currency at a time. */
function RevenueCard({ range, counted }: { range: Range; counted: Counted | null }): ReactNode {
  const [chosen, choose] = useQueryValue('currency');
  const summed = counted?.revenue.filter(({ revenue }) => revenue !== null) ?? [];
  const row = summed.find(({ currency }) => currencyName(currency) === chosen) ?? summed[0];
  const currency = row?.currency ?? null;
  return (
    <Card>
      {summed.length > 1 && (
        <fieldset className="switch" aria-label="Currency">
          {summed.map((each) => (
            <Button
              key={currencyName(each.currency)}
              aria-pressed={each === row}
              onClick={() => choose(currencyName(each.currency), { replace: true })}
            >
              {currencyLabel(each.currency)}
            </Button>
          ))}
        </fieldset>
      )}
      <KnownChart
        title={`Revenue per ${range.unit}${row === undefined ? '' : `, ${currencyLabel(currency)}`}`}
        known={counted}
        series={() => [{ label: 'Revenue', values: row?.revenue?.values ?? [], tone: 'good' }]}
        emptyText={`No revenue ${range.words}.`}
        format={(value) => formatMoney(value, currency)}
      />
    </Card>
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
function KnownChart<Known extends { readonly range: Range }>(props: KnownChartProps<Known>): ReactNode {
  const { title, known, series, emptyText, format = formatNumber } = props;
  if (known !== null) {
    return (
      <Chart
        title={title}
        kind="bars"
        times={known.range.starts}
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
  readonly label: ReactNode;
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

/** Per minute of a short range, per day of a long one; of what is left of it, up to now. */
function rateWords(count: number, { from, to }: Range, now: number): string {
  const spanMs = Math.max(Math.min(to, Math.max(now, from + MINUTE_MS)) - from, MINUTE_MS);
  const [unitMs, unit] = spanMs <= DAY_MS ? [MINUTE_MS, 'minute'] : [DAY_MS, 'day'];
  return `${formatNumber(Math.round((10 * count * unitMs) / spanMs) / 10)} per ${unit}`;
}

function shareWords(rejected: number, accepted: number): string {
  if (rejected + accepted === 0) return 'none came';
  if (rejected === 0) return 'all were valid';
  const percent = (100 * rejected) / (rejected + accepted);
  return percent < 0.1 ? 'under 0.1 % of all' : `${formatNumber(Math.round(percent * 10) / 10)} % of all`;
}
