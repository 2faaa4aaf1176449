/**
 * The identity graph as a list, for screen readers, phones, and for people who prefer lists: each profile with its
 * identifiers and the merge that brought it in, then what was not linked. Shows what the picture shows, in its order.
 */

import type { ReactNode } from 'react';
import type { GraphLayout, PlacedMerge } from '../graph-layout.ts';
import { linkKey, REFUSAL_WORDS, shortId } from '../identity-names.ts';
import { formatNumber, Time } from '../time.tsx';
import { Badge } from '../ui/badge.tsx';
import { IdentifierText, NodeName, type NodeNames, Sign } from './identifier-icon.tsx';

interface ListProps {
  readonly layout: GraphLayout;
  readonly names: NodeNames;
  readonly looked: string | null;
  readonly onPick: (key: string) => void;
  /** About what is looked at: shown right below it, where there is no room beside. */
  readonly details: ReactNode;
}

export function IdentityList({ layout, names, looked, onPick, details }: ListProps): ReactNode {
  const merges = new Map(layout.merges.map((placed) => [placed.child, placed]));
  const isMerged = layout.nodes.length + layout.hidden.nodes > 1;
  return (
    <div className="identity__list">
      <ol className="stack">
        {layout.nodes.map(({ node }) => (
          <li key={node.id}>
            <h3 className="identity__heading">
              Profile <code title={node.id}>{shortId(node.id)}</code>{' '}
              {node.isRoot && isMerged && <Badge tone="good">the oldest: its id stays</Badge>}
            </h3>
            <ul>
              {node.identifiers.map((link) => (
                <Pickable key={linkKey(link)} id={linkKey(link)} looked={looked} onPick={onPick} details={details}>
                  <IdentifierText type={link.type} value={link.value} />
                  <span className="muted small">
                    first seen <Time at={link.first_seen} />
                  </span>
                </Pickable>
              ))}
              {node.hiddenIdentifiers > 0 && (
                <li className="identity__rest muted">and {formatNumber(node.hiddenIdentifiers)} more</li>
              )}
              <MergeRow placed={merges.get(node.id)} names={names} looked={looked} onPick={onPick} details={details} />
            </ul>
          </li>
        ))}
      </ol>
      {layout.hidden.nodes > 0 && (
        <p className="muted">
          and {formatNumber(layout.hidden.nodes)} more merged profiles, with{' '}
          {formatNumber(layout.hidden.identifiersOfNodes)} identifiers
        </p>
      )}
      {layout.refusals.length > 0 && (
        <>
          <h3 className="identity__heading">Not linked</h3>
          <ul>
            {layout.refusals.map(({ key, refusal }) => (
              <Pickable key={key} id={key} looked={looked} onPick={onPick} details={details}>
                <IdentifierText type={refusal.type} value={refusal.value} />
                <span className="muted small">
                  {REFUSAL_WORDS[refusal.reason].short}, {formatNumber(refusal.count)}{' '}
                  {refusal.count === 1 ? 'time' : 'times'}
                </span>
              </Pickable>
            ))}
          </ul>
        </>
      )}
    </div>
  );
}

interface PickableProps {
  readonly id: string;
  readonly looked: string | null;
  readonly onPick: (key: string) => void;
  readonly details: ReactNode;
  readonly children: ReactNode;
}

function Pickable({ id, looked, onPick, details, children }: PickableProps): ReactNode {
  return (
    <li>
      <button type="button" className="identity__row" aria-pressed={looked === id} onClick={() => onPick(id)}>
        {children}
      </button>
      {looked === id && details}
    </li>
  );
}

interface MergeRowProps extends Omit<PickableProps, 'id' | 'children'> {
  readonly placed: PlacedMerge | undefined;
  readonly names: NodeNames;
}

function MergeRow({ placed, names, looked, onPick, details }: MergeRowProps): ReactNode {
  if (placed === undefined) return null;
  const { via, at } = placed.merge;
  return (
    <Pickable id={placed.key} looked={looked} onPick={onPick} details={details}>
      <span className="identifier identifier--merge">
        <Sign name="merge" />
        <span>
          merged with <NodeName id={placed.parent} names={names} /> via {via.type}{' '}
          <span className="mono">{via.value}</span>
        </span>
      </span>
      <span className="muted small">
        <Time at={at} />
      </span>
    </Pickable>
  );
}
