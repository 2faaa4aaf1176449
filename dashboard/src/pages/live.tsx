/**
 * Live: events as they come, newest on top. Filters, the row that is open and how it is shown stand in the address.
 * New events never move what a person is reading: while a row is open, or the reader is further down, new events wait
 * above the list until asked for. While paused they are counted only.
 */

import { type ReactNode, useEffect, useEffectEvent, useReducer, useRef, useState } from 'react';
import { get } from '../api.ts';
import { Link, useEnvironment, useQueryValue, viewPath } from '../router.tsx';
import { formatNumber } from '../time.tsx';
import type { EventPage, KeyList } from '../api-types.ts';
import { Badge, type Tone } from '../ui/badge.tsx';
import { Button } from '../ui/button.tsx';
import { Card } from '../ui/card.tsx';
import { Empty } from '../ui/empty.tsx';
import { ErrorNotice, Loading } from '../ui/notice.tsx';
import { Page } from '../ui/page.tsx';
import { useData } from '../use-data.ts';
import { useSending } from '../use-sending.ts';
import { hasEvent, LINKED_EVENTS_MAX, MissingEvent } from './linked-event.tsx';
import { changeLive, LISTED_MAX, type LiveEvents, NO_EVENTS } from './live-events.ts';
import { LiveFilters } from './live-filters.tsx';
import { LiveRow } from './live-row.tsx';
import { type Connection, followLive, type LiveFilter, livePath } from './live-stream.ts';
import '../styles/live.css';

/** Of one click: as many as are shown and as many again; more pages when a filter leaves nothing of one. */
const OLDER_EVENTS = 200;
const OLDER_PAGES_MAX = 10;

export default function LivePage(): ReactNode {
  const [eventName] = useQueryValue('name');
  const [profileId] = useQueryValue('person');
  const [keyId] = useQueryValue('key');
  const [isPaused, setIsPaused] = useState(false);
  const keys = useData<KeyList>('/keys');
  const filter = { eventName, profileId, keyId };
  return (
    <Page title="Live">
      <LiveFilters keys={keys.data?.keys ?? []} />
      <LiveFeed
        key={JSON.stringify(filter)}
        filter={filter}
        keys={keys.data}
        isPaused={isPaused}
        onPause={setIsPaused}
      />
    </Page>
  );
}

/** Masked, as what comes from `/live` is. */
function listPath({ eventName, profileId }: LiveFilter, limit: number): string {
  const query = new URLSearchParams({ limit: String(limit), include: 'person', personal: 'mask' });
  if (eventName !== '') query.set('event_name', eventName);
  const path = profileId === '' ? '/events' : `/profiles/${encodeURIComponent(profileId)}/events`;
  return `${path}?${query.toString()}`;
}

interface LiveFeedProps {
  readonly filter: LiveFilter;
  readonly keys: KeyList | undefined;
  readonly isPaused: boolean;
  readonly onPause: (isPaused: boolean) => void;
}

/** One feed per filter: a new filter starts a new one. */
function LiveFeed({ filter, keys, isPaused, onPause }: LiveFeedProps): ReactNode {
  const environment = useEnvironment();
  const [openId, setOpenId] = useQueryValue('open');
  const [linkedId] = useState(openId);
  const [live, change] = useReducer(changeLive, NO_EVENTS);
  const [connection, setConnection] = useState<Connection>('connecting');
  const [top, isAtTop] = useIsAtTop();
  const list = useData<EventPage>(listPath(filter, LISTED_MAX));
  const isOpenListed = list.data === undefined || hasEvent([...ofKey(list.data.events, filter), ...live.shown], openId);
  const further = useData<EventPage>(openId === '' || isOpenListed ? null : listPath(filter, LINKED_EVENTS_MAX));

  const isReading = !isAtTop || hasEvent(live.shown, openId);
  const goingOnHow = isReading ? 'hold' : 'show';
  const how = isPaused ? 'count' : goingOnHow;

  const onListed = useEffectEvent(({ events }: EventPage) => {
    change({ kind: 'listed', events: ofKey(events, filter), how, openId });
  });
  useEffect(() => {
    if (list.data !== undefined) onListed(list.data);
  }, [list.data]);
  const onFurther = useEffectEvent(({ events }: EventPage) => {
    change({ kind: 'older', events: ofKey(events, filter) });
  });
  useEffect(() => {
    if (further.data !== undefined) onFurther(further.data);
  }, [further.data]);

  const onEvents = useEffectEvent((events: LiveEvents['shown']) => change({ kind: 'arrived', events, how, openId }));
  const onConnection = useEffectEvent((next: Connection) => {
    setConnection(next);
    // What came before the connection stood, or while it was lost.
    if (next === 'open') list.reload();
  });
  const path = livePath(environment, filter);
  useEffect(
    () =>
      followLive(path, {
        onEvents: (events) => onEvents(events),
        onSkipped: (events) => change({ kind: 'skipped', events }),
        onConnection: (next) => onConnection(next),
      }),
    [path],
  );
  useEffect(() => {
    if (!isReading && !isPaused) change({ kind: 'show held', openId: '' });
  }, [isReading, isPaused]);

  const goOn = (): void => {
    change({ kind: 'go on' });
    onPause(false);
    list.reload();
  };
  const showHeld = (): void => {
    change({ kind: 'show held', openId });
    // A request for the new ones shows them.
    top.current?.scrollIntoView({ block: 'start' });
  };
  return (
    <Card
      title={
        <span className="live-title">
          Events <ConnectionBadge connection={connection} isPaused={isPaused} />
        </span>
      }
      actions={
        <Button kind={isPaused ? 'primary' : 'plain'} onClick={() => (isPaused ? goOn() : onPause(true))}>
          {isPaused ? 'Go on' : 'Pause'}
        </Button>
      }
    >
      <LiveWords live={live} connection={connection} isPaused={isPaused} />
      {list.error !== undefined && <ErrorNotice error={list.error} onRetry={list.reload} />}
      {further.error !== undefined && <ErrorNotice error={further.error} onRetry={further.reload} />}
      {further.data !== undefined && !hasEvent(ofKey(further.data.events, filter), openId) && (
        <MissingEvent
          eventId={openId}
          shown={live.shown.length}
          more={further.data.next_cursor === null ? null : 'Show older'}
        />
      )}
      <div ref={top} className="live-top" />
      <div className="live-held">
        {live.held.length > 0 && !isPaused && (
          <Button kind="primary" onClick={showHeld}>
            Show {countOf(live.heldCount, 'new event')}
          </Button>
        )}
      </div>
      {list.data === undefined && live.shown.length === 0 && list.error === undefined && <Loading what="events" />}
      {list.data !== undefined && live.shown.length === 0 && <NoEvents filter={filter} />}
      {live.shown.length > 0 && (
        <ol className="live-list" aria-label="Events, newest first">
          {live.shown.map((event) => (
            <LiveRow
              key={event.id}
              event={event}
              isOpen={event.id === openId}
              isLinked={event.id === linkedId}
              onOpen={setOpenId}
              keys={keys}
            />
          ))}
        </ol>
      )}
      {live.shown.length > 0 && (
        <Older
          key={live.cuts}
          filter={filter}
          onOlder={(events) => change({ kind: 'older', events })}
          shown={live.shown}
        />
      )}
    </Card>
  );
}

/** The API lists events of any key. */
function ofKey(events: EventPage['events'], { keyId }: LiveFilter): EventPage['events'] {
  return keyId === '' ? events : events.filter((event) => event.key_id === keyId);
}

interface OlderProps {
  readonly filter: LiveFilter;
  readonly shown: LiveEvents['shown'];
  readonly onOlder: (events: EventPage['events']) => void;
}

/** Goes back through all events, from the newest on: those that are shown already are passed over. */
function Older({ filter, shown, onOlder }: OlderProps): ReactNode {
  const environment = useEnvironment();
  // Null at the end.
  const [cursor, setCursor] = useState<string | null>('');
  const { run, isBusy, error } = useSending();
  const load = (): Promise<void> =>
    run(async () => {
      const known = new Set(shown.map(({ id }) => id));
      for (let pages = 0, next: string | null = cursor; pages < OLDER_PAGES_MAX && next !== null; pages += 1) {
        const path = `${listPath(filter, OLDER_EVENTS)}&cursor=${encodeURIComponent(next)}`;
        const page: EventPage = await get<EventPage>(environment, path);
        const events = ofKey(page.events, filter);
        onOlder(events);
        next = page.next_cursor;
        setCursor(next);
        if (events.some(({ id }) => !known.has(id))) break;
      }
    });
  return (
    <div className="list-end">
      {error !== undefined && <ErrorNotice error={error} />}
      {cursor === null ? (
        <p className="muted">That is the first event.</p>
      ) : (
        <Button busy={isBusy} onClick={() => void load()}>
          Show older
        </Button>
      )}
    </div>
  );
}

/** Whether the start of the list has not been scrolled away. */
function useIsAtTop(): [ref: React.RefObject<HTMLDivElement | null>, isAtTop: boolean] {
  const ref = useRef<HTMLDivElement>(null);
  const [isAtTop, setIsAtTop] = useState(true);
  useEffect(() => {
    const observer = new IntersectionObserver(([entry]) => {
      if (entry !== undefined) setIsAtTop(entry.isIntersecting || entry.boundingClientRect.top > 0);
    });
    if (ref.current !== null) observer.observe(ref.current);
    return () => observer.disconnect();
  }, []);
  return [ref, isAtTop];
}

const CONNECTION_WORDS: Readonly<Record<Connection, { readonly tone: Tone; readonly words: string }>> = {
  connecting: { tone: 'quiet', words: 'Connecting…' },
  open: { tone: 'good', words: 'Connected' },
  lost: { tone: 'bad', words: 'Connection lost' },
  resting: { tone: 'quiet', words: 'Resting' },
};

function ConnectionBadge({ connection, isPaused }: { connection: Connection; isPaused: boolean }): ReactNode {
  const { tone, words } = CONNECTION_WORDS[connection];
  const isPausedOnly = isPaused && connection === 'open';
  return (
    <output className={`live-state live-state--${isPausedOnly ? 'paused' : connection}`}>
      <Badge tone={isPausedOnly ? 'warn' : tone}>
        <span className="live-state__dot" aria-hidden="true" />
        {isPausedOnly ? 'Paused' : words}
      </Badge>
    </output>
  );
}

interface LiveWordsProps {
  readonly live: LiveEvents;
  readonly connection: Connection;
  readonly isPaused: boolean;
}

/** One line that is always there: a notice that comes and goes would move the rows below it. */
function LiveWords({ live, connection, isPaused }: LiveWordsProps): ReactNode {
  return (
    <p className="live-words">
      <StateWords live={live} connection={connection} isPaused={isPaused} />{' '}
      {live.skippedCount > 0 && (
        <>
          {countOf(live.skippedCount, 'event')} left out here, because more came than an eye can follow. All are stored.
        </>
      )}
    </p>
  );
}

function StateWords({ live, connection, isPaused }: LiveWordsProps): ReactNode {
  if (connection === 'lost') return 'Reconnecting. Events that arrive in the meantime are shown then.';
  if (isPaused) {
    return live.missedCount === 0 ? (
      'New events are counted, and listed when you resume.'
    ) : (
      <strong>{countOf(live.missedCount, 'event')} came meanwhile.</strong>
    );
  }
  if (live.shown.length === 0) return 'New events show here at once.';
  return `${countOf(live.shown.length, 'event')}, newest first.`;
}

function NoEvents({ filter: { eventName, profileId, keyId } }: { filter: LiveFilter }): ReactNode {
  const environment = useEnvironment();
  const isFiltered = eventName !== '' || profileId !== '' || keyId !== '';
  return isFiltered ? (
    <Empty title="No such events yet">
      <p>The filters above match none of the latest events. A new event that matches shows here at once.</p>
      <p>
        <Link to={viewPath(environment, 'live')}>Show all events</Link>
      </p>
    </Empty>
  ) : (
    <Empty title="No events yet">
      <p>They show here as soon as they are processed.</p>
      <p>
        <Link to={viewPath(environment, '')}>Send your first event</Link>
      </p>
    </Empty>
  );
}

function countOf(count: number, what: string): string {
  return `${formatNumber(count)} ${what}${count === 1 ? '' : 's'}`;
}
