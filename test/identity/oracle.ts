/**
 * Rules 5 to 8 once more, as simply as they can be said and without any of the machinery: no aliases, no roots, no
 * batches. A profile is found each time by walking all edges breadth first, and its user_id and counts by counting.
 */

import { type IdentityClaim, PROFILE_LIMITS } from '../../src/identity/graph.ts';
import type { ProfileLimits } from '../../src/identity/resolve.ts';
import { nameOf } from './graph-in-memory.ts';

export interface Judgement {
  readonly partition: string[][];
  /** `trace/userIndex key reason`, in order. */
  readonly refusals: string[];
}

type Edge = readonly [number, number];

function componentOf(node: number, edges: readonly Edge[]): number[] {
  const reached = [node];
  for (const at of reached) {
    for (const [a, b] of edges) {
      if (a === at && !reached.includes(b)) reached.push(b);
      if (b === at && !reached.includes(a)) reached.push(a);
    }
  }
  return reached;
}

export function judge(users: readonly IdentityClaim[], limits: ProfileLimits = PROFILE_LIMITS): Judgement {
  const owner = new Map<string, number>();
  const edges: Edge[] = [];
  const refusals: string[] = [];
  let nodes = 0;

  const keysAt = (part: readonly number[], type: string): string[] =>
    [...owner].filter(([name, node]) => part.includes(node) && name.startsWith(`${type}:`)).map(([name]) => name);
  const breaksLimit = (part: readonly number[]): boolean =>
    keysAt(part, 'email').length > limits.emails ||
    keysAt(part, 'phone_number').length > limits.phoneNumbers ||
    keysAt(part, 'anon_id').length > limits.anonIds ||
    part.length > limits.nodes;
  const isKnown = (part: readonly number[]): boolean =>
    ['user_id', 'email', 'phone_number'].some((type) => keysAt(part, type).length > 0);

  for (const user of users) {
    const names = user.keys.map(nameOf);
    const claimed = names.filter((name) => name.startsWith('user_id:'));
    let home: number | undefined;
    let joins = 0;
    const refuse = (name: string, reason: string): number =>
      refusals.push(`${user.origin.traceId}/${user.origin.userIndex} ${name} ${reason}`);

    for (const name of names) {
      const node = owner.get(name);
      if (node === undefined) continue;
      const there = componentOf(node, edges);
      const here = home === undefined ? [] : componentOf(home, edges);
      if (here.includes(node)) continue;
      const userIds = new Set([...claimed, ...keysAt(here, 'user_id'), ...keysAt(there, 'user_id')]);
      const isStranger = names.slice(0, names.indexOf(name)).some((stronger) => !owner.has(stronger));
      if (userIds.size > 1) refuse(name, 'other_user_id');
      else if (home === undefined && user.keyKind === 'publishable' && isStranger && isKnown(there)) {
        refuse(name, 'publishable_key');
      } else if (home === undefined) home = node;
      else if (breaksLimit([...here, ...there])) refuse(name, 'limit');
      else if (user.keyKind === 'publishable' && (joins > 0 || (isKnown(here) && isKnown(there)))) {
        refuse(name, 'publishable_key');
      } else {
        edges.push([home, node]);
        joins++;
      }
    }
    if (names.length === 0) continue;
    const mayNotIdentify =
      user.keyKind === 'publishable' &&
      home !== undefined &&
      isKnown(componentOf(home, edges)) &&
      !claimed.some((name) => owner.has(name));
    home ??= nodes++;
    for (const name of names) {
      if (owner.has(name)) continue;
      if (mayNotIdentify && !name.startsWith('anon_id:')) {
        refuse(name, 'publishable_key');
        continue;
      }
      owner.set(name, home);
      if (breaksLimit(componentOf(home, edges))) {
        owner.delete(name);
        refuse(name, 'limit');
      }
    }
  }

  const parts = new Map<string, string[]>();
  for (let node = 0; node < nodes; node++) {
    const part = componentOf(node, edges).sort((a, b) => a - b);
    const names = [...owner].filter(([, at]) => part.includes(at)).map(([name]) => name);
    parts.set(part.join(' '), names.sort());
  }
  return { partition: [...parts.values()].sort((a, b) => (String(a[0]) < String(b[0]) ? -1 : 1)), refusals };
}

/** Who is one person if nothing is ever refused: keys are joined by every record that names them together. */
export function components(users: readonly IdentityClaim[]): string[][] {
  const names = [...new Set(users.flatMap(({ keys }) => keys.map(nameOf)))];
  const at = new Map(names.map((name, index) => [name, index]));
  const edges = users.flatMap(({ keys }): Edge[] =>
    keys.slice(1).map((key, index) => [at.get(nameOf(keys[index] ?? key)) ?? 0, at.get(nameOf(key)) ?? 0]),
  );
  const parts = new Map<string, string[]>();
  for (const [index] of names.entries()) {
    const part = componentOf(index, edges).map((member) => String(names[member]));
    parts.set(part.sort().join(' '), part);
  }
  return [...parts.values()].sort((a, b) => (String(a[0]) < String(b[0]) ? -1 : 1));
}
