/**
 * Which test files a run has, and in which order they start. Arguments are test files or folders, or `--quick` for those
 * of QUICK; without any, it is all of them. The order loses no file and repeats none; it only keeps the machine evenly
 * busy.
 */

import { globSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = fileURLToPath(new URL('..', import.meta.url));

/**
 * What `npm run test:quick` runs: folders, and files of other folders. What is listed needs nothing but Node.js – no
 * browser, database, broker, root or other tool – and takes less than a minute altogether on two cores. Only the contract of
 * the edge starts a server.
 */
export const QUICK: readonly string[] = [
  'test/backup',
  'test/columnar',
  'test/identity',
  'test/json',
  'test/keys',
  'test/sign-in',
  'test/validation',
  'test/resubmit',
  'test/api/app.test.ts',
  'test/api/openapi.test.ts',
  'test/api/reading-responses.test.ts',
  'test/backends/embedded/event-packing.test.ts',
  'test/backends/embedded/sorted-runs.test.ts',
  'test/backends/embedded/wal-chain.test.ts',
  'test/cli/help.test.ts',
  'test/cli/keys.test.ts',
  'test/cli/trace.test.ts',
  'test/config/config.test.ts',
  'test/config/flags.test.ts',
  'test/contract/sqlite-keys.test.ts',
  'test/contract/sqlite-members.test.ts',
  'test/docs.test.ts',
  'test/edge/contract.test.ts',
  'test/house-rules.test.ts',
  'test/intake/segment.test.ts',
  'test/plans/compiled-plan.test.ts',
  'test/plans/infer-and-types.test.ts',
  'test/plans/pattern.test.ts',
  'test/plans/personal.test.ts',
  'test/plans/plan.test.ts',
  'test/processor/decide.test.ts',
  'test/processor/poison.test.ts',
  'test/processor/prepare.test.ts',
  'test/processor/time.test.ts',
  'test/telemetry/metrics.test.ts',
  'test/views/currency.test.ts',
  'test/views/identity-cache.test.ts',
  'test/views/keyed-hash.test.ts',
  'test/views/node-properties.test.ts',
];

/**
 * The files that take longest, longest first: one that starts late would run alone in the end. Those that mostly wait,
 * for brokers or databases, stand between those that mostly work.
 */
export const LONG: readonly string[] = [
  'test/dashboard/appearance.test.ts',
  'test/scaling/processors.test.ts',
  'test/e2e/installation.test.ts',
  'test/scaling/database.test.ts',
  'test/faults/lifecycle.test.ts',
  'test/e2e/clock.test.ts',
  'test/cli/migrate.test.ts',
  'test/scaling/brokers.test.ts',
  'test/faults/log-files.test.ts',
  'test/contract/sqlite-store.test.ts',
  'test/contract/postgres-store.test.ts',
  'test/faults/lost-log.test.ts',
  'test/faults/processor-kill.test.ts',
  'test/e2e/postgres.test.ts',
  'test/faults/processor-corruption.test.ts',
  'test/faults/fsync.test.ts',
  'test/faults/kill.test.ts',
  'test/dashboard/accounts.test.ts',
  'test/scaling/backup.test.ts',
  'test/faults/disk.test.ts',
  'test/sdks/segment-sdks.test.ts',
  'test/contract/file-log.test.ts',
];

/** Paths below the root of the project. */
export function chosenFiles(args: readonly string[]): string[] {
  const places = args.flatMap((arg) => (arg === '--quick' ? QUICK : [arg]));
  const files = (places.length === 0 ? ['test'] : places).flatMap(filesIn);
  return inOrder([...new Set(files)]);
}

function filesIn(place: string): string[] {
  const isFolder = statSync(join(ROOT, place), { throwIfNoEntry: false })?.isDirectory();
  return isFolder === true ? globSync(`${place}/**/*.test.ts`, { cwd: ROOT }) : [place];
}

/**
 * The long ones first, then the files of every folder spread evenly over the run: files of one folder need the same
 * thing, such as Chromium or brokers, and would be in each other's way side by side.
 */
export function inOrder(files: readonly string[]): string[] {
  const folders = Map.groupBy(files.filter((file) => !LONG.includes(file)).sort(), dirname);
  const placed = [...folders.values()].flatMap((folder) =>
    folder.map((file, index) => ({ file, at: (index + 0.5) / folder.length })),
  );
  placed.sort((a, b) => a.at - b.at);
  return [...LONG.filter((file) => files.includes(file)), ...placed.map(({ file }) => file)];
}
