/**
 * A log with several partitions, as Kafka has, without Kafka: each is an embedded log of its own. The first is where a
 * server has its log, the others are beside it.
 */

import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { openEmbeddedLogReader } from '../../src/backends/embedded/log/reader.ts';
import { logFolderOf } from '../../src/data-folder/files.ts';
import type { LogHeader, LogReader } from '../../src/log.ts';

const OTHERS = /^partition-(\d+)$/;

export function partitionFolderOf(dataFolder: string, partition: number): string {
  return partition === 0 ? logFolderOf(dataFolder) : join(dataFolder, `partition-${partition}`);
}

/** The log that they were read from has only one partition. */
function of<Record extends LogHeader>(partition: number, records: readonly Record[]): Record[] {
  return records.map((record) => Object.assign(record, { partition }));
}

export function openPartitionedLog(dataFolder: string): LogReader {
  const readers = new Map<number, LogReader>();
  const readerOf = (partition: number): LogReader => {
    const folder = partitionFolderOf(dataFolder, partition);
    const reader = readers.get(partition) ?? openEmbeddedLogReader({ folder });
    readers.set(partition, reader);
    return reader;
  };
  const partitions = async (): Promise<number[]> => {
    const others = readdirSync(dataFolder).flatMap((name) => OTHERS.exec(name)?.[1] ?? []);
    return [...(await readerOf(0).partitions()), ...others.map(Number).sort((a, b) => a - b)];
  };
  return {
    get name() {
      return readerOf(0).name;
    },
    splitsRequests: false,
    partitions,
    read: async (partition, ...args) => {
      const { records, next } = await readerOf(partition).read(0, ...args);
      return { records: of(partition, records), next };
    },
    headers: async (partition, ...args) => {
      const { headers, next } = await readerOf(partition).headers(0, ...args);
      return { headers: of(partition, headers), next };
    },
    find: async (partition, ...args) => {
      return of(partition, await readerOf(partition).find(0, ...args));
    },
    backlogBytes: (partition, position) => readerOf(partition).backlogBytes(0, position),
    traceIdAt: (partition, position) => readerOf(partition).traceIdAt(0, position),
    missing: (partition, position) => readerOf(partition).missing(0, position),
    lost: (partition, position) => readerOf(partition).lost(0, position),
    commit: (partition, position) => readerOf(partition).commit(0, position),
    newestReceivedAt: async () => {
      const newest = (await partitions()).map((partition) => readerOf(partition).newestReceivedAt());
      return Math.max(0, ...(await Promise.all(newest)));
    },
    close: async () => {
      await Promise.all([...readers.values()].map((reader) => reader.close()));
    },
  };
}
