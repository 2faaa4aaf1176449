/**
 * A log with one record per user, built on one that keeps whole requests: what a backend such as Kafka does. It shows
 * that the contract holds for both kinds. The index of a record within its request is kept in the trace id.
 */

import type { LogAppender, LogEntry, LogHeader, LogReader } from '../../src/log.ts';
import { override } from '../override.ts';
import { eventsIn, type LogUnderTest } from './log-entries.ts';

const MARK = '#user-';
const HEADERS_AT_A_TIME = 100;

export function cutIntoUsers(log: LogUnderTest): LogUnderTest {
  return {
    hasPartitions: log.hasPartitions,
    openAppender: async (partition) => cuttingAppender(await log.openAppender(partition)),
    openReader: async (options) => cutReader(await log.openReader(options)),
    dispose: () => log.dispose(),
  };
}

function cuttingAppender(appender: LogAppender): LogAppender {
  return {
    append: async (entry) => {
      await Promise.all(usersOf(entry).map((user) => appender.append(user)));
    },
    problem: () => appender.problem(),
    close: () => appender.close(),
  };
}

function usersOf(entry: LogEntry): LogEntry[] {
  const { users } = JSON.parse(Buffer.from(entry.body).toString('utf8')) as { users: unknown[] };
  const firstAccepted = users.findIndex((_user, index) => !entry.rejections.some((one) => one.userIndex === index));
  const { droppedByClient, ...rest } = entry;
  return users.map((user, userIndex) => {
    const rejections = entry.rejections.filter((rejection) => rejection.userIndex === userIndex);
    const own = {
      traceId: `${entry.traceId}${MARK}${userIndex}`,
      // A single user stays as it was written: numbers keep their digits.
      body: users.length === 1 ? entry.body : Buffer.from(JSON.stringify({ users: [user] })),
      userCount: 1,
      eventCount: rejections.length > 0 ? 0 : users.length === 1 ? entry.eventCount : eventsIn(user),
      rejections,
    };
    const isReport = droppedByClient !== undefined && userIndex === Math.max(firstAccepted, 0);
    return Object.assign({}, rest, own, isReport && { droppedByClient });
  });
}

function cutReader(reader: LogReader): LogReader {
  const headers = async (partition: number, position: number, countMax: number) => {
    const batch = await reader.headers(partition, position, countMax);
    return { ...batch, headers: batch.headers.map(unmarked) };
  };
  return override(reader, {
    splitsRequests: true,
    read: async (partition, position, bytesMax) => {
      const batch = await reader.read(partition, position, bytesMax);
      return { ...batch, records: batch.records.map(unmarked) };
    },
    headers,
    find: async (partition, position, traceId) => {
      const found: LogHeader[] = [];
      for (let from = position; ; ) {
        const batch = await headers(partition, from, HEADERS_AT_A_TIME);
        if (batch.headers.length === 0) return found;
        found.push(...batch.headers.filter((header) => header.traceId === traceId));
        from = batch.next;
      }
    },
    traceIdAt: async (partition, position) => {
      const { headers: found } = await headers(partition, position, 1);
      return found[0]?.position === position ? found[0].traceId : undefined;
    },
  });
}

function unmarked<Header extends LogHeader>(header: Header): Header {
  const [traceId = '', userIndex] = header.traceId.split(MARK);
  return { ...header, traceId, firstUserIndex: Number(userIndex) };
}
