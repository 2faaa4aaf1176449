/**
 * Whatever is set of nodes, in whatever order, by way of whichever runs and merges: what is known of each is what all
 * updates give when they are folded in one go.
 */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, suite, test } from 'node:test';
import * as fc from 'fast-check';
import {
  findState,
  NO_SHAPE,
  PROFILE_RUNS,
  stateOf,
  StoreNodes,
  subtractEvents,
} from '../../../src/backends/embedded/store/profile-runs.ts';
import { combineEntries, type Entry } from '../../../src/backends/embedded/sorted-runs/entries.ts';
import type { RunsSizes } from '../../../src/backends/embedded/sorted-runs/sorted-runs.ts';
import { StoreConnection } from '../../../src/backends/embedded/store/connection.ts';
import { openStoreFile } from '../../../src/backends/embedded/store/schema.ts';
import type { NewNode } from '../../../src/identity/graph.ts';
import type { Group } from '../../../src/identity/property-updates.ts';
import type { EventToStore, PropertyUpdateToStore, UserToStore } from '../../../src/store-writer.ts';
import {
  addVisit,
  boundedText,
  foldedGroups,
  NO_GROUPS,
  sumOf,
  type Visits,
} from '../../../src/views/node-properties.ts';
import { propertyShape } from '../../../src/processor/prepare.ts';
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
  | { readonly kind: 'flush' | 'commit' | 'rollback' | 'reopen' | 'merge' }
  | { readonly kind: 'erase' | 'expire'; readonly node: number };

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
  { weight: 3, arbitrary: fc.record({ kind: fc.constantFrom('flush', 'merge') }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom('rollback', 'reopen') }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('other'), visits }) },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constantFrom('erase', 'expire'),
      node: fc.constantFrom(...NODES),
    }),
  },
);
const sizes: fc.Arbitrary<RunsSizes> = fc.record({
  fanOut: fc.constantFrom(2, 3, 4),
  blockRows: fc.constantFrom(1, 2, 3, 128),
  blockBytes: fc.constantFrom(100, 3_600),
  mergedBytesMin: fc.constantFrom(1, 400, 20_000),
});

function object(names: readonly string[], value: unknown): string {
  return JSON.stringify(Object.fromEntries(names.map((name) => [name, value])));
}

/** As it is prepared (processor/prepare.ts). */
function propertyUpdateOf({ names, value }: Visit): PropertyUpdateToStore | null {
  const [fieldNames, propertyNames] = names;
  const fields = value === null ? '{}' : object(fieldNames, value);
  const properties = object(propertyNames, value);
  const listed = (text: string): string => {
    let all = '';
    for (const name in JSON.parse(text) as object) all += `${name}\0`;
    return all;
  };
  if (fields === '{}' && properties === '{}') return null;
  return { shape: propertyShape(listed(fields), listed(properties)), fields, properties, isCut: false };
}

const folder = temporaryFolder();
const database = openStoreFile(join(folder, 'store.db'), 'writer');
const connection = new StoreConnection(database);
database.exec('PRAGMA synchronous = OFF');

/** The nodes of a store, and all that was said of them. */
class KnownNodes {
  readonly #sizes: RunsSizes;
  #nodes: StoreNodes;
  #now = START;
  #users = 0;
  #said = new Map<number, UserToStore[]>();
  #committed = new Map<number, UserToStore[]>();

  constructor(runsSizes: RunsSizes) {
    database.exec('DELETE FROM nodes; DELETE FROM profiles_runs; DELETE FROM profiles_blocks');
    this.#sizes = runsSizes;
    this.#nodes = new StoreNodes(connection, runsSizes);
  }

  take(step: Step): void {
    if (step.kind === 'write') this.#write(step.visits);
    else if (step.kind === 'rollback') this.#rollBack();
    else if (step.kind === 'flush') this.#flush();
    else if (step.kind === 'merge') this.#merge();
    else {
      this.#commit();
      if (step.kind === 'reopen') this.#nodes = new StoreNodes(connection, this.#sizes);
      else if (step.kind === 'erase') this.#erase(step.node);
      else if (step.kind === 'expire') this.#removeEvent(step.node);
      else if (step.kind === 'other') this.#letOtherWrite(step.visits);
    }
  }

  end(): void {
    this.#commit();
    for (let pieces = 0; this.#nodes.deltas.isCompacting; pieces += 1) {
      assert.ok(pieces < 200, 'merging never comes to an end');
      this.#merge();
      this.#commit();
    }
    assert.deepEqual(this.#rows(), this.#expected());
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
    return { origin, node, events: [EVENT], propertyUpdate: propertyUpdateOf(visit) };
  }

  #begin(): void {
    if (!database.isTransaction) database.exec('BEGIN');
  }

  #flush(): void {
    this.#begin();
    this.#nodes.deltas.flush();
    assert.deepEqual(this.#rows(), this.#expected());
  }

  #commit(): void {
    this.#flush();
    database.exec('COMMIT');
    this.#committed = new Map(this.#said);
  }

  #rollBack(): void {
    if (database.isTransaction) database.exec('ROLLBACK');
    this.#nodes.deltas.forget();
    this.#said = new Map(this.#committed);
    assert.deepEqual(this.#rows(), this.#expected());
  }

  /** Perhaps while something is gathered. */
  #merge(): void {
    this.#begin();
    this.#nodes.deltas.compact();
  }

  /** By another connection, whose write the processor notices, and clears its caches. */
  #erase(node: number): void {
    connection.runs(PROFILE_RUNS).remove([[node]]);
    connection.run('DELETE FROM nodes WHERE no = ?', node);
    this.#nodes.deltas.forget();
    this.#said.delete(node);
    this.#committed.delete(node);
  }

  /** By the sweep, or on another connection. */
  #removeEvent(node: number): void {
    const at = this.#said.get(node)?.findIndex(({ events }) => events.length > 0) ?? -1;
    const user = this.#said.get(node)?.[at];
    if (user === undefined) return;
    subtractEvents(connection, [{ node, receivedAt: user.origin.receivedAt }]);
    this.#nodes.deltas.forget();
    this.#said.set(node, this.#said.get(node)?.with(at, { ...user, events: [] }) ?? []);
    this.#committed = new Map(this.#said);
  }

  /** Another processor, whose writing is noticed as well. */
  #letOtherWrite(all: readonly Visit[]): void {
    const other = new StoreNodes(connection, this.#sizes);
    this.#write(all, other);
    other.deltas.flush();
    this.#nodes.deltas.forget();
    this.#commit();
  }

  #rows(): unknown[] {
    const rows = connection.all<{ no: number }>('SELECT no FROM nodes ORDER BY no');
    const scanned = [...connection.runs(PROFILE_RUNS).all([0])];
    return rows.map(({ no }, index) => {
      const entry = connection.runs(PROFILE_RUNS).get([no]);
      assert.ok(entry, `of node ${no} there is nothing`);
      assert.deepEqual(readable(scanned[index]), readable(entry));
      const { events, first_seen, last_seen, properties } = stateOf(entry);
      const [, , , writtenAt, shape] = entry.values;
      if (shape === NO_SHAPE) assert.equal(writtenAt, last_seen);
      else {
        const groups = JSON.parse(properties ?? 'null') as readonly Group[];
        assert.deepEqual([groups.length, groups[0]?.[0]], [1, writtenAt], 'what has a shape is one update');
      }
      const short = findState(connection.runs(PROFILE_RUNS), no, 1_000);
      assert.deepEqual([short?.events, short?.first_seen, short?.last_seen], [events, first_seen, last_seen]);
      if (short?.properties !== null || Buffer.byteLength(properties ?? '') > 1_000) {
        assert.equal(short?.properties, Buffer.byteLength(properties ?? '') > 1_000 ? null : properties);
      }
      return [no, events, first_seen, last_seen, properties];
    });
  }

  #expected(): unknown[] {
    const all = [...this.#said].sort(([a], [b]) => a - b);
    return all.map(([node, users]) => {
      const { events, first, last } = sumOf(users);
      return [node, events, first, last, boundedText(foldedGroups(NO_GROUPS, users))];
    });
  }
}

const COMMIT = { kind: 'commit' } as const;
const REOPEN = { kind: 'reopen' } as const;

/** A transaction that says this of these nodes, newer than anything before. */
function say(names: Names, nodes: readonly number[], value: unknown = 1): Step[] {
  return [{ kind: 'write', visits: nodes.map((node) => ({ node, names, late: -1, trace: 0, value })) }, COMMIT];
}

function readable(entry: Entry | undefined): unknown {
  return entry && { ...entry, bytes: Buffer.from(entry.bytes).toString() };
}

function check(runsSizes: RunsSizes, all: readonly Step[]): void {
  const nodes = new KnownNodes(runsSizes);
  try {
    for (const step of all) nodes.take(step);
    nodes.end();
  } finally {
    if (database.isTransaction) database.exec('ROLLBACK');
  }
}

const group = fc.record({
  at: fc.nat(5),
  trace: fc.nat(3),
  names: fc.constantFrom<readonly string[]>(['a'], ['a'], ['b'], ['a', 'b'], ['b', 'a'], ['c']),
  value: fc.nat(3),
  hasShape: fc.boolean(),
});

/** As it is put by one transaction. No two updates have the same origin. */
function deltaOf(one: typeof group extends fc.Arbitrary<infer Of> ? Of : never, index: number): Entry {
  const { at, trace, names, value, hasShape } = one;
  const text = JSON.stringify([[at, `t${trace}`, index, {}, JSON.parse(object(names, value))]]);
  const shape = hasShape ? names.reduce((sum, name) => sum * 7 + name.charCodeAt(0), 1) : NO_SHAPE;
  return { key: [1], values: [1, at, at, at, shape], bytes: names[0] === 'c' ? new Uint8Array() : Buffer.from(text) };
}

suite('What is known of nodes', () => {
  const everybody = [1, 2, 3, 4, 5, 6];
  const SMALL = { fanOut: 2, blockRows: 2, mergedBytesMin: 1 };

  after(() => {
    database.close();
    removeFolder(folder);
  });

  test('is what all that was set of them gives, at every moment', () => {
    fc.assert(fc.property(sizes, fc.array(steps, { minLength: 20, maxLength: 80 }), check), { numRuns: 100 });
  });

  test('does not depend on the order in which parts are combined, nor on what is combined first', () => {
    fc.assert(
      fc.property(fc.array(group, { minLength: 2, maxLength: 6 }), fc.infiniteStream(fc.nat()), (groups, random) => {
        const parts = groups.map((one, index) => deltaOf({ ...one, hasShape: one.hasShape || index % 2 === 0 }, index));
        // In a row, and any two at a time.
        const inARow = parts
          .slice(1)
          .reduce((sum, part) => combineEntries(PROFILE_RUNS, [sum, part]) as Entry, parts[0] as Entry);
        while (parts.length > 1) {
          const [one] = parts.splice((random.next().value as number) % parts.length, 1) as [Entry];
          const at = (random.next().value as number) % parts.length;
          parts[at] = combineEntries(PROFILE_RUNS, [one, parts[at] as Entry]) as Entry;
        }
        const [first] = parts;
        assert.deepEqual(readableState(first), readableState(inARow));
      }),
      { numRuns: 3_000 },
    );
  });

  test('is not thought to be one update because the newest run has one, when another tells of other names', () => {
    const several = [...say(PLAN, everybody), REOPEN, ...say(CITY, everybody), ...say(PLAN, [6]), ...say(PLAN, [5, 6])];
    check(SMALL, several);
    check({}, several);
    check(SMALL, [...say(PLAN, everybody, LONG), ...say(CITY, [1, 5]), ...say(PLAN, [5, 6]), COMMIT, COMMIT]);
  });
});

/** Without the shape: the same text may be known by its shape, or not. */
function readableState(entry: Entry | undefined): unknown {
  return entry && stateOf(entry);
}
