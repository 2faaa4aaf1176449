/**
 * The request behind one thing of the identity graph: when it came, which user of which request it was, and what it
 * did. A merge can be taken back from here. Without anything to look at, it says how to use the picture.
 */

import type { ReactNode } from 'react';
import { findByKey, REFUSAL_WORDS } from '../identity-names.ts';
import { Link, useEnvironment, viewPath } from '../router.tsx';
import { formatNumber, Time } from '../time.tsx';
import type { Identity, LinkedIdentifier, Merge, Refusal } from '../api-types.ts';
import { Button } from '../ui/button.tsx';
import { IdentifierText, NodeName, type NodeNames } from './identifier-icon.tsx';

interface PanelProps {
  readonly identity: Identity;
  readonly names: NodeNames;
  readonly looked: string | null;
  readonly onUnmerge: (merge: Merge) => void;
}

export function IdentityPanel({ identity, names, looked, onUnmerge }: PanelProps): ReactNode {
  const { link, merge, refusal } = findByKey(identity, looked);
  const isEmpty = link === undefined && merge === undefined && refusal === undefined;
  return (
    <aside className="identity__panel" aria-label="The request behind it" aria-live="polite">
      {link !== undefined && <LinkDetails link={link} />}
      {merge !== undefined && <MergeDetails merge={merge} names={names} onUnmerge={() => onUnmerge(merge)} />}
      {refusal !== undefined && <RefusalDetails refusal={refusal} />}
      {isEmpty && <Legend identity={identity} />}
    </aside>
  );
}

function Legend({ identity: { identifiers, merges, refusals } }: { identity: Identity }): ReactNode {
  return (
    <>
      <h3 className="identity__heading">Which request did what?</h3>
      <p>
        Choose a link, a merge or a refusal to see the request that made it. An identifier permanently belongs to the
        profile that it was first seen on. Merges join profiles, and can be undone.
      </p>
      <ul className="identity__legend">
        <li>
          <svg width="34" height="10" aria-hidden="true" className="legend-line">
            <path d="M1 5h32" />
          </svg>
          {formatNumber(identifiers.length)} {identifiers.length === 1 ? 'identifier' : 'identifiers'}
        </li>
        <li>
          <svg width="34" height="10" aria-hidden="true" className="legend-line legend-line--merge">
            <path d="M1 5h32" />
          </svg>
          {formatNumber(merges.length)} {merges.length === 1 ? 'merge' : 'merges'}
        </li>
        <li>
          <svg width="34" height="10" aria-hidden="true" className="legend-line legend-line--refusal">
            <path d="M1 5h32" />
          </svg>
          {formatNumber(refusals.length)} not linked
        </li>
      </ul>
    </>
  );
}

function LinkDetails({ link }: { link: LinkedIdentifier }): ReactNode {
  return (
    <>
      <h3 className="identity__heading">Identifier</h3>
      <p>
        <IdentifierText type={link.type} value={link.value} />
      </p>
      <p>
        First seen in the request below. It has belonged to this profile since then, and stays with it if merges are
        undone.
      </p>
      <Cause traceId={link.first_trace_id} userIndex={link.userIndex} at={link.first_seen}>
        <dt>Profile</dt>
        <dd>
          <code>{link.node}</code>
        </dd>
      </Cause>
    </>
  );
}

interface MergeDetailsProps {
  readonly merge: Merge;
  readonly names: NodeNames;
  readonly onUnmerge: () => void;
}

function MergeDetails({ merge, names, onUnmerge }: MergeDetailsProps): ReactNode {
  return (
    <>
      <h3 className="identity__heading">Merge</h3>
      <p>
        The request below had <IdentifierText type={merge.via.type} value={merge.via.value} />
      </p>
      <p>
        and with it an identifier of <NodeName id={merge.nodes[1]} names={names} />. So they are one person.
      </p>
      <Cause traceId={merge.trace_id} userIndex={merge.userIndex} at={merge.at}>
        <dt>Merged</dt>
        <dd>
          <NodeName id={merge.from} names={names} /> into <NodeName id={merge.into} names={names} />
        </dd>
      </Cause>
      <p>
        <Button kind="danger" onClick={onUnmerge}>
          These are not one person
        </Button>
      </p>
    </>
  );
}

function RefusalDetails({ refusal }: { refusal: Refusal }): ReactNode {
  const environment = useEnvironment();
  const search = `${viewPath(environment, 'people')}?q=${encodeURIComponent(refusal.value)}`;
  return (
    <>
      <h3 className="identity__heading">Not linked</h3>
      <p>
        <IdentifierText type={refusal.type} value={refusal.value} />
      </p>
      <p>{REFUSAL_WORDS[refusal.reason].long}</p>
      <Cause traceId={refusal.trace_id} userIndex={refusal.userIndex} at={refusal.at}>
        <dt>How often</dt>
        <dd>{refusal.count === 1 ? 'once' : `${formatNumber(refusal.count)} times; the first is shown`}</dd>
        <dt>Reason</dt>
        <dd>
          <code>{refusal.reason}</code>
        </dd>
      </Cause>
      <p>
        <Link to={search}>Who has this identifier?</Link>
      </p>
    </>
  );
}

interface CauseProps {
  readonly traceId: string;
  readonly userIndex: number;
  readonly at: string;
  readonly children?: ReactNode;
}

function Cause({ traceId, userIndex, at, children }: CauseProps): ReactNode {
  const environment = useEnvironment();
  return (
    <dl className="identity__cause">
      <dt>Request</dt>
      <dd>
        <Link to={viewPath(environment, `traces/${traceId}`)} className="mono">
          {traceId}
        </Link>
      </dd>
      <dt>User</dt>
      <dd>
        <code>users[{userIndex}]</code>
      </dd>
      <dt>Received</dt>
      <dd>
        <Time at={at} />
      </dd>
      {children}
    </dl>
  );
}
