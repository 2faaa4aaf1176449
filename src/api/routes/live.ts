/**
 * `GET /live`: the events of a tenant as they are stored, as server-sent events. The stream continues after the cursor in
 * `Last-Event-ID`, ends when the server stops, and ends within two seconds of the moment at which its key or session is
 * no longer good: a browser then reconnects and learns why. `../live-feed.ts` reads events and writes them as text, no
 * faster than Fastify sends it.
 */

import { Readable } from 'node:stream';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { BEARER } from '../../edge/request-headers.ts';
import { isUsable } from '../../keys/cache.ts';
import { ENVIRONMENTS, LIMITS, type TenantId, tenantPartsOf } from '../../model.ts';
import { type Plan, readStored } from '../../plans/plan.ts';
import type { PlanStore } from '../../plans.ts';
import { putLast } from '../../runtime/put-last.ts';
import { METRIC, readCounter } from '../../telemetry/metrics.ts';
import { uuidOf } from '../../views/uuid.ts';
import { LiveFeed, type LiveFilter } from '../live-feed.ts';
import { choiceParameter, optionalParameter, readParameters, textParameter, withCursor } from '../parameters.ts';
import type { ApiParts } from '../parts.ts';
import { BadParameterError, RefusedError, sendError } from '../responses.ts';
import { routeOptions, type RouteSchema } from '../route-schema.ts';
import { text } from '../schema.ts';
import { include } from '../stored-json.ts';
import { authenticate, DASHBOARD_READING } from '../route-kinds.ts';

/** A key is cached for a second, so this ends a stream within two of its revocation. */
const KEY_CHECK_MS = 500;
const SESSION_CHECK_MS = 1_500;
const PLAN_FRESH_MS = 1_000;
const PLANS_MAX = 100;
const KEY_ID_CHARACTERS_MAX = 64;
const NO_ROOM = 'too many live views are open; close one, or try again later';

/** Heartbeats are more frequent. */
const UNREAD_MS = 30_000;
const STREAM_HEADERS = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-store',
  // Some proxies buffer responses unless this header says not to.
  'x-accel-buffering': 'no',
};

const profileId = optionalParameter(
  'Only events of this person: the id of a profile, or of one that was merged into it.',
  { type: 'string', format: 'uuid' },
  (given, name) => {
    const id = uuidOf(given);
    if (id === undefined) throw new BadParameterError(`${name} must be the id of a profile`);
    return id;
  },
);

const LIVE_PARAMETERS = {
  event_name: textParameter('Only events of this name.', LIMITS.eventNameCharactersMax),
  profile_id: profileId,
  key_id: textParameter('Only events sent with this key: its id, not the key.', KEY_ID_CHARACTERS_MAX),
  include,
  personal: choiceParameter(
    '`show`: properties that the tracking plan marks as personal are shown; otherwise they are `•••`.',
    ['show'],
  ),
  environment: choiceParameter(
    'For sessions, which cannot set a header here: the environment. A key has its own.',
    ENVIRONMENTS,
  ),
};

const LIVE_SCHEMA: RouteSchema = {
  operationId: 'live',
  summary: 'Watch events arrive',
  description: [
    'Server-sent events: `event` with an event as `GET /events` returns it, as soon as it is processed, usually within half a second, in order of arrival. At most 50 per second: of a burst the newest, up to a second later; `skipped` with `{"events":n}` says how many were left out. Events of more than 1 MB are skipped too.',
    'With `Last-Event-ID`, which browsers send by themselves, it continues where it stopped. It ends when the key or session does. At most 20 at once for an account and environment, and 200 in all; beyond that the response is 503.',
  ].join('\n\n'),
  query: LIVE_PARAMETERS,
  headers: {
    'Last-Event-ID': text('The `id` of the last message that was received: what followed it is sent first.'),
  },
  response: {
    description: 'A stream that stays open.',
    content: { 'text/event-stream': { schema: { type: 'string' } } },
  },
  errors: [404],
};

export function registerLiveRoutes(app: FastifyInstance, parts: ApiParts): void {
  const { store, onUnavailable, metricsBuffer } = parts;
  const storedEvents = (): number => readCounter(metricsBuffer, METRIC.processed_events);
  const planOf = currentPlans(parts.keyStore.plans);
  const feed = new LiveFeed({ store, now: () => performance.now(), onUnavailable, storedEvents, planOf });
  parts.stopping.addEventListener('abort', () => feed.close(), { once: true });
  app.route({
    ...routeOptions('GET /live', LIVE_SCHEMA, DASHBOARD_READING),
    onRequest: (request, reply) => authenticate(parts, request, reply, true),
    handler: async (request, reply) => {
      const { tenantId } = request;
      if (tenantId === null) throw new Error('a request without a tenant got to its handler');
      const filter = filterOf(request.url);
      const isKnown = filter.profileId === null || (await store.profile(tenantId, filter.profileId)) !== undefined;
      const after = String(request.headers['last-event-id'] ?? '');
      const cursor = await withCursor('Last-Event-ID', feed.startOf(tenantId, after === '' ? null : after));
      if (!isKnown) throw new RefusedError('not_found');
      const { raw: response } = reply;
      // An edge keeps a connection for its response when the client has ended its side, and this one has no end.
      const isGone = (): boolean => response.destroyed || request.socket.readableEnded;
      const isUnauthorised = unauthorisedCheck(parts, request);
      // To respond to HEAD, Fastify would read the stream to its end, which it does not have.
      const hasStream = request.method !== 'HEAD' && !isGone();
      if (hasStream && !feed.open(tenantId, response)) return sendError(reply, 'unavailable', NO_ROOM);
      const isOver = async (): Promise<boolean> => isGone() || isUnauthorised();
      // A client that does not read keeps its place until then, or twice as long: Node looks once whether part of a write went out.
      request.socket.setTimeout(UNREAD_MS);
      const text = hasStream ? feed.stream({ tenantId, filter, cursor }, isOver) : [];
      return reply.headers(STREAM_HEADERS).send(Readable.from(text));
    },
  });
}

function filterOf(url: string): LiveFilter {
  const parameters = readParameters(LIVE_PARAMETERS, url);
  const { event_name: eventName, profile_id: id, key_id: keyId, include: included, personal } = parameters;
  return { eventName, profileId: id, keyId, includesPerson: included !== null, showsPersonal: personal !== null };
}

/** Whether the caller is not authorised any more: looked up now and then, however often it is asked. */
function unauthorisedCheck(parts: ApiParts, request: FastifyRequest): () => Promise<boolean> {
  const every = request.session === null ? KEY_CHECK_MS : SESSION_CHECK_MS;
  let checkedAt = performance.now();
  return async () => {
    if (performance.now() - checkedAt < every) return false;
    checkedAt = performance.now();
    try {
      return !(await isAuthorised(parts, request));
    } catch {
      // Unknown at this moment. Either nothing can be read anyway, or the caller was authorised a moment ago.
      return false;
    }
  };
}

async function isAuthorised({ keys, keyStore, environment, now }: ApiParts, request: FastifyRequest): Promise<boolean> {
  const at = now();
  if (request.session !== null) {
    // Not as a request is: an open page alone does not keep a session going.
    const session = await keyStore.members.findSession(request.session.tokenHash);
    return session !== undefined && session.expiresAt > at;
  }
  const key = BEARER.exec(request.headers.authorization ?? '')?.[1];
  const found = key === undefined ? undefined : await keys.lookup(key);
  return found !== undefined && isUsable(found, at, environment);
}

/** The tracking plan of a tenant, read again after PLAN_FRESH_MS; null where there is none. */
function currentPlans(store: PlanStore): (tenantId: TenantId) => Promise<Plan | null> {
  const known = new Map<TenantId, { readonly plan: Promise<Plan | null>; readonly readAt: number }>();
  return async (tenantId) => {
    const now = performance.now();
    const last = known.get(tenantId);
    if (last !== undefined && now - last.readAt < PLAN_FRESH_MS) return last.plan;
    const plan = store
      .find(tenantPartsOf(tenantId))
      .then((stored) => (stored === undefined ? null : readStored(stored.text)));
    putLast(known, tenantId, { plan, readAt: now }, PLANS_MAX);
    return plan;
  };
}
