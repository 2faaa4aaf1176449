/**
 * People, newest first, narrowed down by the beginning of an identifier or name and by a property; both stand in the
 * address. The server searches for half a second a page and says when it has not looked at everyone: the page then goes
 * on automatically for a while, and after that when asked to.
 */

import { type FormEvent, type ReactNode, useEffect, useState } from 'react';
import { nameOf } from '../person-name.ts';
import { Link, navigate, useAddress, useEnvironment, viewPath } from '../router.tsx';
import { formatNumber, Time } from '../time.tsx';
import { IDENTIFIER_TYPES } from '../api-constants.ts';
import type { ProfileCount, ProfileMatch, ProfileMatches } from '../api-types.ts';
import { Badge } from '../ui/badge.tsx';
import { Button } from '../ui/button.tsx';
import { Card } from '../ui/card.tsx';
import { type Column, DataTable } from '../ui/data-table.tsx';
import { Empty } from '../ui/empty.tsx';
import { TextField } from '../ui/field.tsx';
import { ListEnd } from '../ui/list-end.tsx';
import { Loading } from '../ui/notice.tsx';
import { Page } from '../ui/page.tsx';
import { useData } from '../use-data.ts';
import { type Pages, usePages } from '../use-pages.ts';
import '../styles/person.css';

/** In the address, and what the API calls it. */
const FILTERS = { q: 'value', property: 'property', is: 'property_value' } as const;
type Filter = Readonly<Record<keyof typeof FILTERS, string>>;

/** So many pages in a row that ended early are followed by the next without being asked. */
const SEARCHED_ON_MAX = 20;
const IDENTIFIERS_SHOWN_MAX = 3;

export default function People(): ReactNode {
  const { query } = useAddress();
  const of = (name: keyof Filter): string => query.get(name) ?? '';
  const filter = { q: of('q'), property: of('property'), is: of('property') === '' ? '' : of('is') };
  return (
    <Page title="People">
      <NumberOfPeople />
      <Card>
        <SearchForm key={JSON.stringify(filter)} filter={filter} />
      </Card>
      <Found filter={filter} />
    </Page>
  );
}

function NumberOfPeople(): ReactNode {
  const { data } = useData<ProfileCount>('/profiles/count');
  if (data === undefined) return null;
  return (
    <p className="muted">
      {formatNumber(data.profiles)} {data.profiles === 1 ? 'person' : 'people'} in all.
    </p>
  );
}

function SearchForm({ filter }: { filter: Filter }): ReactNode {
  const { path } = useAddress();
  const [typed, setTyped] = useState(filter);
  const field = (name: keyof Filter) => ({
    value: typed[name],
    autoComplete: 'off',
    autoCapitalize: 'none',
    spellCheck: false,
    onChange: (event: { target: { value: string } }) => setTyped({ ...typed, [name]: event.target.value }),
  });
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    const chosen = Object.entries(typed).flatMap(([name, text]) => (text.trim() === '' ? [] : [[name, text.trim()]]));
    navigate(chosen.length === 0 ? path : `${path}?${new URLSearchParams(chosen)}`);
  };
  return (
    <search>
      <form className="form-row form-row--search" onSubmit={submit}>
        <TextField
          label="Name or identifier"
          hint="The beginning of a name, e-mail address, user_id, phone number or anon_id; or a profile id."
          type="search"
          {...field('q')}
        />
        <TextField label="Property" hint="Such as plan." {...field('property')} />
        <TextField label="Its value" hint="Any, if empty." {...field('is')} />
        <Button kind="primary" type="submit">
          Find
        </Button>
      </form>
    </search>
  );
}

function searchPath(filter: Filter): string {
  const query = new URLSearchParams({ include: 'last_event' });
  for (const [name, parameter] of Object.entries(FILTERS)) {
    const value = filter[name as keyof Filter];
    if (value !== '') query.set(parameter, value);
  }
  return `/profiles/search?${query}`;
}

function Found({ filter }: { filter: Filter }): ReactNode {
  const list = usePages<ProfileMatches>(searchPath(filter));
  const { pages, isBusy, isLoading, hasMore, error, loadMore } = list;
  const found = pages.flatMap(({ profiles }) => profiles);
  const partial = pages.length - 1 - pages.findLastIndex(({ is_partial: isPartial }) => !isPartial);
  const isSearching = hasMore && error === undefined && pages.at(-1)?.is_partial === true && partial < SEARCHED_ON_MAX;
  const isFiltered = filter.q !== '' || filter.property !== '';
  useEffect(() => {
    if (isSearching && !isBusy) loadMore();
  });
  if (isLoading) return <Loading what="people" />;
  return (
    <>
      {found.length > 0 && <PeopleTable found={found} isFiltered={filter.q !== ''} />}
      {found.length === 0 && !hasMore && error === undefined && (isFiltered ? <NoMatch /> : <NoPeopleYet />)}
      {isSearching ? (
        <output className="list-end muted">Searching on through older people …</output>
      ) : (
        <PeopleEnd list={list} count={found.length} />
      )}
    </>
  );
}

function PeopleEnd({ list, count }: { list: Pages<ProfileMatches>; count: number }): ReactNode {
  if (list.pages.length > 0 && count === 0 && !list.hasMore) return null;
  const isPartial = list.pages.at(-1)?.is_partial === true;
  return (
    <>
      {isPartial && <p className="muted">Not everyone has been searched yet.</p>}
      <ListEnd
        list={list}
        more={isPartial ? 'Search on' : 'Show more'}
        end={`${formatNumber(count)} ${count === 1 ? 'person' : 'people'}. That is everyone.`}
      />
    </>
  );
}

function PeopleTable({ found, isFiltered }: { found: readonly ProfileMatch[]; isFiltered: boolean }): ReactNode {
  const environment = useEnvironment();
  const pathOf = (id: string): string => viewPath(environment, `people/${id}`);
  const columns: Column<ProfileMatch>[] = [
    {
      key: 'name',
      label: 'Person',
      render: ({ profile }) => <Link to={pathOf(profile.id)}>{nameOf(profile)}</Link>,
    },
    { key: 'identifiers', label: 'Identifiers', render: (match) => <Identifiers {...match} /> },
    ...(isFiltered ? [{ key: 'matched', label: 'Found by', render: FoundBy }] : []),
    { key: 'events', label: 'Events', align: 'end', render: ({ profile }) => formatNumber(profile.event_count) },
    { key: 'first', label: 'First received', render: ({ profile }) => <Time at={profile.first_seen} relative /> },
    { key: 'last', label: 'Last event', render: LastEvent },
  ];
  return (
    <Card>
      <DataTable
        caption="People, newest first"
        rows={found}
        rowKey={({ profile }) => profile.id}
        onRow={({ profile }) => navigate(pathOf(profile.id))}
        columns={columns}
      />
    </Card>
  );
}

/** By event time, as on the page of the person. */
function LastEvent({ last_event_at: at }: ProfileMatch): ReactNode {
  return at === undefined || at === null ? <span className="muted">no events</span> : <Time at={at} relative />;
}

function FoundBy({ matched }: ProfileMatch): ReactNode {
  return (
    <span className="row">
      {matched.map((type) => (
        <Badge key={type} tone="quiet">
          {type}
        </Badge>
      ))}
    </span>
  );
}

function Identifiers({ profile }: ProfileMatch): ReactNode {
  const name = nameOf(profile);
  const all = IDENTIFIER_TYPES.flatMap((type) => profile.identifiers[type]).filter((value) => value !== name);
  const more = all.length - IDENTIFIERS_SHOWN_MAX;
  return (
    <span className="person-identifiers">
      {all.slice(0, IDENTIFIERS_SHOWN_MAX).map((value) => (
        <bdi key={value}>{value}</bdi>
      ))}
      {more > 0 && <span className="muted">and {formatNumber(more)} more</span>}
      {all.length === 0 && <span className="muted">no other</span>}
    </span>
  );
}

function NoMatch(): ReactNode {
  const environment = useEnvironment();
  return (
    <Empty title="No one found">
      <p>
        No one in {environment} has an identifier or a name that begins like this. Capitals do not matter. Phone numbers
        are found best with the country: +49 30 123456.
      </p>
      <p>Placeholders such as “null” or “unknown” are not identifiers, and people who were erased are not found.</p>
      <p>
        <Link to={viewPath(environment, 'people')}>Show everyone</Link>
      </p>
    </Empty>
  );
}

function NoPeopleYet(): ReactNode {
  return (
    <Empty title="No people yet">
      <p>People appear here as soon as events are received.</p>
    </Empty>
  );
}
