/**
 * `log-warnings`, a small text file beside the folder of the log: what starts found of the log that cannot be known, each
 * line with the time. A start makes the log consistent again, so later nothing else shows that acknowledged requests may
 * be gone. `GET /health` and `sluice doctor` read the file, until an operator who has read it removes it. It holds the
 * newest lines only.
 */

import { readFileSync, renameSync, writeFileSync } from 'node:fs';

const LINE = /^(\d{4}-\d{2}-\d{2}T\S+Z) (.+)$/;
const LINES_MAX = 20;

export interface LogWarning {
  /** When a start found it last. */
  readonly at: number;
  readonly words: string;
}

/** Survives a power loss. Words that are in the file already are not repeated: they get the newer time. */
export function noteLogWarning(folder: string, words: string, now: number = Date.now()): void {
  const kept = readLogWarnings(folder).filter((warning) => warning.words !== words);
  const lines = [...kept, { at: now, words }].slice(-LINES_MAX).map(lineOf);
  const file = logWarningsFileOf(folder);
  writeFileSync(`${file}.draft`, lines.join(''), { mode: 0o600, flush: true });
  renameSync(`${file}.draft`, file);
}

/** Oldest first; none where there is no file. */
export function readLogWarnings(folder: string): LogWarning[] {
  let text: string;
  try {
    text = readFileSync(logWarningsFileOf(folder), 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
  return text.split('\n').flatMap((line) => {
    const [, time, words] = LINE.exec(line) ?? [];
    return time === undefined || words === undefined ? [] : [{ at: Date.parse(time), words }];
  });
}

/** Not in the folder: a log that is removed must not take it along. */
function logWarningsFileOf(folder: string): string {
  return `${folder}-warnings`;
}

function lineOf({ at, words }: LogWarning): string {
  return `${new Date(at).toISOString()} ${words}\n`;
}
