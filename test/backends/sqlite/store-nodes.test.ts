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

const NODES = [1, 2, 3, 4, 5, 2_000_001, 2_000_002];
const TENANT = { no: 1, id: 'acct_test/development' } as const;
const START = 1_000;
const EVENT: EventToStore = { eventIndex: 0, name: 'e', timestamp: 0, revenue: null, value: null, properties: '{}' };

/** Many are of the same names: those are what may take the place of each other. */
const NAMES: readonly (readonly [fields: readonly string[], properties: readonly string[]])[] = [
  [[], ['plan']],
  [[], ['plan']],
  [[], ['city']],
  [[], ['plan', 'city']],
  [[], ['city', 'plan']],
  [['plan'], []],
  [['plan'], ['city']],
  [[''], []],
  [[], ['']],
  [[], ['__proto__', 'quo"te\\']],
  [[], ['7', 'é', 'a,b]}']],
  [[], []],
];

interface NodeRow {
  readonly no: number;
  readonly said_at: number | null;
  readonly names: number | null;
}

interface Visit {
  readonly node: number;
  readonly names: number;
  /** How long before the newest; below 0 it becomes the newest. */
  readonly late: number;
  readonly trace: number;
  readonly value: unknown;
}

type Step =
  | { readonly kind: 'write'; readonly visits: readonly Visit[] }
  | { readonly kind: 'flush' | 'commit' | 'rollback' | 'reopen' | 'catchUp' }
  | { readonly kind: 'erase'; readonly node: number };

const visits: fc.Arbitrary<Visit> = fc.record({
  node: fc.constantFrom(...NODES),
  names: fc.oneof({ weight: 3, arbitrary: fc.constant(0) }, fc.nat(NAMES.length - 1)),
  late: fc.oneof({ weight: 5, arbitrary: fc.constant(-1) }, fc.nat(4)),
  trace: fc.nat(9),
  value: fc.oneof(fc.nat(9), fc.constantFrom(null, 'x"]}', { plan: [1, { city: null }] })),
});
const steps: fc.Arbitrary<Step> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('write'), visits: fc.array(visits, { maxLength: 4 }) }) },
  { weight: 8, arbitrary: fc.record({ kind: fc.constantFrom('commit', 'commit', 'commit', 'flush', 'catchUp') }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom('rollback', 'reopen') }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('erase'), node: fc.constantFrom(...NODES) }) },
);
const sizes: fc.Arbitrary<ToldSizes> = fc.record({
  runNodesMin: fc.integer({ min: 1, max: 3 }),
  sliceNodesMax: fc.constantFrom(1, 1, 2, 3, 10),
});

function object(names: readonly string[], value: unknown): string {
  return JSON.stringify(Object.fromEntries(names.map((name) => [name, value])));
}

/** As it is prepared (processor/prepare.ts). */
function statementOf({ names, value }: Visit): StatementToStore | null {
  const [fieldNames, propertyNames] = NAMES[names] ?? [[], []];
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

  #write(all: readonly Visit[]): void {
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
    this.#nodes.write(TENANT, created, ofNodes);
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

suite('What is known of nodes', () => {
  after(() => {
    database.close();
    removeFolder(folder);
  });

  test('is what all that was said of them gives, at every moment, and in the rows in the end', () => {
    fc.assert(
      fc.property(sizes, fc.array(steps, { minLength: 5, maxLength: 40 }), (toldSizes, all) => {
        const told = new Told(toldSizes);
        try {
          for (const step of all) told.take(step);
          told.settle();
        } finally {
          if (database.isTransaction) database.exec('ROLLBACK');
        }
      }),
      { numRuns: Number(process.env['NODE_HISTORIES'] ?? 400) },
    );
  });
});
