/** `@rudderstack/rudder-sdk-node` as a client of `clients.ts`. */

import { once } from 'node:events';
import { setTimeout } from 'node:timers/promises';
import RudderAnalytics from '@rudderstack/rudder-sdk-node';

const { SLUICE_URL, SLUICE_KEY, SLUICE_EVENT, SLUICE_COUNT } = process.env;
const analytics = new RudderAnalytics(SLUICE_KEY, {
  dataPlaneUrl: `${SLUICE_URL}/ingest`,
  flushAt: 20,
  flushInterval: 100,
  retryCount: 20,
  axiosRetryConfig: { retryDelay: () => 500 },
  errorHandler: () => undefined,
  logLevel: 'none',
});

console.log('ready');
await once(process.stdin, 'data');
process.stdin.destroy();
const sent = [];
const settled = [];
for (let n = 0; n < Number(SLUICE_COUNT); n++) {
  const { promise, resolve } = Promise.withResolvers();
  settled.push(promise);
  analytics.track({ userId: `user-${n % 50}`, event: SLUICE_EVENT, properties: { n } }, (error) => {
    if (error === undefined) sent.push(n);
    resolve();
  });
  await setTimeout(2);
}
await Promise.all(settled);
console.log(JSON.stringify(sent));
