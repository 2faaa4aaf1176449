/**
 * What of an identity graph is shown: everything, or, of a large one, a readable part. Merges make a tree of the nodes,
 * with the surviving node as its root; a node is only shown together with those on its way to the root, so that no edge
 * ends in the air. What is not shown is counted, nothing is lost. Pure, and the same for the same graph.
 */

import { linkKey, mergeKey, refusalKey } from './identity-names.ts';
import { IDENTIFIER_TYPES } from './api-constants.ts';
import type { Identity, LinkedIdentifier, Merge, Refusal } from './api-types.ts';

/** Beyond these, a folded graph leaves out and counts. */
export const FOLD_LIMITS = { identifiersMax: 30, nodesMax: 15, refusalsMax: 8 } as const;

export interface ShownNode {
  readonly id: string;
  readonly isRoot: boolean;
  /** The earliest of its identifiers; null for one that has none any more. */
  readonly since: string | null;
  readonly identifiers: readonly LinkedIdentifier[];
  readonly hiddenIdentifiers: number;
}

export interface ShownMerge {
  readonly merge: Merge;
  /** Ids of nodes that are shown; the parent is the one nearer to the root. */
  readonly parent: string;
  readonly child: string;
}

export interface ShownGraph {
  /** The oldest first; the root is always the first. */
  readonly nodes: readonly ShownNode[];
  readonly merges: readonly ShownMerge[];
  readonly refusals: readonly Refusal[];
  readonly hidden: {
    /** Identifiers of nodes that are shown. */
    readonly identifiers: number;
    readonly nodes: number;
    readonly identifiersOfNodes: number;
    readonly merges: number;
    readonly refusals: number;
  };
}

export interface FoldOptions {
  readonly isFolded: boolean;
  /** Names (see identity-names.ts) of what is shown in any case: what is selected, the ends of a chain. */
  readonly keep?: ReadonlySet<string>;
}

const NOTHING: ReadonlySet<string> = new Set();

export function shownGraph(rootId: string, identity: Identity, { isFolded, keep = NOTHING }: FoldOptions): ShownGraph {
  const linksOf = linksByNode(rootId, identity);
  const tree = mergeTree(rootId, [...linksOf.keys()], identity.merges);
  const ids = isFolded ? nodesToShow(tree, linksOf, keep) : new Set(tree.map(({ id }) => id));
  const budgets = isFolded ? identifierBudgets(ids, linksOf) : new Map<string, number>();
  const nodes = [...ids]
    .map((id) => shownNode(id, rootId, linksOf.get(id) ?? [], budgets.get(id) ?? Number.POSITIVE_INFINITY, keep))
    .toSorted(compareNodes);
  const merges = tree.flatMap(({ edges }) => edges).filter(({ parent, child }) => ids.has(parent) && ids.has(child));
  const refusals = identity.refusals.filter(
    (refusal, index) => !isFolded || index < FOLD_LIMITS.refusalsMax || keep.has(refusalKey(refusal)),
  );
  const shownLinks = nodes.reduce((sum, node) => sum + node.identifiers.length, 0);
  const hiddenIdentifiers = nodes.reduce((sum, node) => sum + node.hiddenIdentifiers, 0);
  return {
    nodes,
    merges: merges.toSorted((a, b) => (mergeKey(a.merge) < mergeKey(b.merge) ? -1 : 1)),
    refusals,
    hidden: {
      identifiers: hiddenIdentifiers,
      nodes: tree.length - nodes.length,
      identifiersOfNodes: identity.identifiers.length - shownLinks - hiddenIdentifiers,
      merges: identity.merges.length - merges.length,
      refusals: identity.refusals.length - refusals.length,
    },
  };
}

function linksByNode(rootId: string, { identifiers, merges }: Identity): Map<string, LinkedIdentifier[]> {
  const linksOf = new Map<string, LinkedIdentifier[]>([[rootId, []]]);
  const add = (id: string): LinkedIdentifier[] => {
    const links = linksOf.get(id) ?? [];
    linksOf.set(id, links);
    return links;
  };
  for (const link of identifiers) add(link.node).push(link);
  for (const { nodes } of merges) for (const id of nodes) add(id);
  return new Map([...linksOf].map(([id, links]) => [id, links.toSorted(compareLinks)]));
}

interface TreeNode {
  readonly id: string;
  readonly parent: string | null;
  /** The merges that join it to its parent: one, unless the response is not a tree; then all others are here too. */
  readonly edges: ShownMerge[];
}

/** Every node once, each after its parent, beginning with the root. What is not joined to it comes last. */
function mergeTree(rootId: string, ids: readonly string[], merges: readonly Merge[]): TreeNode[] {
  const tree = new Map<string, TreeNode>();
  const left = new Set(merges.toSorted((a, b) => (mergeKey(a) < mergeKey(b) ? -1 : 1)));
  for (const start of [rootId, ...ids.toSorted()]) {
    if (!tree.has(start)) tree.set(start, { id: start, parent: null, edges: [] });
    // A Map may grow while it is walked: this is a queue that remembers.
    for (const id of tree.keys()) {
      for (const merge of left) {
        const [a, b] = merge.nodes;
        if (a !== id && b !== id) continue;
        left.delete(merge);
        const other = a === id ? b : a;
        const known = tree.get(other);
        const edge = { merge, parent: id, child: other };
        if (known === undefined) tree.set(other, { id: other, parent: id, edges: [edge] });
        else known.edges.push(edge);
      }
    }
  }
  return [...tree.values()];
}

function nodesToShow(
  tree: readonly TreeNode[],
  linksOf: ReadonlyMap<string, readonly LinkedIdentifier[]>,
  keep: ReadonlySet<string>,
): Set<string> {
  const byId = new Map(tree.map((node) => [node.id, node]));
  const ids = new Set(tree.slice(0, FOLD_LIMITS.nodesMax).map(({ id }) => id));
  for (const { id, edges } of tree) {
    const isKept =
      edges.some(({ merge }) => keep.has(mergeKey(merge))) ||
      (linksOf.get(id) ?? []).some((link) => keep.has(linkKey(link)));
    if (!isKept) continue;
    for (let step: string | null = id; step !== null && !ids.has(step); step = byId.get(step)?.parent ?? null) {
      ids.add(step);
    }
  }
  return ids;
}

/** The places are dealt out one by one, so that a node with hundreds leaves room for those with one. */
function identifierBudgets(
  ids: ReadonlySet<string>,
  linksOf: ReadonlyMap<string, readonly LinkedIdentifier[]>,
): Map<string, number> {
  const counts = [...ids].map((id) => ({ id, count: linksOf.get(id)?.length ?? 0 }));
  const budgets = new Map(counts.map(({ id }) => [id, 0]));
  let left: number = FOLD_LIMITS.identifiersMax;
  for (let round = 0; left > 0; round += 1) {
    const hungry = counts.filter(({ count }) => count > round);
    if (hungry.length === 0) break;
    for (const { id } of hungry.slice(0, left)) budgets.set(id, round + 1);
    left -= hungry.length;
  }
  return budgets;
}

function shownNode(
  id: string,
  rootId: string,
  links: readonly LinkedIdentifier[],
  budget: number,
  keep: ReadonlySet<string>,
): ShownNode {
  // A fold of one takes as much room as the one.
  const isWhole = links.length <= budget + 1;
  const identifiers = isWhole ? links : links.filter((link, index) => index < budget || keep.has(linkKey(link)));
  const times = links.map(({ first_seen: at }) => at).toSorted();
  return {
    id,
    isRoot: id === rootId,
    since: times[0] ?? null,
    identifiers,
    hiddenIdentifiers: links.length - identifiers.length,
  };
}

function compareLinks(a: LinkedIdentifier, b: LinkedIdentifier): number {
  const byType = IDENTIFIER_TYPES.indexOf(a.type) - IDENTIFIER_TYPES.indexOf(b.type);
  if (byType !== 0) return byType;
  const byOrigin = compareTexts(`${a.first_seen} ${a.first_trace_id}`, `${b.first_seen} ${b.first_trace_id}`);
  return byOrigin === 0 ? a.userIndex - b.userIndex : byOrigin;
}

function compareNodes(a: ShownNode, b: ShownNode): number {
  if (a.isRoot !== b.isRoot) return a.isRoot ? -1 : 1;
  return compareTexts(`${a.since ?? '~'} ${a.id}`, `${b.since ?? '~'} ${b.id}`);
}

function compareTexts(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}
