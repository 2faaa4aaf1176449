/**
 * The thread that validates and converts large bodies, one after another. The bytes are transferred in and back,
 * without a copy. A task comes with the plan that its users are checked against; the PLANS_MAX compiled plans used last
 * are kept.
 */

import { parentPort } from 'node:worker_threads';
import type { CompiledPlan, PlanSource } from '../plans/compiled-plan.ts';
import { putLast } from '../runtime/put-last.ts';
import { inOwnMemory } from '../runtime/threads.ts';
import { runTask, type ThreadTask } from './validate-body.ts';

const PLANS_MAX = 50;
const plans = new Map<string, CompiledPlan>();
/** Resolves when all tasks so far are done. */
let queue = Promise.resolve();

async function run({ task, body, plan: source }: ThreadTask): Promise<void> {
  const result = runTask(task, body, source === null ? null : await planOf(source));
  if (!('body' in result)) {
    parentPort?.postMessage(result, [body.buffer]);
    return;
  }
  const kept = inOwnMemory(result.body);
  parentPort?.postMessage({ ...result, body: kept }, [kept.buffer]);
}

async function planOf(source: PlanSource): Promise<CompiledPlan> {
  const plan = plans.get(source.id) ?? (await import('../plans/compiled-plan.ts')).compileStored(source);
  putLast(plans, source.id, plan, PLANS_MAX);
  return plan;
}

parentPort?.on('message', (task: ThreadTask) => {
  queue = queue.then(() => run(task));
});
