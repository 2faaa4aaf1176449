/**
 * Logs for operators: JSON lines on stderr, few, without personal data and without keys. What people read (the text at
 * the first start, the output of commands) goes to stdout instead. Written synchronously, so that the last line before
 * a crash is not lost.
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
