/**
 * Validates bodies. Small ones are validated where they arrive; large ones in their own thread
 * (`validator-thread.ts`), because parsing a hostile body of 10 MB can take most of a second and other clients should
 * not wait for it. Either way the same pure validation runs.
 */

import { isUtf8 } from 'node:buffer';
import { Worker } from 'node:worker_threads';
import { HEAP_LIMITS, inOwnMemory, threadFile } from '../runtime/threads.ts';
import { type Conversion, type ConversionOptions, convertSegment, writeKeyOf } from '../intake/segment.ts';
import { acceptPlain } from '../validation/accept-plain.ts';
import {
  notJsonText,
  type RequestValidation,
  type UserCheck,
  validateRequest,
} from '../validation/validate-request.ts';
import { withoutDeepNesting } from '../json/deep-nesting.ts';
import { parseJson } from '../json/parse.ts';
import { decodeUtf8 } from '../json/utf8.ts';
import type { EnforcedPlan, PlanSource } from './enforced-plans.ts';

/**
 * Batches of a hundred users are above it, so that their validation uses a second core; single users are far below it.
 * A hostile body of this size takes some milliseconds to parse (Node 26: 94 ms a megabyte of nested arrays).
 */
export const VALIDATOR_THREAD_BYTES_MIN = 32 * 1024;

const NOT_UTF8 = 'body is not valid UTF-8; if it is compressed, say how in Content-Encoding';

export interface ValidatedBody {
  readonly validation: RequestValidation;
  /** As it was handed in, without what is nested very deeply. The argument is no longer usable. */
  readonly body: Uint8Array;
}

/** Takes ownership of the memory of `body`. */
export function validateBody(body: Uint8Array, plan: EnforcedPlan | null = null): ValidatedBody {
  if (!isUtf8(body)) return { validation: { ok: false, message: NOT_UTF8 }, body };
  const isEnforced = plan?.mayEnforceIn(body) === true;
  const plain = isEnforced ? null : acceptPlain(body);
  if (plain !== null) return { validation: { ok: true, ...plain, rejections: [] }, body };
  const kept = withoutDeepNesting(body);
  if (kept === null) return { validation: { ok: false, message: notJson(body) }, body };
  return { validation: validateRequest(decodeUtf8(kept), isEnforced ? plan.check : undefined), body: kept };
}

/**
 * In the form of Segment's SDKs, converted to ours; every user in the result has been validated. Takes ownership of the
 * memory of `body`.
 */
export function convertBody(
  body: Uint8Array,
  options: ConversionOptions,
  plan: EnforcedPlan | null = null,
): Conversion {
  if (!isUtf8(body)) return { ok: false, code: 'validation_failed', message: NOT_UTF8 };
  const kept = withoutDeepNesting(body);
  if (kept === null) return { ok: false, code: 'validation_failed', message: notJson(body) };
  return convertSegment(decodeUtf8(kept), options, plan === null ? undefined : asStored(plan.check));
}

function notJson(body: Uint8Array): string {
  return notJsonText(decodeUtf8(body));
}

/** A converted user holds long numbers as objects; as it is stored, they are numbers. */
function asStored(check: UserCheck): UserCheck {
  return (user) => check(parseJson(JSON.stringify(user)));
}

/** What a thread is asked to do with a large body. */
export type ValidatorTask = { readonly body: Uint8Array<ArrayBuffer>; readonly plan: PlanSource | null } & (
  | { readonly kind: 'validate' }
  | { readonly kind: 'findKey' }
  | { readonly kind: 'convert'; readonly options: ConversionOptions }
);

/** The result of any task, and the memory that goes back with it. */
export function runTask(
  task: ValidatorTask,
  plan: EnforcedPlan | null,
): { readonly reply: unknown; readonly memory: ArrayBuffer } {
  const { body } = task;
  if (task.kind === 'validate') {
    const validated = validateBody(body, plan);
    const kept = inOwnMemory(validated.body);
    return { reply: { ...validated, body: kept }, memory: kept.buffer };
  }
  if (task.kind === 'findKey') return { reply: { writeKey: writeKeyOf(body), body }, memory: body.buffer };
  const conversion = convertBody(body, task.options, plan);
  if (!conversion.ok) return { reply: conversion, memory: body.buffer };
  const converted = inOwnMemory(conversion.body);
  return { reply: { ...conversion, body: converted }, memory: converted.buffer };
}

export class LargeBodyValidator {
  readonly #thread: Worker;
  /** In the order in which they were sent, which is the order of the replies. */
  readonly #waiting: ((reply: never) => void)[] = [];

  constructor() {
    const options = { name: 'validator', resourceLimits: HEAP_LIMITS.default };
    this.#thread = new Worker(threadFile('./validator-thread', import.meta.url), options);
    this.#thread.on('message', (reply) => this.#waiting.shift()?.(reply as never));
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
  validate(body: Buffer, plan: EnforcedPlan | null = null): Promise<ValidatedBody> {
    return this.#run({ kind: 'validate', body: inOwnMemory(body), plan: plan && plan.source });
  }

  /** Takes ownership of the memory of `body`. */
  convert(body: Uint8Array, options: ConversionOptions, plan: EnforcedPlan | null = null): Promise<Conversion> {
    return this.#run({ kind: 'convert', options, body: inOwnMemory(body), plan: plan && plan.source });
  }

  /** Takes ownership of the memory of `body`. */
  findKey(body: Uint8Array): Promise<{ readonly writeKey: string | null } & Pick<ValidatedBody, 'body'>> {
    return this.#run({ kind: 'findKey', body: inOwnMemory(body), plan: null });
  }

  #run<Reply>(task: ValidatorTask): Promise<Reply> {
    return new Promise((resolve) => {
      this.#thread.postMessage(task, [task.body.buffer]);
      this.#waiting.push(resolve);
    });
  }
}
