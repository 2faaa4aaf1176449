/**
 * Writes a small file whole or not at all, and so that it is there after a power loss: under a draft's name first, synced,
 * then renamed, and the folder synced too, since that is where the name is.
 */

import { closeSync, fsyncSync, openSync, renameSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';

/** `prepare` may change the draft (its owner) before it gets its name. */
export function writeDurably(file: string, text: string, prepare?: (draft: string) => void): void {
  const draft = `${file}.draft`;
  writeFileSync(draft, text, { mode: 0o600, flush: true });
  prepare?.(draft);
  renameSync(draft, file);
  syncPath(dirname(file));
}

/** A file, or a folder, whose entries are then found after a power loss. */
export function syncPath(path: string): void {
  const descriptor = openSync(path, 'r');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}
