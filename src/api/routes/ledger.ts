/**
 * `GET /ledger`: every event of a tenant is accounted for, by hour of receipt; any difference is a bug. Hours are those
 * asked for, totals and `balanced` are over all of them. `missing_records` are of all tenants: requests that the log has
 * lost belong to hours and tenants unknown. Once an operator has given them up they are in `lost_records` instead,
 * forever, and no longer keep `balanced` false: nothing is left to decide.
 */

import type { FastifyInstance } from 'fastify';
import { HOUR_MS } from '../../model.ts';
import type { LedgerSums } from '../../store.ts';
import { NO_SUMS } from '../../views/received-sums.ts';
import { refuseEmptyRange, timeParameter } from '../parameters.ts';
import { rowJson } from '../responses.ts';
import type { ApiParts } from '../parts.ts';
import { count, flag, list, object, time, Type } from '../schema.ts';
import { tenantRoute } from '../route-kinds.ts';

const DEFAULT_RANGE_MS = 7 * 24 * HOUR_MS;

const LedgerSums = object('LedgerSums', 'What happened to everything that was received.', {
  received: count('Acknowledged with a 202.'),
  stored: count('Stored, and can be read.'),
  duplicates: count('Not stored again: sent before, with the same `Idempotency-Key` or `$event_id`.'),
  erased: count('Erased on request, or not stored because the person was erased.'),
  expired: count('Removed at the end of their retention.'),
  dead_letters: count('Dead letters: they could not be processed, and are kept to be retried.'),
  pending: count('Durable, and not processed yet.'),
  difference: Type.Integer({ description: 'Received minus all of these. Anything but 0 is a bug.' }),
});

const DroppedByClients = count(
  'Events that clients dropped before sending them, by the `dropped_by_client` of their requests. They were never received and are not part of the sums. A request counts once it is processed.',
);

const LedgerHour = object('LedgerHour', 'What was received in one hour.', {
  hour: time('Start of the hour of receipt, UTC.'),
  users: LedgerSums,
  events: LedgerSums,
  users_rejected: count('Invalid users. They are not part of the sums.'),
  users_resubmitted: count(
    'Those of them that were fixed and resubmitted: since then they count as received, in the hour of their request, and are part of the sums.',
  ),
  dropped_by_clients: DroppedByClients,
});

const Ledger = object('Ledger', 'Every event is accounted for.', {
  balanced: flag('Whether every hour adds up, and no record is missing except those in `lost_records`.'),
  missing_records: count(
    'Requests that the store relies on and the event log has lost, of all tenants: anything but 0 needs an operator.',
  ),
  lost_records: count(
    'Requests that will never be in the store, of all tenants: an operator gave them up, or they were removed from the event log before this store was created. They do not affect `balanced`, and stay counted here.',
  ),
  warnings: list(Type.String(), 'Possible losses from the event log that cannot be counted here, as in `GET /health`.'),
  hours: list(LedgerHour, 'Newest first. Hours without requests are left out.'),
  totals: Type.Object(
    { users: LedgerSums, events: LedgerSums, dropped_by_clients: DroppedByClients },
    { description: 'Over all hours, not only those above.' },
  ),
});

export function registerLedgerRoutes(app: FastifyInstance, parts: ApiParts): void {
  tenantRoute(app, parts, 'GET /ledger', {
    operationId: 'getLedger',
    summary: 'Reconciliation',
    description:
      'By hour of receipt, users and events: what was received is stored, a duplicate, erased, expired, a dead letter or pending. The numbers add up at any moment.',
    query: {
      from: timeParameter('Only hours from this time on. ISO 8601. Default: 7 days before `to`, or before now.'),
      to: timeParameter('Only hours that begin before this time. ISO 8601.'),
    },
    response: { description: 'The ledger.', body: Ledger },
    handler: async ({ store, tenantId, parameters, now }) => {
      refuseEmptyRange(parameters.from, parameters.to);
      // Not limited to the current time: a clock that was set back must not hide the hours ahead of it.
      const { to } = parameters;
      const from = parameters.from ?? (to ?? now) - DEFAULT_RANGE_MS;
      const { hours, missingRecords, lost } = await store.ledger(tenantId, { from: null, to: null });
      const all = hours.map((row) => {
        return { ...row, users: withDifference(row.users), events: withDifference(row.events) };
      });
      return rowJson(Ledger, {
        balanced:
          missingRecords === 0 && all.every(({ users, events }) => users.difference === 0 && events.difference === 0),
        missingRecords,
        lostRecords: lost.reduce((sum, { records }) => sum + records, 0),
        warnings: parts.startWarnings(),
        hours: all
          .filter(({ hour }) => hour + HOUR_MS > from && (to === null || hour < to))
          .toSorted((left, right) => right.hour - left.hour),
        totals: {
          users: withDifference(totalOf(hours.map(({ users }) => users))),
          events: withDifference(totalOf(hours.map(({ events }) => events))),
          droppedByClients: hours.reduce((sum, { droppedByClients }) => sum + droppedByClients, 0),
        },
      });
    },
  });
}

function withDifference(sums: LedgerSums) {
  const { received, stored, duplicates, erased, expired, deadLetters, pending } = sums;
  return { ...sums, difference: received - stored - duplicates - erased - expired - deadLetters - pending };
}

function totalOf(all: readonly LedgerSums[]): LedgerSums {
  const total: Record<keyof LedgerSums, number> = { ...NO_SUMS };
  for (const sums of all) for (const name of Object.keys(total) as (keyof LedgerSums)[]) total[name] += sums[name];
  return total;
}
