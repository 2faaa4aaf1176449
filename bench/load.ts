/**
 * The load generator, a process of its own: takes one job at a time over the IPC channel, runs it and sends the result.
 * Closed loop: each connection sends its next request as soon as it has its response. Open loop: requests fall due at a
 * given rate whatever the server does, and latency counts from the moment a request was due, so a server that stalls
 * is charged for every request that had to wait (no coordinated omission). Ends when the runner goes away.
 */

import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { Connection } from './connection.ts';
import type { LoadControl, LoadJob, LoadResult, LoadTarget } from './generator.ts';
import { Histogram } from './histogram.ts';
import { RequestMaker } from './people-generator.ts';
import { type CpuReading, cpuReading, cpuUsed, diskBytes } from './proc.ts';
import { headOf, makeRequests, SHAPES, type ShapeName } from './requests.ts';

const TICK_MILLISECONDS = 1;
const DRAIN_SECONDS_MAX = 10;
const SENT_KEPT_MAX = 10_000;

process.on('disconnect', () => process.exit(0));
// Ctrl-C reaches every process of the terminal; the runner decides when this one ends.
process.on('SIGINT', () => undefined);
let current: Run | null = null;
process.on('message', (message: (LoadJob & LoadTarget) | LoadControl) => {
  if (message === 'stop') current?.stop();
  else if (!('port' in message)) current?.setRate(message.usersPerSecond);
  else {
    current = new Run(message);
    void current.result().then((result) => process.send?.(result));
  }
});

interface Request {
  readonly bytes: Buffer;
  readonly users: number;
}

interface RequestSource {
  /** Users of the requests, in turn. */
  readonly sizes: readonly number[];
  next(): Request;
}

const cache = new Map<string, readonly Request[]>();

function sourceOf({ requests, key }: LoadJob & LoadTarget): RequestSource {
  if (typeof requests === 'string') return repeated(requests, key);
  const maker = new RequestMaker(requests.population, requests.sizes, (bodyBytes) => headOf(key, bodyBytes));
  return { sizes: requests.sizes, next: () => maker.next(Date.now()) };
}

function repeated(name: ShapeName, key: string): RequestSource {
  const users = SHAPES[name].usersPerRequest;
  const made =
    cache.get(`${name} ${key}`) ?? makeRequests(SHAPES[name], key).map((bytes): Request => ({ bytes, users }));
  cache.set(`${name} ${key}`, made);
  let turn = 0;
  return { sizes: [users], next: () => made[turn++ % made.length] as Request };
}

class Run {
  private readonly job: LoadJob & LoadTarget;
  private readonly source: RequestSource;
  private readonly isOpenLoop: boolean;
  private readonly connections: Connection[] = [];
  private readonly latency = new Histogram();
  private readonly sendDelay = new Histogram();
  private readonly statuses: Record<string, number> = {};
  private users = 0;
  private broken = 0;
  private makingMilliseconds = 0;
  private phase: 'warmup' | 'measured' | 'ending' = 'warmup';
  private measuredFrom = Number.POSITIVE_INFINITY;
  private readonly stopped = Promise.withResolvers<void>();
  /** Requests left to send, and to end. */
  private toSend: number;
  private toEnd: number;
  /** Open loop: idle connections, and when requests were due: from `waitingAt` on those that have found no connection. */
  private readonly idle: Connection[] = [];
  private readonly waiting: number[] = [];
  private waitingAt = 0;
  private usersPerSecond: number;
  /** Users that are due, less those of requests that were made due; and since when it was counted. */
  private dueUsers = 0;
  private tickedAt = performance.now();
  private turn = 0;

  constructor(job: LoadJob & LoadTarget) {
    this.job = job;
    this.source = sourceOf(job);
    this.isOpenLoop = job.usersPerSecond !== undefined;
    this.usersPerSecond = job.usersPerSecond ?? 0;
    this.toSend = typeof job.end === 'object' && 'requests' in job.end ? job.end.requests : Number.POSITIVE_INFINITY;
    this.toEnd = this.toSend;
  }

  setRate(usersPerSecond: number): void {
    this.usersPerSecond = usersPerSecond;
  }

  stop(): void {
    this.stopped.resolve();
  }

  async result(): Promise<LoadResult> {
    const { job } = this;
    for (let n = 0; n < job.connections; n += 1) this.connections.push(this.connect());
    this.tickedAt = performance.now();
    const ticker = this.isOpenLoop ? setInterval(() => this.tick(), TICK_MILLISECONDS) : undefined;
    const { warmupSeconds = 0 } = job;
    if (warmupSeconds > 0) await sleep(warmupSeconds * 1000);
    const from = readings(job.serverPid);
    this.measuredFrom = warmupSeconds > 0 ? from.time : 0;
    this.phase = 'measured';
    if (typeof job.end === 'object' && 'seconds' in job.end) await sleep(job.end.seconds * 1000);
    else await this.stopped.promise;
    const to = readings(job.serverPid);
    this.phase = 'ending';
    clearInterval(ticker);
    const notSent = job.end === 'stop' ? this.forgetWaiting() : 0;
    const unanswered = this.isOpenLoop ? await this.drain() : 0;
    for (const connection of this.connections) connection.close();

    const seconds = (to.time - from.time) / 1000;
    const used = cpuUsed(from.cpu, to.cpu);
    return {
      startedAt: performance.timeOrigin + from.time,
      seconds,
      accepted: this.statuses['202'] ?? 0,
      users: this.users,
      statuses: this.statuses,
      broken: this.broken,
      notSent,
      unanswered,
      latency: this.latency.quantiles(),
      sendDelay: this.sendDelay.quantiles(),
      makingSeconds: this.makingMilliseconds / 1000,
      generatorBusy: performance.eventLoopUtilization(to.loop, from.loop).utilization,
      generatorCpuSeconds: used.own,
      otherCpu: used.others / seconds,
      serverCpuSeconds: used.servers,
      serverDiskBytes: to.serverDisk - from.serverDisk,
    };
  }

  private connect(): Connection {
    return new Connection(this.job.port, this.job.backoffMilliseconds ?? 0, {
      opened: (connection) => this.next(connection),
      responded: (connection, status) => this.responded(connection, status),
      lost: (connection, inRequest) => this.lost(connection, inRequest),
    });
  }

  /** Waits for the requests that were due in the measured time; returns how many of them had no response. */
  private async drain(): Promise<number> {
    const deadline = performance.now() + DRAIN_SECONDS_MAX * 1000;
    const open = (): number =>
      this.waiting.length -
      this.waitingAt +
      this.connections.filter((one) => one.inRequest && one.due >= this.measuredFrom).length;
    while (open() > 0 && performance.now() < deadline) await sleep(20);
    return open();
  }

  private tick(): void {
    const now = performance.now();
    const perMillisecond = this.usersPerSecond / 1000;
    this.dueUsers += (now - this.tickedAt) * perMillisecond;
    this.tickedAt = now;
    for (;;) {
      const size = this.source.sizes[this.turn % this.source.sizes.length] ?? 1;
      if (this.dueUsers < size) break;
      this.dueUsers -= size;
      this.turn += 1;
      this.waiting.push(now - this.dueUsers / perMillisecond);
    }
    while (this.waitingAt < this.waiting.length) {
      const connection = this.idle.shift();
      if (connection === undefined) return;
      this.sendWaiting(connection);
    }
    this.forgetSent();
  }

  private sendWaiting(connection: Connection): void {
    const now = performance.now();
    const due = this.waiting[this.waitingAt] ?? now;
    this.waitingAt += 1;
    if (this.waitingAt === SENT_KEPT_MAX) this.forgetSent();
    if (this.phase === 'measured') this.sendDelay.record(now - due);
    this.send(connection, due);
  }

  private forgetSent(): void {
    this.waiting.splice(0, this.waitingAt);
    this.waitingAt = 0;
  }

  /** Returns how many they were. */
  private forgetWaiting(): number {
    this.forgetSent();
    return this.waiting.splice(0).length;
  }

  private responded(connection: Connection, status: number): void {
    if (this.counts(connection)) {
      this.statuses[status] = (this.statuses[status] ?? 0) + 1;
      if (status === 202) {
        this.latency.record(performance.now() - connection.due);
        this.users += connection.users;
      }
    }
    this.ended();
    const { backoffMilliseconds = 0 } = this.job;
    if (status !== 202 && backoffMilliseconds > 0) setTimeout(() => this.next(connection), backoffMilliseconds);
    else this.next(connection);
  }

  /** Closed loop: what is responded to in the measured time. Open loop: what was due in it, though responded to later. */
  private counts(connection: Connection): boolean {
    if (!this.isOpenLoop) return this.phase === 'measured';
    return this.phase !== 'warmup' && connection.due >= this.measuredFrom;
  }

  /** A request that had no response is not sent again. */
  private lost(connection: Connection, inRequest: boolean): void {
    if (inRequest) {
      this.broken += 1;
      this.ended();
    }
    const at = this.idle.indexOf(connection);
    if (at >= 0) this.idle.splice(at, 1);
  }

  private ended(): void {
    this.toEnd -= 1;
    if (this.toEnd === 0) this.stop();
  }

  private next(connection: Connection): void {
    if (!connection.free) return;
    if (!this.isOpenLoop) {
      if (this.phase !== 'ending' && this.toSend > 0) this.send(connection);
    } else if (this.waitingAt < this.waiting.length) {
      this.sendWaiting(connection);
    } else {
      this.idle.push(connection);
    }
  }

  /** In a closed loop a request is due as soon as it is made. */
  private send(connection: Connection, due?: number): void {
    this.toSend -= 1;
    const before = performance.now();
    const { bytes, users } = this.source.next();
    const after = performance.now();
    this.makingMilliseconds += after - before;
    connection.send(bytes, users, due ?? after);
  }
}

interface Readings {
  readonly time: number;
  readonly loop: ReturnType<typeof performance.eventLoopUtilization>;
  readonly cpu: CpuReading;
  readonly serverDisk: number;
}

function readings(serverPid: number): Readings {
  return {
    time: performance.now(),
    loop: performance.eventLoopUtilization(),
    cpu: cpuReading(serverPid),
    serverDisk: diskBytes(serverPid),
  };
}
