/**
 * What became of a request, from the moment of its 202: from the store what is processed, from the log what waits, and
 * from the log once more what was set aside. A request that its log cut into several records is pending until all of
 * them are processed.
 *
 * Limits: of a store that several logs feed, only the log that is given here is looked at.
 */

import type { LogHeader, LogReader } from './log.ts';
import type { TenantId } from './model.ts';
import type { Store, StoredTrace, TracedUser } from './store.ts';

/** No hours: for the positions alone. */
export const NO_HOURS = { from: Number.MAX_SAFE_INTEGER, to: Number.MAX_SAFE_INTEGER };
const SET_ASIDE_MAX = 1_000;
const SET_ASIDE = 'could not be processed and was set aside: see sluice doctor';
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

export async function readTrace(
  store: Store,
  log: LogReader,
  tenantId: TenantId | null,
  traceId: string,
): Promise<StoredTrace | undefined> {
  if (!UUID.test(traceId)) return undefined;
  const id = traceId.toLowerCase();
  if (log.cutsRequests) return readCutTrace(store, log, tenantId, id);
  const processed = await store.trace(tenantId, id);
  if (processed !== undefined) return processed;
  const waiting = await waitingRecords(store, log, tenantId, id);
  if (waiting.length > 0) return pendingTrace(id, waiting, []);
  // The processor may have come to it between the two looks.
  return (await store.trace(tenantId, id)) ?? setAsideTrace(store, log, tenantId, id);
}

/**
 * Of a request that was cut, some users may be processed and others not. The log is looked at first: what is processed
 * meanwhile is then seen twice, never missed.
 */
async function readCutTrace(
  store: Store,
  log: LogReader,
  tenantId: TenantId | null,
  traceId: string,
): Promise<StoredTrace | undefined> {
  const waiting = await waitingRecords(store, log, tenantId, traceId);
  const processed = await store.trace(tenantId, traceId);
  const setAside = await setAsideTrace(store, log, tenantId, traceId);
  const rest = [...(waiting.length > 0 ? [pendingTrace(traceId, waiting, [])] : []), ...(setAside ? [setAside] : [])];
  return rest.reduce<StoredTrace | undefined>(
    (known, more) => (known === undefined ? more : together(known, more)),
    processed,
  );
}

/** Both are of one request; where both tell of a user, the first is right. */
function together(known: StoredTrace, more: StoredTrace): StoredTrace {
  const indexes = new Set(known.users.map(({ userIndex }) => userIndex));
  const missing = more.users.filter(({ userIndex }) => !indexes.has(userIndex));
  if (missing.length === 0) return known;
  const users = [...known.users, ...missing].sort((a, b) => a.userIndex - b.userIndex);
  const count = (status: TracedUser['status']): number => missing.filter((user) => user.status === status).length;
  return {
    ...known,
    status: 'pending',
    processedAt: null,
    usersAccepted: known.usersAccepted + count('accepted'),
    usersRejected: known.usersRejected + count('rejected'),
    keyId: known.keyId ?? more.keyId,
    users,
  };
}

/** The records of a request that the log has and the store has not. */
async function waitingRecords(
  store: Store,
  log: LogReader,
  tenantId: TenantId | null,
  traceId: string,
): Promise<LogHeader[]> {
  const { positions } = await store.ledger(tenantId, NO_HOURS);
  const waiting: LogHeader[] = [];
  for (const partition of await log.partitions()) {
    const headers = await log.find(partition, positions.get(partition) ?? 0, traceId);
    waiting.push(...headers.filter((header) => tenantId === null || header.tenantId === tenantId));
    if (waiting.length > 0 && !log.cutsRequests) break;
  }
  return waiting;
}

/** The log keeps what was set aside until its retention ends, below the position up to which it is processed. */
async function setAsideTrace(
  store: Store,
  log: LogReader,
  tenantId: TenantId | null,
  traceId: string,
): Promise<StoredTrace | undefined> {
  const records = (await store.setAside(SET_ASIDE_MAX)).filter(
    (record) => record.traceId === traceId && (tenantId === null || record.tenantId === tenantId),
  );
  const [first] = records;
  if (first === undefined) return undefined;
  const found = await Promise.all(
    records.map(({ partition, position }) => log.headers(partition, position, 1).then(({ headers }) => headers)),
  );
  const headers = found.flat().filter((header) => header.traceId === traceId);
  if (headers.length > 0) return pendingTrace(traceId, headers, [SET_ASIDE]);
  const nobody = { usersAccepted: 0, usersRejected: 0, duplicateOf: null, keyId: null, users: [] };
  return { traceId, status: 'pending', receivedAt: first.receivedAt, processedAt: null, ...nobody };
}

function pendingTrace(traceId: string, headers: readonly LogHeader[], warnings: readonly string[]): StoredTrace {
  const users = headers.flatMap((header) => pendingUsers(header, warnings));
  return {
    traceId,
    status: 'pending',
    receivedAt: Math.min(...headers.map(({ receivedAt }) => receivedAt)),
    processedAt: null,
    usersAccepted: users.filter(({ status }) => status === 'accepted').length,
    usersRejected: users.filter(({ status }) => status === 'rejected').length,
    duplicateOf: null,
    keyId: headers[0]?.keyId ?? null,
    users: users.sort((a, b) => a.userIndex - b.userIndex),
  };
}

function pendingUsers({ firstUserIndex, userCount, rejections }: LogHeader, warnings: readonly string[]): TracedUser[] {
  const messages = new Map(rejections.map(({ userIndex, message }) => [userIndex, message]));
  return Array.from({ length: userCount }, (_, index) => {
    const userIndex = firstUserIndex + index;
    const message = messages.get(userIndex) ?? null;
    return {
      userIndex,
      status: message === null ? 'accepted' : 'rejected',
      profileId: null,
      events: 0,
      duplicateEvents: 0,
      merged: [],
      warnings: message === null ? warnings : [],
      message,
    };
  });
}
