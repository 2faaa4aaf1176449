/**
 * What a server of each role serves over HTTP, and what it says of paths that another role serves. Health, metrics and
 * version are served by all of them, so they are not in here.
 */

import type { Role } from '../model.ts';

export const INGEST_PATH = '/ingest/events';
/** The dry run of the same. */
export const CHECK_PATH = '/ingest/events/check';
/** The SDK for pages, served where events are taken in. */
export const SDK_SCRIPT_PATH = '/ingest/sluice.js';

/** All paths that take events in, whatever their form. */
const INGEST_PATHS = '/ingest/';

export function servesIngest(role: Role): boolean {
  return role === 'all' || role === 'edge';
}

export function servesApi(role: Role): boolean {
  return role === 'all' || role === 'api';
}

export function processes(role: Role): boolean {
  return role === 'all' || role === 'processor';
}

/** Why a path is not here although it is elsewhere; undefined where that is not so, and it is nowhere. */
export function servedElsewhere(role: Role, path: string): string | undefined {
  if (path.startsWith(INGEST_PATHS)) {
    return servesIngest(role) ? undefined : `servers with the role edge receive events; this one has the role ${role}`;
  }
  if (servesApi(role)) return undefined;
  return `servers with the role api serve everything but events, health and metrics; this one has the role ${role}`;
}
