/**
 * The part of the load generator that sends a given number of requests, or requests for a given time, each once, as fast
 * as they are responded to, made by a population on the way. Runs in the generator's process. A request that had no response is not sent again: it is counted
 * as broken, and the run is then worth nothing.
 */

import { performance } from 'node:perf_hooks';
import { Connection } from './connection.ts';
import { RequestMaker } from './people-generator.ts';
import type { StreamJob, StreamResult } from './generator.ts';
import { Histogram } from './histogram.ts';
import { headOf } from './requests.ts';

export class StreamRun {
  private readonly job: StreamJob;
  private readonly maker: RequestMaker;
  private readonly connections: Connection[] = [];
  private readonly latency = new Histogram();
  private readonly statuses: Record<string, number> = {};
  /** How many there will be; infinite while only the time says when it ends. */
  private requests: number;
  private sent = 0;
  private ended = 0;
  private broken = 0;
  private makingMilliseconds = 0;
  private finish: () => void = () => undefined;

  constructor(job: StreamJob) {
    this.job = job;
    this.requests = 'requests' in job.end ? job.end.requests : Number.POSITIVE_INFINITY;
    this.maker = new RequestMaker(job.population, [job.usersPerRequest], (bodyBytes) => headOf(job.key, bodyBytes));
  }

  async result(): Promise<StreamResult> {
    const { job } = this;
    const finished = new Promise<void>((resolve) => {
      this.finish = resolve;
    });
    const cpuBefore = process.cpuUsage();
    const loopBefore = performance.eventLoopUtilization();
    const from = performance.now();
    for (let n = 0; n < job.connections; n += 1) {
      this.connections.push(
        new Connection(job.port, 0, {
          opened: (connection) => this.next(connection),
          responded: (connection, status) => this.responded(connection, status),
          lost: (_connection, inRequest) => this.lost(inRequest),
        }),
      );
    }
    if ('seconds' in job.end) setTimeout(() => this.stop(), job.end.seconds * 1000);
    await finished;
    const to = performance.now();
    const cpu = process.cpuUsage(cpuBefore);
    for (const connection of this.connections) connection.close();
    return {
      startedAt: performance.timeOrigin + from,
      seconds: (to - from) / 1000,
      users: (this.statuses['202'] ?? 0) * job.usersPerRequest,
      accepted: this.statuses['202'] ?? 0,
      statuses: this.statuses,
      broken: this.broken,
      latency: this.latency.quantiles(),
      generatorBusy: performance.eventLoopUtilization(performance.eventLoopUtilization(), loopBefore).utilization,
      generatorCpuSeconds: (cpu.user + cpu.system) / 1e6,
      makingSeconds: this.makingMilliseconds / 1000,
    };
  }

  private next(connection: Connection): void {
    if (!connection.free || this.sent === this.requests) return;
    this.sent += 1;
    const before = performance.now();
    const { bytes } = this.maker.next(Date.now());
    const after = performance.now();
    this.makingMilliseconds += after - before;
    connection.send(bytes, after);
  }

  private responded(connection: Connection, status: number): void {
    if (status === 202) this.latency.record(performance.now() - connection.due);
    this.statuses[status] = (this.statuses[status] ?? 0) + 1;
    this.end();
    this.next(connection);
  }

  private lost(inRequest: boolean): void {
    if (!inRequest) return;
    this.broken += 1;
    this.end();
  }

  private stop(): void {
    this.requests = this.sent;
    if (this.ended === this.requests) this.finish();
  }

  private end(): void {
    this.ended += 1;
    if (this.ended === this.requests) this.finish();
  }
}
