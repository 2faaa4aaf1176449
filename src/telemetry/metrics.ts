/**
 * Metrics across threads, without locks. All threads share one buffer; each owns one slot and is the only one to write
 * there, so a count is a plain load and store, and any thread can render the sum of all slots as Prometheus text
 * (format 0.0.4). A reading taken during writes is at most a few events behind, and a histogram's count always equals
 * its +Inf bucket. The table below is complete: labels are closed sets, never a tenant, a key or anything chosen by a
 * client, so the number of series is fixed. Counts are exact up to 2^53.
 */

/** Upper bounds of all histograms; +Inf is added. */
const DURATION_BUCKETS_SECONDS = [
  0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
];

const STATUSES = [200, 202, 204, 400, 401, 403, 404, 405, 408, 413, 429, 431, 500, 503] as const;
const CONNECTIONS_CLOSED = ['idle', 'newest'] as const;
const UNAVAILABLE_REASONS = ['in_flight', 'log', 'disk', 'backlog', 'keys', 'shutdown', 'rate_limit'] as const;

/** Counters add up over the slots; each gauge names how its slots make one value. */
const FAMILIES = {
  requests: counterBy(
    'sluice_requests_total',
    'Requests under /ingest/, and malformed ones on any path, by response status.',
    'status',
    STATUSES,
  ),
  users_accepted: counter('sluice_users_accepted_total', 'Users that passed validation and are durable.'),
  users_rejected: counter('sluice_users_rejected_total', 'Users that failed validation.'),
  events_accepted: counter('sluice_events_accepted_total', 'Events of the accepted users.'),
  body_bytes: counter('sluice_body_bytes_total', 'Bytes of request bodies, after decompression.'),
  request_duration: histogram('sluice_request_duration_seconds', 'From the headers of a request to its response.'),
  in_flight_bytes: gauge('sluice_in_flight_bytes', 'Bytes reserved for bodies of requests in progress.', 'sum'),
  in_flight_requests: gauge('sluice_in_flight_requests', 'Requests in progress.', 'sum'),
  unavailable: counterBy(
    'sluice_unavailable_total',
    'Requests that got a 503, or a 429 under /ingest/v1/, by cause.',
    'reason',
    UNAVAILABLE_REASONS,
  ),
  internal_errors: counter('sluice_internal_errors_total', 'Requests that failed because of a bug in Sluice.'),
  log_commit_duration: histogram(
    'sluice_log_commit_duration_seconds',
    'Time to make a group of requests durable in the log: one write and sync, or with Kafka one produce request.',
  ),
  log_entries: counter('sluice_log_entries_total', 'Requests made durable in the log.'),
  log_bytes: counter('sluice_log_bytes_total', 'Bytes of bodies made durable in the log.'),
  processed_records: counter('sluice_processed_records_total', 'Log records that the processor wrote to the store.'),
  processed_users: counter('sluice_processed_users_total', 'Users that were stored; duplicates are not.'),
  processed_events: counter('sluice_processed_events_total', 'Events that were stored; duplicates are not.'),
  dropped_by_clients: counter(
    'sluice_dropped_by_clients_total',
    'Events that clients reported to have dropped before sending, by processed requests; retries are not counted.',
  ),
  merges: counter('sluice_merges_total', 'Pairs of profiles found to be one person.'),
  refusals: counter('sluice_identity_refusals_total', 'Links and merges refused by an identity rule.'),
  dead_letters: counter('sluice_dead_letters_total', 'Records that the processor could not process.'),
  rejections_over_limit: counter(
    'sluice_rejections_over_limit_total',
    'Kept rejected users that were removed early because all together exceeded SLUICE_REJECTION_BYTES.',
  ),
  store_conflicts: counter(
    'sluice_store_conflicts_total',
    'Transactions repeated after a conflict with another processor.',
  ),
  processor_retries: counter(
    'sluice_processor_retries_total',
    'Retries of the processor because the store or the log was unavailable.',
  ),
  processor_transactions: counter('sluice_processor_transactions_total', 'Transactions of the processor.'),
  processor_transaction_duration: histogram(
    'sluice_processor_transaction_duration_seconds',
    'Time of one transaction.',
  ),
  processor_lag: gauge('sluice_processor_lag_seconds', 'Age of the oldest record that waits for the processor.', 'max'),
  backlog_bytes: gauge(
    'sluice_backlog_bytes',
    'Bytes of the log that wait for the processor; absent until they were measured.',
    'max',
  ),
  ledger_difference: gauge(
    'sluice_ledger_difference',
    'Users and events that are not accounted for: anything but 0 is a bug.',
    'max',
  ),
  log_missing_records: gauge(
    'sluice_log_missing_records',
    'Records that the store relies on and the log does not have: anything but 0 needs an operator.',
    'max',
  ),
  log_lost_records: gauge(
    'sluice_log_lost_records',
    'Records that will never be in the store: given up by an operator, or removed from the log before this store was created.',
    'max',
  ),
  connections: gauge('sluice_connections', 'Open client connections.', 'sum'),
  connections_max: gauge('sluice_connections_max', 'Client connections accepted at once.', 'max'),
  connections_over_limit: counterBy(
    'sluice_connections_over_limit_total',
    'Connections closed because SLUICE_CONNECTIONS_MAX was reached: an idle one, or the newest if all are busy.',
    'closed',
    CONNECTIONS_CLOSED,
  ),
  disk_free_bytes: gauge('sluice_disk_free_bytes', 'Free space on the disk of the data folder.', 'min'),
  last_backup: gauge(
    'sluice_last_backup_timestamp_seconds',
    'When the last successful "sluice backup" of the data folder began, as Unix time; absent if there was none.',
    'max',
  ),
  clock_held: gauge(
    'sluice_clock_held_seconds',
    'How far the wall clock is ahead of received_at because it is not trusted; 0 while it is.',
    'max',
  ),
  clock_behind: gauge(
    'sluice_clock_behind_seconds',
    'How far the wall clock is behind received_at, which never goes back.',
    'max',
  ),
  ready: gauge(
    'sluice_ready',
    '1 while /readyz responds 200, 0 while it responds 503; events may be accepted even then.',
    'min',
  ),
  event_loop_delay_max: gauge('sluice_event_loop_delay_max_seconds', 'Longest recent stall of any edge thread.', 'max'),
  requests_waiting: gauge(
    'sluice_requests_waiting',
    'Complete requests that wait for their response, as a moving average over 0.1 s.',
    'sum',
  ),
};

/** Read from the process when rendered; not in the buffer. */
const OF_PROCESS: readonly (readonly [Family, read: () => number])[] = [
  [gauge('process_resident_memory_bytes', 'Resident memory of the process.', 'max'), residentMemoryBytes],
  [counter('process_cpu_seconds_total', 'CPU time of all threads.'), cpuSeconds],
  // The time origin is the same in every thread and at every reading, unlike the difference of a clock and an uptime.
  [
    gauge('process_start_time_seconds', 'Start of the process, in seconds since 1970.', 'max'),
    () => performance.timeOrigin / 1e3,
  ],
];

type Kind = 'counter' | 'gauge' | 'histogram';
type Combine = 'sum' | 'max' | 'min';

interface Family<Own extends Kind = Kind, Value extends string | number = string | number> {
  readonly kind: Own;
  readonly name: string;
  readonly help: string;
  /** Of a counter: its label, and all values that it can have. */
  readonly label?: string;
  readonly values?: readonly Value[];
  readonly combine?: Combine;
}

function counter(name: string, help: string): Family<'counter', never> {
  return { kind: 'counter', name, help };
}

function counterBy<const Value extends string | number>(
  name: string,
  help: string,
  label: string,
  values: readonly Value[],
): Family<'counter', Value> & { readonly values: readonly Value[] } {
  return { kind: 'counter', name, help, label, values };
}

function gauge(name: string, help: string, combine: Combine): Family<'gauge', never> {
  return { kind: 'gauge', name, help, combine };
}

function histogram(name: string, help: string): Family<'histogram', never> {
  return { kind: 'histogram', name, help };
}

export const METRICS_CONTENT_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

/** Where a metric lives within a slot. The kinds cannot be mixed up: a gauge does not go into `inc`. */
type Index<Own extends Kind> = number & { readonly metric: Own };
export type CounterIndex = Index<'counter'>;

type SeriesNames<Name extends string, Of> =
  Of extends Family<Kind, infer Value> ? ([Value] extends [never] ? Name : `${Name}_${Value}`) : never;

type Families = typeof FAMILIES;

/** One name per series: `METRIC.users_accepted`, `METRIC.requests_202`, `METRIC.unavailable_disk`. */
type MetricIndexes = {
  readonly [Name in keyof Families as SeriesNames<Name, Families[Name]>]: Index<Families[Name]['kind']>;
};

/** `first`: the first cell of a family within a slot. */
function layOut(): { placed: readonly { family: Family; first: number }[]; cells: number; names: object } {
  const placed: { family: Family; first: number }[] = [];
  const names: Record<string, number> = {};
  let next = 0;
  for (const [name, family] of Object.entries<Family>(FAMILIES)) {
    placed.push({ family, first: next });
    const series = family.values?.map((value) => `${name}_${value}`) ?? [name];
    for (const [offset, one] of series.entries()) names[one] = next + offset;
    // A histogram has one for each bound, one for +Inf and the sum.
    next += family.kind === 'histogram' ? DURATION_BUCKETS_SECONDS.length + 2 : series.length;
  }
  return { placed, cells: next, names };
}

const LAYOUT = layOut();
const CELL_BYTES = Float64Array.BYTES_PER_ELEMENT;
/** Slots start 128 bytes apart or a multiple of it, so that two threads never write to one cache line. */
const SLOT_CELLS = Math.ceil(LAYOUT.cells / 16) * 16;

export const METRIC = LAYOUT.names as MetricIndexes;

export const REQUESTS_BY_STATUS: ReadonlyMap<number, CounterIndex> = new Map(
  FAMILIES.requests.values.map((status) => [status, METRIC[`requests_${status}`]]),
);

/** One slot per thread that counts. Made once, handed to the threads. */
export function allocateMetrics(slots: number): SharedArrayBuffer {
  if (!Number.isInteger(slots) || slots < 1) throw new RangeError(`slots must be a positive integer, not ${slots}`);
  const buffer = new SharedArrayBuffer(slots * SLOT_CELLS * CELL_BYTES);
  const cells = new Float64Array(buffer);
  // NaN marks a gauge that its thread never set, so that it does not drag a minimum to 0.
  for (const { family, first } of LAYOUT.placed) {
    if (family.kind !== 'gauge') continue;
    for (let slot = 0; slot < slots; slot++) cells[slot * SLOT_CELLS + first] = Number.NaN;
  }
  return buffer;
}

/** The writing end of one slot. Exactly one thread may hold it. */
export class MetricsWriter {
  readonly #cells: Float64Array<SharedArrayBuffer>;

  constructor(cells: Float64Array<SharedArrayBuffer>) {
    this.#cells = cells;
  }

  inc(counter: CounterIndex, by = 1): void {
    this.#cells[counter]! += by;
  }

  set(gauge: Index<'gauge'>, value: number): void {
    this.#cells[gauge] = value;
  }

  observe(histogram: Index<'histogram'>, value: number): void {
    const bounds = DURATION_BUCKETS_SECONDS;
    // A difference of two clocks can come out below zero.
    const positive = value > 0 ? value : 0;
    let bucket = 0;
    while (bucket < bounds.length && positive > bounds[bucket]!) bucket++;
    this.#cells[histogram + bucket]! += 1;
    this.#cells[histogram + bounds.length + 1]! += positive;
  }
}

export function metricsWriter(buffer: SharedArrayBuffer, slot: number): MetricsWriter {
  const slots = buffer.byteLength / (SLOT_CELLS * CELL_BYTES);
  if (!Number.isInteger(slot) || slot < 0 || slot >= slots) throw new RangeError(`no slot ${slot}, there are ${slots}`);
  return new MetricsWriter(new Float64Array(buffer, slot * SLOT_CELLS * CELL_BYTES, SLOT_CELLS));
}

let memoryBytes = 0;

/** The last known value: reading it opens a file, which fails while the process is out of file descriptors. */
export function residentMemoryBytes(): number {
  try {
    memoryBytes = process.memoryUsage.rss();
  } catch {
    // The previous value is good enough.
  }
  return memoryBytes;
}

function cpuSeconds(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

export function readCounter(buffer: SharedArrayBuffer, counter: CounterIndex): number {
  return combined(new Float64Array(buffer), counter);
}

/** Over all threads, as the gauge combines them. While none has set it, a sum is 0 and any other is null. */
export function readGauge(buffer: SharedArrayBuffer, gauge: Index<'gauge'>): number | null {
  const combine = LAYOUT.placed.find(({ first }) => first === gauge)?.family.combine;
  const value = combined(new Float64Array(buffer), gauge, combine);
  return Number.isFinite(value) ? value : null;
}

/** All slots together, as Prometheus text; with a version, also `sluice_info`. */
export function renderMetrics(buffer: SharedArrayBuffer, extra?: { readonly version: string }): string {
  const cells = new Float64Array(buffer);
  const lines: string[] = [];
  const add = ({ kind, name, help }: Family, samples: readonly string[]): void => {
    if (samples.length > 0) lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${kind}`, ...samples);
  };
  for (const { family, first } of LAYOUT.placed) add(family, samplesOf(family, cells, first));
  for (const [family, read] of OF_PROCESS) add(family, [`${family.name} ${read()}`]);
  if (extra !== undefined) {
    const labels = `version="${escapeLabel(extra.version)}",node="${escapeLabel(process.versions.node)}"`;
    add(gauge('sluice_info', 'Versions of Sluice and Node.js.', 'max'), [`sluice_info{${labels}} 1`]);
  }
  return `${lines.join('\n')}\n`;
}

function samplesOf({ kind, name, label, values, combine }: Family, cells: Float64Array, first: number): string[] {
  if (kind === 'histogram') return histogramSamples(name, cells, first);
  if (values !== undefined) {
    return values.map((value, offset) => `${name}{${label}="${value}"} ${combined(cells, first + offset)}`);
  }
  const value = combined(cells, first, combine);
  return Number.isFinite(value) ? [`${name} ${value}`] : [];
}

function histogramSamples(name: string, cells: Float64Array, first: number): string[] {
  const bounds = DURATION_BUCKETS_SECONDS;
  let count = 0;
  const samples = [...bounds, '+Inf'].map((bound, offset) => {
    count += combined(cells, first + offset);
    return `${name}_bucket{le="${bound}"} ${count}`;
  });
  samples.push(`${name}_sum ${combined(cells, first + bounds.length + 1)}`, `${name}_count ${count}`);
  return samples;
}

/** A minimum or maximum that no thread has set comes out infinite, and is then left out. */
function combined(cells: Float64Array, index: number, how: Combine = 'sum'): number {
  let result = how === 'sum' ? 0 : how === 'max' ? -Infinity : Infinity;
  for (let at = index; at < cells.length; at += SLOT_CELLS) {
    const value = cells[at]!;
    if (Number.isNaN(value)) continue;
    if (how === 'sum') result += value;
    else result = how === 'max' ? Math.max(result, value) : Math.min(result, value);
  }
  return result;
}

function escapeLabel(value: string): string {
  return value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');
}
