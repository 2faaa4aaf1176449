/**
 * Finding a person by any identifier or by profile id. What was searched stands in the address. One hit goes straight
 * on to the person; before a search, those of the newest events are a place to start.
 */

import { type FormEvent, type ReactNode, useEffect, useState } from 'react';
import { nameOf } from '../person-name.ts';
import { Link, navigate, useEnvironment, useQueryValue, viewPath } from '../router.tsx';
import { formatNumber, Time } from '../time.tsx';
import type { EventPage, ProfileMatch, ProfileSearch, Event } from '../types.ts';
import { Badge } from '../ui/badge.tsx';
import { Button } from '../ui/button.tsx';
import { Card } from '../ui/card.tsx';
import { DataTable } from '../ui/data-table.tsx';
import { Empty } from '../ui/empty.tsx';
import { TextField } from '../ui/field.tsx';
import { ErrorNotice, Loading } from '../ui/notice.tsx';
import { Page } from '../ui/page.tsx';
import { useData } from '../use-data.ts';
import { RecentPeople } from './recent-people.tsx';
import '../styles/person.css';

const RECENT_EVENTS = 50;
const RECENT_PEOPLE_MAX = 10;

export default function People(): ReactNode {
  const [query, setQuery] = useQueryValue('q');
  return (
    <Page title="People">
      <Card>
        <SearchForm key={query} query={query} onSearch={setQuery} />
      </Card>
      {query === '' ? <Recent /> : <Found query={query} />}
    </Page>
  );
}

function SearchForm({ query, onSearch }: { query: string; onSearch: (query: string) => void }): ReactNode {
  const [typed, setTyped] = useState(query);
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    onSearch(typed.trim());
  };
  return (
    <search>
      <form className="form-row form-row--search" onSubmit={submit}>
        <TextField
          label="Who are you looking for?"
          hint="An e-mail address, user_id, phone number, anon_id or profile id, in full."
          type="search"
          value={typed}
          autoComplete="off"
          autoCapitalize="none"
          spellCheck={false}
          onChange={(event) => setTyped(event.target.value)}
        />
        <Button kind="primary" type="submit">
          Find
        </Button>
      </form>
    </search>
  );
}

function Found({ query }: { query: string }): ReactNode {
  const environment = useEnvironment();
  const { data, error, isLoading, reload } = useData<ProfileSearch>(
    `/profiles/search?value=${encodeURIComponent(query)}`,
  );
  const found = isLoading ? undefined : data?.profiles;
  const only = found?.length === 1 ? found[0] : undefined;
  useEffect(() => {
    // Replaced, so that going back leads to where the search was made, not here and on again.
    if (only !== undefined) navigate(viewPath(environment, `people/${only.profile.id}`), { replace: true });
  }, [environment, only]);
  if (error !== undefined) return <ErrorNotice error={error} onRetry={reload} />;
  if (found === undefined || only !== undefined) return <Loading what="people" />;
  if (found.length === 0) return <Nobody query={query} />;
  return <Several found={found} />;
}

function Several({ found }: { found: readonly ProfileMatch[] }): ReactNode {
  const environment = useEnvironment();
  return (
    <Card title={`${found.length} people have this`}>
      <DataTable
        caption="People found"
        rows={found}
        rowKey={({ profile }) => profile.id}
        onRow={({ profile }) => navigate(viewPath(environment, `people/${profile.id}`))}
        columns={[
          {
            key: 'name',
            label: 'Person',
            render: ({ profile }) => <Link to={viewPath(environment, `people/${profile.id}`)}>{nameOf(profile)}</Link>,
          },
          {
            key: 'matched',
            label: 'Found by',
            render: ({ matched }) => (
              <span className="row">
                {matched.map((type) => (
                  <Badge key={type} tone="quiet">
                    {type}
                  </Badge>
                ))}
              </span>
            ),
          },
          { key: 'events', label: 'Events', align: 'end', render: ({ profile }) => formatNumber(profile.event_count) },
          { key: 'seen', label: 'Last seen', render: ({ profile }) => <Time at={profile.last_seen} relative /> },
        ]}
      />
    </Card>
  );
}

function Nobody({ query }: { query: string }): ReactNode {
  const environment = useEnvironment();
  return (
    <Empty title={`Nobody found for “${query}”`}>
      <p>
        Looked for in {environment} as user_id, email, phone_number, anon_id and profile id, each in full. Capitals
        count in user_id and anon_id, not in e-mail addresses. Phone numbers match with or without spaces, best with the
        country: +49 30 123456.
      </p>
      <p>Placeholders such as “null” or “unknown” match nobody. Somebody who was erased is not found either.</p>
    </Empty>
  );
}

function Recent(): ReactNode {
  const { data, error, reload } = useData<EventPage>(`/events?limit=${RECENT_EVENTS}`);
  if (error !== undefined && data === undefined) return <ErrorNotice error={error} onRetry={reload} />;
  if (data === undefined) return <Loading what="recent people" />;
  const events = newestOfEach(data.events);
  if (events.length === 0) {
    return (
      <Empty title="Nobody yet">
        <p>People appear here as soon as events come in.</p>
      </Empty>
    );
  }
  return <RecentPeople events={events} />;
}

/** The newest event of each person. */
function newestOfEach(events: readonly Event[]): (Event & { profile_id: string })[] {
  const newest = new Map<string, Event & { profile_id: string }>();
  for (const event of events) {
    const { profile_id: id } = event;
    if (id !== null && !newest.has(id)) newest.set(id, { ...event, profile_id: id });
  }
  return [...newest.values()].slice(0, RECENT_PEOPLE_MAX);
}
