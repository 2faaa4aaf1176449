/**
 * The catalogue: which events are received, with their volume and what changed in the last days, and what users set on
 * people. The event that is open, and what the list is narrowed down to, stand in the address.
 */

import { type ReactNode, useMemo } from 'react';
import { useKeyNames } from '../use-key-names.ts';
import { Link, navigate, useAddress, useQueryValue } from '../router.tsx';
import { formatNumber, Time, useNow } from '../time.tsx';
import { HOUR_MS } from '../time-units.ts';
import type { Catalogue, CatalogueEvent, CatalogueEventDetails, CataloguePeople, Counts } from '../api-types.ts';
import { Badge } from '../ui/badge.tsx';
import { Card } from '../ui/card.tsx';
import { DataTable } from '../ui/data-table.tsx';
import { Empty } from '../ui/empty.tsx';
import { TextField } from '../ui/field.tsx';
import { ErrorNotice, Loading, Notice } from '../ui/notice.tsx';
import { Page } from '../ui/page.tsx';
import { useData } from '../use-data.ts';
import { type Change, changesIn, dailyCounts, type IsNew, lastDays, NEW_DAYS, newnessOf } from './catalogue-changes.ts';
import { PropertyTable } from './catalogue-properties.tsx';
import { Sparkline } from './sparkline.tsx';
import '../styles/catalogue.css';

const RELOAD_MS = 15_000;
const VOLUME_DAYS = 14;
const CHANGES_SHOWN = 12;

export default function CataloguePage(): ReactNode {
  const [eventName] = useQueryValue('event');
  const { data, error, reload } = useData<Catalogue>('/catalogue', { everyMs: RELOAD_MS });
  // By the hour: what is new does not change with every second.
  const hour = Math.floor(useNow() / HOUR_MS) * HOUR_MS;
  const isNew = useMemo(() => newnessOf(data?.events ?? [], hour), [data, hour]);
  if (eventName !== '') return <EventPage key={eventName} name={eventName} isNew={isNew} />;
  const isEmpty = data?.events.length === 0;
  return (
    <Page title="Catalogue">
      <p className="lead">
        The events that are really received, and what is in them. Stored events are counted; duplicates and rejected
        users are not.
      </p>
      {error !== undefined && <ErrorNotice error={error} onRetry={reload} />}
      {data === undefined && error === undefined && <Loading what="the catalogue" />}
      {isEmpty && (
        <Empty title="No events yet">
          <p>An event name is listed here a few seconds after its first event is stored.</p>
        </Empty>
      )}
      {data !== undefined && !isEmpty && (
        <>
          <Changes changes={changesIn(data, isNew)} />
          <Events catalogue={data} isNew={isNew} hour={hour} />
          <People title="User properties" what="user_properties" entry={data.user_properties} isNew={isNew} />
          <People title="Profile fields" what="profile fields" entry={data.profile_fields} isNew={isNew} />
        </>
      )}
    </Page>
  );
}

function usePathOf(): (eventName: string) => string {
  const { path } = useAddress();
  return (eventName) => `${path}?${new URLSearchParams({ event: eventName })}`;
}

function Changes({ changes }: { changes: readonly Change[] }): ReactNode {
  const pathOf = usePathOf();
  if (changes.length === 0) return null;
  return (
    <Card title={`New in the last ${NEW_DAYS} days`}>
      <ul className="catalogue-changes">
        {changes.slice(0, CHANGES_SHOWN).map(({ eventName, kind, property, type, at }) => (
          <li key={`${eventName} ${property} ${type}`}>
            <Badge tone={kind === 'type' ? 'warn' : 'good'}>{kind === 'type' ? 'type changed' : `new ${kind}`}</Badge>{' '}
            <span className="catalogue-change">
              <Link to={pathOf(eventName)}>
                <bdi>{eventName}</bdi>
              </Link>
              {property !== null && (
                <>
                  {' · '}
                  <code>
                    <bdi>{property}</bdi>
                  </code>
                </>
              )}
              {type !== null && ` is also ${article(type)} ${type}`}
            </span>{' '}
            <span className="muted">
              <Time at={at} relative />
            </span>
          </li>
        ))}
      </ul>
      {changes.length > CHANGES_SHOWN && (
        <p className="muted">And {formatNumber(changes.length - CHANGES_SHOWN)} more, marked in the list below.</p>
      )}
    </Card>
  );
}

function article(word: string): string {
  return /^[aeio]/.test(word) ? 'an' : 'a';
}

interface EventsProps {
  readonly catalogue: Catalogue;
  readonly isNew: IsNew;
  readonly hour: number;
}

function Events({ catalogue: { events, other_events: others }, isNew, hour }: EventsProps): ReactNode {
  const [filter, setFilter] = useQueryValue('name');
  const pathOf = usePathOf();
  const days = useMemo(() => lastDays(hour, VOLUME_DAYS), [hour]);
  const from = `${days[0]}T00:00:00Z`;
  const { data: counts } = useData<Counts>(`/events/counts?interval=day&group_by=event_name&from=${from}`);
  const volumes = useMemo(() => dailyCounts(counts?.buckets ?? [], days), [counts, days]);
  const shown = events
    .filter(({ event_name: name }) => name.toLowerCase().includes(filter.toLowerCase()))
    .toSorted((left, right) => right.count - left.count);
  return (
    <Card title="Events">
      <search className="catalogue-filter">
        <TextField
          label="Find an event name"
          type="search"
          autoComplete="off"
          spellCheck={false}
          value={filter}
          onChange={(event) => setFilter(event.target.value, { replace: true })}
        />
      </search>
      {shown.length === 0 ? (
        <p className="muted">No event name contains this.</p>
      ) : (
        <DataTable
          caption="Event names, the most frequent first"
          rows={shown}
          rowKey={({ event_name: name }) => name}
          onRow={({ event_name: name }) => navigate(pathOf(name))}
          columns={[
            {
              key: 'name',
              label: 'Event',
              render: (event) => (
                <>
                  <Link to={pathOf(event.event_name)}>
                    <bdi>{event.event_name}</bdi>
                  </Link>{' '}
                  <EventMark event={event} isNew={isNew} />
                </>
              ),
            },
            {
              key: 'volume',
              label: `Last ${VOLUME_DAYS} days`,
              render: ({ event_name: name }) => <Sparkline values={volumes.get(name) ?? []} days={VOLUME_DAYS} />,
            },
            { key: 'count', label: 'Events', align: 'end', render: ({ count }) => formatNumber(count) },
            {
              key: 'properties',
              label: 'Properties',
              align: 'end',
              render: ({ property_count: count }) => formatNumber(count),
            },
            { key: 'last', label: 'Last seen', render: ({ last_seen: at }) => <Time at={at} relative /> },
          ]}
        />
      )}
      {others > 0 && (
        <p className="muted">
          And {formatNumber(others)} events with other names: a catalogue has at most 2,000 names. Names with ids or
          dates in them are a usual cause.
        </p>
      )}
    </Card>
  );
}

function EventMark({ event, isNew }: { event: CatalogueEvent; isNew: IsNew }): ReactNode {
  if (isNew(event.first_seen)) return <Badge tone="good">new</Badge>;
  const changes = event.changes.filter(({ at }) => isNew(at));
  if (changes.some(({ change }) => change === 'new_type')) return <Badge tone="warn">type changed</Badge>;
  return changes.length === 0 ? null : <Badge tone="good">new property</Badge>;
}

interface PeopleProps {
  readonly title: string;
  readonly what: string;
  readonly entry: CataloguePeople | null;
  readonly isNew: IsNew;
}

function People({ title, what, entry, isNew }: PeopleProps): ReactNode {
  if (entry === null) return null;
  return (
    <Card title={title}>
      <p className="muted">
        Set by {formatNumber(entry.count)} {entry.count === 1 ? 'user' : 'users'}. Shares are of users that set any{' '}
        {what}.
      </p>
      <PropertyTable caption={title} entry={entry} isNew={isNew(entry.first_seen) ? () => false : isNew} />
    </Card>
  );
}

/** Not in the path, which cannot hold `.` and `..`. */
function cataloguePath(name: string): string {
  return `/catalogue/_?event_name=${encodeURIComponent(name)}`;
}

function EventPage({ name, isNew }: { name: string; isNew: IsNew }): ReactNode {
  const { path } = useAddress();
  const keyName = useKeyNames();
  const { data, error, reload } = useData<CatalogueEventDetails>(cataloguePath(name), { everyMs: RELOAD_MS });
  const isMissing = error?.status === 404;
  return (
    <Page title={name} actions={<Link to={path}>All events</Link>}>
      {isMissing && (
        <Empty title="Not in the catalogue">
          <p>No event with this name was received, or not for a long time.</p>
        </Empty>
      )}
      {error !== undefined && !isMissing && <ErrorNotice error={error} onRetry={reload} />}
      {data === undefined && error === undefined && <Loading what="the event" />}
      {data !== undefined && (
        <>
          <dl className="catalogue-facts">
            <Fact label="Events">{formatNumber(data.count)}</Fact>
            <Fact label="First seen">
              <Time at={data.first_seen} /> {isNew(data.first_seen) && <Badge tone="good">new</Badge>}
            </Fact>
            <Fact label="Last seen">
              <Time at={data.last_seen} />
            </Fact>
            <Fact label="Sent with">
              <bdi>{data.key_ids.map(keyName).join(', ')}</bdi>
            </Fact>
          </dl>
          {data.is_sampled && (
            <Notice tone="quiet" title="From a sample">
              {formatNumber(data.examined)} of {formatNumber(data.count)} events were examined: shares are estimates,
              and rare properties may be missing.
            </Notice>
          )}
          <Card title="Properties">
            <PropertyTable
              caption={`Properties of ${name}`}
              entry={data}
              isNew={isNew(data.first_seen) ? () => false : isNew}
            />
          </Card>
        </>
      )}
    </Page>
  );
}

function Fact({ label, children }: { label: string; children: ReactNode }): ReactNode {
  return (
    <div>
      <dt>{label}</dt>
      <dd>{children}</dd>
    </div>
  );
}
