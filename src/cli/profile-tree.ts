/**
 * Why a profile is one person, drawn as a tree: the surviving node at the root, under each node the identifiers first
 * seen on it, then the nodes that requests merged with it. Merges never form a cycle, so the path between any two
 * identifiers is the one chain of requests that linked them. Refused links come last.
 */

import { REFUSAL_REASONS } from '../model.ts';
import type { IdentifierLink, StoredIdentity, StoredMerge } from '../store.ts';
import { countOf, localTime } from './local-time.ts';
import { type Ink, printable } from './table.ts';

interface Branch {
  readonly label: string;
  readonly branches: readonly Branch[];
}

export function identityTree(identity: StoredIdentity, ink: Ink): string {
  const seen = new Set<string>();
  const trunk = nodeBranch(identity.id, `profile ${ink.bold(identity.id)}`, identity, seen, ink);
  // What an unmerge or an erasure left without a way to the survivor must be seen all the same.
  const nodes = [
    ...identity.identifiers.map(({ nodeId }) => nodeId),
    ...identity.merges.flatMap((merge) => merge.nodes),
  ];
  const strays = nodes.flatMap((id) =>
    seen.has(id) ? [] : [nodeBranch(id, `profile ${id}, joined by no request on record`, identity, seen, ink)],
  );
  const refusals = identity.refusals.map(({ type, value, reason, traceId, at, count }) => ({
    label:
      `${type} ${shown(value)} was not joined: ${REFUSAL_REASONS[reason]}` +
      ` ${ink.dim(`(${countOf(count, 'time')}, first at ${localTime(at)} by ${traceId})`)}`,
    branches: [],
  }));
  const branches = [...trunk.branches, ...strays, ...refusals];
  return [`  ${trunk.label}`, ...draw(branches, '  ')].join('\n');
}

function nodeBranch(id: string, label: string, identity: StoredIdentity, seen: Set<string>, ink: Ink): Branch {
  seen.add(id);
  const links = identity.identifiers.filter(({ nodeId }) => nodeId === id).map((link) => linkBranch(link, ink));
  const merges: Branch[] = [];
  for (const merge of identity.merges) {
    const other = otherEnd(merge, id);
    if (other === undefined || seen.has(other)) continue;
    merges.push(nodeBranch(other, mergeLabel(other, merge, ink), identity, seen, ink));
  }
  return { label, branches: [...links, ...merges] };
}

function otherEnd({ nodes: [a, b] }: StoredMerge, id: string): string | undefined {
  return a === id ? b : b === id ? a : undefined;
}

function linkBranch({ type, value, at, traceId }: IdentifierLink, ink: Ink): Branch {
  return { label: `${type} ${shown(value)} ${ink.dim(`since ${localTime(at)} by ${traceId}`)}`, branches: [] };
}

function mergeLabel(id: string, { via, at, traceId }: StoredMerge, ink: Ink): string {
  return (
    `merged with ${ink.bold(id)} through ${via.type} ${shown(via.value)}` +
    ` ${ink.dim(`at ${localTime(at)} by ${traceId}`)}`
  );
}

function shown(value: string): string {
  return printable(JSON.stringify(value));
}

function draw(branches: readonly Branch[], indent: string): string[] {
  return branches.flatMap(({ label, branches: below }, index) => {
    const isLast = index === branches.length - 1;
    return [`${indent}${isLast ? '└─' : '├─'} ${label}`, ...draw(below, `${indent}${isLast ? '   ' : '│  '}`)];
  });
}
