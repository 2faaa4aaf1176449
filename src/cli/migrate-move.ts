/**
 * Moves an installation part by part (migration/parts.ts), and compares both sides afterwards. What was taken in before is not
 * touched again, so it may be called as often as it takes. A part that somebody else took further at the same moment (a
 * run that was killed, but whose last statement was still at work) is gone on with from where it is then.
 */

import { isDeepStrictEqual } from 'node:util';
import type { TenantId } from '../model.ts';
import {
  type MovingSource,
  type MovingTarget,
  PART_NAMES,
  type PartName,
  type TenantBooks,
} from '../migration/parts.ts';
import { StoreConflictError } from '../store-writer.ts';

const ATTEMPTS = 5;
/** Differences are told up to so many hours; one is enough to look into it. */
const DIFFERENCES_TOLD = 10;

export interface MoveJob {
  readonly source: MovingSource;
  readonly target: MovingTarget;
  readonly stop: AbortSignal;
  /** After every chunk: how many rows are there by now, of all parts, and bytes of this run. */
  readonly onProgress: (rows: number, bytes: number) => void;
}

export type Counts = ReadonlyMap<PartName, number>;

/** False when it was told to stop before the end. */
export async function moveAll(job: MoveJob): Promise<boolean> {
  const { source, target, stop, onProgress } = job;
  const sums = { rows: 0, bytes: 0 };
  for (const { rows } of (await target.progress()).values()) sums.rows += rows;
  onProgress(sums.rows, sums.bytes);
  for (const part of PART_NAMES) {
    for (let attempt = 1; !(await isDone(target, part)); attempt += 1) {
      if (stop.aborted) return false;
      try {
        await movePart(job, part, sums);
      } catch (error) {
        if (!(error instanceof StoreConflictError) || attempt === ATTEMPTS) throw error;
      }
    }
  }
  await target.settle(source.nextNumber);
  return true;
}

async function isDone(target: MovingTarget, part: PartName): Promise<boolean> {
  return (await target.progress()).get(part)?.isDone === true;
}

async function movePart(job: MoveJob, part: PartName, sums: { rows: number; bytes: number }): Promise<void> {
  const { source, target, stop, onProgress } = job;
  let position = (await target.progress()).get(part)?.position ?? null;
  for await (const chunk of source.chunks(part, position)) {
    await target.take(part, position, chunk);
    ({ position } = chunk);
    sums.rows += chunk.rows;
    sums.bytes += chunk.bytes;
    onProgress(sums.rows, sums.bytes);
    if (stop.aborted) return;
  }
  await target.take(part, position, null);
}

export async function countAll(side: Pick<MovingSource | MovingTarget, 'count'>): Promise<Counts> {
  const counts = new Map<PartName, number>();
  for (const part of PART_NAMES) counts.set(part, await side.count(part));
  return counts;
}

export interface Verdict {
  readonly here: Counts;
  readonly there: Counts;
  /** Hours of the ledger that were compared, over all tenants. */
  readonly hours: number;
  readonly tenants: number;
  /** What is not the same, in words; none when all is. */
  readonly differences: readonly string[];
}

/** Rows of every part, and the books of every tenant hour by hour. */
export async function compare(source: MovingSource, target: MovingTarget, here: Counts): Promise<Verdict> {
  const there = await countAll(target);
  const differences: string[] = [];
  for (const part of PART_NAMES) {
    if (here.get(part) === there.get(part)) continue;
    differences.push(`${partWords(part)}: ${here.get(part)} rows here, ${there.get(part)} there`);
  }
  const [booksHere, booksThere] = [await source.books(), await target.books()];
  const tenants = new Set([...booksHere.keys(), ...booksThere.keys()]);
  let hours = 0;
  for (const tenantId of tenants) {
    const compared = compareBooks(tenantId, booksHere, booksThere);
    hours += compared.hours;
    differences.push(...compared.differences);
  }
  return { here, there, hours, tenants: tenants.size, differences };
}

function compareBooks(
  tenantId: TenantId,
  booksHere: TenantBooks,
  booksThere: TenantBooks,
): { hours: number; differences: string[] } {
  const here = new Map(booksHere.get(tenantId)?.map((hour) => [hour.hour, hour]));
  const there = new Map(booksThere.get(tenantId)?.map((hour) => [hour.hour, hour]));
  const hours = new Set([...here.keys(), ...there.keys()]);
  const differing = [...hours].filter((hour) => !isDeepStrictEqual(here.get(hour), there.get(hour)));
  const differences = differing
    .slice(0, DIFFERENCES_TOLD)
    .map((hour) => `ledger of ${tenantId}: the hour ${new Date(hour).toISOString()} is not the same`);
  const untold = differing.length - differences.length;
  if (untold > 0) differences.push(`ledger of ${tenantId}: ${untold} more hours are not the same`);
  return { hours: hours.size, differences };
}

/** `sign_in_attempts` as people read it. */
export function partWords(part: PartName): string {
  return part.replaceAll('_', ' ');
}
