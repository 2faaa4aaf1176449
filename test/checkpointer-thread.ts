/** The checkpointer's thread as a server has it, for tests that open a log or a store themselves. */

import { MessageChannel, type MessagePort, Worker } from 'node:worker_threads';
import type { CheckpointerSetup } from '../src/wiring/supervisor.ts';

export interface CheckpointerThread {
  /** For one writer. */
  port(): MessagePort;
  stop(): Promise<void>;
}

export function startCheckpointer(): CheckpointerThread {
  const setup: CheckpointerSetup = { role: 'checkpointer' };
  const thread = new Worker(new URL('../src/wiring/thread.ts', import.meta.url), { workerData: setup });
  return {
    port: () => {
      const { port1, port2 } = new MessageChannel();
      thread.postMessage(port1, [port1]);
      return port2;
    },
    stop: async () => {
      await thread.terminate();
    },
  };
}
