/**
 * The runner's end of the load generator: starts `load.ts` as a process of its own and hands it one job at a time. The
 * same process serves all rounds, so that it is warm for both sides of a comparison and both get the same bytes. A job
 * that outlives its time by 30 seconds ends the process and fails.
 */

import { fork } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import type { Population } from './people-generator.ts';
import type { Quantiles } from './histogram.ts';
import type { ShapeName } from './requests.ts';

export interface LoadJob {
  readonly port: number;
  readonly key: string;
  readonly shape: ShapeName;
  readonly connections: number;
  readonly warmupSeconds: number;
  readonly seconds: number;
  /** Requests a second to start whatever the server does (open loop); null: as many as are responded to (closed loop). */
  readonly rate: number | null;
  /** How long a connection rests after a response other than 202. */
  readonly backoffMilliseconds: number;
  /** Whose CPU time and disk writes are read at both ends of the measured time. */
  readonly serverPid: number;
}

export interface LoadResult {
  readonly seconds: number;
  /** Responses with 202 in the measured time, and the users in them. */
  readonly accepted: number;
  readonly users: number;
  /** All responses in the measured time, by status. */
  readonly statuses: Readonly<Record<string, number>>;
  /** Connections that ended while a request was under way. */
  readonly broken: number;
  /** Requests that were due in the measured time and had no response when the job ended. */
  readonly unanswered: number;
  /** Of 202 responses, in milliseconds: from the moment a request was due (open loop) or sent (closed loop). */
  readonly latency: Quantiles;
  /** Open loop: how late requests were sent, whether the generator or busy connections were the cause. */
  readonly sendDelay: Quantiles;
  /** The generator's own load: share of time its event loop was busy, and CPU-seconds a second. */
  readonly generatorBusy: number;
  readonly generatorCpu: number;
  /** Cores that neither the server nor the generator used: other programs, the host. High values spoil a run. */
  readonly otherCpu: number;
  /** CPU-seconds of all threads of the server, and bytes it had written to disk. */
  readonly serverCpuSeconds: number;
  readonly serverDiskBytes: number;
}

/** Requests of a population, each sent once, in a closed loop: so many, or for so long. */
export interface StreamJob {
  readonly port: number;
  readonly key: string;
  readonly connections: number;
  readonly population: Population;
  readonly usersPerRequest: number;
  readonly end: { readonly requests: number } | { readonly seconds: number };
  readonly secondsMax: number;
}

export interface StreamResult {
  /** When the first request was sent, in milliseconds since 1970. */
  readonly startedAt: number;
  /** Until the last response. */
  readonly seconds: number;
  readonly accepted: number;
  readonly users: number;
  readonly statuses: Readonly<Record<string, number>>;
  readonly broken: number;
  readonly latency: Quantiles;
  readonly generatorBusy: number;
  readonly generatorCpuSeconds: number;
  /** Of the generator's time: spent on making the requests. */
  readonly makingSeconds: number;
}

/** Events at a rate, whatever the server does (open loop), until it is stopped. */
export interface SteadyJob {
  readonly port: number;
  readonly key: string;
  readonly connections: number;
  readonly population: Population;
  /** Users of the requests, in turn. */
  readonly sizes: readonly number[];
  readonly eventsPerSecond: number;
}

/** What can be said to a steady load that runs. */
export type SteadyControl = { readonly eventsPerSecond: number } | 'stop';

export interface SteadyResult {
  readonly seconds: number;
  /** Requests with a 202, and the users in them. */
  readonly accepted: number;
  readonly users: number;
  readonly statuses: Readonly<Record<string, number>>;
  readonly broken: number;
  /** Requests that were due and found no connection, and those without a response, at the end. */
  readonly notSent: number;
  readonly unanswered: number;
  /** From the moment a request was due. */
  readonly latency: Quantiles;
  readonly generatorBusy: number;
  readonly generatorCpuSeconds: number;
}

/** A load that runs until `stop`. */
export interface SteadyLoad {
  setRate(eventsPerSecond: number): void;
  stop(): Promise<SteadyResult>;
}

const PATIENCE_SECONDS = 30;

export class Generator {
  private readonly child: ChildProcess;

  constructor() {
    this.child = fork(new URL('load.ts', import.meta.url), { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  }

  async run(job: LoadJob): Promise<LoadResult> {
    return this.ask<LoadResult>(job, job.warmupSeconds + job.seconds + PATIENCE_SECONDS);
  }

  async stream(job: StreamJob): Promise<StreamResult> {
    return this.ask<StreamResult>(job, job.secondsMax);
  }

  steady(job: SteadyJob, secondsMax: number): SteadyLoad {
    const result = this.ask<SteadyResult>(job, secondsMax + PATIENCE_SECONDS);
    // Reported by `stop`; until then it must not end the process.
    result.catch(() => undefined);
    const control = (message: SteadyControl): void => {
      if (this.child.connected) this.child.send(message);
    };
    return {
      setRate: (eventsPerSecond) => control({ eventsPerSecond }),
      stop: async () => {
        control('stop');
        return result;
      },
    };
  }

  close(): void {
    this.child.removeAllListeners();
    if (this.child.connected) this.child.disconnect();
    this.child.kill('SIGKILL');
  }

  private async ask<Result>(job: LoadJob | StreamJob | SteadyJob, secondsMax: number): Promise<Result> {
    return new Promise<Result>((resolve, reject) => {
      const timer = setTimeout(() => {
        this.child.kill('SIGKILL');
        reject(new Error('the load generator did not finish its job in time'));
      }, secondsMax * 1000);
      const settle = (settled: () => void): void => {
        clearTimeout(timer);
        this.child.removeAllListeners();
        settled();
      };
      this.child.on('message', (message) => settle(() => resolve(message as Result)));
      this.child.on('exit', (code, signal) =>
        settle(() => reject(new Error(`the load generator ended early (${signal ?? code})`))),
      );
      this.child.send(job, (error) => {
        if (error !== null) settle(() => reject(error));
      });
    });
  }
}

/** Fails loudly when a side responds with anything but 202: a fast refusal must never look like a fast server. */
export function assertAllAccepted(name: string, result: Pick<LoadResult, 'accepted' | 'broken' | 'statuses'>): void {
  const other = Object.entries(result.statuses).filter(([status]) => status !== '202');
  if (other.length === 0 && result.broken === 0 && result.accepted > 0) return;
  const found = other.map(([status, count]) => `${count} × ${status}`).join(', ');
  throw new Error(
    `${name}: ${result.accepted} × 202, ${found || 'no other status'}, ${result.broken} broken connections`,
  );
}
