/**
 * When a person was last seen: the event time of their newest event, as lists of people show it. The profile itself
 * says when the last request about the person arrived, which may be another time.
 */

import type { ReactNode } from 'react';
import { Time } from '../time.tsx';
import type { EventPage } from '../api-types.ts';
import { useData } from '../use-data.ts';

export function LastSeen({ profileId }: { profileId: string }): ReactNode {
  const { data } = useData<EventPage>(`/profiles/${profileId}/events?limit=1`);
  if (data === undefined) return <span className="muted">…</span>;
  const [newest] = data.events;
  return newest === undefined ? (
    <span className="muted">no events are kept</span>
  ) : (
    <span title="Event time">
      <Time at={newest.timestamp} relative />
    </span>
  );
}
