/**
 * `GET /receipts`: users accepted and rejected, and events, by minute of receipt. As the edge counted them, whatever
 * became of them since: repeated requests are included, and so are people who were erased. At most a day at once.
 */

import type { FastifyInstance } from 'fastify';
import { MINUTE_MS } from '../../model.ts';
import { timeParameter } from '../parameters.ts';
import type { ApiParts } from '../parts.ts';
import { BadParameterError, rowJson } from '../responses.ts';
import { count, list, object, time } from '../schema.ts';
import { tenantRoute } from '../route-kinds.ts';

const MINUTES_DEFAULT = 60;
const MINUTES_MAX = 1_440;

const ReceiptMinute = object('ReceiptMinute', 'What was received in one minute.', {
  start: time('Start of the minute of receipt, UTC.'),
  users_accepted: count('Users that were valid.'),
  users_rejected: count('Users that were invalid.'),
  events_accepted: count('Events of the valid ones.'),
});

const Receipts = object('Receipts', 'What was received, by minute.', {
  minutes: list(ReceiptMinute, 'Oldest first. Minutes without requests are left out.'),
});

export function registerReceiptRoutes(app: FastifyInstance, parts: ApiParts): void {
  tenantRoute(app, parts, 'GET /receipts', {
    operationId: 'listReceipts',
    summary: 'What was received, by minute',
    description:
      'Users accepted and rejected, and events, by minute of receipt (UTC), as counted at the response, whatever happened to them later. Requests that got 400 because no user was valid are included. A minute that overlaps the range is returned complete. Default: the last 60 minutes. At most 1,440 at once, kept for 7 days.',
    query: {
      from: timeParameter('Only minutes from this time on. ISO 8601. Default: 60 minutes before `to`.'),
      to: timeParameter('Only minutes that begin before this time. ISO 8601. Default: now.'),
    },
    response: { description: 'Minutes.', body: Receipts },
    handler: async ({ store, tenantId, parameters, now }) => {
      // What was received at this very moment belongs to it.
      const to = parameters.to ?? now + 1;
      const lastMinute = Math.floor((to - 1) / MINUTE_MS) * MINUTE_MS;
      const from = parameters.from ?? lastMinute - (MINUTES_DEFAULT - 1) * MINUTE_MS;
      if (from >= to) throw new BadParameterError('from must be before to (default: now)');
      // By whole minutes: who asks for the last day gets it, also when the request took a second to arrive.
      const minutes = Math.floor((to - from) / MINUTE_MS);
      if (minutes > MINUTES_MAX) {
        const [asked, most] = [minutes, MINUTES_MAX].map((count) => count.toLocaleString('en'));
        throw new BadParameterError(`from and to span ${asked} minutes, the maximum is ${most}: use a shorter range`);
      }
      return rowJson(Receipts, await store.receipts(tenantId, { from, to }));
    },
  });
}
