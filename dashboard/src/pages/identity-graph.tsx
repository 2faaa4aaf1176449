/**
 * Why this is one person: the identity graph as a picture or as a list, beside it the request behind whatever is looked
 * at, and the chain between two identifiers. What is picked, unfolded and asked stands in the address, by names without
 * personal data. On a phone the list comes first.
 */

import { type ReactNode, useMemo, useState, useSyncExternalStore } from 'react';
import { layoutGraph } from '../graph-layout.ts';
import { findByKey, keysOfChain, linkKey, mergeKey, nodeNames } from '../identity-names.ts';
import { useQueryValue } from '../router.tsx';
import { formatNumber } from '../time.tsx';
import type { Identity, Merge, Profile } from '../api-types.ts';
import { Button } from '../ui/button.tsx';
import { Card } from '../ui/card.tsx';
import { Empty } from '../ui/empty.tsx';
import { ErrorNotice, Loading } from '../ui/notice.tsx';
import { useData } from '../use-data.ts';
import { IdentityChain, useChain } from './identity-chain.tsx';
import { IdentityList } from './identity-list.tsx';
import { IdentityPanel } from './identity-panel.tsx';
import { IdentityPicture } from './identity-picture.tsx';
import { UnmergeDialog, type UnmergeResult, UnmergeNotice } from './unmerge-dialog.tsx';
import '../styles/identity.css';

const NARROW = '(max-width: 52rem)';

export function IdentityGraph({ profile, onChange }: { profile: Profile; onChange: () => void }): ReactNode {
  const { data, error, reload } = useData<Identity>(`/profiles/${profile.id}/identity`);
  const [result, setResult] = useState<UnmergeResult>();
  const [merge, setMerge] = useState<Merge>();
  if (error !== undefined && data === undefined) return <ErrorNotice error={error} onRetry={reload} />;
  if (data === undefined) return <Loading what="the identity graph" />;
  return (
    <>
      {result !== undefined && <UnmergeNotice result={result} profileId={profile.id} />}
      <GraphCard profile={profile} identity={data} onUnmerge={setMerge} />
      <UnmergeDialog
        profileId={profile.id}
        identity={data}
        merge={merge}
        onClose={() => setMerge(undefined)}
        onDone={(done) => {
          setMerge(undefined);
          setResult(done);
          reload();
          onChange();
        }}
      />
    </>
  );
}

interface GraphCardProps {
  readonly profile: Profile;
  readonly identity: Identity;
  readonly onUnmerge: (merge: Merge) => void;
}

function GraphCard({ profile, identity, onUnmerge }: GraphCardProps): ReactNode {
  const [as, setAs] = useQueryValue('as');
  const isNarrow = useIsNarrow();
  const isList = as === 'list' || (as === '' && isNarrow);
  const [all, setAll] = useQueryValue('all');
  const [picked, setPicked] = useQueryValue('pick');
  const [hovered, setHovered] = useState<string | null>(null);
  const names = useMemo(() => nodeNames(identity), [identity]);
  const chain = useChain(profile.id, identity);
  const chainKeys = useMemo(() => keysOfChain(identity, chain.steps), [identity, chain.steps]);
  const isThere = useMemo(
    () => Object.values(findByKey(identity, picked)).some((one) => one !== undefined),
    [identity, picked],
  );
  // An address may name what an unmerge has taken away since.
  const looked = hovered ?? (isThere ? picked : null);
  const marked = useMemo(
    () => (looked === null ? withNodes(identity, chainKeys) : withNodes(identity, keysAbout(identity, looked))),
    [identity, chainKeys, looked],
  );
  // What is only hovered must not move the picture under the pointer.
  const layout = useMemo(
    () => layoutGraph(profile.id, identity, { isFolded: all === '', keep: new Set([picked, ...chainKeys]) }),
    [profile.id, identity, all, picked, chainKeys],
  );
  const pick = (key: string): void => setPicked(key === picked ? '' : key, { replace: true });
  const panel = <IdentityPanel identity={identity} names={names} looked={looked} onUnmerge={onUnmerge} />;
  const isInline = isList && isNarrow;
  const { hidden } = layout;
  const isFolded = hidden.identifiers + hidden.nodes + hidden.refusals > 0;
  if (identity.identifiers.length === 0) return <Empty title="No identifiers">This profile has none any more.</Empty>;
  return (
    <>
      <Card
        title="Identity graph"
        actions={
          <>
            {(isFolded || all !== '') && (
              <Button kind="quiet" onClick={() => setAll(all === '' ? '1' : '', { replace: true })}>
                {all === '' ? `Show all ${formatNumber(identity.identifiers.length)} identifiers` : 'Show fewer'}
              </Button>
            )}
            <ViewSwitch isList={isList} onChange={(list) => setAs(list ? 'list' : 'picture', { replace: true })} />
          </>
        }
      >
        <div className="identity">
          {isList ? (
            <IdentityList
              layout={layout}
              names={names}
              looked={looked}
              onPick={pick}
              details={isInline ? panel : null}
            />
          ) : (
            <div className="identity__picture">
              <IdentityPicture
                layout={layout}
                names={names}
                looked={looked}
                picked={picked}
                marked={marked}
                onLook={setHovered}
                onPick={pick}
                onUnfold={() => setAll('1', { replace: true })}
              />
            </div>
          )}
          {(!isInline || looked === null) && panel}
        </div>
      </Card>
      <IdentityChain identity={identity} chain={chain} />
    </>
  );
}

function ViewSwitch({ isList, onChange }: { isList: boolean; onChange: (isList: boolean) => void }): ReactNode {
  return (
    <fieldset className="view-switch" aria-label="Show the graph as">
      <button type="button" className="view-switch__choice" aria-pressed={!isList} onClick={() => onChange(false)}>
        Picture
      </button>
      <button type="button" className="view-switch__choice" aria-pressed={isList} onClick={() => onChange(true)}>
        List
      </button>
    </fieldset>
  );
}

/** What stands out with a thing: of a merge, also the identifier that led to it. */
function keysAbout(identity: Identity, looked: string): Set<string> {
  const merge = identity.merges.find((one) => mergeKey(one) === looked);
  if (merge === undefined) return new Set([looked]);
  const ofNode = identity.identifiers.filter(({ type, node }) => type === merge.via.type && node === merge.nodes[0]);
  // A phone number or an address may have been written in another way than the first time.
  const via = ofNode.find(({ value }) => value === merge.via.value) ?? (ofNode.length === 1 ? ofNode[0] : undefined);
  return new Set(via === undefined ? [looked] : [looked, linkKey(via)]);
}

/** With the nodes at the ends of what is marked. */
function withNodes({ identifiers, merges }: Identity, keys: ReadonlySet<string>): Set<string> {
  const marked = new Set(keys);
  for (const link of identifiers) if (keys.has(linkKey(link))) marked.add(link.node);
  for (const merge of merges) if (keys.has(mergeKey(merge))) for (const node of merge.nodes) marked.add(node);
  return marked;
}

function useIsNarrow(): boolean {
  return useSyncExternalStore(subscribeToWidth, () => matchMedia(NARROW).matches);
}

function subscribeToWidth(listener: () => void): () => void {
  const query = matchMedia(NARROW);
  query.addEventListener('change', listener);
  return () => query.removeEventListener('change', listener);
}
