/**
 * The thread that validates and converts large bodies, one after another. The bytes are transferred in and back, without
 * a copy. A task comes with the plan that is enforced, which is compiled once and kept while it is among the PLANS_MAX
 * used last. The code that compiles plans is loaded with the first one; tasks behind a plan wait until it is compiled.
 */

import { parentPort } from 'node:worker_threads';
import { putLast } from '../runtime/put-last.ts';
import { type EnforcedPlan, openEnforcedPlan } from './enforced-plans.ts';
import { runTask, type ValidatorTask } from './validate-body.ts';

const PLANS_MAX = 50;
const plans = new Map<string, EnforcedPlan>();
/** Resolves when all tasks so far are done; null while none had a plan: those without one are done at once. */
let queue: Promise<void> | null = null;

function run(task: ValidatorTask, plan: EnforcedPlan | null): void {
  const { reply, memory } = runTask(task, plan);
  parentPort?.postMessage(reply, [memory]);
}

async function runWithPlan(task: ValidatorTask): Promise<void> {
  if (task.plan === null) return run(task, null);
  const { id } = task.plan;
  const plan = plans.get(id) ?? (await openEnforcedPlan(task.plan));
  putLast(plans, id, plan, PLANS_MAX);
  run(task, plan);
}

parentPort?.on('message', (task: ValidatorTask) => {
  if (queue === null && task.plan === null) run(task, null);
  else queue = (queue ?? Promise.resolve()).then(() => runWithPlan(task));
});
