/**
 * One person that a checked request concerns: the identity graph before and after, what each user of the request would
 * change, and what the server has to say about it. The graph before is read from the server; what would be new stands
 * out in the one after.
 */

import { type ReactNode, useEffect, useMemo, useState } from 'react';
import { ApiError, get } from '../api.ts';
import { layoutGraph } from '../graph-layout.ts';
import { nodeNames, REFUSAL_WORDS, shortId } from '../identity-names.ts';
import { graphAfter, isNewId, type PredictedPerson } from '../predicted-identity.ts';
import { Link, useEnvironment, viewPath } from '../router.tsx';
import { formatNumber } from '../time.tsx';
import type { Identity, PredictedUser } from '../api-types.ts';
import { Badge } from '../ui/badge.tsx';
import { Card } from '../ui/card.tsx';
import { type Column, DataTable } from '../ui/data-table.tsx';
import { jsonSource } from '../ui/json-lines.ts';
import { ErrorNotice, Loading } from '../ui/notice.tsx';
import { IdentifierText } from './identifier-icon.tsx';
import { IdentityPicture } from './identity-picture.tsx';

const CHANGES_SHOWN_MAX = 50;
const VALUE_CHARACTERS_MAX = 120;

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
        <UserChanges key={user.userIndex} user={user} isAlone={person.users.length === 1} />
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

function UserChanges({ user, isAlone }: { user: PredictedUser; isAlone: boolean }): ReactNode {
  const { merges, refusals, property_changes: changes, warnings, violations } = user;
  const shown = changes.slice(0, CHANGES_SHOWN_MAX);
  const left = changes.length - shown.length + user.property_changes_omitted;
  return (
    <section className="try-user" aria-label={`users[${user.userIndex}]`}>
      {!isAlone && (
        <h3>
          <code>users[{user.userIndex}]</code>
        </h3>
      )}
      <ul className="words">
        <li>
          {formatNumber(user.events)} {user.events === 1 ? 'event' : 'events'} would be stored.
        </li>
        {user.duplicate_events > 0 && (
          <li>{formatNumber(user.duplicate_events)} would not: stored before, by $event_id.</li>
        )}
        {user.new_identifiers.map(({ type, value }) => (
          <li key={type}>
            Links <IdentifierText type={type} value={value} />.
          </li>
        ))}
        {merges.map(({ from, into, via }) => (
          <li key={`${from} ${into}`}>
            Merges {nameOf(from)} into {nameOf(into)} via <IdentifierText type={via.type} value={via.value} />.
          </li>
        ))}
        {refusals.map(({ type, value, reason, rule }) => (
          <li key={`${type} ${reason}`}>
            <Badge tone="warn">not linked</Badge> <IdentifierText type={type} value={value} />:{' '}
            {REFUSAL_WORDS[reason].long} (rule {rule})
          </li>
        ))}
        {warnings
          .filter((warning) => !ABOUT_REFUSAL.test(warning))
          .map((warning) => (
            <li key={warning}>
              <Badge tone="warn">warning</Badge> {warning}
            </li>
          ))}
        {violations.map(({ path, message, mode }) => (
          <li key={`${path} ${message}`}>
            <Badge tone={mode === 'enforce' ? 'bad' : 'warn'}>tracking plan</Badge> <code>{path}</code> {message}
          </li>
        ))}
      </ul>
      {shown.length > 0 && (
        <DataTable
          caption="Properties that would change"
          columns={CHANGE_COLUMNS}
          rows={shown}
          rowKey={({ kind, name }) => `${kind} ${name}`}
        />
      )}
      {left > 0 && <p className="muted">And {formatNumber(left)} more properties.</p>}
    </section>
  );
}

type PropertyChange = PredictedUser['property_changes'][number];

const CHANGE_COLUMNS: readonly Column<PropertyChange>[] = [
  { key: 'name', label: 'Property', render: ({ name }) => <bdi>{name}</bdi> },
  { key: 'before', label: 'Before', render: ({ before }) => valueText(before) },
  { key: 'after', label: 'After', render: ({ after }) => valueText(after) },
];

/** A refused link is said by the refusal, with its rule. */
const ABOUT_REFUSAL = / was not linked: /;

function nameOf(id: string): ReactNode {
  return isNewId(id) ? 'the new profile' : <code title={id}>{shortId(id)}</code>;
}

/** Null is not set: a property that is null is deleted. */
function valueText(value: unknown): ReactNode {
  if (value === null || value === undefined) return <span className="muted">not set</span>;
  const text = jsonSource(value);
  return <code>{text.length > VALUE_CHARACTERS_MAX ? `${text.slice(0, VALUE_CHARACTERS_MAX)}…` : text}</code>;
}
