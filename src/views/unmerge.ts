/**
 * Computes what an unmerge changes (rule 16), from the rows of one profile: the merges of one request are removed, the
 * nodes that they joined may not be linked again, and the remaining merges are rewritten as if the removed ones had
 * never happened. Identifiers, property updates and events stay on their nodes. Pure: a store reads the rows and writes
 * the plan.
 */

import { cannotLinkAfter, replay } from '../identity/explain.ts';
import { compareOrigins } from '../identity/origin.ts';
import type { NodeNumber } from '../model.ts';
import type { UnmergeResult } from '../store.ts';
import type { MergeRow, ProfileNode, ProfileNodes } from './profile.ts';

export interface UnmergePlan {
  readonly result: UnmergeResult;
  /** Numbers of merges to remove. */
  readonly undone: readonly number[];
  /** The root of every node, itself for a root. */
  readonly roots: ReadonlyMap<NodeNumber, NodeNumber>;
  /** Merges whose direction changes. */
  readonly rewritten: readonly { readonly no: number; readonly from: NodeNumber; readonly into: NodeNumber }[];
  /** Pairs of nodes, each in both directions. */
  readonly cannotLink: readonly (readonly [NodeNumber, NodeNumber])[];
  /** For the audit (rule 15); holds no personal data. */
  readonly detail: Readonly<Record<string, unknown>>;
}

/** `mergedBy` is a trace_id in small letters, or null for what is none. Nothing to undo: `undone` is empty. */
export function planUnmerge(profile: ProfileNodes, merges: readonly MergeRow[], mergedBy: string | null): UnmergePlan {
  const undone = merges.filter(({ origin }) => origin.traceId === mergedBy);
  const remaining = merges.filter((merge) => !undone.includes(merge)).sort((a, b) => a.no - b.no);
  const { roots, merges: replayed } = replay(profile.nodes, remaining);
  const profileIds = undone.length === 0 ? [profile.root.id] : idsOfRoots(profile.nodes, roots);
  return {
    result: { undone: undone.length, profileIds },
    undone: undone.map(({ no }) => no),
    roots,
    rewritten: replayed
      .filter(({ edge, from, into }) => from !== edge.from || into !== edge.into)
      .map(({ edge, from, into }) => ({ no: edge.no, from, into })),
    cannotLink: cannotLinkAfter(undone, roots).flatMap(([a, b]): [NodeNumber, NodeNumber][] => [
      [a, b],
      [b, a],
    ]),
    detail: {
      profile_id: profile.root.id,
      merged_by: mergedBy,
      undone: undone.length,
      profile_ids: profileIds,
    },
  };
}

function idsOfRoots(nodes: readonly ProfileNode[], roots: ReadonlyMap<NodeNumber, NodeNumber>): string[] {
  return nodes
    .filter(({ node }) => roots.get(node) === node)
    .sort((a, b) => compareOrigins(a.origin, b.origin))
    .map(({ id }) => id);
}
