/**
 * The entry point of two kinds of threads of `sluice serve`, edge and processor; the role in the setup decides which, and
 * only its code is loaded. Like `main.ts`, the threads are composition roots: they wire up the parts, import concrete
 * backends on first use, and hold no logic of their own.
 */

import { workerData } from 'node:worker_threads';
import type { EdgeSetup, ProcessorSetup } from './supervisor.ts';

const setup = workerData as EdgeSetup | ProcessorSetup;
if (setup.role === 'edge') await (await import('./edge-thread.ts')).runEdge(setup);
else await (await import('./processor-thread.ts')).runProcessor(setup);
