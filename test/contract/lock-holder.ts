/**
 * A thread that holds the write lock of a new SQLite file for a moment, as another process does that starts first.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { DatabaseSync } from 'node:sqlite';
import { parentPort, workerData } from 'node:worker_threads';

const { file, holdMs } = workerData as { file: string; holdMs: number };
const database = new DatabaseSync(file);
database.exec('BEGIN IMMEDIATE');
parentPort?.postMessage('locked');
await sleep(holdMs);
database.exec('ROLLBACK');
database.close();
