/**
 * `GET /health`: how the server is, for a person. What `/readyz` and `/metrics` say to machines, with the limits next
 * to the numbers and the settings in effect. It is of the whole server, so it has sums only and nothing of any tenant;
 * like everything else it needs a key or a session.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyInstance } from 'fastify';
import type { Config, Sources } from '../../config/config.ts';
import { METRIC, readCounter, readGauge, REQUESTS_BY_STATUS, residentMemoryBytes } from '../../telemetry/metrics.ts';
import { processes } from '../../config/roles.ts';
import { isRetryable } from '../../runtime/unavailable.ts';
import { type LedgerReader, NO_HOURS, type TraceReader } from '../../store.ts';
import { StoreUnavailableError } from '../../store-writer.ts';
import type { ApiParts } from '../parts.ts';
import { count, list, object, oneOf, orNull, text, time, Type } from '../schema.ts';
import { timeText } from '../responses.ts';
import { DASHBOARD_READING, tenantRoute } from '../route-kinds.ts';
import { role } from './operations.ts';

/** How long the log and the store may take to report missing records; after that the last known result is returned. */
const MISSING_MS_MAX = 2_000;
/** More than this are not counted: who has one of them has a bug to look for. */
const DEAD_LETTERS_MAX = 1_000;

const Setting = object('Setting', 'One setting of the server.', {
  name: text('Name of the environment variable.'),
  value: text('What is in effect.'),
  default: text('What would be, if nothing was set.'),
  source: oneOf(['default', 'environment', 'flag'], 'Where the value came from.'),
  description: text('What it does.'),
});

const Health = object('Health', 'The health of the server.', {
  status: oneOf(['ready', 'not ready'], 'As `/readyz` says.'),
  reasons: list(Type.String(), 'Why the server is not ready.'),
  warnings: list(
    Type.String(),
    'What an operator should know: findings of the last start, possible losses from the event log that cannot be counted, such as after a missing or old `log-ends`, and that the store was rebuilt from the log. The latter two stay until `log-warnings` in the data folder is removed.',
  ),
  processing_problem: orNull(
    Type.String(),
    'Why processing waits, such as a store that cannot be written or does not belong to the log; null while it continues, and on a server that processes nothing. Accepted requests stay in the log.',
  ),
  version: text('Of Sluice.'),
  role,
  node: text('Version of Node.js.'),
  started_at: time('When this process started.'),
  backlog_bytes: orNull(count('In the log and not yet processed; null until it was measured.')),
  backlog_bytes_max: count('Above this, events get 503.'),
  lag_seconds: orNull(
    Type.Number({ minimum: 0 }),
    'Age of the oldest request that is not yet processed; null on a server that processes none.',
  ),
  disk_free_bytes: orNull(
    Type.Integer({ minimum: 0 }),
    'Free space on the disk of the data folder; null on a server without one.',
  ),
  disk_free_bytes_min: count('Below this, events get 503.'),
  last_backup_at: orNull(
    time(
      'When the last successful `sluice backup` of the data folder began: everything acknowledged before is in it. Null if there was none; backups by other means, such as of PostgreSQL, are not included.',
    ),
  ),
  clock_held_seconds: Type.Number({
    minimum: 0,
    description:
      'How far the clock is ahead of `received_at`, because it jumped and is not trusted; 0 while it is. Correct the clock. If it is right, restart the server, with a larger `SLUICE_CLOCK_GAP_MAX` if the difference is larger than that.',
  }),
  clock_behind_seconds: Type.Number({
    minimum: 0,
    description:
      'How far the clock is behind `received_at`, which never goes back: it advances at half speed until the clock has caught up. If the clock is wrong, correct it.',
  }),
  memory_bytes: count('Resident memory of the process.'),
  ledger_difference: orNull(
    Type.Number(),
    'Events that are not accounted for: anything but 0 is a bug; null on a server that processes nothing.',
  ),
  log_missing_records: orNull(
    Type.Number(),
    'Records that the store relies on and the log does not have: anything but 0 needs an operator; null on a server that processes nothing.',
  ),
  log_lost_records: orNull(
    Type.Number(),
    'Records that will never be in the store: given up by an operator, or removed from the log before this store was created; null on a server that processes nothing.',
  ),
  dead_letters: count('Dead letters: requests that could not be processed, kept to be retried.'),
  requests: list(
    Type.Object({ status: count('The HTTP status.'), requests: count('Responses with it since `started_at`.') }),
    'Responses to requests under `/ingest/`, of the whole server. Requests rejected for an invalid key or broken JSON are counted nowhere else: they belong to no account.',
  ),
  edges: count('Threads that serve requests.'),
  settings: list(Setting, 'All settings.'),
});

export function registerHealthRoutes(app: FastifyInstance, parts: ApiParts): void {
  tenantRoute(app, parts, 'GET /health', {
    kind: DASHBOARD_READING,
    operationId: 'health',
    summary: 'Server status',
    description:
      '`/readyz` and `/metrics` in readable form, with limits and the settings in effect. It covers the whole server and has no data of any account.',
    response: { description: 'The health of the server.', body: Health },
    handler: async ({ store }) => ({
      ...healthJson(parts, await deadLetterCount(store, parts.metricsBuffer), await goneRecords(store, parts)),
      settings: await settingsJson(parts.config, parts.sources),
    }),
  });
}

/** As in `GET /ledger` at this moment; while log or store cannot be read, as the processor last found it. */
async function goneRecords(store: LedgerReader, { config, metricsBuffer }: ApiParts) {
  if (!processes(config.role)) return { log_missing_records: null, log_lost_records: null };
  try {
    const ledger = store.ledger(null, NO_HOURS);
    const found = await Promise.race([ledger, sleep(MISSING_MS_MAX, null, { ref: false })]);
    if (found !== null) {
      const lost = found.lost.reduce((sum, { records }) => sum + records, 0);
      return { log_missing_records: found.missingRecords, log_lost_records: lost };
    }
    ledger.catch(() => undefined);
  } catch (error) {
    if (!isRetryable(error)) throw error;
  }
  return {
    log_missing_records: readGauge(metricsBuffer, METRIC.log_missing_records) ?? 0,
    log_lost_records: readGauge(metricsBuffer, METRIC.log_lost_records) ?? 0,
  };
}

function healthJson(parts: ApiParts, deadLetters: number, gone: Awaited<ReturnType<typeof goneRecords>>) {
  const { config, metricsBuffer, version, readiness } = parts;
  const { ready, reasons } = readiness();
  // A gauge that was not set yet is of a part that has had nothing to do.
  const gauge = (index: Parameters<typeof readGauge>[1]): number => readGauge(metricsBuffer, index) ?? 0;
  const hasProcessor = processes(config.role);
  const lastBackup = readGauge(metricsBuffer, METRIC.last_backup);
  // Of all accounts: those without a valid key belong to none.
  const requests = [...REQUESTS_BY_STATUS]
    .map(([status, counter]) => ({ status, requests: readCounter(metricsBuffer, counter) }))
    .filter((counted) => counted.requests > 0);
  return {
    status: ready ? ('ready' as const) : ('not ready' as const),
    reasons,
    warnings: parts.startWarnings(),
    processing_problem: parts.processingProblem(),
    version,
    role: config.role,
    node: process.versions.node,
    started_at: timeText(performance.timeOrigin),
    backlog_bytes: readGauge(metricsBuffer, METRIC.backlog_bytes),
    backlog_bytes_max: config.backlogBytesMax,
    lag_seconds: hasProcessor ? gauge(METRIC.processor_lag) : null,
    disk_free_bytes: config.logUrl === '' ? gauge(METRIC.disk_free_bytes) : null,
    disk_free_bytes_min: config.diskFreeBytesMin,
    last_backup_at: lastBackup === null ? null : timeText(lastBackup * 1_000),
    clock_held_seconds: gauge(METRIC.clock_held),
    clock_behind_seconds: gauge(METRIC.clock_behind),
    memory_bytes: residentMemoryBytes(),
    ledger_difference: hasProcessor ? gauge(METRIC.ledger_difference) : null,
    ...gone,
    dead_letters: deadLetters,
    requests,
    edges: config.edges,
  };
}

/** The counter starts with the process, the store remembers; without the store, the counter has to do. */
async function deadLetterCount(store: TraceReader, metricsBuffer: SharedArrayBuffer): Promise<number> {
  try {
    return (await store.deadLetters(DEAD_LETTERS_MAX)).filter(({ isErased }) => !isErased).length;
  } catch (error) {
    if (!(error instanceof StoreUnavailableError)) throw error;
    return readCounter(metricsBuffer, METRIC.dead_letters);
  }
}

/** As `sluice config` shows them: without passwords. */
async function settingsJson(config: Config, sources: Sources) {
  // Loaded when first asked for: an edge needs the settings, and not their table.
  const { describeConfig, formatSetting, SETTINGS } = await import('../../config/config.ts');
  return describeConfig(config, sources).map(({ setting, env, value, source, description }) => ({
    name: env,
    value,
    default: formatSetting(setting, SETTINGS[setting].default),
    source,
    description,
  }));
}
