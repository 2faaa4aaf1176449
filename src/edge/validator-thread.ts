/**
 * The thread that validates and converts large bodies, one after another. Their memory is transferred, not copied.
 */

import { parentPort } from 'node:worker_threads';
import { runTask, type ValidatorTask } from './validate-body.ts';

parentPort?.on('message', (task: ValidatorTask) => {
  const { reply, memory } = runTask(task);
  parentPort?.postMessage(reply, [memory]);
});
