/**
 * The thread that validates and converts large bodies, one after another. The bytes are transferred in and back, without
 * a copy. A plan that is enforced is sent before the bodies it applies to. The code that compiles plans is loaded with
 * the first one; tasks behind a plan wait until it is compiled.
 */

import { parentPort } from 'node:worker_threads';
import { type EnforcedPlan, openEnforcedPlan } from './enforced-plans.ts';
import { type PlanMessage, runTask, type ValidatorTask } from './validate-body.ts';

const plans = new Map<string, EnforcedPlan>();
/** Resolves when all tasks so far are done; null until the first plan arrives, since tasks alone never wait. */
let queue: Promise<void> | null = null;

function run(task: ValidatorTask): void {
  const { reply, memory } = runTask(task, plans);
  parentPort?.postMessage(reply, [memory]);
}

async function takePlan({ plan, forget }: PlanMessage): Promise<void> {
  if (forget !== null) plans.delete(forget);
  plans.set(plan.id, await openEnforcedPlan(plan));
}

parentPort?.on('message', (message: ValidatorTask | PlanMessage) => {
  if ('plan' in message) queue = (queue ?? Promise.resolve()).then(() => takePlan(message));
  else if (queue === null) run(message);
  else queue = queue.then(() => run(message));
});
