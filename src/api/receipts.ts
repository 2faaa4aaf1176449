/**
 * `GET /receipts`: what came in, by minute of receipt: users accepted and rejected, and events. As the edge counted them,
 * whatever became of them since: repeated requests are in it, and so is who was erased. At most a day at once.
 */

import type { FastifyInstance } from 'fastify';
import type { ReceiptMinute } from '../store.ts';
import type { Json } from './json-text.ts';
import { BadParameterError, timeParameter } from './parameters.ts';
import { timeText } from './stored-answers.ts';
import { addTenantRoute, type Call, type TenantParts } from './tenant-route.ts';

const MINUTE_MS = 60_000;
const MINUTES_DEFAULT = 60;
const MINUTES_MAX = 1_440;

export const RECEIPT_PARAMETERS = {
  from: timeParameter(
    'From the minute of this time on. ISO 8601. Unless given, so that there are 60 minutes up to `to`.',
  ),
  to: timeParameter('Only minutes that begin before this time. ISO 8601. Now, unless given.'),
};

export function registerReceiptRoutes(app: FastifyInstance, parts: TenantParts): void {
  addTenantRoute(app, parts, { method: 'GET', url: '/receipts', parameters: RECEIPT_PARAMETERS, answer: listReceipts });
}

async function listReceipts({ store, tenantId, parameters, now }: Call<typeof RECEIPT_PARAMETERS>): Promise<Json> {
  // What came in at this very moment belongs to it.
  const to = parameters.to ?? now + 1;
  const lastMinute = Math.floor((to - 1) / MINUTE_MS) * MINUTE_MS;
  const from = parameters.from ?? lastMinute - (MINUTES_DEFAULT - 1) * MINUTE_MS;
  if (from >= to) throw new BadParameterError('from must be before to, which is now unless given');
  // Whole minutes: who asks for the last day gets it, also when the request took a second to arrive.
  const minutes = Math.floor((to - from) / MINUTE_MS);
  if (minutes > MINUTES_MAX) {
    const [asked, most] = [minutes, MINUTES_MAX].map((count) => count.toLocaleString('en'));
    throw new BadParameterError(`from and to span ${asked} minutes, at most ${most} are given: ask for less at once`);
  }
  const receipts = await store.receipts(tenantId, { from, to });
  return { minutes: receipts.minutes.map(minuteAnswer) };
}

function minuteAnswer({ start, usersAccepted, usersRejected, eventsAccepted }: ReceiptMinute): Json {
  return {
    start: timeText(start),
    users_accepted: usersAccepted,
    users_rejected: usersRejected,
    events_accepted: eventsAccepted,
  };
}
