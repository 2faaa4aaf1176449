/**
 * One person: who it is, what is known and who said so, what they did, and why they are one person. The tab stands in
 * the address. An id that was merged away shows the surviving profile and says so. Erasing starts here.
 */

import { type ReactNode, useState } from 'react';
import { shortId } from '../identity-names.ts';
import { nameOf } from '../person-name.ts';
import { Link, useAddress, useEnvironment, useQueryValue, viewOf, viewPath } from '../router.tsx';
import { formatNumber, Time } from '../time.tsx';
import type { Erased, Profile } from '../api-types.ts';
import { Badge } from '../ui/badge.tsx';
import { Button } from '../ui/button.tsx';
import { Card } from '../ui/card.tsx';
import { CopyButton } from '../ui/copy-button.tsx';
import { Empty } from '../ui/empty.tsx';
import { ErrorNotice, Loading, Notice } from '../ui/notice.tsx';
import { Page } from '../ui/page.tsx';
import { useData } from '../use-data.ts';
import { EraseDialog } from './erase-dialog.tsx';
import { IdentityGraph } from './identity-graph.tsx';
import { PersonProperties } from './person-properties.tsx';
import { LastEvent } from './last-event.tsx';
import { PersonTimeline } from './person-timeline.tsx';
import '../styles/person.css';

const TABS = [
  { value: '', label: 'Profile' },
  { value: 'timeline', label: 'Timeline' },
  { value: 'identity', label: 'Identity' },
] as const;

export default function Person(): ReactNode {
  const id = viewOf(useAddress().path)?.split('/')[1] ?? '';
  const { data, error, reload } = useData<Profile>(`/profiles/${encodeURIComponent(id)}?provenance=1`);
  const [erased, setErased] = useState<Erased>();
  if (erased !== undefined) return <ErasedPage erased={erased} />;
  if (error !== undefined && data === undefined) {
    return (
      <Page title="Person">
        {error.status === 404 || error.status === 400 ? (
          <Unknown id={id} />
        ) : (
          <ErrorNotice error={error} onRetry={reload} />
        )}
      </Page>
    );
  }
  if (data === undefined) {
    return (
      <Page title="Person">
        <Loading what="the profile" />
      </Page>
    );
  }
  return <PersonPage id={id} profile={data} onChange={reload} onErased={setErased} />;
}

interface PersonPageProps {
  readonly id: string;
  readonly profile: Profile;
  readonly onChange: () => void;
  readonly onErased: (erased: Erased) => void;
}

function PersonPage({ id, profile, onChange, onErased }: PersonPageProps): ReactNode {
  const [tab] = useQueryValue('tab');
  const [isErasing, setIsErasing] = useState(false);
  return (
    <Page
      title={nameOf(profile)}
      actions={
        <Button kind="danger" onClick={() => setIsErasing(true)}>
          Erase
        </Button>
      }
    >
      {id.toLowerCase() !== profile.id && (
        <Notice tone="quiet">
          <p>
            You asked for <code>{id}</code>. It was merged into this profile, and stands for it.
          </p>
        </Notice>
      )}
      <PersonHead profile={profile} />
      <Tabs profile={profile} tab={tab} />
      {tab === 'timeline' && <PersonTimeline profileId={profile.id} />}
      {tab === 'identity' && <IdentityGraph profile={profile} onChange={onChange} />}
      {tab !== 'timeline' && tab !== 'identity' && <PersonProperties profile={profile} />}
      <EraseDialog profile={profile} isOpen={isErasing} onClose={() => setIsErasing(false)} onErased={onErased} />
    </Page>
  );
}

function PersonHead({ profile }: { profile: Profile }): ReactNode {
  const { id, merged_ids: mergedIds, first_seen: firstSeen, event_count: events } = profile;
  return (
    <Card className="person">
      <dl className="facts">
        <div>
          <dt>Profile id</dt>
          <dd className="row">
            <code>{id}</code> <CopyButton text={id} label="Copy id" />
          </dd>
        </div>
        <div>
          <dt>First received</dt>
          <dd>
            <Time at={firstSeen} relative />
          </dd>
        </div>
        <div>
          <dt>Last event</dt>
          <dd>
            <LastEvent profileId={id} />
          </dd>
        </div>
        <div>
          <dt>Events</dt>
          <dd>{formatNumber(events)}</dd>
        </div>
        {mergedIds.length > 0 && (
          <div>
            <dt>Merges</dt>
            <dd>
              <Badge tone="quiet">merged from {formatNumber(mergedIds.length + 1)} profiles</Badge>
            </dd>
          </div>
        )}
      </dl>
    </Card>
  );
}

/** Links, because each has its own address. */
function Tabs({ profile, tab }: { profile: Profile; tab: string }): ReactNode {
  const { path } = useAddress();
  return (
    <nav className="tabs" aria-label={`Views of ${shortId(profile.id)}`}>
      {TABS.map(({ value, label }) => (
        <Link
          key={value}
          to={value === '' ? path : `${path}?tab=${value}`}
          className="tabs__tab"
          {...(tab === value && { 'aria-current': 'page' as const })}
        >
          {label}
        </Link>
      ))}
    </nav>
  );
}

function Unknown({ id }: { id: string }): ReactNode {
  const environment = useEnvironment();
  return (
    <Empty title="No such person here">
      <p>
        There is no profile <code>{id}</code> in {environment}. It may have been erased, belong to the other
        environment, or be mistyped.
      </p>
      <p>
        <Link to={viewPath(environment, 'people')}>Search for a person</Link>
      </p>
    </Empty>
  );
}

function ErasedPage({ erased }: { erased: Erased }): ReactNode {
  const environment = useEnvironment();
  return (
    <Page title="Erased">
      {erased.warning !== undefined && <Notice tone="warn" title={`${erased.warning}.`} />}
      <Notice tone="good" title="The person is erased.">
        <output>
          Profile, identifiers, properties and events are gone. It is in the{' '}
          <Link to={viewPath(environment, 'audit')}>audit</Link> as{' '}
          <Link to={viewPath(environment, `traces/${erased.trace_id}`)} className="mono">
            {erased.trace_id}
          </Link>{' '}
          <CopyButton text={erased.trace_id} label="Copy trace_id" />
        </output>
        <p>
          <Link to={viewPath(environment, 'people')}>Back to people</Link>
        </p>
      </Notice>
    </Page>
  );
}
