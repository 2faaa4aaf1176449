/** A member of a consumer group in its own process, so that it can be killed. Prints its partitions as lines of JSON. */

import { setTimeout as sleep } from 'node:timers/promises';
import { openKafkaGroupReader } from '../../../src/backends/kafka/log.ts';

const reader = await openKafkaGroupReader({ url: process.argv[2] ?? '', retentionMs: 3_600_000 });
for (;;) {
  console.log(JSON.stringify(await reader.partitions()));
  await sleep(50);
}
