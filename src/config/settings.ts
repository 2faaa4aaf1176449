/**
 * The table of settings: names, checks, defaults, units and the words of --help, in the order of --help. What is in
 * here is all that an operator can set; `config.ts` reads it from flags and environment.
 */

import {
  bytes,
  choice,
  connections,
  country,
  duration,
  folder,
  FOREVER_MS,
  GB,
  host,
  integer,
  type Kind,
  list,
  logUrl,
  MB,
  origin,
  proxies,
  retention,
  storeUrl,
} from './values.ts';
import { DAY_MS, ENVIRONMENTS, HOUR_MS, MINUTE_MS, ROLES, SECOND_MS } from '../model.ts';

export interface Setting<T> {
  readonly env: string;
  /** The same name, without the dashes: `log-level` for SLUICE_LOG_LEVEL. */
  readonly flag: string;
  readonly kind: Kind<T>;
  readonly default: T;
  readonly description: string;
}

/** Room for one body of 10 MB, before and after decompression, within the share of large bodies (edge/admission.ts). */
export const EDGE_BYTES_MIN = 28 * MB;

/** Clocks are corrected by seconds, and that is not a jump. */
const CLOCK_BOUND_MS_MIN = MINUTE_MS;

export const SETTINGS = {
  port: setting({
    env: 'PORT',
    kind: integer(0, 65_535),
    default: 8_080,
    description: 'The port to listen on; 0 chooses a free one and prints it.',
  }),
  host: setting({
    env: 'HOST',
    kind: host,
    default: '127.0.0.1',
    description: 'The address to listen on; 0.0.0.0 accepts connections from other machines.',
  }),
  publicUrl: setting({
    env: 'SLUICE_PUBLIC_URL',
    kind: origin,
    default: '',
    description: 'Where people reach this server, for links and secure cookies; set it behind a proxy.',
  }),
  trustedProxies: setting({
    env: 'SLUICE_TRUSTED_PROXIES',
    kind: proxies,
    default: '',
    description:
      'Proxies whose X-Forwarded-For and X-Forwarded-Proto are trusted: addresses, networks (10.0.0.0/8), loopback, linklocal, uniquelocal.',
  }),
  dataFolder: setting({
    env: 'SLUICE_DATA',
    kind: folder,
    default: './data',
    description: 'Where events and keys are stored; one server per folder, not used with LOG_URL.',
  }),
  storeUrl: setting({
    env: 'STORE_URL',
    kind: storeUrl,
    default: '',
    description: 'The PostgreSQL database that several servers share, instead of files in the data folder.',
  }),
  logUrl: setting({
    env: 'LOG_URL',
    kind: logUrl(),
    default: '',
    description: 'The Kafka topic that several servers share as their event log; needs STORE_URL too.',
  }),
  role: setting({
    env: 'SLUICE_ROLE',
    kind: choice('ROLE', ROLES),
    default: 'all',
    description: 'What this server does: receive events, process them, serve the read API and dashboard, or all of it.',
  }),
  storeConnections: setting({
    env: 'SLUICE_STORE_CONNECTIONS',
    kind: integer(2, 1_000),
    default: 10,
    description: 'Maximum number of PostgreSQL connections per edge and for the processor.',
  }),
  storeTimeoutMs: setting({
    env: 'SLUICE_STORE_TIMEOUT',
    kind: duration(SECOND_MS, HOUR_MS),
    default: 30 * SECOND_MS,
    description: 'How long a statement in PostgreSQL may take before it is cancelled.',
  }),
  environment: setting({
    env: 'SLUICE_ENVIRONMENT',
    kind: choice('ENVIRONMENT', ['any', ...ENVIRONMENTS]),
    default: 'any',
    description: 'The environment whose keys are accepted; keys of another one get 401.',
  }),
  edges: setting({
    env: 'SLUICE_EDGES',
    kind: integer(1, 64),
    default: 1,
    description: 'Edge threads that share the port and the log; more than 1 needs Linux or FreeBSD (SO_REUSEPORT).',
  }),
  edgeServers: setting({
    env: 'SLUICE_EDGE_SERVERS',
    kind: integer(1, 1_000),
    default: 1,
    description: "Number of servers that receive events; each enforces its share of a key's rate limit.",
  }),
  inFlightBytesMax: setting({
    env: 'SLUICE_IN_FLIGHT_BYTES',
    kind: bytes(EDGE_BYTES_MIN),
    default: 64 * MB,
    description:
      'Maximum size of request bodies in memory, over all edges (at least 28 MB each, the default for three or more); beyond that, requests get 503.',
  }),
  connectionsMax: setting({
    env: 'SLUICE_CONNECTIONS_MAX',
    kind: connections,
    default: 0,
    description: 'Client connections at once, over all edges; auto: what the open-file limit leaves, at most 10,000.',
  }),
  diskFreeBytesMin: setting({
    env: 'SLUICE_DISK_FREE_MIN',
    kind: bytes(0),
    default: 256 * MB,
    description: 'With less free disk space than this, requests get 503, before the disk is full; 0 turns this off.',
  }),
  logSegmentBytes: setting({
    env: 'SLUICE_LOG_SEGMENT',
    kind: bytes(MB),
    default: 64 * MB,
    description: 'The event log starts a new file when the current one has grown to this size, or is an hour old.',
  }),
  logRetentionMs: setting({
    env: 'SLUICE_LOG_RETENTION',
    kind: retention(),
    default: 7 * DAY_MS,
    description: 'How long requests stay in the log, as received; unprocessed ones always stay.',
  }),
  backlogBytesMax: setting({
    env: 'SLUICE_BACKLOG_MAX',
    kind: bytes(MB),
    default: 4 * GB,
    description: 'With more unprocessed data in the log than this, requests get 503; measured every few seconds.',
  }),
  eventRetentionMs: setting({
    env: 'SLUICE_EVENT_RETENTION',
    kind: retention(),
    default: FOREVER_MS,
    description: 'How long events and dead letters are kept after they are received; profiles stay.',
  }),
  traceRetentionMs: setting({
    env: 'SLUICE_TRACE_RETENTION',
    kind: retention(),
    default: 30 * DAY_MS,
    description: 'How long the details of a trace are kept: warnings, merges, duplicates, rejected users.',
  }),
  rejectionRetentionMs: setting({
    env: 'SLUICE_REJECTION_RETENTION',
    kind: retention(),
    default: 7 * DAY_MS,
    description: 'How long rejected users are kept, with what was sent.',
  }),
  rejectionBytesMax: setting({
    env: 'SLUICE_REJECTION_BYTES',
    kind: bytes(0),
    default: 256 * MB,
    description:
      'Maximum size of stored rejected users, all accounts together; beyond it, the oldest of the account with the most are removed; 0 keeps none.',
  }),
  clockJumpMsMax: setting({
    env: 'SLUICE_CLOCK_JUMP_MAX',
    kind: retention(CLOCK_BOUND_MS_MIN),
    // Less than the 24 hours of an Idempotency-Key, and more than a virtual machine that was suspended overnight jumps.
    default: DAY_MS / 2,
    description:
      'How far the clock may jump ahead in a day while the server runs; beyond that, received_at does not follow.',
  }),
  clockGapMsMax: setting({
    env: 'SLUICE_CLOCK_GAP_MAX',
    kind: retention(CLOCK_BOUND_MS_MIN),
    default: 180 * DAY_MS,
    description:
      'How far the clock may be ahead of the newest event at startup; beyond that, received_at does not follow.',
  }),
  defaultCountry: setting({
    env: 'SLUICE_DEFAULT_COUNTRY',
    kind: country,
    default: '',
    description: 'The country of phone numbers without + or 00, such as DE; set it before the first event.',
  }),
  junkValues: setting({
    env: 'SLUICE_JUNK_VALUES',
    kind: list,
    default: '',
    description:
      'More placeholder values to ignore as identifiers, separated by commas; null, undefined, guest and such are built in.',
  }),
  logLevel: setting({
    env: 'SLUICE_LOG_LEVEL',
    kind: choice('LEVEL', ['fatal', 'error', 'warn', 'info', 'silent']),
    default: 'info',
    description: 'The level of the JSON log on stderr.',
  }),
  drainMs: setting({
    env: 'SLUICE_DRAIN',
    kind: duration(0, 600 * SECOND_MS),
    default: 5 * SECOND_MS,
    description:
      'How long a server keeps serving after SIGTERM while /readyz fails, so that load balancers move traffic away first; Ctrl-C does not wait.',
  }),
  shutdownMs: setting({
    env: 'SLUICE_SHUTDOWN',
    kind: duration(0, 30 * SECOND_MS),
    default: 25 * SECOND_MS,
    description:
      'How long requests in flight may take to finish once the port is closed, after SLUICE_DRAIN; at most 30s.',
  }),
};

/** The kind alone decides the type, so that a choice stays one of its choices and is not any text. */
function setting<T>(row: Omit<Setting<T>, 'flag' | 'default'> & { readonly default: NoInfer<T> }): Setting<T> {
  const flag = row.env.replace('SLUICE_', '').replaceAll('_', '-').toLowerCase();
  return { ...row, flag };
}
