/**
 * What a test file imports, directly or not, as far as the paths are relative: from this a run knows which servers it
 * has to start, and that its quick files need none.
 */

import { existsSync, readFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';

/** `files` are absolute paths, and so is what is returned; the files themselves are among it. */
export function importedBy(files: readonly string[]): Set<string> {
  const seen = new Set<string>();
  const toRead = [...files];
  for (let file = toRead.pop(); file !== undefined; file = toRead.pop()) {
    if (seen.has(file) || !existsSync(file)) continue;
    seen.add(file);
    const text = readFileSync(file, 'utf8');
    for (const [, target = ''] of text.matchAll(/(?:\bfrom|\bimport\(|\bimport) ?'(\.[^']+\.ts)'/g)) {
      toRead.push(resolve(dirname(file), target));
    }
  }
  return seen;
}
