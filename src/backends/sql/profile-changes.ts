/**
 * What an unmerge (rule 16, `views/unmerge.ts`) changes besides the roots of nodes: merges, pairs that may not be linked
 * again, the audit and the number of profiles. Each engine sets the roots, and notifies writers that cache them, in the
 * same transaction.
 *
 * What an erase of a person removes besides events (rule 17): nodes, identifiers, merges, refusals, stored rejections,
 * users in dead letters, patches of jobs that name the person, and all examples in the tenant's catalogue. Hashed
 * tombstones of the match keys stay, so that data received before the erase is dropped when it is processed late.
 * Refusals of other people that name one of the erased identifiers are removed too. Each engine removes events, and its
 * own tables of people, in the same transaction.
 *
 * All stored rejections of a tenant are read before that transaction, since there may be many; within it only those
 * stored since (`RejectionHorizon`).
 */

import { type Expression, type RawBuilder, type SqlBool, sql } from 'kysely';
import type { MatchOptions } from '../../identity/match-keys.ts';
import { IDENTIFIER_TYPES, type MatchKey, type NodeNumber, type TenantId } from '../../model.ts';
import type { AuditContext } from '../../store.ts';
import type { UnmergePlan } from '../../views/unmerge.ts';
import { nameOfKey, payloadTest, spellingsOf, textTest, userTest } from '../../views/erased-person.ts';
import { tombstoneOf } from '../../views/tombstone.ts';
import { auditErasure, insertAudit } from './audit.ts';
import { removeExamples } from './catalogue.ts';
import { eraseFromDeadLetters } from './dead-letters.ts';
import { endJobsThatName } from './jobs.ts';
import { changedBy, chunksOf, rowsOf, type Steps, type Tables } from './steps.ts';
import type { StoreTables } from './store-tables.ts';
import { addToSums } from './sums.ts';

/** `traceId` is that of the audit, as the engine stores it. */
export function* writeUnmerge(
  tables: Tables,
  tenant: number,
  { undone, rewritten, cannotLink, detail }: UnmergePlan,
  audit: AuditContext,
  traceId: StoreTables['cannot_link']['trace_id'],
): Steps<void> {
  for (const some of chunksOf(undone)) yield* changedBy(tables.deleteFrom('merges').where('no', 'in', some));
  for (const { no, from, into } of rewritten) {
    yield* changedBy(tables.updateTable('merges').set({ from_node: from, into_node: into }).where('no', '=', no));
  }
  for (const some of chunksOf(cannotLink)) {
    const rows = some.map(([one, other]) => ({ node_a: one, node_b: other, trace_id: traceId, at: audit.at }));
    yield* changedBy(
      tables
        .insertInto('cannot_link')
        .values(rows)
        .onConflict((conflict) => conflict.doNothing()),
    );
  }
  yield* insertAudit(tables, tenant, 'unmerge', audit, detail);
  // Each removed merge had made one profile of two.
  yield* addToSums(tables, 'profile_counts', [{ tenant, profiles: undone.length }]);
}

/** The stored part of one user is some tens of kilobytes at most. */
const REJECTIONS_PER_READ = 500;

export interface Erasure {
  readonly tenant: number;
  readonly tenantId: TenantId;
  readonly id: string;
  readonly audit: AuditContext;
  readonly matchOptions: MatchOptions;
}

/** How an engine distinguishes rejections stored after a moment from those stored before. */
export interface RejectionHorizon {
  readonly now: RawBuilder<number | string>;
  readonly isLater: (horizon: number | string) => Expression<SqlBool>;
}

/** Stored rejections that name a person. */
export interface MatchingRejections {
  readonly rejections: readonly number[];
  readonly horizon: number | string;
  /** Which match keys they were compared with. */
  readonly names: ReadonlySet<string>;
}

/** Runs before the transaction; each statement may be one of its own. */
export function* findRejections(
  tables: Tables,
  { tenant, matchOptions }: Erasure,
  keys: readonly MatchKey[],
  { now }: RejectionHorizon,
): Steps<MatchingRejections> {
  const [row] = yield* rowsOf(tables.selectNoFrom(now.as('horizon')));
  const rejections = yield* scanRejections(tables, tenant, payloadTest(keys, matchOptions), null);
  return { rejections, horizon: row?.horizon ?? 0, names: new Set(keys.map(nameOfKey)) };
}

function* scanRejections(
  tables: Tables,
  tenant: number,
  isAbout: (payload: string) => boolean,
  isLater: Expression<SqlBool> | null,
): Steps<number[]> {
  const found: number[] = [];
  let after = { time: Number.MIN_SAFE_INTEGER, no: 0 };
  for (;;) {
    const { time, no } = after;
    let rejections = tables
      .selectFrom('rejections')
      .select(['no', 'received_at', 'payload'])
      .where('tenant', '=', tenant)
      .where((where) => where(where.refTuple('received_at', 'no'), '>', where.tuple(time, no)))
      .orderBy('received_at')
      .orderBy('no')
      .limit(REJECTIONS_PER_READ);
    if (isLater !== null) rejections = rejections.where(isLater);
    const rows = yield* rowsOf(rejections);
    for (const row of rows) if (isAbout(row.payload)) found.push(row.no);
    const last = rows.at(-1);
    if (last === undefined || rows.length < REJECTIONS_PER_READ) return found;
    after = { time: last.received_at, no: last.no };
  }
}

/** The columns of the engines' own tables that an erase looks at. */
type IdentityTables = {
  nodes: { no: NodeNumber; tenant: number };
  identifiers: { node: NodeNumber };
};

export interface ErasedPerson {
  readonly id: string;
  readonly nodes: readonly NodeNumber[];
  readonly keys: readonly MatchKey[];
  /** How many events this transaction has removed. */
  readonly events: number;
  /** The audit entry, if earlier transactions have removed events. */
  readonly entry: number | null;
}

/** Within the transaction, after the last events. */
export function* erasePerson(
  tables: Tables,
  erasure: Erasure,
  person: ErasedPerson,
  matching: MatchingRejections,
  { isLater }: RejectionHorizon,
): Steps<void> {
  const { tenant, tenantId, audit, matchOptions } = erasure;
  const { id, nodes, keys, events, entry } = person;
  // First: a writer that is about to store a rejected user is waited for, or sees this.
  const lastErasedAt = sql<number>`CASE WHEN last_erased_at > ${audit.at} THEN last_erased_at ELSE ${audit.at} END`;
  yield* changedBy(tables.updateTable('tenants').set({ last_erased_at: lastErasedAt }).where('no', '=', tenant));
  yield* removeExamples(tables, tenant);
  const isCompared = keys.every((key) => matching.names.has(nameOfKey(key)));
  const isAbout = payloadTest(keys, matchOptions);
  const later = yield* scanRejections(tables, tenant, isAbout, isCompared ? isLater(matching.horizon) : null);
  for (const some of chunksOf([...matching.rejections, ...later])) {
    yield* changedBy(tables.deleteFrom('rejections').where('no', 'in', some));
  }
  yield* eraseFromDeadLetters(tables, tenant, { isAbout: userTest(keys, matchOptions), isRejectedAbout: isAbout });
  yield* endJobsThatName(tables, tenant, textTest(keys), audit.at);
  yield* writeTombstones(
    tables,
    { tenant, tenantId },
    keys.map((key) => ({ key, erasedAt: audit.at })),
  );
  yield* removeRefusalsOf(tables, tenant, keys);
  const identity = tables.withTables<IdentityTables>();
  for (const some of chunksOf(nodes)) {
    yield* changedBy(identity.deleteFrom('identifiers').where('node', 'in', some));
    yield* changedBy(identity.deleteFrom('merges').where('node_a', 'in', some));
    yield* changedBy(identity.deleteFrom('refusals').where('node', 'in', some));
    // Pairs are stored in both directions.
    yield* changedBy(
      identity.deleteFrom('cannot_link').where((where) => {
        const pairs = where
          .selectFrom('cannot_link as pair')
          .select(['pair.node_b', 'pair.node_a'])
          .where('pair.node_a', 'in', some);
        return where(where.refTuple('node_a', 'node_b'), 'in', pairs.$asTuple('node_b', 'node_a'));
      }),
    );
    yield* changedBy(identity.deleteFrom('cannot_link').where('node_a', 'in', some));
    yield* changedBy(identity.deleteFrom('nodes').where('no', 'in', some));
  }
  yield* auditErasure(tables, erasure, entry, { profileId: id, nodes: nodes.length, events, isFinished: true });
}

/** A later erase of the same key replaces an earlier one. */
export function* writeTombstones(
  tables: Tables,
  { tenant, tenantId }: { readonly tenant: number; readonly tenantId: TenantId },
  tombstones: readonly { readonly key: MatchKey; readonly erasedAt: number }[],
): Steps<void> {
  const rows = new Map<string, StoreTables['tombstones']>();
  for (const { key, erasedAt } of tombstones.toSorted((a, b) => a.erasedAt - b.erasedAt)) {
    for (const spelling of spellingsOf(key)) {
      const hash = tombstoneOf(tenantId, spelling);
      rows.set(Buffer.from(hash).toString('hex'), { tenant, hash, erased_at: erasedAt });
    }
  }
  // In one order, as everywhere: two transactions may write the same ones, and must not deadlock.
  const sorted = [...rows.values()].sort((a, b) => Buffer.compare(a.hash, b.hash));
  for (const some of chunksOf(sorted)) {
    yield* changedBy(
      tables
        .insertInto('tombstones')
        .values(some)
        .onConflict((conflict) =>
          conflict.columns(['tenant', 'hash']).doUpdateSet({
            erased_at: sql<number>`CASE WHEN tombstones.erased_at > excluded.erased_at
              THEN tombstones.erased_at ELSE excluded.erased_at END`,
          }),
        ),
    );
  }
}

/** Also of other people. */
function* removeRefusalsOf(tables: Tables, tenant: number, keys: readonly MatchKey[]): Steps<void> {
  const identity = tables.withTables<IdentityTables>();
  for (const [type, some] of Map.groupBy(keys, (key) => key.type)) {
    for (const values of chunksOf(some.map(({ value }) => value))) {
      yield* changedBy(
        identity
          .deleteFrom('refusals')
          .where('type', '=', IDENTIFIER_TYPES.indexOf(type))
          .where('value', 'in', values)
          .where((where) =>
            where.exists(
              where
                .selectFrom('nodes')
                .select('no')
                .whereRef('nodes.no', '=', 'refusals.node')
                .where('tenant', '=', tenant),
            ),
          ),
      );
    }
  }
}
