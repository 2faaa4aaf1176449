/**
 * The groups of processors on a topic: one for each database that is written from it. Records may be removed when all of
 * them have processed them, as far as their positions in Kafka say. Kafka forgets a group that nobody is in any more after
 * `offsets.retention.minutes`, and shows only groups that this user may see (Describe); the processors of a group that
 * was overlooked notice that records are missing, and say so.
 */

import { listGroupsV5 } from '@platformatic/kafka';
import { LogUnavailableError } from '../../log.ts';
import type { Cluster } from './cluster.ts';
import { answered, CODE, unreachable, wordsOf } from './codes.ts';
import { committedPosition } from './group-positions.ts';

const DATABASE_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** Without a database: for whoever only looks. */
export function groupName(topic: string, databaseId?: string): string {
  return databaseId === undefined ? `sluice.${topic}` : `sluice.${topic}.${databaseId}`;
}

/** Up to where all other databases have processed a partition; infinity where there is no other. */
export async function processedByOthers(cluster: Cluster, group: string, partition: number): Promise<number> {
  try {
    const others = (await groupsOn(cluster)).filter((other) => other !== group);
    const positions = await Promise.all(others.map((other) => committedPosition(cluster, other, partition)));
    return Math.min(Number.POSITIVE_INFINITY, ...positions);
  } catch (error) {
    // What is not known is not removed; there is no hurry.
    if (error instanceof LogUnavailableError) return 0;
    throw error;
  }
}

/** Each broker knows those that it coordinates. */
async function groupsOn(cluster: Cluster): Promise<string[]> {
  const brokers = [...(await cluster.refresh()).brokers.keys()];
  const listed = await Promise.all(brokers.map((broker) => groupsAt(cluster, broker)));
  const start = `${groupName(cluster.topic)}.`;
  // Topics may have dots in their names.
  return listed.flat().filter((group) => group.startsWith(start) && DATABASE_ID.test(group.slice(start.length)));
}

async function groupsAt(cluster: Cluster, broker: number): Promise<string[]> {
  try {
    const { errorCode, groups } = await answered(listGroupsV5.api.async(await cluster.connection(broker), [], []));
    if (errorCode !== CODE.none) throw new LogUnavailableError(wordsOf(errorCode));
    return groups.map(({ groupId }) => groupId);
  } catch (error) {
    throw unreachable(error);
  }
}
