/**
 * Traffic for processors that race, merge-heavy: each partition's records are about the same few people, and at about
 * the same time they bring the same new identifiers. Peaceful traffic has nothing to refuse, so any order gives the same
 * people. Messy traffic is full of refusals, repeated requests and repeated events, and its outcome depends on the order.
 */

import assert from 'node:assert/strict';
import type { PostgresPool } from '../../src/backends/postgres/pool.ts';
import type { LogEntry } from '../../src/log.ts';
import type { Store, StoredProfile } from '../../src/store.ts';
import { Chooser, entryOf, type Random, traceIdOf } from '../processor/history.ts';

export const RACING_TENANTS = ['acct_race/production', 'acct_race/development'] as const;
const START = Date.UTC(2026, 2, 1, 12);
const PEOPLE = 5;
/** In so many records of a partition, the same new identifiers come up. */
const PHASE = 8;

export type Kind = 'peaceful' | 'messy';

/** By partition. */
export function trafficOf(kind: Kind, random: Random, partitions: number, records: number): LogEntry[][] {
  const traffic = new Traffic(kind, random);
  return Array.from({ length: partitions }, (_, partition) =>
    Array.from({ length: records }, (_unused, n) => traffic.entry(partition, n)),
  );
}

class Traffic extends Chooser {
  readonly #kind: Kind;

  constructor(kind: Kind, random: Random) {
    super(random);
    this.#kind = kind;
  }

  entry(partition: number, n: number): LogEntry {
    const receivedAt = START + n * 50 + partition;
    const isMessy = this.#kind === 'messy';
    const users = Array.from({ length: this.pick([1, 1, 1, 2, 3]) }, () => this.#user(n));
    return entryOf(users, {
      traceId: traceIdOf(receivedAt, partition * 1_000_000 + ((n * 7_919) % 1_000_000)),
      tenantId: this.pick([RACING_TENANTS[0], RACING_TENANTS[0], RACING_TENANTS[0], RACING_TENANTS[1]]),
      receivedAt,
      keyKind: isMessy && this.chance(0.15) ? 'publishable' : 'secret',
      idempotencyKey: isMessy && this.chance(0.1) ? `once-${Math.floor(n / PHASE)}` : null,
    });
  }

  #user(n: number): unknown {
    const isMessy = this.#kind === 'messy';
    const phase = Math.floor(n / PHASE);
    return {
      identifiers: isMessy ? this.#messy(phase) : this.#peaceful(phase),
      user_properties: { [this.pick(['plan', 'city', '__proto__'])]: this.pick(['a', 'b', null, n]) },
      events: Array.from({ length: this.pick([1, 1, 2]) }, () => ({
        event_name: this.pick(['order', 'page_view']),
        revenue: this.below(10),
        ...(isMessy && this.chance(0.1) && { $event_id: `event-${phase}-${this.below(3)}` }),
      })),
    };
  }

  /** Identifiers of one person, who has no more of them than a profile may have. */
  #peaceful(phase: number): Record<string, string> {
    const person = this.below(PEOPLE);
    const all = {
      user_id: `user-${person}`,
      email: `${person}-${Math.min(phase, 7)}@example.com`,
      phone_number: `+49151${10_000_000 + person * 100 + Math.min(phase, 7)}`,
      anon_id: `device-${person}-${Math.min(phase, 20)}-${this.below(3)}`,
    };
    return this.#some(all);
  }

  /** Of anyone: shared devices, others' addresses, and more addresses than a profile may have. */
  #messy(phase: number): Record<string, string> {
    const all = {
      user_id: `user-${this.below(PEOPLE)}`,
      email: `${this.below(2) * this.below(PEOPLE)}-${phase}-${this.below(2)}@example.com`,
      phone_number: `+49151${10_000_000 + this.below(3) * 100 + phase}`,
      anon_id: `device-${phase}-${this.below(6)}`,
    };
    return this.#some(all);
  }

  #some(all: Record<string, string>): Record<string, string> {
    const chosen = Object.entries(all).filter(() => this.chance(0.55));
    return chosen.length === 0 ? { anon_id: all['anon_id'] as string } : Object.fromEntries(chosen);
  }
}

/** What must be 0 in every store, whichever writer wrote it. */
const FAULTS: Readonly<Record<string, string>> = {
  'aliases of aliases, or without a node': `
    SELECT n.no FROM nodes n LEFT JOIN nodes r ON r.no = n.root WHERE n.root IS NOT NULL AND (r.no IS NULL OR r.root IS NOT NULL)`,
  'roots that are younger than what was merged into them (rule 9)': `
    SELECT n.no FROM nodes n JOIN nodes r ON r.no = n.root
    WHERE (n.received_at, n.trace_id::text, n.user_index) <= (r.received_at, r.trace_id::text, r.user_index)`,
  'profiles with too many identifiers (rules 6 and 7)': `
    SELECT 1 FROM identifiers i JOIN nodes n ON n.no = i.node GROUP BY coalesce(n.root, n.no), i.type
    HAVING count(*) > (ARRAY[1, 10, 10, 500])[i.type + 1]`,
  'profiles with too many nodes (rule 7)': `
    SELECT 1 FROM nodes GROUP BY coalesce(root, no) HAVING count(*) > 100`,
  'identifiers without a node': `
    SELECT 1 FROM identifiers i LEFT JOIN nodes n ON n.no = i.node WHERE n.no IS NULL`,
  'merges whose ends are two profiles': `
    SELECT 1 FROM merges m JOIN nodes a ON a.no = m.node_a JOIN nodes b ON b.no = m.node_b
    WHERE coalesce(a.root, a.no) <> coalesce(b.root, b.no)`,
  'nodes that count other events than they have': `
    SELECT n.no FROM nodes n WHERE n.events <> (SELECT count(*) FROM events e WHERE e.node = n.no)`,
  'events without a node': `
    SELECT 1 FROM events e LEFT JOIN nodes n ON n.no = e.node WHERE e.node IS NOT NULL AND n.no IS NULL`,
};

export async function assertSound(pool: PostgresPool): Promise<void> {
  for (const [name, sql] of Object.entries(FAULTS)) {
    const { rows } = await pool.query(sql);
    assert.equal(rows.length, 0, name);
  }
}

export async function profilesOf(store: Store, tenantId: string): Promise<StoredProfile[]> {
  const { rows, nextCursor } = await store.profiles(tenantId, { limit: 5_000, cursor: null });
  assert.equal(nextCursor, null);
  return [...rows];
}

/** Rule 15: within a profile there is exactly one chain of merges between any two nodes. */
export async function assertExplained(store: Store): Promise<void> {
  for (const tenantId of RACING_TENANTS) {
    for (const { id, mergedIds } of await profilesOf(store, tenantId)) {
      const identity = await store.identity(tenantId, id);
      const partOf = new Map([id, ...mergedIds].map((node) => [node, new Set([node])]));
      for (const { nodes } of identity?.merges ?? []) {
        const [one, other] = nodes.map((node) => partOf.get(node));
        assert.ok(one && other && one !== other, `a merge of ${id} closes a circle, or leads out of it`);
        for (const node of other) partOf.set(node, one.add(node));
      }
      assert.equal(new Set(partOf.values()).size, 1, `${id} has parts that nothing joins`);
    }
  }
}

/** People as they are in any order of the same records: not by ids, which depend on which writer was first. */
export async function peopleOf(store: Store): Promise<string[]> {
  const people: string[] = [];
  for (const tenantId of RACING_TENANTS) {
    for (const profile of await profilesOf(store, tenantId)) {
      const { identifiers, profileFields, userProperties, firstSeen, lastSeen, eventCount } = profile;
      const named = Object.entries(identifiers).map(([type, values]) => [type, values.toSorted()]);
      const reported = [[...profileFields], [...userProperties]];
      people.push(JSON.stringify([tenantId, named, reported, firstSeen, lastSeen, eventCount]));
    }
  }
  return people.sort();
}

/** Ids of all events of these requests, as the store names them. */
export function eventIdsIn(entries: readonly LogEntry[]): string[] {
  return entries.flatMap(({ traceId, body }) => {
    const { users } = JSON.parse(Buffer.from(body).toString('utf8')) as { users: { events: unknown[] }[] };
    return users.flatMap(({ events }, user) => events.map((_, event) => `${traceId}.${user}.${event}`));
  });
}
