/**
 * What the overview shows where nothing was ever received: a key with one click, what to paste (tabs: curl, browser,
 * Node.js, Segment SDKs), and the event as soon as it is there. The key exists as text only here, and is gone when the view is left. In production it says so,
 * since what is sent to try things out would count there.
 */

import { type ReactNode, useEffect, useState } from 'react';
import { ApiError, get, send } from '../api.ts';
import { Link, useEnvironment, viewPath } from '../router.tsx';
import { useSession } from '../session.tsx';
import { curlLine, nodeProgram, scriptTag, segmentProgram } from '../snippets.ts';
import { Time } from '../time.tsx';
import type { Environment } from '../api-constants.ts';
import type { CreatedKey, EventPage, RejectionReasons, StoredEvent } from '../api-types.ts';
import { Button } from '../ui/button.tsx';
import { Card } from '../ui/card.tsx';
import { Code, Json } from '../ui/code.tsx';
import { ErrorNotice, Notice } from '../ui/notice.tsx';
import { Page } from '../ui/page.tsx';
import { Tabs } from '../ui/tabs.tsx';
import { useData } from '../use-data.ts';
import { useSending } from '../use-sending.ts';
import { followLive, livePath } from './live-stream.ts';
import '../styles/first-event.css';

const REJECTIONS_RELOAD_MS = 3_000;
const ANY = { eventName: '', profileId: '', keyId: '' };

interface FirstEventProps {
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
            ? `Nothing has been received in ${environment} yet. Two steps, under a minute: make a key, then send an event with it.`
            : `It works: ${environment} has received its first event.`}
        </p>
      ) : (
        <Rejected reason={rejected} />
      )}
      <ol className="steps">
        <SendSteps environment={environment} />
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

type KeyKind = CreatedKey['row']['kind'];

interface NewKey {
  readonly key: string | undefined;
  readonly isBusy: boolean;
  readonly error: ApiError | undefined;
  readonly make: () => void;
}

function useNewKey(environment: Environment, kind: KeyKind): NewKey {
  const [key, setKey] = useState<string>();
  const { run, isBusy, error } = useSending();
  const make = (): Promise<void> =>
    run(async () => {
      const name = kind === 'secret' ? `first ${environment} key` : `first ${environment} web page`;
      const made = await send<CreatedKey>(environment, 'POST', '/keys', {
        name: `${name}, from the dashboard`,
        kind,
        environment,
      });
      setKey(made.key);
    });
  return { key, isBusy, error, make: () => void make() };
}

/** Which key, then how to send with it. Web pages have a publishable key, everything else a secret one. */
function SendSteps({ environment }: { environment: Environment }): ReactNode {
  const [way, setWay] = useState<Way>('curl');
  const secret = useNewKey(environment, 'secret');
  const publishable = useNewKey(environment, 'publishable');
  const kind = way === 'browser' ? 'publishable' : 'secret';
  const newKey = way === 'browser' ? publishable : secret;
  return (
    <>
      <li className="steps__step">
        <Card title="Make a key">
          {environment === 'production' && <ProductionWords />}
          <KeyWords environment={environment} kind={kind} newKey={newKey} />
        </Card>
      </li>
      <li className="steps__step">
        <Card title="Send an event">
          <Tabs label="Send it from" tabs={WAYS} selected={way} onSelect={setWay}>
            <Snippet way={way} newKey={newKey.key} />
          </Tabs>
          <p className="muted small">
            The response says 202: from then on the event is kept, whatever happens. All fields are described in{' '}
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

interface KeyWordsProps {
  readonly environment: Environment;
  readonly kind: KeyKind;
  readonly newKey: NewKey;
}

function KeyWords({ environment, kind, newKey: { key, isBusy, error, make } }: KeyWordsProps): ReactNode {
  if (key !== undefined) {
    return (
      <>
        <p>
          Your key. Shown only once: keep it where you keep passwords. Keys are listed, rolled and revoked under{' '}
          <Link to={viewPath(environment, 'settings/keys')}>API keys</Link>.
        </p>
        <Code text={key} label="Copy key" />
      </>
    );
  }
  return (
    <>
      <p>
        {kind === 'secret'
          ? 'A secret key lets a server, or you in a terminal, send events and read everything back.'
          : 'A publishable key can be part of a web page: it can send events and nothing else.'}
      </p>
      {error !== undefined && <ErrorNotice error={error} />}
      <div className="row">
        <Button kind="primary" busy={isBusy} onClick={make}>
          Make a {environment} {kind} key
        </Button>
        <span className="muted small">If you have one already, use that.</span>
      </div>
    </>
  );
}

const WAYS = [
  { name: 'curl', label: 'curl' },
  { name: 'browser', label: 'Browser' },
  { name: 'node', label: 'Node.js' },
  { name: 'segment', label: 'Segment SDKs' },
] as const;
type Way = (typeof WAYS)[number]['name'];

function Snippet({ way, newKey }: { way: Way; newKey: string | undefined }): ReactNode {
  const { server } = useSession();
  const key = newKey ?? (way === 'browser' ? 'YOUR_PUBLISHABLE_KEY' : 'YOUR_SECRET_KEY');
  const completed = newKey === undefined ? ', with your key in it' : '. It works as it is';
  switch (way) {
    case 'curl':
      return (
        <>
          <p>Paste this into a terminal{completed}:</p>
          <Code text={curlLine(server.url, key)} />
        </>
      );
    case 'browser':
      return (
        <>
          <p>
            Add this to a web page{completed}, and open the page. It sends page views; your server serves the script:
          </p>
          <Code text={scriptTag(server.url, key)} language="html" />
        </>
      );
    case 'node':
      return (
        <>
          <p>
            Install <code>@sluice/sdk</code>, and run this module{completed}:
          </p>
          <Code text={nodeProgram(server.url, key)} language="js" />
        </>
      );
    case 'segment':
      return (
        <>
          <p>
            Segment’s and RudderStack’s SDKs send to Sluice once host and key are changed. With{' '}
            <code>@segment/analytics-node</code>
            {completed}:
          </p>
          <Code text={segmentProgram(server.url, key)} language="js" />
        </>
      );
    default:
      return way satisfies never;
  }
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
      <Notice tone="warn" title="A user was rejected">
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
