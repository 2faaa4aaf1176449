/**
 * Writes what a transaction tells of nodes: how many events, when first and last seen, and the statements, folded into
 * what was known (identity/statements.ts). New nodes are written at once. Of others it waits until the commit, up to
 * `WAITING_NODES_MAX` and `WAITING_BYTES_MAX`, and is written in the order of their numbers: each node once, and
 * neighbours, which share a page, one after the other. Where it is about few of many nodes it is not written to their rows
 * but beside them (told-runs.ts), and a slice of all rows is brought up to date.
 *
 * Most statements say the same names as the one before them. Where it is remembered that a node knows just one group,
 * of the same names and older, the new group takes its place without the old one being read.
 */

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { NewNode } from '../../identity/graph.ts';
import { nodeIdOf } from '../../identity/node-id.ts';
import type { NodeNumber, Origin, TenantId } from '../../model.ts';
import type { UserToStore } from '../../store-writer.ts';
import {
  boundedText,
  foldedGroups,
  groupsText,
  isList,
  NOTHING_KNOWN,
  sumOf,
  type Visits,
} from '../../stored/known.ts';
import { mergedKnown, newerOfSameNames } from '../../stored/merged-known.ts';
import { OnlyGroups } from './only-groups.ts';
import { rememberingUuidBytes, uuidBytes } from './uuids.ts';
import { textOf } from './told-chunks.ts';
import { RUN_NODES, ToldRuns } from './told-runs.ts';
import { NO_MARK, type Said, WaitingNodes } from './waiting-nodes.ts';

const WAITING_NODES_MAX = 100_000;
/** Of what was said of waiting nodes: ordinary people fit, a few that know megabytes each do not. */
const WAITING_BYTES_MAX = 32 * 1024 * 1024;

export interface ToldSizes {
  /** Fewer nodes than this are brought up to date at once: that is no load. */
  readonly runNodesMin?: number;
  /** So are those of a transaction that touches one in fewer than this: several of them share a page. */
  readonly sparseFrom?: number;
  /** The most that is brought up to date with a transaction. */
  readonly sliceNodesMax?: number;
}

const RUN_NODES_MIN = 2_048;
const SPARSE_FROM = 3;
/** After so many runs, all nodes are up to date by each of them. */
const SLICES = 24;
const SLICE_NODES_MAX = 200_000;
/** With a transaction that writes no run; and with one that has nothing else to do, for about a tenth of a second. */
const SMALL_SLICE_NODES = 1_024;
const IDLE_SLICE_NODES = 16_384;

export class StoreNodes {
  readonly #insert: StatementSync;
  readonly #select: StatementSync;
  readonly #count: StatementSync;
  readonly #update: StatementSync;
  readonly #traceBytes = rememberingUuidBytes();
  readonly #onlyGroups = new OnlyGroups();
  readonly #waiting = new WaitingNodes();
  readonly #told: ToldRuns;
  /** Those of a slice, as all runs tell of them. */
  readonly #slice = new WaitingNodes();
  readonly #runNodesMin: number;
  readonly #sparseFrom: number;
  readonly #sliceNodesMax: number;

  constructor(database: DatabaseSync, sizes: ToldSizes = {}) {
    this.#insert = database.prepare('INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)');
    this.#select = database.prepare('SELECT known FROM nodes WHERE no = ?');
    const sums = 'events = events + ?, first_seen = min(first_seen, ?), last_seen = max(last_seen, ?)';
    this.#count = database.prepare(`UPDATE nodes SET ${sums} WHERE no = ?`);
    this.#update = database.prepare(`UPDATE nodes SET ${sums}, known = CAST(? AS TEXT) WHERE no = ?`);
    this.#told = new ToldRuns(database);
    this.#runNodesMin = sizes.runNodesMin ?? RUN_NODES_MIN;
    this.#sparseFrom = sizes.sparseFrom ?? SPARSE_FROM;
    this.#sliceNodesMax = sizes.sliceNodesMax ?? SLICE_NODES_MAX;
  }

  forget(): void {
    this.#waiting.clear();
    this.#slice.clear();
    this.#told.forget();
    this.#onlyGroups.forget();
  }

  write(tenant: { readonly no: number; readonly id: TenantId }, created: readonly NewNode[], visits: Visits): void {
    for (const { node, origin } of created) {
      this.#create(tenant, node, origin, visits.get(node) ?? []);
      visits.delete(node);
    }
    for (const [node, ofNode] of visits) this.#waiting.add(node, sumOf(ofNode), this.#said(node, ofNode));
    if (this.#waiting.count >= WAITING_NODES_MAX || this.#waiting.textBytes >= WAITING_BYTES_MAX) this.flush();
  }

  /** To be called before the transaction is committed. */
  flush(): void {
    const { count, highest } = this.#waiting;
    const isSparse = count >= this.#runNodesMin && highest >= count * this.#sparseFrom && highest < RUN_NODES;
    if (isSparse) this.#told.write(this.#waiting.taken());
    else this.#settle(this.#waiting);
    this.#bringUpToDate(isSparse ? Math.ceil(highest / SLICES) : SMALL_SLICE_NODES);
  }

  /** Whether some rows are not up to date. */
  get isBehind(): boolean {
    return !this.#told.isEmpty;
  }

  /** Brings some rows up to date, when there is nothing else to do. */
  catchUp(): void {
    this.#bringUpToDate(IDLE_SLICE_NODES);
  }

  #bringUpToDate(nodes: number): void {
    this.#told.takeSlice(Math.min(nodes, this.#sliceNodesMax), (told) => this.#slice.addTold(told));
    this.#settle(this.#slice);
  }

  /** Brings the rows of nodes up to date. */
  #settle(nodes: WaitingNodes): void {
    for (const { node, events, first, last, known, isWhole, mark } of nodes.taken()) {
      const { changes } =
        known === undefined
          ? this.#count.run(events, first, last, node)
          : this.#update.run(events, first, last, isWhole ? known : this.#after(node, textOf(known), mark), node);
      if (Number(changes) !== 1) throw new Error(`node ${node} is not in the store`);
    }
  }

  /** What a node knows when this was said. */
  #after(node: NodeNumber, said: string, mark: number): string {
    const before = this.#select.get(node)?.known as string | null | undefined;
    const newer = typeof before === 'string' ? newerOfSameNames(before, said) : said;
    // What was remembered of the row is of the row as it was.
    this.#onlyGroups.remove(node);
    if (newer === said) this.#onlyGroups.setMarked(node, receivedAtOf(said), mark);
    return newer ?? mergedKnown(before ?? said, said);
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
      isList(visits) ? saidTogether(visits) : this.#first(node, visits),
    );
  }

  #said(node: NodeNumber, visits: UserToStore | readonly UserToStore[]): Said | null {
    if (isList(visits)) {
      const text = saidTogether(visits);
      if (text === null) return null;
      this.#onlyGroups.remove(node);
      return { text, isWhole: false, mark: NO_MARK };
    }
    const { origin, statement } = visits;
    if (statement === null) return null;
    const text = groupsText(origin, statement);
    if (this.#onlyGroups.replace(node, origin.receivedAt, statement.names)) {
      return { text, isWhole: true, mark: NO_MARK };
    }
    this.#onlyGroups.remove(node);
    return { text, isWhole: false, mark: this.#onlyGroups.markOf(statement.names) };
  }

  /** What a new node knows. */
  #first(node: NodeNumber, { origin, statement }: UserToStore): string | null {
    if (statement === null) return null;
    const { names } = statement;
    this.#onlyGroups.set(node, origin.receivedAt, names);
    return groupsText(origin, statement);
  }
}

function saidTogether(visits: readonly UserToStore[]): string | null {
  return boundedText(foldedGroups(NOTHING_KNOWN, visits));
}

/** Of the first group. */
function receivedAtOf(known: string): number {
  return Number(known.slice(2, known.indexOf(',')));
}
