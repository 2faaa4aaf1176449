/** `@segment/analytics-node` as a client of `clients.ts`. */

import { once } from 'node:events';
import { setTimeout } from 'node:timers/promises';
import { Analytics } from '@segment/analytics-node';

const { SLUICE_URL, SLUICE_KEY, SLUICE_EVENT, SLUICE_COUNT } = process.env;
const analytics = new Analytics({
  writeKey: SLUICE_KEY,
  host: SLUICE_URL,
  path: '/ingest/v1/batch',
  flushAt: 20,
  flushInterval: 100,
  maxRetries: 20,
});
analytics.on('error', () => undefined);

console.log('ready');
await once(process.stdin, 'data');
process.stdin.destroy();
const sent = [];
for (let n = 0; n < Number(SLUICE_COUNT); n++) {
  analytics.track({ userId: `user-${n % 50}`, event: SLUICE_EVENT, properties: { n } }, (error) => {
    if (error === undefined || error === null) sent.push(n);
  });
  await setTimeout(2);
}
await analytics.closeAndFlush();
console.log(JSON.stringify(sent));
