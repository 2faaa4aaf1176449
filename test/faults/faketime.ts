/**
 * A wall clock of a server's own, which a test sets while the server runs: libfaketime reads how far it is off from a
 * file, at every look at the clock. The time that passes is left as it is, as on a machine whose clock is set.
 */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { FAKETIME, findTool } from '../tools.ts';
import { folderIn, type Scope } from './scope.ts';

/** Why no clock can be set here; false if one can. */
export function whyNoFakeTime(): string | false {
  return findTool(FAKETIME) === undefined ? 'needs libfaketime' : false;
}

export interface WallClock {
  /** For the server that is to see it. */
  readonly env: Readonly<Record<string, string>>;
  /** `+3650d` is ten years ahead, `-1d` a day behind, `+0` right. */
  set(offset: string): void;
}

export function wallClock(scope: Scope): WallClock {
  const file = join(folderIn(scope), 'offset');
  const set = (offset: string): void => writeFileSync(file, `${offset}\n`);
  set('+0');
  const env = {
    LD_PRELOAD: findTool(FAKETIME) ?? '',
    FAKETIME_TIMESTAMP_FILE: file,
    FAKETIME_NO_CACHE: '1',
    FAKETIME_DONT_FAKE_MONOTONIC: '1',
  };
  return { env, set };
}
