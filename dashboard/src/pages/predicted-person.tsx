/**
 * One person that a checked request concerns: the identity graph before and after, what each user of the request would
 * change, and what the server has to say about it. The graph before is read from the server; what would be new stands
 * out in the one after.
 */

import { type ReactNode, useEffect, useMemo, useState } from 'react';
import { ApiError, get } from '../api.ts';
import { layoutGraph } from '../graph-layout.ts';
import { nodeNames, shortId } from '../identity-names.ts';
import { graphAfter, type PredictedPerson } from '../predicted-identity.ts';
import { Link, useEnvironment, viewPath } from '../router.tsx';
import type { Identity } from '../api-types.ts';
import { Card } from '../ui/card.tsx';
import { ErrorNotice, Loading } from '../ui/notice.tsx';
import { IdentityPicture } from './identity-picture.tsx';
import { PredictedChanges } from './predicted-changes.tsx';

export function PredictedPersonCard({ person, checkedAt }: { person: PredictedPerson; checkedAt: string }): ReactNode {
  const environment = useEnvironment();
  const indexes = person.users.map(({ userIndex }) => `users[${userIndex}]`).join(', ');
  return (
    <Card
      title={person.isNew ? 'A new person' : 'A known person'}
      actions={
        person.isNew ? null : (
          <Link to={viewPath(environment, `people/${person.id}`)} title={person.id}>
            {shortId(person.id)}
          </Link>
        )
      }
    >
      <p className="muted small">
        From <code>{indexes}</code>
      </p>
      <Graphs person={person} checkedAt={checkedAt} />
      {person.users.map((user) => (
        <PredictedChanges key={user.userIndex} user={user} isAlone={person.users.length === 1} />
      ))}
    </Card>
  );
}

function Graphs({ person, checkedAt }: { person: PredictedPerson; checkedAt: string }): ReactNode {
  const { identities, error } = useIdentities(person.before);
  const after = useMemo(
    () => identities && graphAfter(person, [...identities.values()], checkedAt),
    [person, identities, checkedAt],
  );
  if (error !== undefined) return <ErrorNotice error={error} />;
  if (identities === undefined || after === undefined) return <Loading what="the identity graph" />;
  return (
    <div className="try-graphs">
      <figure className="try-graph">
        <figcaption>Before</figcaption>
        {person.before.length === 0 && <p className="muted">No profile has any of these identifiers.</p>}
        {Array.from(identities, ([id, identity]) => (
          <Picture key={id} id={id} identity={identity} marked={NOTHING} />
        ))}
      </figure>
      <figure className="try-graph">
        <figcaption>After</figcaption>
        <Picture id={person.id} identity={after.identity} marked={after.added} />
        {after.added.size === 0 && <p className="muted">The same: no link and no merge.</p>}
      </figure>
    </div>
  );
}

const NOTHING: ReadonlySet<string> = new Set();
const ignore = (): void => {};

interface PictureProps {
  readonly id: string;
  readonly identity: Identity;
  readonly marked: ReadonlySet<string>;
}

function Picture({ id, identity, marked }: PictureProps): ReactNode {
  const layout = useMemo(
    () => layoutGraph(id, identity, { isFolded: true, keep: new Set(marked) }),
    [id, identity, marked],
  );
  const names = useMemo(() => nodeNames(identity), [identity]);
  return (
    <div className="identity__picture">
      <IdentityPicture
        layout={layout}
        names={names}
        looked={null}
        picked=""
        marked={marked}
        onLook={ignore}
        onPick={ignore}
        onUnfold={ignore}
      />
    </div>
  );
}

interface Identities {
  readonly identities: ReadonlyMap<string, Identity> | undefined;
  readonly error: ApiError | undefined;
}

function useIdentities(ids: readonly string[]): Identities {
  const environment = useEnvironment();
  const [found, setFound] = useState<Identities>({ identities: undefined, error: undefined });
  const key = ids.join(' ');
  useEffect(() => {
    const asking = new AbortController();
    const read = async (): Promise<void> => {
      const wanted = key === '' ? [] : key.split(' ');
      const all = await Promise.all(
        wanted.map((id) => get<Identity>(environment, `/profiles/${id}/identity`, asking.signal)),
      );
      setFound({ identities: new Map(wanted.map((id, index) => [id, all[index] as Identity])), error: undefined });
    };
    read().catch((cause: unknown) => {
      if (asking.signal.aborted) return;
      const error = cause instanceof ApiError ? cause : new ApiError('The graph could not be read.', 0, null);
      setFound({ identities: undefined, error });
    });
    return () => asking.abort();
  }, [environment, key]);
  return found;
}
