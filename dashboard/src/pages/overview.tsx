/**
 * Overview: is it working? The figures of a range by one clock, event time or receipt time, what they are made of, and
 * whether the server keeps up and every event is accounted for. Range and clock are in the address; one that the page
 * does not know is refused in words. Where nothing was ever received it shows the way to a first event instead, and
 * stays with that until the reader continues.
 */

import { type ReactNode, useState } from 'react';
import { addressQuery, type Clock, clockOf, type Range, type RangeText, rangeOf } from '../overview-range.ts';
import { Link, useAddress, useEnvironment, viewPath } from '../router.tsx';
import { useNow } from '../time.tsx';
import type { Ledger } from '../api-types.ts';
import { ErrorNotice, Loading, Notice } from '../ui/notice.tsx';
import { Page } from '../ui/page.tsx';
import { useData } from '../use-data.ts';
import { FirstEvent } from './first-event.tsx';
import { LedgerCard, FlowCard } from './overview-cards.tsx';
import { EventFigures, ReceiptFigures } from './overview-charts.tsx';
import { ClockSwitch, CustomRange, RangeSwitch, RangeWords } from './overview-range-picker.tsx';
import '../styles/overview.css';

const LEDGER_RELOAD_MS = 10_000;

export default function OverviewPage(): ReactNode {
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
  return (
    <RangedOverview>
      <div className="overview-pair">
        <FlowCard />
        <LedgerCard ledger={ledger.data} error={ledger.error} readAt={ledger.readAt} onRetry={ledger.reload} />
      </div>
    </RangedOverview>
  );
}

function RangedOverview({ children }: { children: ReactNode }): ReactNode {
  const { query } = useAddress();
  const now = useNow();
  const clockText = query.get('clock') ?? '';
  const clock = clockOf(clockText);
  const text: RangeText = {
    range: query.get('range') ?? '',
    from: query.get('from') ?? '',
    to: query.get('to') ?? '',
  };
  const shownClock = clock ?? 'event';
  const result = rangeOf(text, shownClock, now);
  const isCustom = text.range === 'custom';
  const actions = (
    <>
      <ClockSwitch text={text} clock={shownClock} />
      <RangeSwitch text={text} clock={shownClock} now={now} />
    </>
  );
  return (
    <Page title="Overview" actions={actions}>
      {isCustom && <CustomRange key={`${text.from} ${text.to}`} text={text} clock={shownClock} />}
      {clock === undefined && (
        <Refused words={`There is no clock “${clockText}”. There are event time and time of receipt.`} />
      )}
      {'problem' in result && <Refused words={result.problem} />}
      {clock !== undefined && 'range' in result && (
        <RangeFigures text={text} clock={clock} range={result.range} now={now} />
      )}
      {children}
    </Page>
  );
}

/** What the address asks for is not guessed at. */
function Refused({ words }: { words: string }): ReactNode {
  const path = viewPath(useEnvironment(), '');
  return (
    <Notice tone="warn" title={words}>
      <p>
        <Link to={path}>Show the last hour by event time</Link>
      </p>
    </Notice>
  );
}

interface RangeFiguresProps {
  readonly text: RangeText;
  readonly clock: Clock;
  readonly range: Range;
  readonly now: number;
}

function RangeFigures({ text, clock, range, now }: RangeFiguresProps): ReactNode {
  /** The same range as it was at another time: when figures were last read. */
  const rangeAt = (time: number): Range => {
    const result = rangeOf(text, clock, time);
    return 'range' in result ? result.range : range;
  };
  const otherClock = addressQuery(text, clock === 'event' ? 'receipt' : 'event');
  const Figures = clock === 'event' ? EventFigures : ReceiptFigures;
  return (
    <>
      <RangeWords range={range} clock={clock} now={now} />
      <Figures
        key={`${clock} ${range.name} ${text.from} ${text.to}`}
        range={range}
        rangeAt={rangeAt}
        now={now}
        otherClock={otherClock}
      />
    </>
  );
}
