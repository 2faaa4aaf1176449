/**
 * What differs between two plans, path by path, for people to review. Objects are compared member by member, whatever their
 * order; lists and plain values as a whole.
 */

import { isObject, pathSegment } from '../validation/shape.ts';
import type { Plan } from './plan.ts';

export interface PlanDifference {
  readonly kind: 'added' | 'removed' | 'changed';
  /** In the plan file: `events.order_placed.mode`. */
  readonly path: string;
  /** As JSON; undefined where there is none. */
  readonly before?: string;
  readonly after?: string;
}

/** In the order of `before`, then what is new. The version is not compared. */
export function diffPlans(
  { version: _before, ...before }: Plan,
  { version: _after, ...after }: Plan,
): PlanDifference[] {
  const differences: PlanDifference[] = [];
  compare(before, after, '', differences);
  return differences;
}

function compare(before: unknown, after: unknown, path: string, differences: PlanDifference[]): void {
  if (isObject(before) && isObject(after)) {
    for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) {
      const member = (of: object): unknown =>
        Object.hasOwn(of, name) ? (of as Readonly<Record<string, unknown>>)[name] : undefined;
      compare(member(before), member(after), (path + pathSegment(name)).replace(/^\./, ''), differences);
    }
    return;
  }
  const [was, is] = [before === undefined ? undefined : JSON.stringify(before), JSON.stringify(after)];
  if (was === is) return;
  if (was === undefined) differences.push({ kind: 'added', path, after: is ?? '' });
  else if (after === undefined) differences.push({ kind: 'removed', path, before: was });
  else differences.push({ kind: 'changed', path, before: was, after: is ?? '' });
}
