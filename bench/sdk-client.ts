/**
 * One run of one SDK for the benchmark sdk, in a process of its own: makes the calls in slices, with a turn of the event loop
 * after each as in a server, then flushes, and prints as JSON what it cost until the SDK said that all were delivered. The
 * packages of others are loaded from the folder that the argument names. Bytes are those of request bodies, counted in `fetch`,
 * which all three SDKs use.
 */

import { createRequire } from 'node:module';
import { join } from 'node:path';
import { Sluice } from '../sdk/src/server.ts';

export type SdkName = '@sluice/sdk' | '@segment/analytics-node' | 'posthog-node';

export interface SdkRun {
  readonly sdk: SdkName;
  /** The folder whose `node_modules` has the packages of others; null for ours. */
  readonly packages: string | null;
  readonly url: string;
  readonly key: string;
  readonly events: number;
  /** Calls before those that count, so that the code is compiled. */
  readonly warmupEvents: number;
  readonly batchEvents: number;
}

export interface SdkResult {
  readonly seconds: number;
  readonly cpuSeconds: number;
  /** Resident: before the first call, and at most. */
  readonly restMegabytes: number;
  readonly peakMegabytes: number;
  readonly bytes: number;
  readonly requests: number;
}

interface Client {
  track(userId: string, event: string, properties: object): void;
  /** Resolves when everything is delivered or given up. */
  flush(): Promise<unknown>;
  delivered(): number;
}

const SLICE_EVENTS = 1_000;
const PEOPLE = 10_000;
const CHANNELS = ['web', 'app', 'store'];
/** Longer than a run: a batch is sent because it is full, or because of flush(). */
const DELAY_MILLISECONDS = 600_000;
const FLUSH_MILLISECONDS = 120_000;

const run = JSON.parse(process.argv[2] ?? '') as SdkRun;
const traffic = countTraffic();
const client = clientOf(run);
await call(run.warmupEvents);
const restMegabytes = process.memoryUsage.rss() / 1e6;
const before = { ...traffic };
const cpuBefore = process.cpuUsage();
const from = performance.now();
await call(run.events);
const seconds = (performance.now() - from) / 1000;
const { user, system } = process.cpuUsage(cpuBefore);
const expected = run.warmupEvents + run.events;
if (client.delivered() !== expected) {
  throw new Error(`${run.sdk} delivered ${client.delivered()} of ${expected} events`);
}
const result: SdkResult = {
  seconds,
  cpuSeconds: (user + system) / 1e6,
  restMegabytes,
  peakMegabytes: (process.resourceUsage().maxRSS * 1024) / 1e6,
  bytes: traffic.bytes - before.bytes,
  requests: traffic.requests - before.requests,
};
console.log(JSON.stringify(result));
process.exit(0);

async function call(events: number): Promise<void> {
  for (let n = 0; n < events; n += 1) {
    client.track(`u_${n % PEOPLE}`, 'order_placed', {
      revenue: ((n * 7_919) % 10_000) / 100,
      currency: 'EUR',
      order_id: `order-${n}`,
      items: (n % 7) + 1,
      channel: CHANNELS[n % CHANNELS.length],
    });
    if ((n + 1) % SLICE_EVENTS === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  await client.flush();
}

function countTraffic(): { bytes: number; requests: number } {
  const counted = { bytes: 0, requests: 0 };
  const original = globalThis.fetch;
  globalThis.fetch = (input, init) => {
    counted.requests += 1;
    const body: unknown = init?.body;
    if (typeof body === 'string') counted.bytes += Buffer.byteLength(body);
    else if (body instanceof Blob) counted.bytes += body.size;
    else if (body instanceof Uint8Array) counted.bytes += body.byteLength;
    else throw new TypeError(`${run.sdk} sends a body that is not counted`);
    return original(input, init);
  };
  return counted;
}

function clientOf({ sdk, packages, url, key, events, batchEvents }: SdkRun): Client {
  if (sdk === '@sluice/sdk') return sluiceClient(url, key, events, batchEvents);
  const load = createRequire(join(packages ?? '', 'package.json'));
  return sdk === '@segment/analytics-node'
    ? segmentClient(load(sdk) as SegmentModule, url, key, batchEvents)
    : posthogClient(load(sdk) as PosthogModule, url, key, events, batchEvents);
}

function sluiceClient(url: string, key: string, events: number, batchEvents: number): Client {
  const sluice = new Sluice({
    url,
    key,
    batchUsersMax: batchEvents,
    batchDelayMs: DELAY_MILLISECONDS,
    queueUsersMax: 2 * events,
    queueBytesMax: 2_000 * events,
  });
  let delivered = 0;
  sluice.on('delivered', ({ event_ids: ids }) => {
    delivered += ids.length;
  });
  return {
    track: (userId, event, properties) => void sluice.user({ user_id: userId }).track(event, { ...properties }),
    flush: () => sluice.flush({ timeoutMs: FLUSH_MILLISECONDS }),
    delivered: () => delivered,
  };
}

/** What is used of `@segment/analytics-node`, which is no dependency and so has no types here. */
interface SegmentModule {
  readonly Analytics: new (
    settings: object,
  ) => {
    track(message: object, callback: (error: unknown) => void): void;
    flush(options: { timeout: number }): Promise<void>;
    on(name: 'error', listener: (error: unknown) => void): void;
  };
}

function segmentClient({ Analytics }: SegmentModule, url: string, key: string, batchEvents: number): Client {
  const analytics = new Analytics({
    writeKey: key,
    host: url,
    path: '/ingest/v1/batch',
    flushAt: batchEvents,
    flushInterval: DELAY_MILLISECONDS,
    httpRequestTimeout: FLUSH_MILLISECONDS,
  });
  analytics.on('error', (error) => console.error(error));
  let delivered = 0;
  const settled = (error: unknown): void => {
    if (error === undefined || error === null) delivered += 1;
  };
  return {
    track: (userId, event, properties) => analytics.track({ userId, event, properties }, settled),
    flush: () => analytics.flush({ timeout: FLUSH_MILLISECONDS }),
    delivered: () => delivered,
  };
}

/** What is used of `posthog-node`. */
interface PosthogModule {
  readonly PostHog: new (
    key: string,
    options: object,
  ) => {
    capture(message: object): void;
    flush(): Promise<void>;
    on(name: 'flush', listener: (messages: readonly unknown[]) => void): void;
  };
}

function posthogClient(
  { PostHog }: PosthogModule,
  url: string,
  key: string,
  events: number,
  batchEvents: number,
): Client {
  const posthog = new PostHog(key, {
    host: url,
    flushAt: batchEvents,
    maxBatchSize: batchEvents,
    maxQueueSize: 2 * events,
    flushInterval: DELAY_MILLISECONDS,
    requestTimeout: FLUSH_MILLISECONDS,
  });
  const counts = { called: 0, delivered: 0 };
  posthog.on('flush', (messages) => {
    counts.delivered += messages.length;
  });
  return {
    track: (distinctId, event, properties) => {
      counts.called += 1;
      posthog.capture({ distinctId, event, properties });
    },
    flush: async () => {
      // A call is prepared before it is queued, and flush() waits for the queue alone.
      const giveUpAt = performance.now() + FLUSH_MILLISECONDS;
      while (counts.delivered < counts.called && performance.now() < giveUpAt) {
        await posthog.flush();
        await new Promise((resolve) => setImmediate(resolve));
      }
    },
    delivered: () => counts.delivered,
  };
}
