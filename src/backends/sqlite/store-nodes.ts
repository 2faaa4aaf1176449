/**
 * Writes what a transaction tells of nodes: how many events, when first and last seen, and the statements, folded into
 * what was known (identity/statements.ts). New nodes are written at once. Of others it waits until the commit, up to
 * `WAITING_NODES_MAX` and `WAITING_BYTES_MAX`, and is written in the order of their numbers: each node once, and
 * neighbours, which share a page, one after the other. Where there are many of them it is not written to their rows but
 * beside them (told-runs.ts), and a slice of all rows is brought up to date.
 *
 * Most statements say the same names as the one before them. Where a row knows just one group, `names` says which names it
 * has (names.ts), and `said_at` when: a newer group of the same names takes its place without being compared with it.
 */

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { NewNode } from '../../identity/graph.ts';
import { nodeIdOf } from '../../identity/node-id.ts';
import { compareOrigins } from '../../identity/origin.ts';
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
import type { HashOfKey } from '../../stored/keyed-hash.ts';
import { NumberedNames } from './names.ts';
import { NODES_PER_BLOCK } from './store-schema.ts';
import { NO_NAMES, type TakeTold, textOf } from './told-chunks.ts';
import { RUN_NODES, ToldRuns } from './told-runs.ts';
import { rememberingUuidBytes, uuidBytes } from './uuids.ts';
import { type Said, WaitingNodes } from './waiting-nodes.ts';

const WAITING_NODES_MAX = 100_000;
/** Of what was said of waiting nodes: ordinary people fit, a few that know megabytes each do not. */
const WAITING_BYTES_MAX = 32 * 1024 * 1024;

export interface ToldSizes {
  /** Fewer nodes than this are brought up to date at once: that is no load. */
  readonly runNodesMin?: number;
  /** The most that is brought up to date with a transaction. */
  readonly sliceNodesMax?: number;
}

const RUN_NODES_MIN = 2_048;
/** After so many runs, all nodes are up to date by each of them. */
const SLICES = 48;
const SLICE_NODES_MAX = 200_000;
/** With a transaction that writes no run; and with one that has nothing else to do, for about a tenth of a second. */
const SMALL_SLICE_NODES = 1_024;
const IDLE_SLICE_NODES = 16_384;

export class StoreNodes {
  readonly #insert: StatementSync;
  readonly #insertBlock: StatementSync;
  readonly #select: StatementSync;
  readonly #count: StatementSync;
  readonly #replace: StatementSync;
  readonly #update: StatementSync;
  readonly #traceBytes = rememberingUuidBytes();
  readonly #names: NumberedNames;
  readonly #waiting = new WaitingNodes();
  readonly #told: ToldRuns;
  /** Those of a slice, as all runs tell of them. */
  readonly #slice = new WaitingNodes();
  /** The block that was written last. */
  #blockTenant = -1;
  #block = -1;
  readonly #runNodesMin: number;
  readonly #sliceNodesMax: number;

  constructor(database: DatabaseSync, hashOf: HashOfKey, sizes: ToldSizes = {}) {
    this.#names = new NumberedNames(hashOf);
    this.#insert = database.prepare('INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)');
    this.#insertBlock = database.prepare('INSERT INTO node_blocks VALUES (?, ?) ON CONFLICT DO NOTHING');
    this.#select = database.prepare('SELECT known FROM nodes WHERE no = ?');
    const sums = 'events = events + ?, first_seen = min(first_seen, ?), last_seen = max(last_seen, ?)';
    this.#count = database.prepare(`UPDATE nodes SET ${sums} WHERE no = ?`);
    const known = 'known = CAST(? AS TEXT), said_at = ?';
    this.#replace = database.prepare(`UPDATE nodes SET ${sums}, ${known} WHERE no = ? AND names = ? AND said_at < ?`);
    this.#update = database.prepare(`UPDATE nodes SET ${sums}, ${known}, names = ? WHERE no = ?`);
    this.#told = new ToldRuns(database);
    this.#runNodesMin = sizes.runNodesMin ?? RUN_NODES_MIN;
    this.#sliceNodesMax = sizes.sliceNodesMax ?? SLICE_NODES_MAX;
  }

  forget(): void {
    this.#waiting.clear();
    this.#slice.clear();
    this.#told.forget();
    this.#blockTenant = -1;
  }

  write(tenant: { readonly no: number; readonly id: TenantId }, created: readonly NewNode[], visits: Visits): void {
    for (const { node, origin } of created) {
      this.#addBlock(tenant.no, Math.floor(node / NODES_PER_BLOCK));
      this.#create(tenant, node, origin, visits.get(node) ?? []);
      visits.delete(node);
    }
    for (const [node, ofNode] of visits) this.#waiting.add(node, sumOf(ofNode), this.#said(ofNode));
    if (this.#waiting.count >= WAITING_NODES_MAX || this.#waiting.textBytes >= WAITING_BYTES_MAX) this.flush();
  }

  /** To be called before the transaction is committed. */
  flush(): void {
    const { count, highest } = this.#waiting;
    const isRun = count >= this.#runNodesMin && highest < RUN_NODES;
    if (isRun) this.#told.write(this.#waiting.takeAll);
    else this.#settle(this.#waiting);
    this.#bringUpToDate(isRun ? this.#sliceFor(highest) : SMALL_SLICE_NODES);
  }

  /** Older runs may tell of higher nodes: with too many runs, it is as much as may be. */
  #sliceFor(highest: NodeNumber): number {
    if (this.#told.count > 2 * SLICES) return this.#sliceNodesMax;
    return Math.max(SMALL_SLICE_NODES, Math.ceil(highest / SLICES));
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
    this.#told.takeSlice(Math.min(nodes, this.#sliceNodesMax), this.#slice.addTold);
    this.#settle(this.#slice);
  }

  /** Brings the rows of nodes up to date. */
  #settle(nodes: WaitingNodes): void {
    nodes.takeAll(this.#settleOne);
  }

  readonly #settleOne: TakeTold = (node, events, first, last, known, names, saidAt) => {
    if (known === undefined) {
      expectOne(node, this.#count.run(events, first, last, node));
      return;
    }
    if (names !== NO_NAMES) {
      const { changes } = this.#replace.run(events, first, last, known, saidAt, node, names, saidAt);
      if (changes === 1) return;
    }
    const after = this.#after(node, { text: textOf(known), names, saidAt });
    expectOne(node, this.#update.run(events, first, last, after.text, ...columnsOf(after), node));
  };

  /** What a node knows when this was said. */
  #after(node: NodeNumber, said: Said): Said {
    const before = this.#select.get(node)?.known as string | null | undefined;
    if (typeof before !== 'string') return said;
    const newer = newerOfSameNames(before, said.text);
    if (newer === said.text) return said;
    // Both are one group of the same names.
    if (newer !== null) return { text: newer, names: said.names, saidAt: receivedAtOf(newer) };
    const text = mergedKnown(before, said.text);
    return text === said.text ? said : { text, names: NO_NAMES, saidAt: 0 };
  }

  /** Nodes come in the order of their numbers, so this writes a row for every thousandth of them. */
  #addBlock(tenant: number, block: number): void {
    if (tenant === this.#blockTenant && block === this.#block) return;
    this.#insertBlock.run(tenant, block);
    this.#blockTenant = tenant;
    this.#block = block;
  }

  #create(
    tenant: { readonly no: number; readonly id: TenantId },
    node: NodeNumber,
    origin: Origin,
    visits: UserToStore | readonly UserToStore[],
  ): void {
    const { receivedAt, traceId, userIndex } = origin;
    const { events, first, last } = sumOf(visits);
    const said = this.#said(visits);
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
      said === null ? null : said.text,
      ...columnsOf(said),
    );
  }

  #said(visits: UserToStore | readonly UserToStore[]): Said | null {
    if (isList(visits)) {
      const newest = newestOfSameNames(visits);
      if (newest === null) return saidTogether(visits);
      return this.#said(newest);
    }
    const { origin, statement } = visits;
    if (statement === null) return null;
    const { receivedAt } = origin;
    return { text: groupsText(origin, statement), names: this.#names.numberOf(statement.names), saidAt: receivedAt };
  }
}

/** Null where they say nothing, or something of different names. */
function newestOfSameNames(visits: readonly UserToStore[]): UserToStore | null {
  let newest: UserToStore | null = null;
  for (const visit of visits) {
    if (visit.statement === null) continue;
    if (newest !== null && visit.statement.names !== newest.statement?.names) return null;
    if (newest === null || compareOrigins(newest.origin, visit.origin) < 0) newest = visit;
  }
  return newest;
}

function saidTogether(visits: readonly UserToStore[]): Said | null {
  const text = boundedText(foldedGroups(NOTHING_KNOWN, visits));
  return text === null ? null : { text, names: NO_NAMES, saidAt: 0 };
}

/** As `said_at` and `names` are stored. */
function columnsOf(said: Said | null): [number | null, number | null] {
  return said === null || said.names === NO_NAMES ? [null, null] : [said.saidAt, said.names];
}

function expectOne(node: NodeNumber, { changes }: { readonly changes: number | bigint }): void {
  if (changes !== 1) throw new Error(`node ${node} is not in the store`);
}

/** Of the first group. */
function receivedAtOf(known: string): number {
  return Number(known.slice(2, known.indexOf(',')));
}
