/**
 * The people of the newest events, by name. Each profile is asked for by itself, because events know only its id; until
 * it is there, or if it cannot be had, the id stands in for the name.
 */

import { type ReactNode, useEffect, useState } from 'react';
import { get } from '../api.ts';
import { shortId } from '../identity-names.ts';
import { nameOf } from '../person-name.ts';
import { Link, navigate, useEnvironment, viewPath } from '../router.tsx';
import { Time } from '../time.tsx';
import type { Environment, Profile, Event } from '../types.ts';
import { Card } from '../ui/card.tsx';
import { DataTable } from '../ui/data-table.tsx';

type EventOfSomebody = Event & { readonly profile_id: string };

export function RecentPeople({ events }: { events: readonly EventOfSomebody[] }): ReactNode {
  const environment = useEnvironment();
  const names = useNames(environment, events.map(({ profile_id: id }) => id).join(' '));
  return (
    <Card title="Seen last">
      <DataTable
        caption="People of the newest events"
        rows={events}
        rowKey={({ profile_id: id }) => id}
        onRow={({ profile_id: id }) => navigate(viewPath(environment, `people/${id}`))}
        columns={[
          {
            key: 'person',
            label: 'Person',
            render: ({ profile_id: id }) => (
              <Link to={viewPath(environment, `people/${id}`)}>{names.get(id) ?? shortId(id)}</Link>
            ),
          },
          {
            key: 'event',
            label: 'Newest event',
            render: ({ event_name: name }) => <span className="told">{name}</span>,
          },
          { key: 'at', label: 'When', render: ({ timestamp }) => <Time at={timestamp} relative /> },
        ]}
      />
    </Card>
  );
}

function useNames(environment: Environment, ids: string): ReadonlyMap<string, string> {
  const [names, setNames] = useState<ReadonlyMap<string, string>>(new Map());
  useEffect(() => {
    const asking = new AbortController();
    const ask = async (id: string): Promise<void> => {
      try {
        const profile = await get<Profile>(environment, `/profiles/${id}`, asking.signal);
        setNames((before) => new Map(before).set(id, nameOf(profile)));
      } catch {
        // The id stands in for it.
      }
    };
    for (const id of ids.split(' ')) void ask(id);
    return () => asking.abort();
  }, [environment, ids]);
  return names;
}
