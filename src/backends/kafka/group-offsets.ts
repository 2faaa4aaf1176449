/**
 * The offsets that consumer groups have committed to Kafka. There is one group for each database that is written from the
 * topic. Sluice itself reads on from the store's positions; committed offsets are for lag tools, and for deleting old
 * records: those that all groups have processed.
 *
 * A member of a group commits with its member id; anyone may commit while the group has no members. Kafka forgets an
 * empty group after `offsets.retention.minutes`. It lists only groups that this user may see (Describe), and does not say
 * that it left some out, so nothing is deleted without that right (`seesAllGroups`).
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { type Connection, findCoordinatorV4, listGroupsV5, offsetCommitV9, offsetFetchV9 } from '@platformatic/kafka';
import { LogUnavailableError } from '../../log.ts';
import { type Cluster, GROUP_KEY_TYPE } from './cluster.ts';
import { asUnavailable, CODE, describeCode, errorText, responseOf } from './errors.ts';

export interface GroupMembership {
  readonly memberId: string;
  readonly epoch: number;
}

const NOT_A_MEMBER: GroupMembership = { memberId: '', epoch: -1 };
const NO_LEADER_EPOCH = -1;
const ATTEMPTS_MAX = 10;
const RETRY_MS = 200;
const DATABASE_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const COORDINATOR_MOVED: ReadonlySet<number> = new Set([
  CODE.coordinator_loading,
  CODE.coordinator_not_available,
  CODE.not_coordinator,
]);
/** The next commit has the new member epoch. */
const MEMBERSHIP_CHANGED: ReadonlySet<number> = new Set([
  CODE.unknown_member_id,
  CODE.fenced_member_epoch,
  CODE.stale_member_epoch,
]);

/** Without a database: for readers that are not processors. */
export function groupName(topic: string, databaseId?: string): string {
  return databaseId === undefined ? `sluice.${topic}` : `sluice.${topic}.${databaseId}`;
}

/** 0 where nothing is committed. */
export async function committedOffset(cluster: Cluster, group: string, partition: number): Promise<number> {
  const offset = await withCoordinator(cluster, group, async (connection) => {
    const topics = [{ name: cluster.topic, partitionIndexes: [partition] }];
    const request = [{ groupId: group, memberId: null, memberEpoch: -1, topics }];
    const { groups } = await responseOf(offsetFetchV9.api.async(connection, request, false));
    const [found] = groups;
    const committed = found?.topics[0]?.partitions[0];
    return {
      code: found?.errorCode || (committed?.errorCode ?? CODE.none),
      value: Number(committed?.committedOffset ?? -1),
    };
  });
  return Math.max(0, offset);
}

export async function commitOffset(
  cluster: Cluster,
  group: string,
  membership: GroupMembership | null,
  { partition, offset }: { readonly partition: number; readonly offset: number },
): Promise<void> {
  const { memberId, epoch } = membership ?? NOT_A_MEMBER;
  await withCoordinator(cluster, group, async (connection) => {
    const partitions = [
      { partitionIndex: partition, committedOffset: BigInt(offset), committedLeaderEpoch: NO_LEADER_EPOCH },
    ];
    const topics = [{ name: cluster.topic, partitions }];
    const response = await responseOf(offsetCommitV9.api.async(connection, group, epoch, memberId, null, topics));
    const code = response.topics[0]?.partitions[0]?.errorCode ?? CODE.none;
    return { code: membership !== null && MEMBERSHIP_CHANGED.has(code) ? CODE.none : code, value: undefined };
  });
}

/** What the names of the groups of all databases begin with. */
export function groupPrefix(topic: string): string {
  return `${groupName(topic)}.`;
}

/** Whether this user may see the groups of all databases: asked with the name of a group that does not exist. */
export async function seesAllGroups(cluster: Cluster): Promise<boolean> {
  const anyGroup = `${groupPrefix(cluster.topic)}any`;
  try {
    const request = findCoordinatorV4.api.async(await cluster.anyBroker(), GROUP_KEY_TYPE, [anyGroup]);
    const code = (await responseOf(request)).coordinators[0]?.errorCode ?? -1;
    if (code !== CODE.none && code !== CODE.group_authorization_failed)
      throw new LogUnavailableError(describeCode(code));
    return code === CODE.none;
  } catch (error) {
    throw asUnavailable(error);
  }
}

/** The position up to which the groups of all other databases have processed a partition; infinity if there are none. */
export async function processedByOtherGroups(cluster: Cluster, group: string, partition: number): Promise<number> {
  try {
    const others = (await listDatabaseGroups(cluster)).filter((other) => other !== group);
    const offsets = await Promise.all(others.map((other) => committedOffset(cluster, other, partition)));
    return Math.min(Number.POSITIVE_INFINITY, ...offsets);
  } catch (error) {
    // Unknown: nothing is deleted until the next attempt.
    if (error instanceof LogUnavailableError) return 0;
    throw error;
  }
}

/** Each broker lists the groups that it coordinates. */
async function listDatabaseGroups(cluster: Cluster): Promise<string[]> {
  const brokers = [...(await cluster.refresh()).brokers.keys()];
  const listed = await Promise.all(brokers.map((broker) => listGroupsOf(cluster, broker)));
  const start = groupPrefix(cluster.topic);
  // Topic names may contain dots.
  return listed.flat().filter((group) => group.startsWith(start) && DATABASE_ID.test(group.slice(start.length)));
}

async function listGroupsOf(cluster: Cluster, broker: number): Promise<string[]> {
  try {
    const { errorCode, groups } = await responseOf(listGroupsV5.api.async(await cluster.connection(broker), [], []));
    if (errorCode !== CODE.none) throw new LogUnavailableError(describeCode(errorCode));
    return groups.map(({ groupId }) => groupId);
  } catch (error) {
    throw asUnavailable(error);
  }
}

async function withCoordinator<Value>(
  cluster: Cluster,
  group: string,
  request: (connection: Connection) => Promise<{ code: number; value: Value }>,
): Promise<Value> {
  let problem = '';
  for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    try {
      const { code, value } = await request(await cluster.coordinator(group));
      if (code === CODE.none) return value;
      problem = describeCode(code);
      if (!COORDINATOR_MOVED.has(code)) break;
    } catch (error) {
      problem = errorText(error);
    }
    cluster.forgetCoordinator(group);
    await sleep(RETRY_MS);
  }
  throw new LogUnavailableError(`the offsets of the consumer group ${group} are not available: ${problem}`);
}
