/** What a good call of a tenant's route has, by its path: the id in it, and the body of a POST or PUT. */

import { CATALOGUED, PROFILE_ID, TRACE_ID } from './canned-store.ts';

const BODIES: Readonly<Record<string, object>> = {
  '/rejections/{id}/resubmit': { user: { identifiers: { user_id: 'u-1' }, events: [{ event_name: 'x' }] } },
  '/rejections/resubmit': { filter: {}, patch: [{ op: 'remove', path: '/x' }] },
  '/dead-letters/retry': { filter: {} },
  '/plan': {},
};

/** `path` as OpenAPI or as Fastify writes it. */
export function goodPath(path: string): string {
  const id = /^\/(rejections|dead-letters)\//.test(path) ? `${TRACE_ID}.0` : PROFILE_ID;
  return path
    .replace(/\{id\}|:id/, id)
    .replace(/\{trace_id\}|:trace_id/, TRACE_ID)
    .replace(/\{event_name\}|:event_name/, encodeURIComponent(CATALOGUED.name));
}

export function goodBody(path: string): object {
  return BODIES[path.replace(':id', '{id}')] ?? { trace_id: TRACE_ID };
}

/** Of what is only begun when the response is sent. */
export function goodStatus(method: string, path: string): number {
  const isBegun = method === 'DELETE' || /\/(retry|[^/]+\.0\/resubmit|\{id\}\/resubmit)$/.test(path);
  return isBegun ? 202 : 200;
}
