/**
 * Why two identifiers are one person, and how to undo that: the part of rules 15 and 16 that concerns the graph alone.
 * Merges are edges between nodes and never form a cycle. So there is at most one path between two nodes, and removing
 * an edge always separates them. Works on one profile at a time: at most 100 nodes.
 */

import type { IdentifierType, NodeNumber, Origin } from '../model.ts';
import { compareOrigins } from './origin.ts';

/** An edge; rows of the caller may have more columns, and are returned as they are. */
export interface Edge {
  readonly nodes: readonly [NodeNumber, NodeNumber];
}

/** An identifier and the node that it is linked to, permanently. */
interface Linked {
  readonly key: { readonly type: IdentifierType; readonly value: string };
  readonly node: NodeNumber;
  readonly origin: Origin;
}

/** Rule 15: `from` was linked to a node, which the merges, in their order, join to the node that `to` was linked to. */
interface Chain<Identifier extends Linked, Merge extends Edge> {
  readonly from: Identifier;
  readonly merges: readonly Merge[];
  readonly to: Identifier;
}

/** Undefined if the two are not one person, or one of them is not known. Values are normalised. */
export function chainBetween<Identifier extends Linked, Merge extends Edge>(
  a: Linked['key'],
  b: Linked['key'],
  identifiers: readonly Identifier[],
  merges: readonly Merge[],
): Chain<Identifier, Merge> | undefined {
  const from = identifiers.find(({ key }) => key.type === a.type && key.value === a.value);
  const to = identifiers.find(({ key }) => key.type === b.type && key.value === b.value);
  if (from === undefined || to === undefined) return undefined;
  const path = pathBetween(from.node, to.node, merges);
  return path === undefined ? undefined : { from, merges: path, to };
}

/** Walks from the end to the start, so that the steps taken read from the start to the end. */
function pathBetween<Merge extends Edge>(
  start: NodeNumber,
  end: NodeNumber,
  merges: readonly Merge[],
): Merge[] | undefined {
  const next = new Map<NodeNumber, { readonly node: NodeNumber; readonly merge: Merge } | null>([[end, null]]);
  // A Map may grow while it is iterated: this is the queue and the visited set in one.
  for (const node of next.keys()) {
    for (const merge of merges) {
      const neighbour = otherEnd(merge, node);
      if (neighbour !== undefined && !next.has(neighbour)) next.set(neighbour, { node, merge });
    }
  }
  if (!next.has(start)) return undefined;
  const path: Merge[] = [];
  for (let step = next.get(start); step !== undefined && step !== null; step = next.get(step.node)) {
    path.push(step.merge);
  }
  return path;
}

function otherEnd({ nodes: [a, b] }: Edge, node: NodeNumber): NodeNumber | undefined {
  if (a === node) return b;
  return b === node ? a : undefined;
}

/** The root of every node, if these edges are all there are (rules 9 and 16). */
export function regroup(
  nodes: readonly { readonly node: NodeNumber; readonly origin: Origin }[],
  edges: readonly Edge[],
): Map<NodeNumber, NodeNumber> {
  const roots = new Map<NodeNumber, NodeNumber>();
  // The oldest first: the first one to reach a part is its root.
  for (const { node: root } of nodes.toSorted((a, b) => compareOrigins(a.origin, b.origin))) {
    if (roots.has(root)) continue;
    const part = new Set([root]);
    for (const node of part) {
      roots.set(node, root);
      for (const edge of edges) {
        const neighbour = otherEnd(edge, node);
        if (neighbour !== undefined) part.add(neighbour);
      }
    }
  }
  return roots;
}

/**
 * Rule 16: the pairs of nodes that may not be linked after an unmerge: both ends of every removed edge, and one pair
 * for any two of the resulting parts, because the request claimed that all of them are one person.
 */
export function cannotLinkAfter(
  removed: readonly Edge[],
  roots: ReadonlyMap<NodeNumber, NodeNumber>,
): [NodeNumber, NodeNumber][] {
  const endOfPart = new Map<NodeNumber | undefined, NodeNumber>();
  for (const node of removed.flatMap(({ nodes }) => nodes)) {
    const part = roots.get(node);
    if (!endOfPart.has(part)) endOfPart.set(part, node);
  }
  const ends = [...endOfPart.values()];
  const pairs = removed.map(({ nodes }) => nodes);
  for (const [index, a] of ends.entries()) for (const b of ends.slice(index + 1)) pairs.push([a, b]);
  const distinct = new Map(pairs.map(([a, b]) => [`${Math.min(a, b)} ${Math.max(a, b)}`, [a, b] as const]));
  return [...distinct.values()].map(([a, b]) => [Math.min(a, b), Math.max(a, b)]);
}
