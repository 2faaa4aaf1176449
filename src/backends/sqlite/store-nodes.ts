/**
 * Writes what a transaction tells of nodes: how many events, when first and last seen, and the statements, folded into
 * what was known (identity/statements.ts). New nodes are written at once. Of others it waits until the commit, up to
 * `WAITING_NODES_MAX` and `WAITING_BYTES_MAX`, and is written in the order of their numbers: each node once, and
 * neighbours, which share a page, one after the other.
 *
 * Most statements say the same names as the one before them. Where it is remembered that a node knows just one group,
 * of the same names and older, the new group takes its place without the old one being read.
 */

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { NewNode } from '../../identity/graph.ts';
import { nodeIdOf } from '../../identity/node-id.ts';
import type { Group, Values } from '../../identity/statements.ts';
import type { NodeNumber, Origin, TenantId } from '../../model.ts';
import type { UserToStore } from '../../store-writer.ts';
import {
  boundedText,
  foldedGroups,
  groupsIn,
  groupsText,
  isList,
  NOTHING_KNOWN,
  sumOf,
  type Visits,
} from '../../stored/known.ts';
import { OnlyGroups } from './only-groups.ts';
import { rememberingUuidBytes, uuidBytes } from './uuids.ts';
import { WaitingNodes } from './waiting-nodes.ts';

const WAITING_NODES_MAX = 100_000;
/** Of what waiting nodes know: ordinary people fit, a few that know megabytes each do not. */
const WAITING_BYTES_MAX = 32 * 1024 * 1024;

export class StoreNodes {
  readonly #insert: StatementSync;
  readonly #select: StatementSync;
  readonly #count: StatementSync;
  readonly #update: StatementSync;
  readonly #traceBytes = rememberingUuidBytes();
  readonly #onlyGroups = new OnlyGroups();
  readonly #waiting = new WaitingNodes();

  constructor(database: DatabaseSync) {
    this.#insert = database.prepare('INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)');
    this.#select = database.prepare('SELECT known FROM nodes WHERE no = ?');
    const sums = 'events = events + ?, first_seen = min(first_seen, ?), last_seen = max(last_seen, ?)';
    this.#count = database.prepare(`UPDATE nodes SET ${sums} WHERE no = ?`);
    this.#update = database.prepare(`UPDATE nodes SET ${sums}, known = CAST(? AS TEXT) WHERE no = ?`);
  }

  forget(): void {
    this.#waiting.clear();
    this.#onlyGroups.forget();
  }

  write(tenant: { readonly no: number; readonly id: TenantId }, created: readonly NewNode[], visits: Visits): void {
    for (const { node, origin } of created) {
      this.#create(tenant, node, origin, visits.get(node) ?? []);
      visits.delete(node);
    }
    for (const [node, ofNode] of visits) this.#tell(node, ofNode);
    if (this.#waiting.count >= WAITING_NODES_MAX || this.#waiting.textBytes >= WAITING_BYTES_MAX) this.flush();
  }

  /** To be called before the transaction is committed. */
  flush(): void {
    for (const { node, events, first, last, known } of this.#waiting.taken()) {
      const { changes } =
        known === undefined
          ? this.#count.run(events, first, last, node)
          : this.#update.run(events, first, last, known, node);
      if (Number(changes) !== 1) throw new Error(`node ${node} is not in the store`);
    }
  }

  #create(
    tenant: { readonly no: number; readonly id: TenantId },
    node: NodeNumber,
    origin: Origin,
    visits: UserToStore | readonly UserToStore[],
  ): void {
    const { receivedAt, traceId, userIndex } = origin;
    const { events, first, last } = sumOf(visits);
    this.#insert.run(
      node,
      tenant.no,
      uuidBytes(nodeIdOf(tenant.id, origin)),
      receivedAt,
      this.#traceBytes(traceId),
      userIndex,
      events,
      Math.min(receivedAt, first),
      Math.max(receivedAt, last),
      isList(visits) ? this.#fold(node, NOTHING_KNOWN, visits) : this.#first(node, visits),
    );
  }

  #tell(node: NodeNumber, visits: UserToStore | readonly UserToStore[]): void {
    this.#waiting.add(node, { ...sumOf(visits), known: this.#knownAfter(node, visits) });
  }

  /** Undefined: what it knew before. */
  #knownAfter(node: NodeNumber, visits: UserToStore | readonly UserToStore[]): string | null | undefined {
    if (isList(visits)) return this.#fold(node, this.#known(node), visits);
    const { origin, statement } = visits;
    if (statement === null) return undefined;
    if (this.#onlyGroups.replace(node, origin.receivedAt, statement.names)) return groupsText(origin, statement);
    return this.#fold(node, this.#known(node), [visits]);
  }

  /** What a new node knows. */
  #first(node: NodeNumber, { origin, statement }: UserToStore): string | null {
    if (statement === null) return null;
    const { names } = statement;
    this.#onlyGroups.set(node, origin.receivedAt, names);
    return groupsText(origin, statement);
  }

  #known(node: NodeNumber): readonly Group[] {
    const waiting = this.#waiting.knownOf(node);
    const known = waiting === undefined ? (this.#select.get(node)?.known as string | null | undefined) : waiting;
    return groupsIn(known);
  }

  #fold(node: NodeNumber, before: readonly Group[], visits: readonly UserToStore[]): string | null {
    const groups = foldedGroups(before, visits);
    this.#remember(node, groups);
    return boundedText(groups);
  }

  #remember(node: NodeNumber, groups: readonly Group[]): void {
    const only = groups[0];
    if (only !== undefined && groups.length === 1) this.#onlyGroups.set(node, only[0], namesOf(only[3], only[4]));
    else this.#onlyGroups.remove(node);
  }
}

/** As `StatementToStore.names`. */
function namesOf(fields: Values, properties: Values): string {
  let names = '';
  for (const name in fields) names += `${name}\0`;
  names += '\0';
  for (const name in properties) names += `${name}\0`;
  return names;
}
