/**
 * The event that the address opens, in Live and in timelines: it may be further back than what is listed at first. It is
 * looked for among the newest LINKED_EVENTS_MAX; one that is not there either is said to be missing.
 */

import type { ReactNode } from 'react';
import { Link, useEnvironment, viewPath } from '../router.tsx';
import { formatNumber } from '../time.tsx';
import type { StoredEvent } from '../api-types.ts';
import { Notice } from '../ui/notice.tsx';

/** As many as the API lists at once. */
export const LINKED_EVENTS_MAX = 500;

/** As the `ref` of its row: for the row that the address opened, not for one that is clicked. */
export function scrollToLinked(row: HTMLElement | null): void {
  row?.scrollIntoView({ block: 'nearest' });
}

export function hasEvent(events: readonly StoredEvent[], eventId: string): boolean {
  return events.some(({ id }) => id === eventId);
}

/** `more` is what the button for older events is called; null when there are none. */
export function MissingEvent(props: { eventId: string; shown: number; more: string | null }): ReactNode {
  const { eventId, shown, more } = props;
  const environment = useEnvironment();
  const traceId = eventId.split('.')[0] ?? '';
  const where = shown === 0 ? 'here' : `among the newest ${formatNumber(shown)} shown here`;
  return (
    <Notice tone="quiet" title={`The event that this link opens is not ${where}`}>
      <p>
        {more !== null && `“${more}” goes further back. `}
        <Link to={viewPath(environment, `traces/${encodeURIComponent(traceId)}`)}>
          See the request that it came with
        </Link>
      </p>
    </Notice>
  );
}
