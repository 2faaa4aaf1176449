/**
 * What the overview shows where nothing was ever received: a key with one click, a line to paste, and the event as soon
 * as it is there. The key exists as text only here, and is gone when the view is left. In production it says so,
 * since what is sent to try things out would count there.
 */

import { type ReactNode, useEffect, useState } from 'react';
import { ApiError, get, send } from '../api.ts';
import { Link, useEnvironment, viewPath } from '../router.tsx';
import { useSession } from '../session.tsx';
import { curlLine } from '../snippets.ts';
import { Time } from '../time.tsx';
import type { Environment } from '../api-constants.ts';
import type { CreatedKey, EventPage, RejectionReasons, StoredEvent } from '../api-types.ts';
import { Button } from '../ui/button.tsx';
import { Card } from '../ui/card.tsx';
import { Code, Json } from '../ui/code.tsx';
import { ErrorNotice, Notice } from '../ui/notice.tsx';
import { Page } from '../ui/page.tsx';
import { useData } from '../use-data.ts';
import { followLive, livePath } from './live-stream.ts';
import '../styles/first-event.css';

const REJECTIONS_RELOAD_MS = 3_000;
const ANY = { eventName: '', profileId: '', keyId: '' };

export interface FirstEventProps {
  /** Something was received, whether or not it was seen here. */
  readonly isDone: boolean;
  readonly onDone: () => void;
}

export function FirstEvent({ isDone, onDone }: FirstEventProps): ReactNode {
  const environment = useEnvironment();
  const event = useFirstEvent(environment, isDone);
  const rejected = useRejected(event === undefined);
  return (
    <Page title="Send your first event">
      {rejected === undefined ? (
        <p className="lead">
          {event === undefined
            ? `Nothing has been received in ${environment} yet. Two steps, under a minute: make a key, then paste one line into a terminal.`
            : `It works: ${environment} has received its first event.`}
        </p>
      ) : (
        <Rejected reason={rejected} />
      )}
      <ol className="steps">
        <KeyStep environment={environment} />
        <li className="steps__step">{event === undefined ? <Waiting /> : <Arrived event={event} onDone={onDone} />}</li>
      </ol>
    </Page>
  );
}

/** Listens, and looks once after the connection stands: the event may have come just before. */
function useFirstEvent(environment: Environment, isDone: boolean): StoredEvent | undefined {
  const [event, setEvent] = useState<StoredEvent>();
  const hasEvent = event !== undefined;
  useEffect(() => {
    if (hasEvent) return undefined;
    const asking = new AbortController();
    const look = async (): Promise<void> => {
      const { events } = await get<EventPage>(environment, '/events?limit=1', asking.signal);
      if (events[0] !== undefined) setEvent(events[0]);
    };
    const lookQuietly = (): void => {
      // What fails here is tried again when the connection comes back, or when the ledger says that something came.
      look().catch(() => {});
    };
    if (isDone) lookQuietly();
    const stop = followLive(livePath(environment, ANY), {
      onEvents: ([first]) => setEvent((before) => before ?? first),
      onSkipped: lookQuietly,
      onConnection: (connection) => {
        if (connection === 'open') lookQuietly();
      },
    });
    return () => {
      stop();
      asking.abort();
    };
  }, [environment, hasEvent, isDone]);
  return event;
}

function KeyStep({ environment }: { environment: Environment }): ReactNode {
  const { server } = useSession();
  const [key, setKey] = useState<string>();
  const [isBusy, setIsBusy] = useState(false);
  const [error, setError] = useState<ApiError>();
  const make = async (): Promise<void> => {
    setIsBusy(true);
    setError(undefined);
    try {
      const name = `first ${environment} key, from the dashboard`;
      const made = await send<CreatedKey>(environment, 'POST', '/keys', { name, kind: 'secret', environment });
      setKey(made.key);
    } catch (cause) {
      setError(cause instanceof ApiError ? cause : new ApiError('The key could not be made.', 0, null));
    }
    setIsBusy(false);
  };
  return (
    <>
      <li className="steps__step">
        <Card title="Make a key">
          {environment === 'production' && <ProductionWords />}
          {key === undefined ? (
            <>
              <p>A secret key lets a server, or you in a terminal, send events and read everything back.</p>
              {error !== undefined && <ErrorNotice error={error} />}
              <div className="row">
                <Button kind="primary" busy={isBusy} onClick={() => void make()}>
                  Make a {environment} secret key
                </Button>
                <span className="muted small">If you have one already, use that.</span>
              </div>
            </>
          ) : (
            <>
              <p>
                Your key. Shown only once: keep it where you keep passwords. Keys are listed, rolled and revoked under{' '}
                <Link to={viewPath(environment, 'settings/keys')}>API keys</Link>.
              </p>
              <Code text={key} label="Copy key" />
            </>
          )}
        </Card>
      </li>
      <li className="steps__step">
        <Card title="Send an event">
          <p>Paste this into a terminal{key === undefined ? ', with your key in it' : '. It works as it is'}:</p>
          <Code text={curlLine(server.url, key ?? 'YOUR_SECRET_KEY')} language="shell" label="Copy" />
          <p className="muted small">
            The answer says 202: from then on the event is kept, whatever happens. All fields are described in{' '}
            <a href="/docs" target="_blank" rel="noopener">
              the reference
            </a>
            .
          </p>
        </Card>
      </li>
    </>
  );
}

function ProductionWords(): ReactNode {
  const { environments } = useSession();
  return (
    <Notice tone="warn" title="This is production">
      <p>
        What you send here counts, and stands among real people.{' '}
        {environments.includes('development') && (
          <>
            To try things out, go to <Link to={viewPath('development', '')}>development</Link>.
          </>
        )}
      </p>
    </Notice>
  );
}

/** The reason, while nothing but rejected users has come. */
function useRejected(isWaiting: boolean): string | undefined {
  const path = isWaiting ? '/rejections/reasons' : null;
  return useData<RejectionReasons>(path, { everyMs: REJECTIONS_RELOAD_MS }).data?.reasons[0]?.reason;
}

/** First of all: who sees it has sent something, and wonders where it is. */
function Rejected({ reason }: { reason: string }): ReactNode {
  const environment = useEnvironment();
  return (
    <output>
      <Notice tone="warn" title="A user came, and was rejected">
        <p className="first-rejected__reason">{reason}</p>
        <p>
          So nothing is stored in {environment} yet.{' '}
          <Link to={`${viewPath(environment, 'rejected')}?reason=${encodeURIComponent(reason)}`}>
            See what was sent, and how to fix it
          </Link>
        </p>
      </Notice>
    </output>
  );
}

function Waiting(): ReactNode {
  return (
    <Card className="first-waiting">
      <output className="first-waiting__words">
        <span className="first-waiting__pulse" aria-hidden="true" />
        Waiting for your first event…
      </output>
    </Card>
  );
}

/** On a small screen it may be below what is seen. */
function showIt(element: HTMLElement | null): void {
  element?.parentElement?.scrollIntoView({ block: 'nearest' });
}

function Arrived({ event, onDone }: { event: StoredEvent; onDone: () => void }): ReactNode {
  const environment = useEnvironment();
  const { event_name: name, received_at: receivedAt, profile_id: profileId, trace_id: traceId, properties } = event;
  return (
    <Card className="first-arrived">
      <output className="first-arrived__words" ref={showIt}>
        <span className="first-arrived__title">Your first event is here</span>
        <span>
          <strong className="first-arrived__name">{name}</strong>, received <Time at={receivedAt} />
        </span>
      </output>
      {Object.keys(properties).length > 0 && <Json value={properties} />}
      <div className="row">
        <Link className="button button--primary" to={viewPath(environment, 'live')}>
          See it on Live
        </Link>
        {profileId !== null && (
          <Link className="button" to={viewPath(environment, `people/${profileId}`)}>
            See the person
          </Link>
        )}
        <Link className="button" to={viewPath(environment, `traces/${traceId}`)}>
          See its trace
        </Link>
        <Button kind="quiet" onClick={onDone}>
          Show the overview
        </Button>
      </div>
    </Card>
  );
}
