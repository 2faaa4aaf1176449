/**
 * The entry point of three kinds of threads of `sluice serve`: edge, processor and checkpointer; the role in the setup
 * decides which, and only its code is loaded. Like `main.ts`, the threads are composition roots: they wire up the parts,
 * import concrete backends on first use, and hold no logic of their own.
 */

import { type MessagePort, parentPort, workerData } from 'node:worker_threads';
import type { CheckpointerSetup, EdgeSetup, ProcessorSetup, ThreadMessage } from './supervisor.ts';

/** The thread that makes the checkpoints of the log and the store. */
async function runCheckpointer(): Promise<void> {
  const { serveCheckpoints } = await import('../backends/embedded/checkpointer.ts');
  const serve = serveCheckpoints((message) => {
    const fatal: ThreadMessage = { type: 'fatal', message: `the disk cannot be trusted any more: ${message}` };
    parentPort?.postMessage(fatal);
  });
  parentPort?.on('message', (port: MessagePort) => serve(port));
}

const setup = workerData as EdgeSetup | ProcessorSetup | CheckpointerSetup;
if (setup.role === 'edge') await (await import('./edge-thread.ts')).runEdge(setup);
else if (setup.role === 'processor') await (await import('./processor-thread.ts')).runProcessor(setup);
else await runCheckpointer();
