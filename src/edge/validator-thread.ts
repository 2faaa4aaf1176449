/**
 * The thread that validates and converts large bodies, one after another. The bytes are transferred in and back, without
 * a copy. Plans that are to be enforced come before the bodies that they are for; what compiles them is loaded with the
 * first one, and everything after it waits for its turn.
 */

import { parentPort } from 'node:worker_threads';
import { type EnforcedPlan, openEnforcedPlan } from './enforced-plans.ts';
import { type PlanMessage, runTask, type ValidatorTask } from './validate-body.ts';

const plans = new Map<string, EnforcedPlan>();
/** What was begun and has not ended; null until the first plan comes. */
let turn: Promise<void> | null = null;

function run(task: ValidatorTask): void {
  const { reply, memory } = runTask(task, plans);
  parentPort?.postMessage(reply, [memory]);
}

async function takePlan({ plan, forget }: PlanMessage): Promise<void> {
  if (forget !== null) plans.delete(forget);
  plans.set(plan.id, await openEnforcedPlan(plan));
}

parentPort?.on('message', (message: ValidatorTask | PlanMessage) => {
  if ('plan' in message) turn = (turn ?? Promise.resolve()).then(() => takePlan(message));
  else if (turn === null) run(message);
  else turn = turn.then(() => run(message));
});
