/**
 * Copies an installation part by part (migration/parts.ts), and compares both sides afterwards. Rows that were copied
 * before are not touched again, so it may be called as often as necessary. A part that another process advanced at the
 * same moment (a killed run whose last statement was still executing) continues from where it is then.
 */

import { isDeepStrictEqual } from 'node:util';
import type { TenantId } from '../model.ts';
import {
  type MigrationSource,
  type MigrationTarget,
  PART_NAMES,
  type PartName,
  type TenantLedger,
} from '../migration/parts.ts';
import { StoreConflictError } from '../store-writer.ts';

const ATTEMPTS = 5;
/** Differences are shown for at most this many hours; one is enough to look into it. */
const DIFFERENCES_SHOWN = 10;

export interface MigrationJob {
  readonly source: MigrationSource;
  readonly target: MigrationTarget;
  readonly stop: AbortSignal;
  /** After every chunk: how many rows are there by now, of all parts, and bytes of this run. */
  readonly onProgress: (rows: number, bytes: number) => void;
}

export type Counts = ReadonlyMap<PartName, number>;

/** False when it was stopped before the end. */
export async function migrateAll(job: MigrationJob): Promise<boolean> {
  const { source, target, stop, onProgress } = job;
  const sums = { rows: 0, bytes: 0 };
  for (const { rows } of (await target.progress()).values()) sums.rows += rows;
  onProgress(sums.rows, sums.bytes);
  for (const part of PART_NAMES) {
    for (let attempt = 1; !(await isDone(target, part)); attempt += 1) {
      if (stop.aborted) return false;
      try {
        await migratePart(job, part, sums);
      } catch (error) {
        if (!(error instanceof StoreConflictError) || attempt === ATTEMPTS) throw error;
      }
    }
  }
  await target.settle(source.nextNumber);
  return true;
}

async function isDone(target: MigrationTarget, part: PartName): Promise<boolean> {
  return (await target.progress()).get(part)?.isDone === true;
}

async function migratePart(job: MigrationJob, part: PartName, sums: { rows: number; bytes: number }): Promise<void> {
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

export async function countAll(side: Pick<MigrationSource | MigrationTarget, 'count'>): Promise<Counts> {
  const counts = new Map<PartName, number>();
  for (const part of PART_NAMES) counts.set(part, await side.count(part));
  return counts;
}

export interface Comparison {
  readonly here: Counts;
  readonly there: Counts;
  /** Hours of the ledger that were compared, over all tenants. */
  readonly hours: number;
  readonly tenants: number;
  /** What is not the same, in words; none when all is. */
  readonly differences: readonly string[];
}

/** Rows of every part, and the ledger of every tenant hour by hour. */
export async function compare(source: MigrationSource, target: MigrationTarget, here: Counts): Promise<Comparison> {
  const there = await countAll(target);
  const differences: string[] = [];
  for (const part of PART_NAMES) {
    if (here.get(part) === there.get(part)) continue;
    differences.push(`${partLabel(part)}: ${here.get(part)} rows here, ${there.get(part)} there`);
  }
  const [ledgersHere, ledgersThere] = [await source.ledger(), await target.ledger()];
  const tenants = new Set([...ledgersHere.keys(), ...ledgersThere.keys()]);
  let hours = 0;
  for (const tenantId of tenants) {
    const compared = compareLedgers(tenantId, ledgersHere, ledgersThere);
    hours += compared.hours;
    differences.push(...compared.differences);
  }
  return { here, there, hours, tenants: tenants.size, differences };
}

function compareLedgers(
  tenantId: TenantId,
  ledgersHere: TenantLedger,
  ledgersThere: TenantLedger,
): { hours: number; differences: string[] } {
  const here = new Map(ledgersHere.get(tenantId)?.map((hour) => [hour.hour, hour]));
  const there = new Map(ledgersThere.get(tenantId)?.map((hour) => [hour.hour, hour]));
  const hours = new Set([...here.keys(), ...there.keys()]);
  const differing = [...hours].filter((hour) => !isDeepStrictEqual(here.get(hour), there.get(hour)));
  const differences = differing
    .slice(0, DIFFERENCES_SHOWN)
    .map((hour) => `ledger of ${tenantId}: the hour ${new Date(hour).toISOString()} is not the same`);
  const untold = differing.length - differences.length;
  if (untold > 0) differences.push(`ledger of ${tenantId}: ${untold} more hours are not the same`);
  return { hours: hours.size, differences };
}

/** `sign_in_attempts` as people read it. */
export function partLabel(part: PartName): string {
  return part.replaceAll('_', ' ');
}
