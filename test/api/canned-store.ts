/**
 * A store with a fixed result for every query of one tenant and nothing for others, which remembers what it was
 * asked. For what the real one cannot be made to say on demand.
 */

import { HOUR_MS } from '../../src/model.ts';
import type {
  Catalogue,
  CatalogueDetails,
  EventQuery,
  Page,
  Store,
  StoredEvent,
  StoredJob,
  StoredProfile,
} from '../../src/store.ts';
import { BadCursorError } from '../../src/store.ts';
import { malformedCursor } from '../../src/views/cursor.ts';

export const PROFILE_ID = '019a8262-f0d8-83b1-a1c5-7d20f4e6b98a';
export const NODE_ID = '019a8267-8e10-8f44-b2d9-31c06a58e7f2';
export const TRACE_ID = '019a8267-8f3a-7c41-9d0e-5b6a7f21c3de';
export const KEY_ID = 'key_7Hq2mZx04LbT';
const AT = Date.UTC(2026, 10, 14, 9, 30, 1, 210);

const provenanceOf = (value: string) => ({ value, traceId: TRACE_ID, receivedAt: AT });

export const PROFILE: StoredProfile = {
  id: PROFILE_ID,
  mergedIds: [NODE_ID],
  identifiers: { user_id: ['u-1'], email: ['Ada@example.com'], phone_number: [], anon_id: ['a-1', 'a-2'] },
  profileFields: new Map([
    ['__proto__', provenanceOf('"field"')],
    ['city', provenanceOf('"Lisbon"')],
  ]),
  userProperties: new Map([
    ['__proto__', provenanceOf('{"__proto__":{"x":1},"constructor":null}')],
    ['big', provenanceOf('12345678901234567890.10')],
    ['hasOwnProperty', provenanceOf('1e400')],
  ]),
  firstSeen: AT,
  lastSeen: AT + 1,
  eventCount: 3,
};

export const EVENT: StoredEvent = {
  id: `${TRACE_ID}.0.0`,
  eventName: 'order "completed"\u2028',
  timestamp: AT - 1_210,
  receivedAt: AT,
  revenue: '0.10000000000000000001',
  eventValue: null,
  properties: '{"__proto__":9007199254740993,"a":[1.50]}',
  profileId: PROFILE_ID,
  traceId: TRACE_ID,
  userIndex: 0,
  keyId: KEY_ID,
};

export const CATALOGUED: CatalogueDetails = {
  name: 'order / "completed"',
  count: 10,
  examined: 4,
  firstSeen: AT,
  lastSeen: AT + 2,
  keyIds: [KEY_ID],
  propertyCount: 1,
  changes: [{ property: '__proto__', type: 'string', at: AT + 1 }],
  properties: [
    {
      name: '__proto__',
      count: 3,
      types: [
        { type: 'string', count: 1, firstSeen: AT + 1 },
        { type: 'number', count: 2, firstSeen: AT },
      ],
      firstSeen: AT,
      lastSeen: AT + 1,
      examples: ['<b>', '1.5'],
    },
  ],
  otherProperties: 2,
};

const origin = { traceId: TRACE_ID, userIndex: 0, at: AT };
const totals = { received: 7, stored: 1, duplicates: 2, erased: 1, expired: 1, deadLetters: 1, pending: 1 };
export const HOUR = Date.UTC(2026, 10, 14, 9);

export interface Asked {
  readonly method: string;
  readonly arguments: readonly unknown[];
}

const JOB: StoredJob = {
  id: TRACE_ID,
  kind: 'resubmit',
  status: 'running',
  createdAt: AT,
  finishedAt: null,
  by: { key_id: KEY_ID },
  filter: '{"reason":"x","from":null,"to":0}',
  patch: '[{"op":"add","path":"/a","value":1.0}]',
  matched: 3,
  counts: { resubmitted: 1, stillRejected: 1, already: 0, cut: 0, failed: 0 },
  problems: [{ id: `${TRACE_ID}.1`, message: '"x"' }],
};

export function cannedStore(tenantId: string): { store: Store; asked: Asked[] } {
  const asked: Asked[] = [];
  /** The response for the tenant that has something, or what a tenant without anything gets. */
  const responses = <Given extends unknown[], Value>(method: string, own: (...given: Given) => Value, none: Value) => {
    return (tenant: string | null, ...given: Given): Promise<Value> => {
      asked.push({ method, arguments: [tenant, ...given] });
      return Promise.resolve().then(() => (tenant === tenantId ? own(...given) : none));
    };
  };
  const page = <Row>(rows: readonly Row[]) => {
    return ({ cursor }: { cursor: string | null }): Page<Row> => {
      if (cursor === 'nonsense') throw new BadCursorError('is not one that the store gave');
      return { rows, nextCursor: cursor === null ? 'next' : null };
    };
  };
  const nothing: Page<never> = { rows: [], nextCursor: null };
  const forProfile = <Value>(value: Value) => {
    return (id: string): Value | undefined => (id === PROFILE_ID || id === NODE_ID ? value : undefined);
  };
  const store: Store = {
    predict: responses('predict', () => ({ users: [], pendingRequests: 0 }), { users: [], pendingRequests: 0 }),
    tenants: () => Promise.resolve([tenantId]),
    findProfile: responses(
      'findProfile',
      (_type, normalised) => (normalised.endsWith('nobody') ? undefined : PROFILE),
      undefined,
    ),
    profile: responses('profile', forProfile(PROFILE), undefined),
    profileCount: responses('profileCount', () => 3, 0),
    profiles: responses('profiles', page([PROFILE]), nothing),
    searchPeople: responses(
      'searchPeople',
      (query) => {
        const isNobody = query.text?.endsWith('nobody') ?? false;
        const rows = isNobody ? [] : [{ matched: query.text === NODE_ID ? (['id'] as const) : [], profile: PROFILE }];
        return { ...page(rows)(query), isPartial: false };
      },
      { ...nothing, isPartial: false },
    ),
    people: responses(
      'people',
      (ids) => {
        const { id, identifiers } = PROFILE;
        return new Map(ids.map((asked) => [asked, { id, name: 'Ada', identifiers }]));
      },
      new Map(),
    ),
    events: (tenant, query) => {
      const none = query.profileId === null ? nothing : undefined;
      const own = (): Page<StoredEvent> | undefined =>
        query.profileId === null || query.profileId === PROFILE_ID ? page([EVENT])(query) : undefined;
      return responses('events', (_query: EventQuery) => own(), none)(tenant, query);
    },
    arrivals: responses(
      'arrivals',
      (after) => {
        if (after === 'nonsense') throw malformedCursor();
        return { events: [{ ...EVENT, cursor: 'last' }], last: 'last' };
      },
      { events: [], last: 'first' },
    ),
    newestArrivals: responses('newestArrivals', () => ({ events: [], last: 'last', skipped: null }), {
      events: [],
      last: 'first',
      skipped: null,
    }),
    catalogue: responses<[], Catalogue>(
      'catalogue',
      () => ({
        events: [CATALOGUED],
        otherEvents: 4,
        userProperties: { ...CATALOGUED, name: '' },
        profileFields: null,
      }),
      { events: [], otherEvents: 0, userProperties: null, profileFields: null },
    ),
    cataloguedEvent: responses(
      'cataloguedEvent',
      (name) => (name === CATALOGUED.name ? CATALOGUED : undefined),
      undefined,
    ),
    counts: responses(
      'counts',
      () => [{ start: HOUR, eventName: 'x', events: 2, revenue: [{ currency: 'EUR', events: 1, revenue: 0.5 }] }],
      [],
    ),
    identity: responses(
      'identity',
      forProfile({
        id: PROFILE_ID,
        identifiers: [
          { type: 'anon_id' as const, value: 'a-1', normalised: 'a-1', nodeId: PROFILE_ID, ...origin },
          {
            type: 'email' as const,
            value: 'Ada@example.com',
            normalised: 'ada@example.com',
            nodeId: NODE_ID,
            ...origin,
          },
        ],
        merges: [
          {
            from: NODE_ID,
            into: PROFILE_ID,
            nodes: [PROFILE_ID, NODE_ID] as const,
            via: { type: 'anon_id' as const, value: 'a-1' },
            ...origin,
          },
        ],
        refusals: [
          {
            type: 'email' as const,
            value: 'eve@example.com',
            reason: 'other_user_id' as const,
            lastAt: AT,
            count: 2,
            ...origin,
          },
        ],
      }),
      undefined,
    ),
    unmerge: responses(
      'unmerge',
      (id, mergedBy) => forProfile({ undone: mergedBy === TRACE_ID ? 1 : 0, profileIds: [PROFILE_ID, NODE_ID] })(id),
      undefined,
    ),
    erase: responses('erase', (id) => id === PROFILE_ID, false),
    audit: responses(
      'audit',
      page([{ kind: 'erase' as const, traceId: TRACE_ID, at: AT, detail: '{"n":1.0}' }]),
      nothing,
    ),
    trace: responses(
      'trace',
      (traceId) =>
        traceId !== TRACE_ID
          ? undefined
          : {
              traceId,
              status: 'processed' as const,
              receivedAt: AT,
              processedAt: AT + 38,
              usersAccepted: 1,
              usersRejected: 1,
              duplicateOf: null,
              keyId: KEY_ID,
              keyKind: 'secret' as const,
              format: 'sluice' as const,
              users: [
                {
                  userIndex: 0,
                  status: 'accepted' as const,
                  profileId: PROFILE_ID,
                  events: 1,
                  duplicateEvents: 1,
                  merged: [{ from: NODE_ID, into: PROFILE_ID }],
                  warnings: ['w'],
                  message: null,
                },
                {
                  userIndex: 1,
                  status: 'rejected' as const,
                  profileId: null,
                  events: 0,
                  duplicateEvents: 0,
                  merged: [],
                  warnings: [],
                  message: 'm',
                },
              ],
            },
      undefined,
    ),
    traces: responses(
      'traces',
      page([
        {
          traceId: TRACE_ID,
          status: 'processed' as const,
          receivedAt: AT,
          processedAt: AT + 38,
          usersAccepted: 1,
          usersRejected: 1,
          duplicateOf: null,
          keyId: KEY_ID,
          events: 3,
        },
      ]),
      nothing,
    ),
    rejections: responses(
      'rejections',
      page([
        {
          ...origin,
          receivedAt: AT,
          message: 'events[3] x',
          reason: 'events[] x',
          payload: '{"a":1.0}',
          payloadIsCut: false,
          keyId: KEY_ID,
          keyKind: 'secret' as const,
          format: 'sluice' as const,
          eventNames: ['"x"'],
          resubmittedAt: AT,
          acceptedBy: null,
        },
        {
          ...origin,
          receivedAt: AT,
          message: 'y',
          reason: 'y',
          payload: '{"a":"',
          payloadIsCut: true,
          keyId: KEY_ID,
          keyKind: 'secret' as const,
          format: 'sluice' as const,
          eventNames: [],
          resubmittedAt: null,
          acceptedBy: null,
        },
      ]),
      nothing,
    ),
    rejectionReasons: responses(
      'rejectionReasons',
      () => [{ reason: 'events[] "x"', users: 3, resubmitted: 1, lastAt: AT, traceId: TRACE_ID, userIndex: 4 }],
      [],
    ),
    planViolations: responses(
      'planViolations',
      () => [
        {
          version: 2,
          eventName: 'order_placed',
          path: 'items[].price',
          message: 'must be a number',
          count: 7,
          firstAt: AT,
          lastAt: AT,
          traceId: TRACE_ID,
        },
      ],
      [],
    ),
    receipts: responses(
      'receipts',
      () => ({
        minutes: [{ start: HOUR, usersAccepted: 5, usersRejected: 2, eventsAccepted: 9 }],
        positions: new Map(),
      }),
      { minutes: [], positions: new Map() },
    ),
    ledger: responses(
      'ledger',
      () => ({
        hours: [
          {
            hour: HOUR - 240 * HOUR_MS,
            users: { ...totals, received: 8 },
            events: totals,
            usersRejected: 0,
            usersResubmitted: 0,
            droppedByClients: 2,
          },
          {
            hour: HOUR - HOUR_MS,
            users: totals,
            events: totals,
            usersRejected: 4,
            usersResubmitted: 1,
            droppedByClients: 3,
          },
          { hour: HOUR, users: totals, events: totals, usersRejected: 0, usersResubmitted: 0, droppedByClients: 0 },
        ],
        positions: new Map(),
        lastTraceIds: new Map(),
        lost: [],
        missingRecords: 0,
      }),
      { hours: [], positions: new Map(), lastTraceIds: new Map(), lost: [], missingRecords: 0 },
    ),
    deadLetters: () => Promise.resolve([]),
    listDeadLetters: responses(
      'listDeadLetters',
      page([
        {
          tenantId,
          traceId: TRACE_ID,
          firstUserIndex: 0,
          partition: 0,
          position: 7,
          receivedAt: AT,
          failedAt: AT,
          cause: 'TypeError: "x"',
          users: 1,
          events: 2,
          keyId: KEY_ID,
          header: {
            ...{ partition: 0, position: 7, tenantId, traceId: TRACE_ID, receivedAt: AT, keyId: KEY_ID },
            ...{ keyKind: 'secret', idempotencyKey: null, firstUserIndex: 0, userCount: 1, eventCount: 2 },
            rejections: [],
          },
          isKept: true,
          isErased: false,
        },
      ]),
      nothing,
    ),
    rejection: responses(
      'rejection',
      (traceId, userIndex) =>
        traceId !== TRACE_ID
          ? undefined
          : {
              traceId,
              userIndex,
              receivedAt: AT,
              message: 'x',
              reason: 'x',
              payload: '{"a":1.0}',
              payloadIsCut: false,
              keyId: KEY_ID,
              keyKind: 'secret' as const,
              format: 'sluice' as const,
              eventNames: [],
              resubmittedAt: null,
              acceptedBy: null,
            },
      undefined,
    ),
    countRejections: responses('countRejections', () => 2, 0),
    resubmitUser: responses('resubmitUser', (): StoredJob | 'unknown' => JOB, 'unknown'),
    resubmitAll: responses('resubmitAll', () => JOB, undefined),
    retryDeadLetter: responses('retryDeadLetter', (traceId) => (traceId === TRACE_ID ? JOB : undefined), undefined),
    retryDeadLetters: responses('retryDeadLetters', () => JOB, undefined),
    job: responses('job', forProfile(JOB), undefined),
    jobs: responses('jobs', page([JOB]), nothing),
    setJobStatus: responses('setJobStatus', (id) => forProfile(JOB)(id), undefined),
    waitUntilProcessed: () => Promise.resolve(true),
    recount: () => Promise.resolve({ eventsInLedger: 0, eventsInTables: 0 }),
    close: () => Promise.resolve(),
  };
  return { store, asked };
}
