/**
 * What `npm run servers` runs: PostgreSQL and three brokers of Kafka in the foreground, for people who want to try
 * Sluice with them. Prints the settings to paste. Ctrl-C ends them, and their data is gone.
 */

import { ensureTools } from '../tools.ts';
import { kafkaTools } from './kafka-jars.ts';
import { ownKafka } from './kafka.ts';
import { ownPostgres } from './postgres.ts';

if (process.argv.length > 2) {
  console.log('npm run servers: PostgreSQL and three brokers of Kafka, until Ctrl-C. It takes no arguments.');
  process.exit(process.argv[2] === '--help' ? 0 : 1);
}

const missing = await ensureTools(['initdb', ...kafkaTools()], (line) => console.log(line));
if (missing.length > 0) process.exit(1);

// Until all have started, an ending process takes what has started with it.
const stopped = new Promise<void>((resolve) => {
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => resolve());
});

console.log('Starting PostgreSQL and three brokers of Kafka…');
const starting = Promise.all([ownPostgres(), ownKafka(3)]);
const servers = await Promise.race([starting, stopped]);
if (servers === undefined) process.exit(1);
const [postgres, kafka] = servers;

console.log(`
export STORE_URL=${postgres.url}
export LOG_URL=kafka://${kafka.brokers}/sluice

Paste these lines where you start Sluice. Ctrl-C here ends the servers and removes their data.`);
// Waiting for a signal does not keep a process alive.
const alive = setInterval(() => {}, 60_000);
await stopped;
clearInterval(alive);
console.log('Ending them…');
await Promise.all([postgres.close(), kafka.close()]);
