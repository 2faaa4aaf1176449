/**
 * Validates bodies. Small ones are validated where they arrive; large ones in their own thread
 * (`validator-thread.ts`), because parsing a hostile body of 10 MB can take most of a second and other clients should
 * not wait for it. Either way the same pure validation runs.
 */

import { isUtf8 } from 'node:buffer';
import { Worker } from 'node:worker_threads';
import { HEAP_LIMITS, inOwnMemory, threadFile } from '../runtime/threads.ts';
import {
  type Conversion,
  type ConversionOptions,
  convertSegment,
  MESSAGES_PER_REQUEST_MAX,
  tooManyMessagesText,
  writeKeyOf,
} from '../intake/segment.ts';
import { acceptPlain } from '../validation/accept-plain.ts';
import {
  notJsonText,
  type RequestValidation,
  tooManyUsersText,
  type UserCheck,
  validateRequest,
} from '../validation/validate-request.ts';
import { scanLargeBody } from '../json/large-body.ts';
import { parseJson } from '../json/parse.ts';
import { KnownKeys, NO_KEYS } from '../json/scanner.ts';
import { decodeUtf8 } from '../json/utf8.ts';
import { LIMITS } from '../model.ts';
import type { CompiledPlan, PlanSource, Violation } from '../plans/compiled-plan.ts';

/**
 * Batches of a hundred users are above it, so that their validation uses a second core; single users are far below it.
 * A hostile body of this size takes some milliseconds to parse (Node 26: 94 ms a megabyte of nested arrays).
 */
export const VALIDATOR_THREAD_BYTES_MIN = 32 * 1024;

const USERS = new KnownKeys('users');
const BATCH = new KnownKeys('batch');

const NOT_UTF8 = 'body is not valid UTF-8; if it is compressed, say how in Content-Encoding';

export interface ValidatedBody {
  readonly validation: RequestValidation;
  /** The argument, without what is nested very deeply. Its memory may have moved: use this one. */
  readonly body: Uint8Array;
}

/** Takes ownership of the memory of `body`. */
export function validateBody(body: Uint8Array, plan: CompiledPlan | null = null): ValidatedBody {
  if (!isUtf8(body)) return { validation: { ok: false, message: NOT_UTF8 }, body };
  const isEnforced = plan?.mayEnforceIn(body) === true;
  const plain = isEnforced ? null : acceptPlain(body);
  if (plain !== null) return { validation: { ok: true, ...plain, rejections: [] }, body };
  const { kept, elements: users } = scanLargeBody(body, USERS);
  if (kept === null) return { validation: { ok: false, message: notJson(body) }, body };
  if (users > LIMITS.usersPerRequestMax) {
    return { validation: { ok: false, message: tooManyUsersText(users) }, body: kept };
  }
  return { validation: validateRequest(decodeUtf8(kept), isEnforced ? plan.enforced : undefined), body: kept };
}

/**
 * Converts a body in the format of Segment's SDKs to our own; every user in the result has been validated. Takes
 * ownership of the memory of `body`.
 */
export function convertBody(
  body: Uint8Array,
  options: ConversionOptions,
  plan: CompiledPlan | null = null,
): Conversion {
  if (!isUtf8(body)) return { ok: false, code: 'validation_failed', message: NOT_UTF8 };
  const { kept, elements: messages } = scanLargeBody(body, options.type === null ? BATCH : NO_KEYS);
  if (kept === null) return { ok: false, code: 'validation_failed', message: notJson(body) };
  if (messages > MESSAGES_PER_REQUEST_MAX) {
    return { ok: false, code: 'validation_failed', message: tooManyMessagesText(messages) };
  }
  return convertSegment(decodeUtf8(kept), options, plan === null ? undefined : asStored(plan.enforced));
}

/** In every mode. Requires a body that was validated. */
function violationsIn(body: Uint8Array, plan: CompiledPlan | null): (readonly Violation[])[] {
  const { users } = parseJson(decodeUtf8(body)) as { readonly users: readonly unknown[] };
  return users.map((user) => plan?.violationsOf(user) ?? []);
}

function notJson(body: Uint8Array): string {
  return notJsonText(decodeUtf8(body));
}

/** A converted user holds long numbers as objects; as it is stored, they are numbers. */
function asStored(check: UserCheck): UserCheck {
  return (user) => check(parseJson(JSON.stringify(user)));
}

/** What is done with a body: from `VALIDATOR_THREAD_BYTES_MIN` on in the validator thread. */
export type BodyTask =
  | { readonly kind: 'validate' }
  | { readonly kind: 'findKey' }
  | { readonly kind: 'findViolations' }
  | { readonly kind: 'convert'; readonly options: ConversionOptions };

interface Results {
  readonly validate: ValidatedBody;
  readonly findKey: { readonly writeKey: string | null; readonly body: Uint8Array };
  /** By user, in order. */
  readonly findViolations: { readonly violations: readonly (readonly Violation[])[]; readonly body: Uint8Array };
  readonly convert: Conversion;
}

export type BodyResult<Task extends BodyTask> = Results[Task['kind']];

/** Takes ownership of the memory of `body`. */
export function runTask<Task extends BodyTask>(
  task: Task,
  body: Uint8Array,
  plan: CompiledPlan | null,
): BodyResult<Task>;
export function runTask(task: BodyTask, body: Uint8Array, plan: CompiledPlan | null): BodyResult<BodyTask> {
  if (task.kind === 'validate') return validateBody(body, plan);
  if (task.kind === 'findViolations') return { violations: violationsIn(body, plan), body };
  if (task.kind === 'findKey') return { writeKey: writeKeyOf(body), body };
  return convertBody(body, task.options, plan);
}

/** A task as it goes to the validator thread, which compiles the plan itself. */
export interface ThreadTask {
  readonly task: BodyTask;
  readonly body: Uint8Array<ArrayBuffer>;
  readonly plan: PlanSource | null;
}

export class LargeBodyValidator {
  readonly #thread: Worker;
  /** In the order in which they were sent, which is the order of the results. */
  readonly #waiting: ((result: never) => void)[] = [];

  constructor() {
    const options = { name: 'validator', resourceLimits: HEAP_LIMITS.default };
    this.#thread = new Worker(threadFile('./validator-thread', import.meta.url), options);
    this.#thread.on('message', (result) => this.#waiting.shift()?.(result as never));
    // A crash there is a bug, and not bad input. It ends the process; nothing was acknowledged.
    this.#thread.on('error', (error) => {
      throw error;
    });
    this.#thread.unref();
  }

  /** How many bodies are not validated yet. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /** Takes ownership of the memory of `body`. */
  run<Task extends BodyTask>(task: Task, body: Uint8Array, plan: CompiledPlan | null): Promise<BodyResult<Task>> {
    return new Promise((resolve) => {
      const sent: ThreadTask = { task, body: inOwnMemory(body), plan: plan && plan.source };
      this.#thread.postMessage(sent, [sent.body.buffer]);
      this.#waiting.push(resolve);
    });
  }
}
