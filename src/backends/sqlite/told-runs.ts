/**
 * What was told of nodes and is not in their rows yet, in the table `told`. Where a transaction touches few of many
 * nodes, each of their rows would be a page of its own to be read and written twice; so what it tells of them is written
 * as one run, in the order of their numbers and packed in chunks (told-chunks.ts), and with every run a slice of the nodes is brought up
 * to date by all runs together, many nodes a page. A run is gone when the slices have gone round once.
 *
 * Whoever reads a node adds what the runs tell of it (`toldOf`). The order in which parts are put together does not matter, but for
 * people of whom so much is known that some of it is cut off (stored/known.ts).
 */

import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { NodeNumber } from '../../model.ts';
import { mergedKnown } from '../../stored/merged-known.ts';
import type { StoreConnection } from './store-connection.ts';
import { type Chunk, findTold, type TakeTold, type Told, textOf, ToldChunkWriter, unpackTold } from './told-chunks.ts';

/** A chunk's number is that of its run times this, and its first node. Nodes beyond it are brought up to date at once. */
export const RUN_NODES = 10_000_000_000;

/** Of texts, in a slice. */
const SLICE_BYTES_MAX = 32 * 1024 * 1024;

interface ChunkRow extends Chunk {
  readonly no: number;
}

/** The writer's side. Belongs to one transaction at a time. */
export class ToldRuns {
  readonly #select: StatementSync;
  readonly #insert: StatementSync;
  readonly #between: StatementSync;
  readonly #bytes: StatementSync;
  readonly #first: StatementSync;
  readonly #remove: StatementSync;
  readonly #insertRun: StatementSync;
  readonly #removeRun: StatementSync;
  /** In order; undefined when it is not known. */
  #runs: number[] | undefined;
  /** Where the next slice begins. */
  #at = 0;

  constructor(database: DatabaseSync) {
    this.#select = database.prepare('SELECT no FROM told_runs ORDER BY no');
    this.#insert = database.prepare('INSERT INTO told VALUES (?, ?, ?)');
    this.#between = database.prepare('SELECT no, numbers, texts FROM told WHERE no >= ? AND no < ?');
    // Does not read the texts.
    this.#bytes = database.prepare(
      'SELECT coalesce(sum(length(texts)), 0) AS bytes FROM told WHERE no >= ? AND no < ?',
    );
    this.#first = database.prepare('SELECT no FROM told WHERE no >= ? AND no < ? ORDER BY no LIMIT 1');
    this.#remove = database.prepare('DELETE FROM told WHERE no >= ? AND no < ?');
    this.#insertRun = database.prepare('INSERT INTO told_runs VALUES (?)');
    this.#removeRun = database.prepare('DELETE FROM told_runs WHERE no = ?');
  }

  forget(): void {
    this.#runs = undefined;
  }

  get count(): number {
    return this.#known().length;
  }

  get isEmpty(): boolean {
    return this.#known().length === 0;
  }

  /** Writes all that `giveAll` gives, in the order of their numbers. */
  write(giveAll: (take: TakeTold) => void): void {
    const runs = this.#known();
    // The lowest that is free: under load there is always a run, and numbers that only grow would pass 2^53 some day.
    let at = 0;
    while (runs[at] === at + 1) at++;
    const run = at + 1;
    this.#insertRun.run(run);
    runs.splice(at, 0, run);
    const writer = new ToldChunkWriter();
    const end = (): void => {
      const { first } = writer;
      const { numbers, texts } = writer.take();
      this.#insert.run(run * RUN_NODES + first, numbers, texts);
    };
    giveAll((node, events, first, last, known, names, saidAt) => {
      if (writer.isFullFor(known?.length ?? 0)) end();
      writer.add(node, events, first, last, known, names, saidAt);
    });
    if (!writer.isEmpty) end();
  }

  /** Gives on, and removes, what all runs tell of the next so many nodes that anything is told of. */
  takeSlice(nodes: number, take: TakeTold): void {
    const runs = this.#known();
    if (runs.length === 0) return;
    const start = this.#firstFrom(this.#at) ?? this.#firstFrom(0);
    if (start !== undefined) {
      const end = this.#endOfSlice(start, Math.min(RUN_NODES, start + nodes));
      for (const run of runs) {
        const [from, to] = [run * RUN_NODES + start, run * RUN_NODES + end];
        for (const row of this.#between.all(from, to) as unknown as ChunkRow[]) {
          unpackTold(row.no - run * RUN_NODES, row, take);
        }
        this.#remove.run(from, to);
      }
      this.#at = end;
    }
    this.#runs = runs.filter((run) => {
      if (this.#firstOf(run, 0) !== undefined) return true;
      this.#removeRun.run(run);
      return false;
    });
  }

  /** As far as what all runs tell of the slice is no more than fits in memory; one node is taken in any case. */
  #endOfSlice(start: NodeNumber, wanted: NodeNumber): NodeNumber {
    for (let end = wanted; ; end = start + Math.ceil((end - start) / 2)) {
      let bytes = 0;
      for (const run of this.#known()) {
        bytes += this.#bytes.get(run * RUN_NODES + start, run * RUN_NODES + end)?.bytes as number;
      }
      if (bytes <= SLICE_BYTES_MAX || end === start + 1) return end;
    }
  }

  #known(): number[] {
    this.#runs ??= this.#select.all().map(({ no }) => no as number);
    return this.#runs;
  }

  /** Where the first chunk from there on begins, in any run. */
  #firstFrom(node: NodeNumber): NodeNumber | undefined {
    let first: NodeNumber | undefined;
    for (const run of this.#known()) {
      const found = this.#firstOf(run, node);
      if (found !== undefined && (first === undefined || found < first)) first = found;
    }
    return first;
  }

  #firstOf(run: number, node: NodeNumber): NodeNumber | undefined {
    const row = this.#first.get(run * RUN_NODES + node, (run + 1) * RUN_NODES);
    return row === undefined ? undefined : (row.no as number) - run * RUN_NODES;
  }
}

/** What is told of a node and is not in its row yet. Nearly all chunks have nothing of it, so texts are read by themselves. */
export function toldOf(store: StoreConnection, node: NodeNumber): Told[] {
  const all: Told[] = [];
  for (const { no, first: firstNode, numbers } of chunksWith(store, node)) {
    const found = findTold(firstNode, numbers, node);
    if (found === undefined) continue;
    const { events, first, last, start, length } = found;
    const known = length < 0 ? undefined : textsOf(store, no, start, length);
    all.push({ events, first, last, known });
  }
  return all;
}

/**
 * Nodes from `from` on and below `to` of which something was said that is not in their rows yet and that may count
 * (`mayCount` of the text), in any run; null when all rows are up to date.
 */
export function toldBetween(
  store: StoreConnection,
  from: NodeNumber,
  to: NodeNumber,
  mayCount: (known: string) => boolean,
): NodeNumber[] | null {
  const runs = store.all<{ no: number }>('SELECT no FROM told_runs');
  if (runs.length === 0) return null;
  const nodes: NodeNumber[] = [];
  for (const { no: run } of runs) {
    const start = run * RUN_NODES;
    const chunks = store.all<ChunkRow>(
      `SELECT no, numbers, texts FROM told
       WHERE no >= coalesce((SELECT max(no) FROM told WHERE no >= ?1 AND no <= ?2), ?2) AND no < ?3`,
      start,
      start + from,
      start + to,
    );
    for (const chunk of chunks) {
      unpackTold(chunk.no - start, chunk, (node, _events, _first, _last, known) => {
        if (node >= from && node < to && known !== undefined && mayCount(textOf(known))) nodes.push(node);
      });
    }
  }
  return nodes;
}

function textsOf(store: StoreConnection, no: number, start: number, length: number): Uint8Array | undefined {
  const sql = 'SELECT substr(texts, ?, ?) AS texts FROM told WHERE no = ?';
  return store.get<{ texts: Uint8Array }>(sql, start + 1, length, no)?.texts;
}

/** The columns of a row of `nodes` that others are told of. */
export interface ToldColumns {
  readonly events: number;
  readonly first_seen: number;
  readonly last_seen: number;
  readonly known: string | null;
}

/** A row as it will be when it is up to date. */
export function withTold<Row extends ToldColumns>(row: Row, told: readonly Told[]): Row {
  if (told.length === 0) return row;
  let { events, first_seen, last_seen, known } = row;
  for (const { events: more, first, last, known: said } of told) {
    events += more;
    first_seen = Math.min(first_seen, first);
    last_seen = Math.max(last_seen, last);
    if (said !== undefined) known = known === null ? textOf(said) : mergedKnown(known, textOf(said));
  }
  return { ...row, events, first_seen, last_seen, known };
}

/** Of a node that is erased. */
export function removeTold(store: StoreConnection, node: NodeNumber): void {
  for (const { no, first, numbers } of chunksWith(store, node)) {
    if (findTold(first, numbers, node) === undefined) continue;
    const row = store.get<Chunk>('SELECT numbers, texts FROM told WHERE no = ?', no);
    if (row === undefined) continue;
    const writer = new ToldChunkWriter();
    unpackTold(first, row, (other, ...told) => {
      if (other !== node) writer.add(other, ...told);
    });
    store.run('DELETE FROM told WHERE no = ?', no);
    if (writer.isEmpty) continue;
    // Named by another node if its first one went.
    const name = no - first + writer.first;
    const rest = writer.take();
    store.run('INSERT INTO told VALUES (?, ?, ?)', name, rest.numbers, rest.texts);
  }
}

interface ChunkNumbers {
  readonly no: number;
  /** Its first node. */
  readonly first: NodeNumber;
  readonly numbers: Uint8Array;
}

/** The chunk of each run that may have something of this node. */
function chunksWith(store: StoreConnection, node: NodeNumber): ChunkNumbers[] {
  return store.all<ChunkNumbers>(
    `SELECT told.no, told.no - told_runs.no * ${RUN_NODES} AS first, numbers FROM told_runs JOIN told ON told.no =
       (SELECT max(no) FROM told AS other
        WHERE other.no >= told_runs.no * ${RUN_NODES} AND other.no <= told_runs.no * ${RUN_NODES} + ?)`,
    node,
  );
}
