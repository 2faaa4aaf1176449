/**
 * The runner's end of the load generator: starts `load.ts` as a process of its own and hands it one job at a time. The
 * same process serves all rounds, so that it is warm for both sides of a comparison and both get the same bytes. A job
 * that outlives its time by 30 seconds ends the process and fails.
 */

import { type ChildProcess, fork } from 'node:child_process';
import type { Population } from './people-generator.ts';
import type { Quantiles } from './histogram.ts';
import type { ShapeName } from './requests.ts';
import type { Server } from './servers.ts';

export interface LoadJob {
  /** Requests made beforehand, sent again and again; or those of a population, each sent once, of these sizes in turn. */
  readonly requests: ShapeName | { readonly population: Population; readonly sizes: readonly number[] };
  readonly connections: number;
  /** Whatever the server does (open loop); if left out, as many as are responded to (closed loop). */
  readonly usersPerSecond?: number;
  /** Not counted. */
  readonly warmupSeconds?: number;
  readonly end: { readonly seconds: number } | { readonly requests: number } | 'stop';
  /** How long a connection rests after a response other than 202. */
  readonly backoffMilliseconds?: number;
}

/** Where to send to, and whose CPU time and disk writes are read at both ends of the measured time. */
export interface LoadTarget {
  readonly port: number;
  readonly key: string;
  readonly serverPid: number;
}

/** What can be said to a load that runs. */
export type LoadControl = { readonly usersPerSecond: number } | 'stop';

export interface LoadResult {
  /** In milliseconds since 1970. */
  readonly startedAt: number;
  readonly seconds: number;
  /** Responses with 202 in the measured time (open loop: to what was due in it), and the users in them. */
  readonly accepted: number;
  readonly users: number;
  /** All of these responses, by status. */
  readonly statuses: Readonly<Record<string, number>>;
  /** Connections that ended while a request was under way. */
  readonly broken: number;
  /** Open loop: requests that were due and found no connection until it was stopped, and those without a response at the end. */
  readonly notSent: number;
  readonly unanswered: number;
  /** Of 202 responses, in milliseconds: from the moment a request was due (open loop) or sent (closed loop). */
  readonly latency: Quantiles;
  /** Open loop: how late requests were sent, whether the generator or busy connections were the cause. */
  readonly sendDelay: Quantiles;
  /** The generator's own load: spent on making requests, share of time its event loop was busy, and CPU time. */
  readonly makingSeconds: number;
  readonly generatorBusy: number;
  readonly generatorCpuSeconds: number;
  /** Cores that neither the server nor the generator used: other programs, the host. High values spoil a run. */
  readonly otherCpu: number;
  /** CPU-seconds of all threads of the server, and bytes it had written to disk. */
  readonly serverCpuSeconds: number;
  readonly serverDiskBytes: number;
}

/** A load that runs until `stop`. */
export interface SteadyLoad {
  setRate(usersPerSecond: number): void;
  stop(): Promise<LoadResult>;
}

const PATIENCE_SECONDS = 30;

export class Generator {
  private readonly child: ChildProcess;

  constructor() {
    this.child = fork(new URL('load.ts', import.meta.url), { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  }

  async run({ port, key, pid }: Server, job: LoadJob, secondsMax: number): Promise<LoadResult> {
    const target: LoadTarget = { port, key, serverPid: pid };
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => {
          this.child.kill('SIGKILL');
          reject(new Error('the load generator did not finish its job in time'));
        },
        (secondsMax + PATIENCE_SECONDS) * 1000,
      );
      const settle = (settled: () => void): void => {
        clearTimeout(timer);
        this.child.removeAllListeners();
        settled();
      };
      this.child.on('message', (message) => settle(() => resolve(message as LoadResult)));
      this.child.on('exit', (code, signal) =>
        settle(() => reject(new Error(`the load generator ended early (${signal ?? code})`))),
      );
      this.child.send({ ...job, ...target }, (error) => {
        if (error !== null) settle(() => reject(error));
      });
    });
  }

  steady(server: Server, job: Omit<LoadJob, 'end'>, secondsMax: number): SteadyLoad {
    const result = this.run(server, { ...job, end: 'stop' }, secondsMax);
    // Reported by `stop`; until then it must not end the process.
    result.catch(() => undefined);
    const control = (message: LoadControl): void => {
      if (this.child.connected) this.child.send(message);
    };
    return {
      setRate: (usersPerSecond) => control({ usersPerSecond }),
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
