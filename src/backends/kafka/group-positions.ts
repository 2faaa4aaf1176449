/**
 * The positions that a group has committed to Kafka. They are for people's tools, which show how far behind a group is;
 * Sluice itself goes by the store. A member commits as such; anybody else may while the group has no members.
 */

import { offsetCommitV9, offsetFetchV9 } from '@platformatic/kafka';
import { LogUnavailableError } from '../../log.ts';
import type { Cluster } from './cluster.ts';
import { answered, CODE, reasonOf, wordsOf } from './codes.ts';

export interface GroupMembership {
  readonly memberId: string;
  readonly epoch: number;
}

const NO_MEMBER: GroupMembership = { memberId: '', epoch: -1 };
const NO_LEADER_EPOCH = -1;
const TRIES_MAX = 10;
const RETRY_MS = 200;
/** The broker is not, or not yet, the one to ask. */
const ASK_AGAIN: ReadonlySet<number> = new Set([
  CODE.coordinator_loading,
  CODE.coordinator_not_available,
  CODE.not_coordinator,
]);
/** Membership changed meanwhile: the position will be committed with the next. */
const NOT_A_MEMBER_NOW: ReadonlySet<number> = new Set([
  CODE.unknown_member_id,
  CODE.fenced_member_epoch,
  CODE.stale_member_epoch,
]);

/** 0 where nothing is committed. */
export async function committedPosition(cluster: Cluster, group: string, partition: number): Promise<number> {
  const position = await withCoordinator(cluster, group, async (connection) => {
    const topics = [{ name: cluster.topic, partitionIndexes: [partition] }];
    const asked = [{ groupId: group, memberId: null, memberEpoch: -1, topics }];
    const { groups } = await answered(offsetFetchV9.api.async(connection, asked, false));
    const [found] = groups;
    const place = found?.topics[0]?.partitions[0];
    return { code: found?.errorCode || (place?.errorCode ?? CODE.none), value: Number(place?.committedOffset ?? -1) };
  });
  return Math.max(0, position);
}

export async function commitPosition(
  cluster: Cluster,
  group: string,
  membership: GroupMembership | null,
  { partition, position }: { readonly partition: number; readonly position: number },
): Promise<void> {
  const { memberId, epoch } = membership ?? NO_MEMBER;
  await withCoordinator(cluster, group, async (connection) => {
    const partitions = [
      { partitionIndex: partition, committedOffset: BigInt(position), committedLeaderEpoch: NO_LEADER_EPOCH },
    ];
    const topics = [{ name: cluster.topic, partitions }];
    const answer = await answered(offsetCommitV9.api.async(connection, group, epoch, memberId, null, topics));
    const code = answer.topics[0]?.partitions[0]?.errorCode ?? CODE.none;
    return { code: membership !== null && NOT_A_MEMBER_NOW.has(code) ? CODE.none : code, value: undefined };
  });
}

async function withCoordinator<Value>(
  cluster: Cluster,
  group: string,
  ask: (connection: Awaited<ReturnType<Cluster['coordinator']>>) => Promise<{ code: number; value: Value }>,
): Promise<Value> {
  let problem = '';
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    try {
      const { code, value } = await ask(await cluster.coordinator(group));
      if (code === CODE.none) return value;
      problem = wordsOf(code);
      if (!ASK_AGAIN.has(code)) break;
    } catch (error) {
      problem = reasonOf(error);
    }
    cluster.forgetCoordinator(group);
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
  throw new LogUnavailableError(`the positions of the group ${group} cannot be used: ${problem}`);
}
