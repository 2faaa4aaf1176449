/**
 * The part of the load generator that offers events at a given rate whatever the server does, until it is stopped. The
 * rate can be changed on the way. Requests are made by a population, of given sizes in turn, each sent once. Latency counts
 * from the moment a request was due. Runs in the generator's process.
 */

import { performance } from 'node:perf_hooks';
import { Connection } from './connection.ts';
import { RequestMaker } from './people-generator.ts';
import type { SteadyJob, SteadyResult } from './generator.ts';
import { Histogram } from './histogram.ts';
import { headOf } from './requests.ts';

const TICK_MILLISECONDS = 1;
const DRAIN_SECONDS_MAX = 10;
const SENT_KEPT_MAX = 10_000;

export class SteadyRun {
  private readonly job: SteadyJob;
  private readonly maker: RequestMaker;
  private readonly connections: Connection[] = [];
  private readonly idle: Connection[] = [];
  /** By connection, the users of the request under way. */
  private readonly users = new Map<Connection, number>();
  private readonly latency = new Histogram();
  private readonly statuses: Record<string, number> = {};
  /** When requests were due: from `waitingAt` on those that have found no connection yet. */
  private readonly waiting: number[] = [];
  private waitingAt = 0;
  private eventsPerSecond: number;
  /** Events that are due, less those of requests that were made due; and since when it was counted. */
  private dueEvents = 0;
  private tickedAt = performance.now();
  private turn = 0;
  private acceptedUsers = 0;
  private broken = 0;
  private stop: () => void = () => undefined;

  constructor(job: SteadyJob) {
    this.job = job;
    this.eventsPerSecond = job.eventsPerSecond;
    this.maker = new RequestMaker(job.population, job.sizes, (bodyBytes) => headOf(job.key, bodyBytes));
  }

  setRate(eventsPerSecond: number): void {
    this.eventsPerSecond = eventsPerSecond;
  }

  end(): void {
    this.stop();
  }

  async result(): Promise<SteadyResult> {
    const stopped = new Promise<void>((resolve) => {
      this.stop = resolve;
    });
    const cpuBefore = process.cpuUsage();
    const loopBefore = performance.eventLoopUtilization();
    const from = performance.now();
    this.tickedAt = from;
    for (let n = 0; n < this.job.connections; n += 1) this.connections.push(this.connect());
    const ticker = setInterval(() => this.tick(), TICK_MILLISECONDS);
    await stopped;
    clearInterval(ticker);
    const seconds = (performance.now() - from) / 1000;
    const notSent = this.waiting.length - this.waitingAt;
    this.forgetSent(this.waiting.length);
    const unanswered = await this.drain();
    for (const connection of this.connections) connection.close();
    const cpu = process.cpuUsage(cpuBefore);
    return {
      seconds,
      accepted: this.statuses['202'] ?? 0,
      users: this.acceptedUsers,
      statuses: this.statuses,
      broken: this.broken,
      notSent,
      unanswered,
      latency: this.latency.quantiles(),
      generatorBusy: performance.eventLoopUtilization(performance.eventLoopUtilization(), loopBefore).utilization,
      generatorCpuSeconds: (cpu.user + cpu.system) / 1e6,
    };
  }

  private connect(): Connection {
    return new Connection(this.job.port, 0, {
      opened: (connection) => this.next(connection),
      responded: (connection, status) => this.responded(connection, status),
      lost: (connection, inRequest) => this.lost(connection, inRequest),
    });
  }

  private async drain(): Promise<number> {
    const deadline = performance.now() + DRAIN_SECONDS_MAX * 1000;
    while (this.users.size > 0 && performance.now() < deadline) {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    return this.users.size;
  }

  private tick(): void {
    const now = performance.now();
    this.dueEvents += ((now - this.tickedAt) / 1000) * this.eventsPerSecond;
    this.tickedAt = now;
    for (;;) {
      const size = this.job.sizes[this.turn % this.job.sizes.length] ?? 1;
      if (this.dueEvents < size) break;
      this.dueEvents -= size;
      this.turn += 1;
      this.waiting.push(now);
    }
    while (this.waitingAt < this.waiting.length) {
      const connection = this.idle.shift();
      if (connection === undefined) return;
      this.send(connection);
    }
    this.forgetSent(this.waiting.length);
  }

  private forgetSent(count: number): void {
    this.waiting.splice(0, count);
    this.waitingAt = 0;
  }

  private send(connection: Connection): void {
    const due = this.waiting[this.waitingAt] ?? performance.now();
    this.waitingAt += 1;
    if (this.waitingAt === SENT_KEPT_MAX) this.forgetSent(SENT_KEPT_MAX);
    const { bytes, users } = this.maker.next(Date.now());
    this.users.set(connection, users);
    connection.send(bytes, due);
  }

  private responded(connection: Connection, status: number): void {
    if (status === 202) {
      this.latency.record(performance.now() - connection.due);
      this.acceptedUsers += this.users.get(connection) ?? 0;
    }
    this.users.delete(connection);
    this.statuses[status] = (this.statuses[status] ?? 0) + 1;
    this.next(connection);
  }

  private lost(connection: Connection, inRequest: boolean): void {
    if (inRequest) this.broken += 1;
    this.users.delete(connection);
    const at = this.idle.indexOf(connection);
    if (at >= 0) this.idle.splice(at, 1);
  }

  private next(connection: Connection): void {
    if (!connection.free) return;
    if (this.waitingAt < this.waiting.length) this.send(connection);
    else this.idle.push(connection);
  }
}
