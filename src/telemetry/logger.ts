/**
 * Logs for operators: JSON lines on stderr, few, without personal data and without keys. What people read (the words at
 * first start, the tables of the command) goes to stdout instead. Written synchronously, so that the last line before a
 * crash is there.
 */

import { destination, type Logger, pino, stdTimeFunctions } from 'pino';

export type { Logger } from 'pino';

export function createLogger(level: string, thread: string): Logger {
  return pino(
    {
      level,
      base: { thread },
      timestamp: stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
    },
    destination({ dest: 2, sync: true }),
  );
}
