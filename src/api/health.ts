/**
 * `GET /health`: how the server is, for a person who looks. The same questions that `/readyz` and `/metrics` answer for
 * machines, with the limits beside the numbers and the settings in effect. It is of the whole server, so it tells sums
 * only and nothing of any tenant; like everything else it needs a key or a session.
 */

import type { FastifyInstance } from 'fastify';
import type { Config, Sources } from '../config.ts';
import { METRIC, readCounter, readGauge, REQUESTS_BY_STATUS, residentMemoryBytes } from '../metrics.ts';
import { processes } from '../roles.ts';
import type { Store } from '../store.ts';
import { StoreUnavailableError } from '../store-writer.ts';
import type { Json } from './json-text.ts';
import type { OperatorParts } from './operators.ts';
import { NO_PARAMETERS } from './parameters.ts';
import { timeText } from './stored-answers.ts';
import { addTenantRoute, type TenantParts } from './tenant-route.ts';

export interface HealthParts {
  readonly config: Config;
  readonly sources: Sources;
  /** What the start found that an operator should know. */
  readonly startWarnings: readonly string[];
  readonly metricsBuffer: SharedArrayBuffer;
}

/** More than this are not counted: who has one of them has a bug to look for. */
const SET_ASIDE_MAX = 1_000;

export function registerHealthRoutes(app: FastifyInstance, parts: HealthParts & OperatorParts & TenantParts): void {
  addTenantRoute(app, parts, {
    method: 'GET',
    url: '/health',
    parameters: NO_PARAMETERS,
    answer: async ({ store }) => ({
      ...healthAnswer(parts, await recordsSetAside(store, parts.metricsBuffer)),
      settings: await settingsAnswer(parts.config, parts.sources),
    }),
  });
}

function healthAnswer(parts: HealthParts & OperatorParts, setAside: number) {
  const { config, metricsBuffer, version, readiness } = parts;
  const { ready, reasons } = readiness();
  // A gauge that nobody has set yet is of a part that has had nothing to do.
  const gauge = (index: Parameters<typeof readGauge>[1]): number => readGauge(metricsBuffer, index) ?? 0;
  const hasProcessor = processes(config.role);
  return {
    status: ready ? 'ready' : 'not ready',
    reasons,
    warnings: parts.startWarnings,
    version,
    role: config.role,
    node: process.versions.node,
    started_at: timeText(performance.timeOrigin),
    backlog_bytes: gauge(METRIC.backlog_bytes),
    backlog_bytes_max: config.backlogBytesMax,
    lag_seconds: hasProcessor ? gauge(METRIC.processor_lag) : null,
    disk_free_bytes: config.logUrl === '' ? gauge(METRIC.disk_free_bytes) : null,
    disk_free_bytes_min: config.diskFreeBytesMin,
    last_backup_at: lastBackupAt(metricsBuffer),
    clock_held_seconds: gauge(METRIC.clock_held),
    clock_behind_seconds: gauge(METRIC.clock_behind),
    memory_bytes: residentMemoryBytes(),
    ledger_difference: hasProcessor ? gauge(METRIC.ledger_difference) : null,
    log_missing_records: hasProcessor ? gauge(METRIC.log_missing_records) : null,
    log_lost_records: hasProcessor ? gauge(METRIC.log_lost_records) : null,
    records_set_aside: setAside,
    requests: requestsAnswer(metricsBuffer),
    edges: config.edges,
  };
}

function lastBackupAt(metricsBuffer: SharedArrayBuffer): string | null {
  const seconds = readGauge(metricsBuffer, METRIC.last_backup);
  return seconds === null ? null : timeText(seconds * 1_000);
}

/** Of all accounts, as the edges answered: whoever was refused for their key belongs to none. */
function requestsAnswer(metricsBuffer: SharedArrayBuffer): { status: number; requests: number }[] {
  return [...REQUESTS_BY_STATUS]
    .map(([status, counter]) => ({ status, requests: readCounter(metricsBuffer, counter) }))
    .filter(({ requests }) => requests > 0);
}

/** The counter starts with the process, the store remembers; without the store, the counter is better than nothing. */
async function recordsSetAside(store: Store, metricsBuffer: SharedArrayBuffer): Promise<number> {
  try {
    return (await store.setAside(SET_ASIDE_MAX)).length;
  } catch (error) {
    if (!(error instanceof StoreUnavailableError)) throw error;
    return readCounter(metricsBuffer, METRIC.records_set_aside);
  }
}

/** As `sluice config` shows them: without passwords. */
async function settingsAnswer(config: Config, sources: Sources): Promise<Json> {
  // Loaded when first asked for: an edge needs the settings, and not their table.
  const { describeConfig, formatSetting, SETTINGS } = await import('../config.ts');
  return describeConfig(config, sources).map(({ setting, env, value, source, description }) => ({
    name: env,
    value,
    default: formatSetting(setting, SETTINGS[setting].default),
    source,
    description,
  }));
}
