/**
 * Where everything of an identity graph stands in its picture: identifiers on the left, the nodes that they point to in
 * a frame that is the person, merges as lines between nodes on the right, refusals below, stopped at the edge of the
 * frame. Time runs from top to bottom. Pure, the same for the same graph, and nothing overlaps: every row has its own
 * height, and merges that pass one another run in lanes, unless they lead to the same node. Lengths are in pixels at full size.
 */

import { type FoldOptions, type ShownGraph, type ShownMerge, type ShownNode, shownGraph } from './graph-fold.ts';
import { linkKey, mergeKey, refusalKey } from './identity-names.ts';
import type { Identity, LinkedIdentifier, Merge, Refusal } from './api-types.ts';

export interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

export interface PlacedIdentifier {
  readonly key: string;
  readonly link: LinkedIdentifier;
  readonly box: Box;
  /** The line to its node. */
  readonly path: string;
}

/** Stands for identifiers that are not shown. */
export interface PlacedFold {
  readonly nodeId: string;
  readonly count: number;
  readonly box: Box;
  readonly path: string;
}

export interface PlacedNode {
  readonly node: ShownNode;
  readonly box: Box;
}

export interface PlacedMerge {
  readonly key: string;
  readonly merge: Merge;
  /** Ids of the two nodes; the sign and the label are on the row of the child. */
  readonly parent: string;
  readonly child: string;
  readonly path: string;
  /** The round sign on the line. */
  readonly sign: Box;
  readonly label: Box;
}

export interface PlacedRefusal {
  readonly key: string;
  readonly refusal: Refusal;
  readonly box: Box;
  readonly path: string;
  readonly sign: Box;
  readonly label: Box;
}

export interface GraphLayout {
  readonly width: number;
  readonly height: number;
  /** Around all nodes and merges: one person. */
  readonly frame: Box;
  readonly nodes: readonly PlacedNode[];
  readonly identifiers: readonly PlacedIdentifier[];
  readonly folds: readonly PlacedFold[];
  readonly merges: readonly PlacedMerge[];
  readonly refusals: readonly PlacedRefusal[];
  /** Base line of the words above the refusals. */
  readonly refusalsTitleY: number;
  /** Where it is said how many nodes are not shown; null if all are. */
  readonly hiddenNodes: Box | null;
  readonly hidden: ShownGraph['hidden'];
}

const IDENTIFIER = { width: 214, height: 42, gap: 8 } as const;
const FOLD_HEIGHT = 30;
const NODE = { width: 158, height: 58 } as const;
/** A node stands in the middle of its identifiers, but of very many it is still near the first ones. */
const NODE_DEPTH_MAX = 260;
const BLOCK_GAP = 26;
const FRAME = { gapBefore: 46, paddingX: 32, paddingTop: 44, paddingBottom: 22 } as const;
const SIGN_SIZE = 24;
const SIGN_GAP = 14;
/** The lanes share this much, unless they would be too near to each other or needlessly far apart. */
const LANES = { widthMax: 200, gapMin: 6, gapMax: 20 } as const;
const LABEL = { gapBefore: 14, width: 136, height: 40 } as const;
/** A merge leaves its older node beside the middle, where that node's own merge is. */
const PARENT_OFFSET = 16;
const CORNER_RADIUS = 8;
/** The label has room for the longest of the reasons (identity-names.ts), also of a person with a single node. */
const REFUSALS = { gapBefore: 42, titleHeight: 22, labelWidthMin: 224 } as const;
const HIDDEN_NODES_HEIGHT = 36;
/** Room for the outlines and the ring of what is focused. */
const MARGIN = 6;

const FRAME_X = MARGIN + IDENTIFIER.width + FRAME.gapBefore;
const NODE_X = FRAME_X + FRAME.paddingX;
const NODE_RIGHT = NODE_X + NODE.width;
const REFUSAL_LABEL_X = FRAME_X + SIGN_SIZE / 2 + SIGN_GAP;
const LANES_X = NODE_RIGHT + SIGN_GAP + SIGN_SIZE + SIGN_GAP;

export function layoutGraph(rootId: string, identity: Identity, options: FoldOptions): GraphLayout {
  const shown = shownGraph(rootId, identity, options);
  const column = placeNodes(shown.nodes);
  const { merges, right: mergesRight } = placeMerges(shown.merges, column.nodes);
  const right =
    shown.refusals.length === 0 ? mergesRight : Math.max(mergesRight, REFUSAL_LABEL_X + REFUSALS.labelWidthMin);
  const hasHiddenNodes = shown.hidden.nodes > 0;
  const nodesBottom = column.bottom + (hasHiddenNodes ? BLOCK_GAP + HIDDEN_NODES_HEIGHT : 0);
  const frame: Box = {
    x: FRAME_X,
    y: MARGIN,
    width: right - FRAME_X,
    height: nodesBottom + FRAME.paddingBottom - MARGIN,
  };
  const refusalsTitleY = frame.y + frame.height + REFUSALS.gapBefore;
  const refusals = placeRefusals(shown.refusals, refusalsTitleY + REFUSALS.titleHeight, right);
  const last = refusals.at(-1)?.box;
  return {
    width: right + MARGIN,
    height: (last === undefined ? frame.y + frame.height : last.y + last.height) + MARGIN,
    frame,
    ...column,
    merges,
    refusals,
    refusalsTitleY,
    hiddenNodes: hasHiddenNodes
      ? {
          x: NODE_X,
          y: column.bottom + BLOCK_GAP,
          width: right - NODE_X - LABEL.gapBefore,
          height: HIDDEN_NODES_HEIGHT,
        }
      : null,
    hidden: shown.hidden,
  };
}

interface NodeColumn {
  readonly nodes: PlacedNode[];
  readonly identifiers: PlacedIdentifier[];
  readonly folds: PlacedFold[];
  readonly bottom: number;
}

/** One block for each node: its identifiers above one another, the node beside them. */
function placeNodes(shown: readonly ShownNode[]): NodeColumn {
  const column = { nodes: [], identifiers: [], folds: [] } as Omit<NodeColumn, 'bottom'>;
  let top = MARGIN + FRAME.paddingTop;
  for (const node of shown) {
    const { identifiers, hiddenIdentifiers } = node;
    const foldHeight = hiddenIdentifiers > 0 ? FOLD_HEIGHT + IDENTIFIER.gap : 0;
    const linksHeight = Math.max(
      0,
      identifiers.length * (IDENTIFIER.height + IDENTIFIER.gap) + foldHeight - IDENTIFIER.gap,
    );
    const height = Math.max(NODE.height, linksHeight);
    const middle = top + Math.min(height / 2, NODE_DEPTH_MAX);
    column.nodes.push({
      node,
      box: { x: NODE_X, y: middle - NODE.height / 2, width: NODE.width, height: NODE.height },
    });
    let y = top + (height - linksHeight) / 2;
    for (const link of identifiers) {
      const box = { x: MARGIN, y, width: IDENTIFIER.width, height: IDENTIFIER.height };
      column.identifiers.push({ key: linkKey(link), link, box, path: linkPath(box, middle) });
      y += IDENTIFIER.height + IDENTIFIER.gap;
    }
    if (hiddenIdentifiers > 0) {
      const box = { x: MARGIN, y, width: IDENTIFIER.width, height: FOLD_HEIGHT };
      column.folds.push({ nodeId: node.id, count: hiddenIdentifiers, box, path: linkPath(box, middle) });
    }
    top += height + BLOCK_GAP;
  }
  return { ...column, bottom: top - BLOCK_GAP };
}

function linkPath(box: Box, nodeY: number): string {
  const x = box.x + box.width;
  const y = box.y + box.height / 2;
  const bend = (NODE_X - x) / 2;
  return `M${x} ${y}C${x + bend} ${y} ${NODE_X - bend} ${nodeY} ${NODE_X} ${nodeY}`;
}

interface Span {
  readonly shown: ShownMerge;
  readonly childY: number;
  readonly parentY: number;
}

function placeMerges(
  shown: readonly ShownMerge[],
  nodes: readonly PlacedNode[],
): { merges: PlacedMerge[]; right: number } {
  const spans = spansOf(shown, nodes);
  const lanes = lanesOf(spans);
  const laneCount = Math.max(0, ...lanes.values()) + 1;
  const gap = Math.min(LANES.gapMax, Math.max(LANES.gapMin, LANES.widthMax / laneCount));
  const labelX = LANES_X + (laneCount - 1) * gap + LABEL.gapBefore;
  const merges = spans.map((span): PlacedMerge => {
    const { childY } = span;
    const { merge, parent, child } = span.shown;
    const laneX = LANES_X + (lanes.get(span) ?? 0) * gap;
    return {
      key: mergeKey(merge),
      merge,
      parent,
      child,
      path: mergePath(span, laneX),
      sign: { x: NODE_RIGHT + SIGN_GAP, y: childY - SIGN_SIZE / 2, width: SIGN_SIZE, height: SIGN_SIZE },
      label: {
        x: labelX,
        y: childY - LABEL.height / 2,
        width: LABEL.width,
        height: LABEL.height,
      },
    };
  });
  const right = merges.length === 0 ? NODE_RIGHT + FRAME.paddingX : labelX + LABEL.width + LABEL.gapBefore;
  return { merges, right };
}

function spansOf(shown: readonly ShownMerge[], nodes: readonly PlacedNode[]): Span[] {
  const middles = new Map(nodes.map(({ node, box }) => [node.id, box.y + box.height / 2]));
  return shown.map((one) => {
    const childY = middles.get(one.child) ?? 0;
    const parentMiddle = middles.get(one.parent) ?? 0;
    return { shown: one, childY, parentY: parentMiddle + Math.sign(childY - parentMiddle) * PARENT_OFFSET };
  });
}

/** Merges that leave the same node in the same direction: they share a line, as branches share a trunk. */
interface Trunk {
  readonly spans: readonly Span[];
  readonly top: number;
  readonly bottom: number;
}

/** The short ones are nearest to the nodes; two trunks that pass one another are never in the same lane. */
function lanesOf(spans: readonly Span[]): Map<Span, number> {
  const trunks = [...Map.groupBy(spans, ({ shown, childY, parentY }) => `${childY > parentY} ${shown.parent}`).values()]
    .map(trunkOf)
    .toSorted((a, b) => a.bottom - a.top - (b.bottom - b.top) || a.top - b.top);
  const taken: Trunk[][] = [];
  const lanes = new Map<Span, number>();
  for (const trunk of trunks) {
    const free = taken.findIndex((others) => others.every((other) => !isBeside(trunk, other)));
    const lane = free === -1 ? taken.length : free;
    (taken[lane] ??= []).push(trunk);
    for (const span of trunk.spans) lanes.set(span, lane);
  }
  return lanes;
}

function trunkOf(spans: readonly Span[]): Trunk {
  const ends = spans.flatMap(({ childY, parentY }) => [childY, parentY]);
  return { spans, top: Math.min(...ends), bottom: Math.max(...ends) };
}

function isBeside(a: Trunk, b: Trunk): boolean {
  return a.top <= b.bottom && b.top <= a.bottom;
}

/** From the child to the right, along the lane, and back to the parent, with round corners. */
function mergePath({ childY, parentY }: Span, laneX: number): string {
  const radius = Math.min(CORNER_RADIUS, Math.abs(childY - parentY) / 2);
  const turn = Math.sign(parentY - childY) * radius;
  return [
    `M${NODE_RIGHT} ${childY}H${laneX - radius}`,
    `Q${laneX} ${childY} ${laneX} ${childY + turn}`,
    `V${parentY - turn}`,
    `Q${laneX} ${parentY} ${laneX - radius} ${parentY}`,
    `H${NODE_RIGHT}`,
  ].join('');
}

function placeRefusals(refusals: readonly Refusal[], top: number, right: number): PlacedRefusal[] {
  return refusals.map((refusal, index) => {
    const box = {
      x: MARGIN,
      y: top + index * (IDENTIFIER.height + IDENTIFIER.gap),
      width: IDENTIFIER.width,
      height: IDENTIFIER.height,
    };
    const middle = box.y + box.height / 2;
    return {
      key: refusalKey(refusal),
      refusal,
      box,
      path: `M${box.x + box.width} ${middle}H${FRAME_X - SIGN_SIZE / 2}`,
      sign: { x: FRAME_X - SIGN_SIZE / 2, y: middle - SIGN_SIZE / 2, width: SIGN_SIZE, height: SIGN_SIZE },
      label: { x: REFUSAL_LABEL_X, y: box.y, width: right - REFUSAL_LABEL_X, height: box.height },
    };
  });
}
