/**
 * `GET /ledger`: the books of a tenant, by hour of receipt. What was received is stored, a duplicate, erased, expired,
 * set aside or still pending; any difference is a bug, and `balanced` says at a glance whether there is one anywhere.
 * Hours are those asked for, totals and `balanced` are over all of them. `missing_records` compares the end of the log with
 * the position of the store, over all tenants: requests that the log has lost belong to hours and tenants unknown. Once an
 * operator has given them up they are in `lost_records` instead, for good, and no longer keep `balanced` false: nothing
 * is left to decide.
 */

import type { FastifyInstance } from 'fastify';
import type { Books, LedgerHour } from '../store.ts';
import type { Json } from './json-text.ts';
import { refuseEmptyRange, timeParameter } from './parameters.ts';
import { timeText } from './stored-answers.ts';
import { addTenantRoute, type TenantParts } from './tenant-route.ts';

const HOUR_MS = 3_600_000;
const DEFAULT_RANGE_MS = 7 * 24 * HOUR_MS;

export const LEDGER_PARAMETERS = {
  from: timeParameter(
    'Only hours from the one of this time on. ISO 8601. Unless given, 7 days before `to`, or before now.',
  ),
  to: timeParameter('Only hours that begin before this time. ISO 8601.'),
};

const NO_BOOKS: Books = { received: 0, stored: 0, duplicates: 0, erased: 0, expired: 0, setAside: 0, pending: 0 };

export function registerLedgerRoutes(app: FastifyInstance, parts: TenantParts): void {
  addTenantRoute(app, parts, {
    method: 'GET',
    url: '/ledger',
    parameters: LEDGER_PARAMETERS,
    answer: async ({ store, tenantId, parameters, now }) => {
      refuseEmptyRange(parameters.from, parameters.to);
      // Not bounded by now: a clock that was set back must not hide the hours that are ahead of it.
      const { to } = parameters;
      const from = parameters.from ?? (to ?? now) - DEFAULT_RANGE_MS;
      const { hours, missingRecords, lost } = await store.ledger(tenantId, { from: null, to: null });
      const shown = hours
        .filter(({ hour }) => hour + HOUR_MS > from && (to === null || hour < to))
        .toSorted((left, right) => right.hour - left.hour);
      return {
        balanced:
          missingRecords === 0 &&
          hours.every(({ users, events }) => differenceOf(users) === 0 && differenceOf(events) === 0),
        missing_records: missingRecords,
        lost_records: lost.reduce((sum, { records }) => sum + records, 0),
        hours: shown.map(hourAnswer),
        totals: {
          users: booksAnswer(totalOf(hours.map(({ users }) => users))),
          events: booksAnswer(totalOf(hours.map(({ events }) => events))),
        },
      };
    },
  });
}

function hourAnswer({ hour, users, events, rejectedUsers }: LedgerHour): Json {
  return {
    hour: timeText(hour),
    users: booksAnswer(users),
    events: booksAnswer(events),
    users_rejected: rejectedUsers,
  };
}

function booksAnswer(books: Books): Json {
  const { received, stored, duplicates, erased, expired, setAside, pending } = books;
  const difference = differenceOf(books);
  return { received, stored, duplicates, erased, expired, set_aside: setAside, pending, difference };
}

function differenceOf({ received, stored, duplicates, erased, expired, setAside, pending }: Books): number {
  return received - stored - duplicates - erased - expired - setAside - pending;
}

function totalOf(all: readonly Books[]): Books {
  let total = NO_BOOKS;
  for (const books of all) {
    total = {
      received: total.received + books.received,
      stored: total.stored + books.stored,
      duplicates: total.duplicates + books.duplicates,
      erased: total.erased + books.erased,
      expired: total.expired + books.expired,
      setAside: total.setAside + books.setAside,
      pending: total.pending + books.pending,
    };
  }
  return total;
}
