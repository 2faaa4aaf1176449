/** Text that compression hardly shortens, for tests that fill disks, files and write-ahead logs. */

import { randomBytes } from 'node:crypto';

/** Takes about so many bytes on disk, compressed or not, and a third more characters. */
export function incompressibleText(bytes: number): string {
  return randomBytes(bytes).toString('base64');
}
