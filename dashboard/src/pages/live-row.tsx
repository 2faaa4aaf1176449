/**
 * One event of the Live view: a line, and what is behind it. Names, properties and values are what clients sent, and are
 * shown as text only. Whether properties are shown as a list or as raw JSON stands in the address, for all rows.
 */

import { memo, type ReactNode, useId } from 'react';
import { labelOf } from '../person-name.ts';
import { Link, useEnvironment, useQueryValue, viewPath } from '../router.tsx';
import { formatNumber, Time } from '../time.tsx';
import { IDENTIFIER_TYPES } from '../api-constants.ts';
import type { KeyList, Person, StoredEvent } from '../api-types.ts';
import { Button } from '../ui/button.tsx';
import { Json } from '../ui/code.tsx';
import { CopyButton } from '../ui/copy-button.tsx';
import { Icon } from '../ui/icons.tsx';
import { scrollToLinked } from './linked-event.tsx';
import { summaryOf, valueText } from './live-events.ts';
import '../styles/live-row.css';

interface LiveRowProps {
  readonly event: StoredEvent;
  readonly isOpen: boolean;
  /** Whether the address opened it. */
  readonly isLinked: boolean;
  readonly keys: KeyList | undefined;
  /** With the id, or '' to close. */
  readonly onOpen: (id: string, options?: { replace?: boolean }) => void;
}

export const LiveRow = memo(function LiveRow({ event, isOpen, isLinked, keys, onOpen }: LiveRowProps): ReactNode {
  const environment = useEnvironment();
  const detailId = useId();
  const { id, event_name: name, received_at: receivedAt, revenue, properties } = event;
  return (
    <li className={isOpen ? 'live-row live-row--open' : 'live-row'} ref={isLinked ? scrollToLinked : undefined}>
      <div className="live-row__line">
        <span className="live-row__time">
          <Time at={receivedAt} />
        </span>
        <button
          type="button"
          className="live-row__name"
          aria-expanded={isOpen}
          aria-controls={isOpen ? detailId : undefined}
          onClick={() => onOpen(isOpen ? '' : id, { replace: true })}
        >
          <Icon name="next" />
          <span className="live-row__name-text">{name}</span>
        </button>
        <span className="live-row__person">
          {event.profile_id !== null && (
            <Link to={viewPath(environment, `people/${event.profile_id}`)}>
              {labelOf(event.profile_id, event.person)}
            </Link>
          )}
        </span>
        <span className="live-row__summary">
          {summaryOf(properties).map(({ name: property, value }) => (
            <span key={property} className="live-row__property">
              <span className="muted">{property}</span> {value}
            </span>
          ))}
        </span>
        <span className="live-row__revenue">
          {revenue !== null && (
            <>
              <span className="for-screen-readers">revenue </span>
              {formatNumber(revenue)}
            </>
          )}
        </span>
        <Link className="live-row__trace" to={viewPath(environment, `traces/${event.trace_id}`)}>
          Trace
        </Link>
      </div>
      {isOpen && <EventDetail id={detailId} event={event} keys={keys} />}
    </li>
  );
});

function EventDetail({ id, event, keys }: { id: string; event: StoredEvent; keys: KeyList | undefined }): ReactNode {
  const [as, setAs] = useQueryValue('as');
  const isRaw = as === 'raw';
  return (
    <div className="live-detail" id={id}>
      <div className="live-detail__head">
        <fieldset className="switch" aria-label="Shown as">
          <Button kind="quiet" aria-pressed={!isRaw} onClick={() => setAs('', { replace: true })}>
            Pretty
          </Button>
          <Button kind="quiet" aria-pressed={isRaw} onClick={() => setAs('raw', { replace: true })}>
            Raw
          </Button>
        </fieldset>
      </div>
      {isRaw ? <Json value={event} /> : <PrettyEvent event={event} keys={keys} />}
    </div>
  );
}

function PrettyEvent({ event, keys }: { event: StoredEvent; keys: KeyList | undefined }): ReactNode {
  const environment = useEnvironment();
  const { properties, revenue, event_value: eventValue, timestamp, received_at: receivedAt, trace_id: traceId } = event;
  const key = keys?.keys.find(({ id }) => id === event.key_id);
  const entries = Object.entries(properties);
  return (
    <div className="live-detail__columns">
      <section>
        <h3 className="live-detail__title">Properties</h3>
        {entries.length === 0 && <p className="muted">This event has no properties.</p>}
        <dl className="pairs">
          {entries.map(([name, value]) => (
            <PropertyPair key={name} name={name} value={value} />
          ))}
        </dl>
      </section>
      <section>
        <h3 className="live-detail__title">Details</h3>
        <dl className="pairs">
          {event.profile_id !== null && (
            <>
              <dt>Person</dt>
              <dd>
                <PersonWords profileId={event.profile_id} person={event.person ?? null} />
              </dd>
            </>
          )}
          <dt>Event time</dt>
          <dd>
            <Time at={timestamp} />
          </dd>
          <dt>Received</dt>
          <dd>
            <Time at={receivedAt} />{' '}
            <span className="muted">
              (<Time at={receivedAt} relative />)
            </span>
          </dd>
          {revenue !== null && (
            <>
              <dt>Revenue</dt>
              <dd>{formatNumber(revenue)}</dd>
            </>
          )}
          {eventValue !== null && (
            <>
              <dt>Value</dt>
              <dd>{formatNumber(eventValue)}</dd>
            </>
          )}
          <dt>Key</dt>
          <dd>{key === undefined ? 'not known' : `${key.name} (${key.prefix}…${key.last_four})`}</dd>
          <dt>Trace</dt>
          <dd>
            <Link className="mono" to={viewPath(environment, `traces/${traceId}`)}>
              {traceId}
            </Link>{' '}
            <span className="muted">users[{event.userIndex}]</span>
          </dd>
          <dt>Id</dt>
          <dd>
            <span className="mono">{event.id}</span> <CopyButton text={event.id} />
          </dd>
        </dl>
      </section>
    </div>
  );
}

function PropertyPair({ name, value }: { name: string; value: unknown }): ReactNode {
  const isNested = typeof value === 'object' && value !== null && valueText(value).length > NESTED_CHARACTERS_MAX;
  return (
    <>
      <dt>{name}</dt>
      <dd>{isNested ? <Json value={value} /> : <span className="live-detail__value">{valueText(value)}</span>}</dd>
    </>
  );
}

/** Longer values are laid out over several lines. */
const NESTED_CHARACTERS_MAX = 60;
const IDENTIFIERS_SHOWN_MAX = 4;

function PersonWords({ profileId, person }: { profileId: string; person: Person | null }): ReactNode {
  const environment = useEnvironment();
  const known = person === null ? [] : IDENTIFIER_TYPES.flatMap((type) => person.identifiers[type]);
  return (
    <Link to={viewPath(environment, `people/${profileId}`)}>
      {known.length === 0 ? (
        <span className="mono">{profileId}</span>
      ) : (
        known.slice(0, IDENTIFIERS_SHOWN_MAX).join(', ')
      )}
    </Link>
  );
}
