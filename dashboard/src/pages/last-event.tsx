/**
 * The event time of a person's newest event, as lists of people show it. `last_seen` of the profile is the time of receipt
 * of the last request about the person, which may be another time.
 */

import type { ReactNode } from 'react';
import { Time } from '../time.tsx';
import type { EventPage } from '../api-types.ts';
import { useData } from '../use-data.ts';

export function LastEvent({ profileId }: { profileId: string }): ReactNode {
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
