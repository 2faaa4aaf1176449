/**
 * Which routes the SDKs of Segment and RudderStack call, and the settings that their clients in browsers and apps read before
 * they send anything. Pure: it looks at addresses and makes bodies.
 */

import { MESSAGE_TYPES, type MessageType } from '../intake/segment-message.ts';

const PREFIX = '/ingest/v1/';
const RUDDER_CONFIG = '/ingest/sourceConfig';
const RUDDER_BEACON = '/ingest/beacon/v1/batch';

type SegmentRoute =
  /** Takes messages: a batch, or one of the type. */
  | { readonly kind: 'messages'; readonly type: MessageType | null }
  /** What browsers and apps measure about the SDK itself: nothing that is kept. */
  | { readonly kind: 'metrics' }
  | { readonly kind: 'settings'; readonly writeKey: string }
  | { readonly kind: 'rudder_settings' };

/** By their names and first letters. */
const MESSAGES: ReadonlyMap<string, MessageType | null> = new Map<string, MessageType | null>([
  ...['batch', 'b', 'import'].map((name) => [name, null] as const),
  ...MESSAGE_TYPES.flatMap((type) => [[type, type] as const, [type.charAt(0), type] as const]),
]);
const SETTINGS = /^projects\/([^/]+)\/settings$/;

/** For every request that is not for `POST /ingest/events`, so it is cheap. */
export function isSegmentPath(url: string | undefined): boolean {
  if (url?.startsWith('/ingest/') !== true) return false;
  return url.startsWith(PREFIX) || url.startsWith(RUDDER_CONFIG) || url.startsWith(RUDDER_BEACON);
}

/** Undefined for an unknown path. */
export function segmentRouteOf(url: string): SegmentRoute | undefined {
  const [address = ''] = url.split('?', 1);
  const path = address.endsWith('/') ? address.slice(0, -1) : address;
  if (path === RUDDER_CONFIG) return { kind: 'rudder_settings' };
  if (path === RUDDER_BEACON) return { kind: 'messages', type: null };
  if (!path.startsWith(PREFIX)) return undefined;
  const rest = path.slice(PREFIX.length);
  const type = MESSAGES.get(rest);
  if (type !== undefined) return { kind: 'messages', type };
  if (rest === 'm') return { kind: 'metrics' };
  const writeKey = SETTINGS.exec(rest)?.[1];
  return writeKey === undefined ? undefined : { kind: 'settings', writeKey };
}

/** Where a client is to send to: the address of this server as clients know it. */
interface ServerAddress {
  /** Without a scheme: that is how SDKs write it. */
  readonly host: string;
  readonly isPlainHttp: boolean;
}

const LOOPBACK = /^(?:localhost|127\.[\d.]+|\[::1\])(?::\d+)?$/;

/** `publicUrl` is empty where it is not set; then the client says how it reached the server. */
export function serverAddress(publicUrl: string, hostHeader: string | undefined): ServerAddress {
  const { protocol, host, pathname } = URL.parse(publicUrl) ?? {};
  if (host !== undefined && pathname !== undefined) {
    return { host: host + pathname.replace(/\/$/, ''), isPlainHttp: protocol === 'http:' };
  }
  // Without a proxy in front there is no TLS, but only of this machine is that certain.
  return { host: hostHeader ?? '', isPlainHttp: LOOPBACK.test(hostHeader ?? '') };
}

/** What `GET /v1/projects/{key}/settings` of Segment gives: send everything here, and to no other destination. */
export function segmentSettings(writeKey: string, { host, isPlainHttp }: ServerAddress): object {
  const apiHost = `${host}/ingest/v1`;
  return {
    integrations: { 'Segment.io': { apiKey: writeKey, apiHost, ...(isPlainHttp && { protocol: 'http' }) } },
    plan: { track: { __default: { enabled: true } } },
  };
}

/** What `GET /sourceConfig/` of RudderStack gives: a source that is enabled, without destinations or reports of errors. */
export function rudderSettings(keyId: string, writeKey: string): object {
  const disabled = { enabled: false };
  return {
    source: {
      id: keyId,
      name: 'Sluice',
      writeKey,
      enabled: true,
      workspaceId: keyId,
      config: { statsCollection: { errors: disabled, metrics: disabled } },
      connections: [],
      destinations: [],
      dataplanes: {},
    },
  };
}
