/**
 * `GET /live`: the events of a tenant as they are stored, as server-sent events. The stream continues after the cursor in
 * `Last-Event-ID`, ends when the server stops, and ends within two seconds of the moment at which its key or session is
 * no longer good: a browser then reconnects and learns why. `live-feed.ts` reads and writes.
 */

import type { ServerResponse } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { isUsable } from '../../keys/cache.ts';
import { ENVIRONMENTS, LIMITS, type TenantId } from '../../model.ts';
import { METRIC, readCounter } from '../../telemetry/metrics.ts';
import { BadCursorError } from '../../store.ts';
import { uuidOf } from '../../views/uuid.ts';
import type { HealthParts } from './health.ts';
import { CurrentPlans } from '../current-plans.ts';
import { LiveFeed, type LiveFeedParts, type LiveFilter, LiveListener, type LivePosition } from '../live-feed.ts';
import { choiceParameter, type ParameterKind, readParameters, textParameter } from '../parameters.ts';
import { include } from '../person-of-event.ts';
import { BadParameterError, RefusedError, sendError } from '../responses.ts';
import { routeOptions, type RouteSchema } from '../route-schema.ts';
import { text } from '../schema.ts';
import { authenticate, BEARER, DASHBOARD_READING, type TenantParts } from '../tenant-route.ts';

export interface LiveParts extends TenantParts, Pick<HealthParts, 'metricsBuffer'> {
  /** Aborted when the server begins to stop: streams would keep it waiting. */
  readonly stopping: AbortSignal;
  readonly onUnavailable: LiveFeedParts['onUnavailable'];
}

/** A key is cached for a second, so this ends a stream within two of its revocation. */
const KEY_CHECK_MS = 500;
const SESSION_CHECK_MS = 1_500;
const KEY_ID_CHARACTERS_MAX = 64;
const NO_ROOM = 'too many live views are open; close one, or try again later';

const profileId: ParameterKind<string | null> = {
  description: 'Only events of this person: the id of a profile, or of one that was merged into it.',
  schema: { type: 'string', format: 'uuid' },
  read: (given, name) => {
    if (given === undefined || given === '') return null;
    const id = uuidOf(given);
    if (id === undefined) throw new BadParameterError(`${name} must be the id of a profile`);
    return id;
  },
};

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

export function registerLiveRoutes(app: FastifyInstance, parts: LiveParts): void {
  const { store, now, onUnavailable, metricsBuffer } = parts;
  const storedEvents = (): number => readCounter(metricsBuffer, METRIC.processed_events);
  const plans = new CurrentPlans(parts.keyStore.plans);
  const planOf = (tenantId: TenantId) => plans.of(tenantId);
  const feed = new LiveFeed({ store, now, onUnavailable, storedEvents, planOf });
  parts.stopping.addEventListener('abort', () => feed.close(), { once: true });
  app.route({
    method: 'GET',
    url: '/live',
    ...routeOptions(LIVE_SCHEMA, DASHBOARD_READING),
    onRequest: (request, reply) => authenticate(parts, request, reply, true),
    handler: async (request, reply) => {
      const { tenantId } = request;
      if (tenantId === null) throw new Error('a request without a tenant got to its handler');
      const filter = filterOf(request.url);
      const release = feed.reserve(tenantId);
      if (release === null) return sendError(reply, 'unavailable', NO_ROOM);
      let start: LivePosition;
      try {
        const isKnown = filter.profileId === null || (await store.profile(tenantId, filter.profileId)) !== undefined;
        start = await startOf(feed, tenantId, request.headers['last-event-id']);
        if (!isKnown) throw new RefusedError('not_found');
      } catch (error) {
        release();
        throw error;
      }
      const response = streamOf(reply);
      const { socket } = request.raw;
      if (request.method === 'HEAD' || response.destroyed || socket.readableEnded) {
        response.end();
        release();
        return reply;
      }
      const listener = new LiveListener(response, { filter, start, traceId: request.id, now: now() });
      const stopChecking = closeWhenUnauthorised(parts, request, listener);
      // An edge keeps a connection for its response when the client has ended its side, and this one has no end.
      const end = (): void => listener.close();
      socket.once('end', end);
      response.once('close', () => {
        socket.off('end', end);
        stopChecking();
        feed.remove(listener);
        release();
      });
      feed.add(tenantId, listener);
      return reply;
    },
  });
}

function filterOf(url: string): LiveFilter {
  const parameters = readParameters(LIVE_PARAMETERS, url);
  const { event_name: eventName, profile_id: id, key_id: keyId, include: included, personal } = parameters;
  return { eventName, profileId: id, keyId, includesPerson: included !== null, showsPersonal: personal !== null };
}

async function startOf(
  feed: LiveFeed,
  tenantId: TenantId,
  after: string | string[] | undefined,
): Promise<LivePosition> {
  try {
    return await feed.startOf(tenantId, after === undefined || after === '' ? null : String(after));
  } catch (error) {
    if (!(error instanceof BadCursorError)) throw error;
    throw new BadParameterError(`Last-Event-ID ${error.message}`);
  }
}

/** The response, with its headers set; Fastify leaves the rest to the caller. */
function streamOf(reply: FastifyReply): ServerResponse {
  const { raw: response } = reply;
  reply.headers({
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-store',
    // Some proxies buffer responses unless this header says not to.
    'x-accel-buffering': 'no',
  });
  for (const [name, value] of Object.entries(reply.getHeaders())) {
    if (value !== undefined) response.setHeader(name, value);
  }
  reply.hijack();
  return response;
}

/** Looks again and again whether the caller would still be let in. */
function closeWhenUnauthorised(parts: LiveParts, request: FastifyRequest, listener: LiveListener): () => void {
  const check = async (): Promise<void> => {
    try {
      if (!(await isAuthorised(parts, request))) listener.close();
    } catch {
      // Unknown at this moment. Either nothing can be read anyway, or it was let in a moment ago.
    }
  };
  const every = request.session === null ? KEY_CHECK_MS : SESSION_CHECK_MS;
  const timer = setInterval(() => void check(), every).unref();
  return () => clearInterval(timer);
}

async function isAuthorised({ keys, members, environment, now }: LiveParts, request: FastifyRequest): Promise<boolean> {
  const at = now();
  if (request.session !== null) {
    // Not as a request is: an open page alone does not keep a session going.
    const session = await members.findSession(request.session.tokenHash);
    return session !== undefined && session.expiresAt > at;
  }
  const key = BEARER.exec(request.headers.authorization ?? '')?.[1];
  const found = key === undefined ? undefined : await keys.lookup(key);
  return found !== undefined && isUsable(found, at, environment);
}
