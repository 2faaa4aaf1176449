/**
 * What a person did: events by day, newest first, a page at a time. One event can be opened at a time; which one, and
 * which event name is asked for, stand in the address. Days are those of the viewer's zone.
 */

import { type FormEvent, type ReactNode, useCallback, useEffect, useEffectEvent, useState } from 'react';
import { ApiError, get } from '../api.ts';
import { Link, useEnvironment, useQueryValue, viewPath } from '../router.tsx';
import { formatNumber, formatUtc } from '../time.tsx';
import type { EventPage, StoredEvent } from '../api-types.ts';
import { Badge } from '../ui/badge.tsx';
import { Button } from '../ui/button.tsx';
import { Card } from '../ui/card.tsx';
import { Json } from '../ui/code.tsx';
import { Empty } from '../ui/empty.tsx';
import { TextField } from '../ui/field.tsx';
import { Icon } from '../ui/icons.tsx';
import { ErrorNotice, Loading } from '../ui/notice.tsx';
import { hasEvent, LINKED_EVENTS_MAX, MissingEvent, scrollToLinked } from './linked-event.tsx';

const EVENTS_PER_PAGE = 50;
const dayFormat = new Intl.DateTimeFormat('en-GB', { weekday: 'long', day: 'numeric', month: 'long', year: 'numeric' });
const timeFormat = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });

interface Loaded {
  readonly events: readonly StoredEvent[];
  readonly cursor: string | null;
}

export function PersonTimeline({ profileId }: { profileId: string }): ReactNode {
  const [eventName, setEventName] = useQueryValue('event');
  const [openId, setOpenId] = useQueryValue('open');
  const { loaded, error, isLoading, more } = useTimeline(profileId, eventName);
  const isOpenMissing =
    openId !== '' && loaded !== undefined && !isLoading && error === undefined && !hasEvent(loaded.events, openId);
  const isSought = isOpenMissing && loaded.cursor !== null && loaded.events.length <= EVENTS_PER_PAGE;
  const seek = useEffectEvent(() => more(LINKED_EVENTS_MAX - EVENTS_PER_PAGE));
  useEffect(() => {
    if (isSought) seek();
  }, [isSought]);
  const filter = (name: string): void => {
    setEventName(name);
    // The row may not be of that name.
    setOpenId('', { replace: true });
  };
  return (
    <Card title="Timeline">
      <NameFilter
        key={eventName}
        eventName={eventName}
        names={new Set(loaded?.events.map((event) => event.event_name))}
        onChange={filter}
      />
      {loaded === undefined && isLoading && <Loading what="events" />}
      {loaded?.events.length === 0 && (
        <Empty title={eventName === '' ? 'No events' : `No events named “${eventName}”`}>
          {eventName === '' ? <p>No events of this person are stored.</p> : <p>Names are case-sensitive.</p>}
        </Empty>
      )}
      {isOpenMissing && !isSought && (
        <MissingEvent eventId={openId} shown={loaded.events.length} more={loaded.cursor === null ? null : 'More'} />
      )}
      {loaded !== undefined && <Days events={loaded.events} />}
      {error !== undefined && <ErrorNotice error={error} onRetry={() => more()} />}
      {loaded !== undefined && loaded.cursor !== null && error === undefined && (
        <p>
          <Button busy={isLoading} onClick={() => more()}>
            More
          </Button>
        </p>
      )}
    </Card>
  );
}

interface Kept {
  /** What was asked for: responses to another query are not shown. */
  readonly asked: string;
  readonly loaded?: Loaded | undefined;
  readonly error?: ApiError | undefined;
  readonly isReading: boolean;
}

interface Timeline extends Pick<Kept, 'loaded' | 'error'> {
  readonly isLoading: boolean;
  /** Reads on, or again after an error. */
  readonly more: (limit?: number) => void;
}

function useTimeline(profileId: string, eventName: string): Timeline {
  const environment = useEnvironment();
  const asked = `${environment} ${profileId} ${eventName}`;
  const [kept, setKept] = useState<Kept>({ asked: '', isReading: true });

  const read = useCallback(
    async (before: Loaded | undefined, limit: number, signal?: AbortSignal): Promise<void> => {
      const query = new URLSearchParams({ limit: String(limit) });
      // What comes after another question was asked is late. A first page cannot be: it would have been given up.
      const keep = (result: Kept): void => {
        setKept((now) => (before === undefined || now.asked === asked ? result : now));
      };
      if (eventName !== '') query.set('event_name', eventName);
      if (before !== undefined && before.cursor !== null) query.set('cursor', before.cursor);
      try {
        const page = await get<EventPage>(environment, `/profiles/${profileId}/events?${query.toString()}`, signal);
        const loaded = { events: [...(before?.events ?? []), ...page.events], cursor: page.next_cursor };
        keep({ asked, loaded, isReading: false });
      } catch (cause) {
        if (signal?.aborted === true) return;
        const error = cause instanceof ApiError ? cause : new ApiError('The events could not be read.', 0, null);
        keep({ asked, loaded: before, error, isReading: false });
      }
    },
    [environment, profileId, eventName, asked],
  );

  useEffect(() => {
    const asking = new AbortController();
    void read(undefined, EVENTS_PER_PAGE, asking.signal);
    return () => asking.abort();
  }, [read]);

  const { loaded, error, isReading } =
    kept.asked === asked ? kept : { loaded: undefined, error: undefined, isReading: true };
  const more = (limit = EVENTS_PER_PAGE): void => {
    setKept({ asked, loaded, isReading: true });
    void read(loaded, limit);
  };
  return { loaded, error, isLoading: isReading, more };
}

interface NameFilterProps {
  readonly eventName: string;
  readonly names: ReadonlySet<string>;
  readonly onChange: (name: string) => void;
}

function NameFilter({ eventName, names, onChange }: NameFilterProps): ReactNode {
  const [typed, setTyped] = useState(eventName);
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    onChange(typed.trim());
  };
  return (
    <search>
      <form className="form-row" onSubmit={submit}>
        <TextField
          label="Event name"
          value={typed}
          list="event-names"
          onChange={(event) => setTyped(event.target.value)}
        />
        <datalist id="event-names">
          {[...names].map((name) => (
            <option key={name} value={name} aria-label={name} />
          ))}
        </datalist>
        <Button type="submit">Filter</Button>
        {eventName !== '' && (
          <Button kind="quiet" onClick={() => onChange('')}>
            All events
          </Button>
        )}
      </form>
    </search>
  );
}

function Days({ events }: { events: readonly StoredEvent[] }): ReactNode {
  const [open, setOpen] = useQueryValue('open');
  const [linked] = useState(open);
  const days = Map.groupBy(events, ({ timestamp }) => dayFormat.format(Date.parse(timestamp)));
  return (
    <div className="timeline">
      {[...days].map(([day, ofDay]) => (
        <section key={day} aria-label={day}>
          <h3 className="timeline__day">{day}</h3>
          <ol>
            {ofDay.map((event) => (
              <EventRow
                key={event.id}
                event={event}
                isOpen={open === event.id}
                isLinked={linked === event.id}
                onToggle={() => setOpen(open === event.id ? '' : event.id, { replace: true })}
              />
            ))}
          </ol>
        </section>
      ))}
    </div>
  );
}

interface EventRowProps {
  readonly event: StoredEvent;
  readonly isOpen: boolean;
  /** Whether the address opened it. */
  readonly isLinked: boolean;
  readonly onToggle: () => void;
}

function EventRow({ event, isOpen, isLinked, onToggle }: EventRowProps): ReactNode {
  const at = Date.parse(event.timestamp);
  return (
    <li className="timeline__event" ref={isLinked ? scrollToLinked : undefined}>
      <button type="button" className="timeline__head" aria-expanded={isOpen} onClick={onToggle}>
        <time className="timeline__time" dateTime={event.timestamp} title={formatUtc(at)}>
          {timeFormat.format(at)}
        </time>
        <span className="timeline__name">{event.event_name}</span>
        {event.revenue !== null && <Badge tone="good">{formatNumber(event.revenue)}</Badge>}
        <span className="timeline__summary">{summaryOf(event)}</span>
        <Icon name="next" />
      </button>
      {isOpen && <EventDetails event={event} />}
    </li>
  );
}

/** A few properties in one line, to distinguish events of one name. */
function summaryOf({ properties }: StoredEvent): string {
  const PROPERTIES_MAX = 3;
  return Object.entries(properties)
    .slice(0, PROPERTIES_MAX)
    .map(([name, value]) => `${name}: ${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join(' · ')
    .slice(0, 160);
}

function EventDetails({ event }: { event: StoredEvent }): ReactNode {
  const environment = useEnvironment();
  const [isRaw, setIsRaw] = useState(false);
  return (
    <div className="timeline__details">
      <dl className="facts">
        <div>
          <dt>Happened</dt>
          <dd>{formatUtc(Date.parse(event.timestamp))}</dd>
        </div>
        <div>
          <dt>Received</dt>
          <dd>{formatUtc(Date.parse(event.received_at))}</dd>
        </div>
        <div>
          <dt>Request</dt>
          <dd>
            <Link to={viewPath(environment, `traces/${event.trace_id}`)} className="mono">
              {event.trace_id}
            </Link>
            , <code>users[{event.userIndex}]</code>
          </dd>
        </div>
      </dl>
      <fieldset className="view-switch" aria-label="Show the event as">
        <button type="button" className="view-switch__choice" aria-pressed={!isRaw} onClick={() => setIsRaw(false)}>
          Properties
        </button>
        <button type="button" className="view-switch__choice" aria-pressed={isRaw} onClick={() => setIsRaw(true)}>
          Raw
        </button>
      </fieldset>
      <Json value={isRaw ? event : event.properties} />
    </div>
  );
}
