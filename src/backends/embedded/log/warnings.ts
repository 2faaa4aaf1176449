/**
 * `log-warnings`, a small text file next to the folder of the log: warnings from server starts about the log and a store
 * that was rebuilt from it, one per line, each with its time. A start makes both consistent again, so nothing else shows
 * later that acknowledged requests may be lost, or that erased people may be back. `GET /health` and `sluice doctor` read the file until an operator removes it. It contains the
 * newest lines only. Operators remove the file instead of emptying it: an empty or damaged file is itself a warning.
 */

import { readFileSync, statSync } from 'node:fs';
import { inaccessibleText } from '../../../data-folder/access.ts';
import type { LogInspection } from '../../../log/continuity.ts';
import { isAccessDenied } from '../disk.ts';
import { writeDurably } from '../../../data-folder/write-durably.ts';

const LINE = /^(\d{4}-\d{2}-\d{2}T\S+Z) ([^\p{Cc}\ufffd]+)$/u;
const LINES_MAX = 20;

/** `at`: when a start last found it. */
type LogWarning = LogInspection['noted'][number];

/** Survives a power loss. A message that is in the file already is not repeated: it gets the newer time. */
export function noteLogWarning(folder: string, message: string, now: number = Date.now()): void {
  const kept = readLogWarnings(folder).filter((warning) => warning.message !== message);
  const lines = [...kept, { at: now, message }].slice(-LINES_MAX).map(lineOf);
  writeDurably(logWarningsFileOf(folder), lines.join(''));
}

/** Oldest first, and last the unreadable part of the file; empty without a file. */
export function readLogWarnings(folder: string): LogWarning[] {
  const file = logWarningsFileOf(folder);
  let text: string;
  let changedAt: number;
  try {
    text = readFileSync(file, 'utf8');
    changedAt = statSync(file).mtimeMs;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    if (!isAccessDenied(error)) throw error;
    return [{ at: Date.now(), message: inaccessibleText(file, error as Error) }];
  }
  const lines = text.split('\n').filter((line) => line !== '');
  const warnings = lines.map(warningIn).filter((warning) => warning !== undefined);
  const damaged = lines.length - warnings.length;
  if (lines.length > 0 && damaged === 0) return warnings;
  const reason = lines.length === 0 ? 'it is empty' : `damaged lines: ${damaged} of ${lines.length}`;
  return [...warnings, { at: Math.floor(changedAt), message: unreadableText(reason) }];
}

function warningIn(line: string): LogWarning | undefined {
  const [, time = '', message] = LINE.exec(line) ?? [];
  const at = Date.parse(time);
  return message === undefined || Number.isNaN(at) ? undefined : { at, message };
}

function unreadableText(reason: string): string {
  return (
    `log-warnings cannot be read: ${reason}, so warnings about acknowledged requests that may be lost are gone from it; ` +
    'put back a copy from a backup if you have one, and remove it once you have checked that nothing is missing'
  );
}

/** Not in the folder: it must survive when a log is removed. */
function logWarningsFileOf(folder: string): string {
  return `${folder}-warnings`;
}

function lineOf({ at, message }: LogWarning): string {
  return `${new Date(at).toISOString()} ${message}\n`;
}
