/**
 * Why two identifiers are one person, and how to undo that: the part of rules 15 and 16 that concerns the graph alone.
 * Merges are edges between nodes and never form a cycle. So there is at most one path between two nodes, and removing
 * an edge always separates them. Works on one profile at a time: at most 100 nodes.
 */

import type { IdentifierType, NodeNumber, Origin } from '../model.ts';
import { compareOrigins } from './origin.ts';

/** An edge; rows of the caller may have more columns, and are returned as they are. */
export interface Edge<Node = NodeNumber> {
  readonly nodes: readonly [Node, Node];
}

/** An identifier and the node that it is linked to, permanently. */
interface Linked<Node> {
  readonly key: { readonly type: IdentifierType; readonly value: string };
  readonly node: Node;
}

/** Rule 15: `from` was linked to a node, which the merges, in their order, join to the node that `to` was linked to. */
interface Chain<Identifier, Merge> {
  readonly from: Identifier;
  readonly merges: readonly Merge[];
  readonly to: Identifier;
}

/** Undefined if the two are not one person, or one of them is not known. Values are normalised. */
export function chainBetween<Node, Identifier extends Linked<Node>, Merge extends Edge<Node>>(
  a: Linked<Node>['key'],
  b: Linked<Node>['key'],
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
function pathBetween<Node, Merge extends Edge<Node>>(
  start: Node,
  end: Node,
  merges: readonly Merge[],
): Merge[] | undefined {
  const next = new Map<Node, { readonly node: Node; readonly merge: Merge } | null>([[end, null]]);
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

function otherEnd<Node>({ nodes: [a, b] }: Edge<Node>, node: Node): Node | undefined {
  if (a === node) return b;
  return b === node ? a : undefined;
}

/** Who was merged into whom, had there been these edges alone, in their order; and the root of every node (rules 9, 16). */
export function replay<Merge extends Edge>(
  nodes: readonly { readonly node: NodeNumber; readonly origin: Origin }[],
  edges: readonly Merge[],
): {
  readonly merges: readonly { readonly edge: Merge; readonly from: NodeNumber; readonly into: NodeNumber }[];
  readonly roots: ReadonlyMap<NodeNumber, NodeNumber>;
} {
  const parts = new Map(nodes.map((root) => [root.node, { root, nodes: [root.node] }]));
  const merges = edges.map((edge) => {
    const [a, b] = edge.nodes.map((node) => parts.get(node));
    if (a === undefined || b === undefined) throw new Error(`${edge.nodes.join(' and ')} are not in one profile`);
    const [into, from] = compareOrigins(a.root.origin, b.root.origin) < 0 ? [a, b] : [b, a];
    for (const node of from.nodes) parts.set(node, into);
    into.nodes.push(...from.nodes);
    return { edge, from: from.root.node, into: into.root.node };
  });
  return { merges, roots: new Map([...parts].map(([node, { root }]) => [node, root.node])) };
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
