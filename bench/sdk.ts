/**
 * The benchmark of SDKs on servers: `@sluice/sdk` of this checkout beside `@segment/analytics-node` and `posthog-node` as
 * npm has them. The same calls, the same batch size, each run in a process of its own (`sdk-client.ts`), in turns. Once against a
 * responder that costs next to nothing and understands all three, and once, without PostHog, whose form Sluice does not
 * accept, against Sluice, where every event must be stored afterwards.
 */

import { npmPackages, npmPackagesInCache } from '../test/sdks/registries.ts';
import { type Benchmark, type Context, SETTLE_SECONDS, START_SECONDS } from './context.ts';
import { Reader } from './reading.ts';
import { median, type Outcome, thousands } from './report.ts';
import type { SdkName, SdkResult, SdkRun } from './sdk-client.ts';
import type { Server, Stage } from './servers.ts';

const OURS: SdkName = '@sluice/sdk';
const OTHERS: readonly SdkName[] = ['@segment/analytics-node', 'posthog-node'];
const PACKAGES = ['@segment/analytics-node@3.1.0', 'posthog-node@5.67.0'];
const PACKAGES_NAME = 'bench-sdks';
const BATCH_EVENTS = 100;
/** About, for the progress bar; and when a run is ended. */
const EVENTS_PER_SECOND = 10_000;
const RUN_SECONDS_MAX = 300;

export const sdkBenchmark: Benchmark = {
  name: 'sdk',
  what: '@sluice/sdk beside @segment/analytics-node and posthog-node (gets both from npm)',
  onlyByName: true,
  notAgainst: 'it measures SDKs, and servers only by the way',
  seconds: ({ sdk }) => sdk.rounds * 5 * (START_SECONDS + sdk.events / EVENTS_PER_SECOND) + SETTLE_SECONDS,
  run: async (context) => {
    const packages = await packagesOf(context);
    return context.onStage(async (stage) => [
      ...(await againstResponder(context, stage, packages)),
      ...(await againstSluice(context, stage, packages)),
    ]);
  },
};

/** A short run downloads nothing; null if the packages are not there. */
async function packagesOf({ pace, progress }: Context): Promise<string | null> {
  if (!pace.sdk.isOffline) return npmPackages(PACKAGES_NAME, PACKAGES);
  const folder = npmPackagesInCache(PACKAGES_NAME, PACKAGES);
  if (folder === undefined) {
    progress.print(
      `sdk: ${OTHERS.join(' and ')} are NOT measured: a short run downloads nothing, and they are not in the cache. ` +
        'A run without --short gets them.',
    );
  }
  return folder ?? null;
}

async function againstResponder(context: Context, stage: Stage, packages: string | null): Promise<Outcome[]> {
  const responder = await stage.startBaseline('sdk-responder');
  const sdks = packages === null ? [OURS] : [OURS, ...OTHERS];
  const results = await inTurns(context, stage, { sdks, server: responder, packages });
  await responder.stop();
  return outcomes('sdk', results, context.pace.sdk.events);
}

async function againstSluice(context: Context, stage: Stage, packages: string | null): Promise<Outcome[]> {
  const folder = stage.freshFolder();
  const server = await stage.startSluice('ours', await stage.createKey(folder), { folder });
  const sdks: SdkName[] = packages === null ? [OURS] : [OURS, '@segment/analytics-node'];
  const results = await inTurns(context, stage, { sdks, server, packages });
  const { events, warmupEvents, rounds } = context.pace.sdk;
  const expected = sdks.length * rounds * (events + warmupEvents);
  const reader = new Reader(server);
  const { stored } = await reader.ledger();
  reader.close();
  await server.stop();
  if (stored !== expected) throw new Error(`${stored} events are stored; the SDKs delivered ${expected}`);
  return outcomes('sdk, to Sluice', results, events);
}

type Results = ReadonlyMap<SdkName, readonly SdkResult[]>;

interface Sides {
  readonly sdks: readonly SdkName[];
  readonly server: Server;
  readonly packages: string | null;
}

async function inTurns(context: Context, stage: Stage, { sdks, server, packages }: Sides): Promise<Results> {
  const { events, warmupEvents, rounds } = context.pace.sdk;
  const results = new Map<SdkName, SdkResult[]>(sdks.map((sdk) => [sdk, []]));
  for (let round = 1; round <= rounds; round += 1) {
    // Every second round the other way round.
    for (const sdk of round % 2 === 1 ? sdks : sdks.toReversed()) {
      context.progress.begin(`sdk: ${sdk}, ${server.name}, round ${round}`, events / EVENTS_PER_SECOND);
      const run: SdkRun = {
        sdk,
        packages,
        url: `http://127.0.0.1:${server.port}`,
        key: server.key,
        events,
        warmupEvents,
        batchEvents: BATCH_EVENTS,
      };
      results.get(sdk)?.push(await stage.runProgram<SdkResult>('sdk-client', run, RUN_SECONDS_MAX));
      await context.settle(server);
    }
  }
  return results;
}

interface Measure {
  readonly name: string;
  readonly unit: string;
  readonly better: 'higher' | 'lower';
  of(result: SdkResult, events: number): number;
}

const MEASURES: readonly Measure[] = [
  { name: 'rate', unit: 'events/s', better: 'higher', of: ({ seconds }, events) => events / seconds },
  {
    name: 'cpu',
    unit: 's per million events',
    better: 'lower',
    of: ({ cpuSeconds }, events) => (cpuSeconds / events) * 1e6,
  },
  { name: 'memory', unit: 'MB at most', better: 'lower', of: ({ peakMegabytes }) => peakMegabytes },
  { name: 'bytes', unit: 'bytes an event', better: 'lower', of: ({ bytes }, events) => bytes / events },
];

/** A row for each measure, with all SDKs side by side; the ratio is to the best of the others. */
function outcomes(name: string, results: Results, events: number): Outcome[] {
  const others = [...results.keys()].filter((sdk) => sdk !== OURS);
  const requests = [...results].map(([sdk, [first]]) => `${sdk} ${thousands(first?.requests ?? 0)}`).join(', ');
  return MEASURES.map((measure) => {
    const value = (sdk: SdkName): number =>
      median((results.get(sdk) ?? []).map((result) => measure.of(result, events)));
    const ours = value(OURS);
    const values = others.map(value);
    const best = measure.better === 'higher' ? Math.max(...values) : Math.min(...values);
    return {
      name: `${name}, ${measure.name}`,
      ours: `${figure(ours)} ${measure.unit}`,
      baseline: others.map((sdk) => `${sdk}: ${figure(value(sdk))}`).join(', ') || 'not measured: not in the cache',
      ratio: others.length === 0 ? undefined : ours / best,
      notes:
        measure.name === 'rate'
          ? [`${thousands(events)} events in batches of ${BATCH_EVENTS}; requests: ${requests}`]
          : [],
      data: { [measure.name]: Object.fromEntries(results) },
    };
  });
}

function figure(value: number): string {
  return value < 100 ? value.toFixed(1) : thousands(value);
}
