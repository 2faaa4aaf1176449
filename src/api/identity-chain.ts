/**
 * Why two identifiers are one person, told step by step: each step is one user of one request, with a sentence for
 * people. The chain itself is found by `identity/explain.ts`; it is the only one there is (rule 15).
 */

import { chainBetween } from '../identity/explain.ts';
import type { IdentifierType, NodeNumber } from '../model.ts';
import type { IdentifierLink, StoredIdentity, StoredMerge } from '../store.ts';
import type { Json } from './json-text.ts';
import { timeText } from './stored-answers.ts';

export interface AskedIdentifier {
  readonly type: IdentifierType;
  /** Normalised. */
  readonly value: string;
}

/** Undefined if one of the two is not an identifier of this profile. */
export function chainAnswer(identity: StoredIdentity, from: AskedIdentifier, to: AskedIdentifier): Json | undefined {
  // The graph is searched by number; here nodes have ids alone.
  const numbers = new Map<string, NodeNumber>();
  const numberOf = (nodeId: string): NodeNumber => {
    const number = numbers.get(nodeId) ?? numbers.size;
    numbers.set(nodeId, number);
    return number;
  };
  const links = identity.identifiers.map((link) => ({
    link,
    key: { type: link.type, value: link.normalised },
    node: numberOf(link.nodeId),
    origin: { receivedAt: link.at, traceId: link.traceId, userIndex: link.userIndex },
  }));
  const merges = identity.merges.map((merge) => ({
    merge,
    nodes: [numberOf(merge.nodes[0]), numberOf(merge.nodes[1])] as const,
  }));
  const chain = chainBetween(from, to, links, merges);
  if (chain === undefined) return undefined;
  const first = linkStep(chain.from.link);
  const last = linkStep(chain.to.link);
  const steps = chain.merges.map(({ merge }) => mergeStep(merge));
  return chain.from === chain.to ? [first] : [first, ...steps, last];
}

function linkStep({ type, value, nodeId, traceId, userIndex, at }: IdentifierLink): Json {
  return {
    kind: 'link',
    type,
    value,
    node: nodeId,
    trace_id: traceId,
    userIndex,
    at: timeText(at),
    text: `${type} ${value} was first seen on ${timeText(at)}, in users[${userIndex}] of request ${traceId}, and belongs to ${nodeId} since.`,
  };
}

function mergeStep({ from, into, nodes, via, traceId, userIndex, at }: StoredMerge): Json {
  const [reached, joined] = nodes;
  return {
    kind: 'merge',
    from,
    into,
    via: { type: via.type, value: via.value },
    nodes: [reached, joined],
    trace_id: traceId,
    userIndex,
    at: timeText(at),
    text: `On ${timeText(at)}, users[${userIndex}] of request ${traceId} had ${via.type} ${via.value}, which belongs to ${reached}, beside an identifier of ${joined}: so the two are one person, and ${from} was merged into ${into}.`,
  };
}
