/**
 * Sluice for Node.js 20 and newer, Bun, Deno, Workers and other platforms with `fetch`. Nothing here keeps a process
 * alive: call flush() or close() before the end, or set `flushOnExit`. The queue is in memory, so unsent calls are lost
 * when the process is killed; flush() reports what was sent.
 */

import {
  type AnyPlan,
  type Identifiers,
  type PersonMemory,
  SluiceClient,
  type SluiceOptions,
  type WaitOptions,
} from './core.ts';

export type * from './core.ts';
export type { DropReason, FlushResult, Limits, Rejection, SluiceEvents } from './queue.ts';

export interface ServerOptions extends SluiceOptions {
  /** Sends what waits when the program has nothing left to do, and at SIGTERM; no request begins after 5 seconds unless given. */
  readonly flushOnExit?: boolean | WaitOptions;
  /** Serverless platforms: keeps the function running until its events are sent, such as `ctx.waitUntil`. */
  readonly waitUntil?: (delivery: Promise<unknown>) => void;
}

const LIMITS = {
  batchUsersMax: 100,
  batchBytesMax: 500_000,
  batchDelayMs: 5_000,
  queueUsersMax: 100_000,
  queueBytesMax: 100_000_000,
  requestTimeoutMs: 10_000,
  retryDelayMs: 500,
  retryDelayMaxMs: 30_000,
};
const EXIT_MS_MAX = 5_000;

export class Sluice<Plan extends { [Name in keyof Plan]: object } = AnyPlan> extends SluiceClient<Plan> {
  readonly #waitUntil: ServerOptions['waitUntil'];
  #isWaitedFor = false;

  constructor(options: ServerOptions) {
    super(options, { limits: LIMITS, person: new PersonInMemory() });
    this.#waitUntil = options.waitUntil;
    const { flushOnExit = false } = options;
    if (flushOnExit !== false) this.#flushOnExit(flushOnExit === true ? {} : flushOnExit);
  }

  protected override record(...args: Parameters<SluiceClient['record']>): string {
    const id = super.record(...args);
    if (this.#waitUntil !== undefined && !this.#isWaitedFor) {
      this.#isWaitedFor = true;
      // After the calls of the same moment.
      const delivery = Promise.resolve().then(() => {
        this.#isWaitedFor = false;
        return this.flush();
      });
      try {
        this.#waitUntil(delivery);
      } catch (error) {
        // It is sent all the same, if the platform lets it.
        console.error(error);
      }
    }
    return id;
  }

  #flushOnExit({ timeoutMs = EXIT_MS_MAX }: WaitOptions): void {
    const { process } = globalThis as unknown as { process?: ProcessLike };
    if (process === undefined)
      throw new TypeError('flushOnExit needs a process; use waitUntil on serverless platforms');
    process.on('beforeExit', () => {
      // Node asks again after each round of work.
      if (!this.queue.isClosed) void this.close({ timeoutMs });
    });
    const onSignal = (): void => {
      void this.close({ timeoutMs }).then(() => {
        process.removeListener('SIGTERM', onSignal);
        // A signal listener replaces the default action, so the signal is sent again. A program with listeners of its
        // own ends by itself.
        if (process.listenerCount('SIGTERM') === 0) process.kill(process.pid, 'SIGTERM');
      });
    };
    process.on('SIGTERM', onSignal);
  }
}

interface ProcessLike {
  readonly pid: number;
  on(name: string, listener: () => void): void;
  removeListener(name: string, listener: () => void): void;
  listenerCount(name: string): number;
  kill(pid: number, signal: string): void;
}

class PersonInMemory implements PersonMemory {
  #identifiers: Identifiers = {};

  identifiers(): Identifiers {
    return this.#identifiers;
  }

  /** The strongest identifier is enough from now on: the call of `identify()` connects it with the others. */
  remember({ user_id, email, phone_number, anon_id }: Identifiers): void {
    if (user_id !== undefined) this.#identifiers = { user_id };
    else if (email !== undefined) this.#identifiers = { email };
    else if (phone_number !== undefined) this.#identifiers = { phone_number };
    else if (anon_id !== undefined) this.#identifiers = { anon_id };
  }

  forget(): void {
    this.#identifiers = {};
  }
}
