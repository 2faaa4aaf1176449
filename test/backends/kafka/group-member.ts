/** A member of a group in a process of its own, so that it can be killed: tells its partitions, a line of JSON each time. */

import { setTimeout as sleep } from 'node:timers/promises';
import { openKafkaGroupReader } from '../../../src/backends/kafka/log.ts';

const reader = await openKafkaGroupReader({ url: process.argv[2] ?? '', retentionMs: 3_600_000 });
for (;;) {
  console.log(JSON.stringify(await reader.partitions()));
  await sleep(50);
}
