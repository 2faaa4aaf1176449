/**
 * The load generator, a process of its own: takes one job at a time over the IPC channel, runs it and sends the result.
 * Closed loop: each connection sends its next request as soon as it has its response. Open loop: requests fall due at a
 * fixed rate whatever the server does, and latency counts from the moment a request was due, so a server that stalls
 * is charged for every request that had to wait (no coordinated omission). A steady load is an open loop that runs
 * until it is stopped. Ends when the runner goes away.
 */

import { performance } from 'node:perf_hooks';
import { Connection } from './connection.ts';
import type { LoadJob, LoadResult, SteadyControl, SteadyJob, StreamJob } from './generator.ts';
import { Histogram } from './histogram.ts';
import { cpuSeconds, diskBytes, systemCpuSeconds } from './proc.ts';
import { makeRequests, SHAPES } from './requests.ts';
import { SteadyRun } from './steady.ts';
import { StreamRun } from './stream.ts';

const TICK_MILLISECONDS = 1;
const DRAIN_SECONDS_MAX = 10;

const cache = new Map<string, Buffer[]>();

process.on('disconnect', () => process.exit(0));
// Ctrl-C reaches every process of the terminal; the runner decides when this one ends.
process.on('SIGINT', () => undefined);
let steady: SteadyRun | null = null;
process.on('message', (message: LoadJob | StreamJob | SteadyJob | SteadyControl) => {
  if (message === 'stop') steady?.end();
  else if (!('port' in message)) steady?.setRate(message.eventsPerSecond);
  else
    void runOf(message)
      .result()
      .then((result) => process.send?.(result));
});

function runOf(job: LoadJob | StreamJob | SteadyJob): Run | StreamRun | SteadyRun {
  steady = null;
  if ('sizes' in job) return (steady = new SteadyRun(job));
  return 'population' in job ? new StreamRun(job) : new Run(job, requestsFor(job));
}

function requestsFor(job: LoadJob): Buffer[] {
  const name = `${job.shape} ${job.key}`;
  const made = cache.get(name) ?? makeRequests(SHAPES[job.shape], job.key);
  cache.set(name, made);
  return made;
}

class Run {
  private readonly job: LoadJob;
  private readonly requests: Buffer[];
  private readonly connections: Connection[] = [];
  private readonly latency = new Histogram();
  private readonly sendDelay = new Histogram();
  private readonly statuses: Record<string, number> = {};
  private turn = 0;
  private broken = 0;
  private phase: 'warmup' | 'measured' | 'draining' = 'warmup';
  private measuredFrom = Number.POSITIVE_INFINITY;
  /** Open loop: idle connections, and the times of requests that are due but found none. */
  private readonly idle: Connection[] = [];
  private readonly waiting: number[] = [];
  private waitingAt = 0;
  private issued = 0;

  constructor(job: LoadJob, requests: Buffer[]) {
    this.job = job;
    this.requests = requests;
  }

  async result(): Promise<LoadResult> {
    const { job } = this;
    for (let n = 0; n < job.connections; n += 1) {
      this.connections.push(
        new Connection(job.port, job.backoffMilliseconds, {
          opened: (connection) => this.next(connection),
          responded: (connection, status) => this.responded(connection, status),
          lost: (connection, inRequest) => this.lost(connection, inRequest),
        }),
      );
    }
    const started = performance.now();
    const ticker = job.rate === null ? null : setInterval(() => this.tick(started), TICK_MILLISECONDS);
    await sleep(job.warmupSeconds);

    const from = this.measure();
    await sleep(job.seconds);
    const to = readings(job.serverPid);
    const accepted = this.statuses['202'] ?? 0;
    this.phase = 'draining';
    if (ticker !== null) clearInterval(ticker);
    const unanswered = await this.drain(to.time);
    for (const connection of this.connections) connection.close();

    const seconds = (to.time - from.time) / 1000;
    const generatorCpu = to.cpu - from.cpu;
    const serverCpuSeconds = to.serverCpu - from.serverCpu;
    return {
      seconds,
      accepted,
      users: accepted * SHAPES[job.shape].usersPerRequest,
      statuses: this.statuses,
      broken: this.broken,
      unanswered,
      latency: this.latency.quantiles(),
      sendDelay: this.sendDelay.quantiles(),
      generatorBusy: performance.eventLoopUtilization(to.loop, from.loop).utilization,
      generatorCpu: generatorCpu / seconds,
      otherCpu: Math.max(0, to.systemCpu - from.systemCpu - generatorCpu - serverCpuSeconds) / seconds,
      serverCpuSeconds,
      serverDiskBytes: to.serverDisk - from.serverDisk,
    };
  }

  private measure(): Readings {
    this.phase = 'measured';
    const from = readings(this.job.serverPid);
    this.measuredFrom = from.time;
    return from;
  }

  /** Waits for the requests that were due in the measured time; returns how many of them had no response. */
  private async drain(end: number): Promise<number> {
    const deadline = performance.now() + DRAIN_SECONDS_MAX * 1000;
    const open = (): number =>
      this.connections.filter((c) => !c.free && c.due >= this.measuredFrom && c.due < end).length;
    while (this.job.rate !== null && open() + this.waiting.length - this.waitingAt > 0) {
      if (performance.now() > deadline) break;
      await sleep(0.02);
    }
    return this.job.rate === null ? 0 : open() + this.waiting.length - this.waitingAt;
  }

  private tick(started: number): void {
    const rate = this.job.rate ?? 0;
    const now = performance.now();
    const dueCount = Math.floor(((now - started) / 1000) * rate);
    for (; this.issued < dueCount; this.issued += 1) {
      this.waiting.push(started + ((this.issued + 1) * 1000) / rate);
    }
    while (this.waitingAt < this.waiting.length) {
      const connection = this.idle.shift();
      if (connection === undefined) return;
      this.sendWaiting(connection, now);
    }
    this.waiting.length = 0;
    this.waitingAt = 0;
  }

  private sendWaiting(connection: Connection, now: number): void {
    const due = this.waiting[this.waitingAt] ?? now;
    this.waitingAt += 1;
    if (this.phase === 'measured') this.sendDelay.record(now - due);
    this.send(connection, due);
  }

  private responded(connection: Connection, status: number): void {
    const now = performance.now();
    if (this.counts(connection)) {
      if (status === 202) this.latency.record(now - connection.due);
      this.statuses[status] = (this.statuses[status] ?? 0) + 1;
    }
    if (status !== 202 && this.job.backoffMilliseconds > 0) {
      setTimeout(() => this.next(connection), this.job.backoffMilliseconds);
    } else {
      this.next(connection);
    }
  }

  /** Closed loop: what is responded to in the measured time. Open loop: what was due in it, though responded to later. */
  private counts(connection: Connection): boolean {
    if (this.job.rate === null) return this.phase === 'measured';
    return this.phase !== 'warmup' && connection.due >= this.measuredFrom;
  }

  private lost(connection: Connection, inRequest: boolean): void {
    if (inRequest && this.phase !== 'draining') this.broken += 1;
    const at = this.idle.indexOf(connection);
    if (at >= 0) this.idle.splice(at, 1);
  }

  private next(connection: Connection): void {
    if (!connection.free) return;
    if (this.job.rate === null) {
      if (this.phase !== 'draining') this.send(connection, performance.now());
    } else if (this.waitingAt < this.waiting.length) {
      this.sendWaiting(connection, performance.now());
    } else {
      this.idle.push(connection);
    }
  }

  private send(connection: Connection, due: number): void {
    const request = this.requests[this.turn];
    this.turn = (this.turn + 1) % this.requests.length;
    if (request !== undefined) connection.send(request, due);
  }
}

interface Readings {
  readonly time: number;
  readonly loop: ReturnType<typeof performance.eventLoopUtilization>;
  readonly cpu: number;
  readonly systemCpu: number;
  readonly serverCpu: number;
  readonly serverDisk: number;
}

function readings(serverPid: number): Readings {
  const { user, system } = process.cpuUsage();
  return {
    time: performance.now(),
    loop: performance.eventLoopUtilization(),
    cpu: (user + system) / 1e6,
    systemCpu: systemCpuSeconds(),
    serverCpu: cpuSeconds(serverPid),
    serverDisk: diskBytes(serverPid),
  };
}

async function sleep(seconds: number): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
}
