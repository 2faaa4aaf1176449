/**
 * Whatever is said of nodes, in whatever order, by way of runs, slices or straight to the rows: what is known of each is
 * what all statements give when they are folded in one go.
 */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, suite, test } from 'node:test';
import * as fc from 'fast-check';
import { StoreConnection } from '../../../src/backends/sqlite/store-connection.ts';
import { hashesOf } from '../../../src/backends/sqlite/store-match-keys.ts';
import { StoreNodes, type ToldSizes } from '../../../src/backends/sqlite/store-nodes.ts';
import { openStoreFile } from '../../../src/backends/sqlite/store-schema.ts';
import { removeTold, type ToldColumns, toldOf, withTold } from '../../../src/backends/sqlite/told-runs.ts';
import type { NewNode } from '../../../src/identity/graph.ts';
import type { Group } from '../../../src/identity/statements.ts';
import type { EventToStore, StatementToStore, UserToStore } from '../../../src/store-writer.ts';
import { addVisit, boundedText, foldedGroups, NOTHING_KNOWN, sumOf, type Visits } from '../../../src/stored/known.ts';
import { saidNames } from '../../../src/stored/said-names.ts';
import { traceIdOf } from '../../processor/history.ts';
import { removeFolder, temporaryFolder } from '../../server.ts';

/** Few, so that what is done to one of them soon meets what was done before. */
const NODES = [1, 2, 3, 4];
const TENANT = { no: 1, id: 'acct_test/development' } as const;
const START = 1_000;
const EVENT: EventToStore = {
  ...{ eventIndex: 0, name: 'e', timestamp: 0, revenue: null, currency: '', value: null, properties: '{}' },
};

/** So much that a chunk has no room for others. */
const LONG = 'x'.repeat(7_000);

type Names = readonly [fields: readonly string[], properties: readonly string[]];

const PLAN: Names = [[], ['plan']];
const CITY: Names = [[], ['city']];
const BOTH: Names = [[], ['plan', 'city']];
const OTHERS: readonly Names[] = [
  [[], []],
  [[], ['city', 'plan']],
  [['plan'], []],
  [['plan'], ['city']],
  [[''], []],
  [[], ['']],
  [[], ['__proto__', 'quo"te\\']],
  [[], ['7', 'é', 'a,b]}']],
];

interface NodeRow {
  readonly no: number;
  readonly said_at: number | null;
  readonly names: number | null;
}

interface Visit {
  readonly node: number;
  readonly names: Names;
  /** How long before the newest; below 0 it becomes the newest. */
  readonly late: number;
  readonly trace: number;
  readonly value: unknown;
}

type Step =
  | { readonly kind: 'write' | 'other'; readonly visits: readonly Visit[] }
  | { readonly kind: 'flush' | 'commit' | 'rollback' | 'reopen' | 'catchUp' }
  | { readonly kind: 'erase'; readonly node: number };

const visit: fc.Arbitrary<Visit> = fc.record({
  node: fc.constantFrom(...NODES),
  // Mostly the same: those may take the place of each other.
  names: fc.oneof({ weight: 4, arbitrary: fc.constantFrom(PLAN, PLAN, CITY, BOTH) }, fc.constantFrom(...OTHERS)),
  late: fc.oneof({ weight: 4, arbitrary: fc.constant(-1) }, fc.nat(4)),
  trace: fc.nat(9),
  value: fc.oneof(fc.nat(9), fc.constantFrom(null, 'x"]}', { plan: [1, { city: null }] }, LONG)),
});
const visits = fc.oneof(
  fc.array(visit, { minLength: 1, maxLength: 2 }),
  fc.uniqueArray(visit, { selector: ({ node }) => node, minLength: 2 }),
);
const steps: fc.Arbitrary<Step> = fc.oneof(
  { weight: 20, arbitrary: fc.record({ kind: fc.constant('write'), visits }) },
  { weight: 16, arbitrary: fc.record({ kind: fc.constant('commit') }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constantFrom('flush', 'catchUp') }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom('rollback', 'reopen') }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('other'), visits }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('erase'), node: fc.constantFrom(...NODES) }) },
);
const sizes: fc.Arbitrary<ToldSizes> = fc.record({
  runNodesMin: fc.constantFrom(1, 2, 2, 2, 3),
  sliceNodesMax: fc.constantFrom(1, 1, 1, 2, 3),
});

function object(names: readonly string[], value: unknown): string {
  return JSON.stringify(Object.fromEntries(names.map((name) => [name, value])));
}

/** As it is prepared (processor/prepare.ts). */
function statementOf({ names, value }: Visit): StatementToStore | null {
  const [fieldNames, propertyNames] = names;
  const fields = value === null ? '{}' : object(fieldNames, value);
  const properties = object(propertyNames, value);
  const listed = (text: string): string => {
    let all = '';
    for (const name in JSON.parse(text) as object) all += `${name}\0`;
    return all;
  };
  if (fields === '{}' && properties === '{}') return null;
  return { names: saidNames(listed(fields), listed(properties)), fields, properties, isCut: false };
}

const folder = temporaryFolder();
const database = openStoreFile(join(folder, 'store.db'), 'writer');
const connection = new StoreConnection(database);
const hashOf = hashesOf(database);
database.exec('PRAGMA synchronous = OFF');

/** The nodes of a store, and all that was said of them. */
class Told {
  readonly #sizes: ToldSizes;
  #nodes: StoreNodes;
  #now = START;
  #users = 0;
  #said = new Map<number, UserToStore[]>();
  #committed = new Map<number, UserToStore[]>();

  constructor(toldSizes: ToldSizes) {
    database.exec('DELETE FROM nodes; DELETE FROM told; DELETE FROM told_runs');
    this.#sizes = toldSizes;
    this.#nodes = new StoreNodes(database, hashOf, toldSizes);
  }

  take(step: Step): void {
    if (step.kind === 'write') this.#write(step.visits);
    else if (step.kind === 'rollback') this.#rollBack();
    else if (step.kind === 'flush') this.#flush();
    else if (step.kind === 'catchUp') this.#catchUp();
    else {
      this.#commit();
      if (step.kind === 'reopen') this.#nodes = new StoreNodes(database, hashOf, this.#sizes);
      else if (step.kind === 'erase') this.#erase(step.node);
      else if (step.kind === 'other') this.#letOtherWrite(step.visits);
    }
  }

  /** All of it into the rows. */
  settle(): void {
    this.#commit();
    for (let pieces = 0; this.#nodes.isBehind; pieces += 1) {
      assert.ok(pieces < 200, 'what is told never comes to an end');
      this.#catchUp();
      this.#commit();
    }
    assert.deepEqual(this.#rows(false), this.#expected());
  }

  #write(all: readonly Visit[], nodes = this.#nodes): void {
    this.#begin();
    const ofNodes: Visits = new Map();
    const created: NewNode[] = [];
    for (const visit of all) {
      const user = this.#userOf(visit);
      const { node, origin } = user;
      const before = this.#said.get(visit.node);
      if (before === undefined) created.push({ node, origin });
      this.#said.set(node, [...(before ?? []), user]);
      addVisit(ofNodes, node, user);
    }
    nodes.write(TENANT, created, ofNodes);
  }

  #userOf(visit: Visit): UserToStore & { node: number } {
    this.#users += 1;
    const { node, late, trace } = visit;
    if (late < 0) this.#now += 1;
    const receivedAt = this.#now - Math.max(0, late);
    const origin = { receivedAt, traceId: traceIdOf(receivedAt, trace * 10_000 + this.#users), userIndex: 0 };
    return { origin, node, events: [EVENT], statement: statementOf(visit) };
  }

  #begin(): void {
    if (!database.isTransaction) database.exec('BEGIN');
  }

  #flush(): void {
    this.#begin();
    this.#nodes.flush();
    assert.deepEqual(this.#rows(true), this.#expected());
  }

  #commit(): void {
    this.#flush();
    database.exec('COMMIT');
    this.#committed = new Map(this.#said);
  }

  #rollBack(): void {
    if (database.isTransaction) database.exec('ROLLBACK');
    this.#nodes.forget();
    this.#said = new Map(this.#committed);
    assert.deepEqual(this.#rows(true), this.#expected());
  }

  /** Perhaps while something waits. */
  #catchUp(): void {
    this.#begin();
    this.#nodes.catchUp();
  }

  /** By somebody else, whose writing the processor notices, and forgets what it knew. */
  #erase(node: number): void {
    removeTold(connection, node);
    connection.run('DELETE FROM nodes WHERE no = ?', node);
    this.#nodes.forget();
    this.#said.delete(node);
    this.#committed.delete(node);
  }

  /** Another processor, whose writing is noticed as well. */
  #letOtherWrite(all: readonly Visit[]): void {
    const other = new StoreNodes(database, hashOf, this.#sizes);
    this.#write(all, other);
    other.flush();
    this.#nodes.forget();
    this.#commit();
  }

  #rows(withRuns: boolean): unknown[] {
    const rows = connection.all<ToldColumns & NodeRow>('SELECT * FROM nodes ORDER BY no');
    return rows.map((row) => {
      if (row.names !== null) {
        const groups = JSON.parse(row.known ?? 'null') as readonly Group[];
        assert.deepEqual([groups.length, groups[0]?.[0]], [1, row.said_at], 'a row with names is of one group');
      }
      const { no, events, first_seen, last_seen, known } = withRuns ? withTold(row, toldOf(connection, row.no)) : row;
      return [no, events, first_seen, last_seen, known];
    });
  }

  #expected(): unknown[] {
    const all = [...this.#said].sort(([a], [b]) => a - b);
    return all.map(([node, users]) => {
      const { events, first, last } = sumOf(users);
      return [node, events, first, last, boundedText(foldedGroups(NOTHING_KNOWN, users))];
    });
  }
}

const COMMIT = { kind: 'commit' } as const;
const REOPEN = { kind: 'reopen' } as const;

/** A transaction that says this of these nodes, newer than anything before. */
function say(names: Names, nodes: readonly number[], value: unknown = 1): Step[] {
  return [{ kind: 'write', visits: nodes.map((node) => ({ node, names, late: -1, trace: 0, value })) }, COMMIT];
}

function check(toldSizes: ToldSizes, all: readonly Step[]): void {
  const told = new Told(toldSizes);
  try {
    for (const step of all) told.take(step);
    told.settle();
  } finally {
    if (database.isTransaction) database.exec('ROLLBACK');
  }
}

suite('What is known of nodes', () => {
  const everybody = [1, 2, 3, 4, 5, 6];
  const toldSizes = { runNodesMin: 2, sliceNodesMax: 1 };

  after(() => {
    database.close();
    removeFolder(folder);
  });

  test('is what all that was said of them gives, at every moment, and in the rows in the end', () => {
    fc.assert(fc.property(sizes, fc.array(steps, { minLength: 20, maxLength: 80 }), check), { numRuns: 250 });
  });

  test('is not thought to be one group because the row has one, when a run tells of another', () => {
    check(toldSizes, [
      ...say(PLAN, everybody),
      REOPEN,
      ...say(CITY, everybody),
      ...say(PLAN, [6]),
      ...say(PLAN, [5, 6]),
    ]);
  });

  test('is not what a run told as all that there was, when the row was written to since', () => {
    const since = [...say(PLAN, everybody), ...say(PLAN, everybody), ...say(CITY, [6])];
    check(toldSizes, since);
    check(toldSizes, [...since, ...say(PLAN, [1, 2])]);
    check(toldSizes, [...since, REOPEN]);
  });

  test('is not thought to be one group while the newest run has another, in a chunk that begins before the slice', () => {
    const untilNode5 = [...say(PLAN, everybody, LONG), COMMIT, COMMIT, COMMIT];
    check(toldSizes, [...say(PLAN, everybody), REOPEN, ...untilNode5, ...say(CITY, [1, 5]), ...say(PLAN, [5, 6])]);
  });

  for (const last of [5, 6]) {
    test(`is brought into the rows by all runs together, though node ${last} is in chunks that begin elsewhere`, () => {
      check(toldSizes, [
        ...say(PLAN, everybody),
        // A chunk each; every transaction takes one of them.
        ...say(PLAN, [1, 2, 3, 4], LONG),
        ...say(PLAN, [1, last]),
        ...say(CITY, [5, 6]),
        COMMIT,
        COMMIT,
      ]);
    });
  }
});
