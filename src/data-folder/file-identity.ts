/**
 * Whether a file that this process has open is still the one under its name. A removed or replaced file continues to
 * exist for processes that have it open: what they write to it is lost when they close it, without an error. A file
 * that is put back is the same again. Content that was overwritten in place is not noticed.
 */

import { type BigIntStats, statSync } from 'node:fs';

/** In messages about such a file, after its name. */
export const WAS_REPLACED = 'was removed or replaced';

/** What an operator does about a store that was. */
export const REPLACED_STORE_ADVICE =
  'If it was moved, move it back: the server continues. Otherwise restart the server: it continues with the file that exists then, and without one rebuilds the store from the log; erased people may be back then';

export class FileIdentity {
  readonly #file: string;
  readonly #identity: string;

  /** Remembers the file as it is now, which must be the one that is open. */
  constructor(file: string) {
    this.#file = file;
    this.#identity = identityOf(file);
  }

  /** True also while it cannot be found out. */
  isSame(): boolean {
    try {
      return identityOf(this.#file) === this.#identity;
    } catch {
      return true;
    }
  }
}

/** Empty where there is no file. Two files have the same only if one of them is gone and closed. */
export function identityOf(file: string): string {
  const stat = statSync(file, { throwIfNoEntry: false, bigint: true });
  return stat === undefined ? '' : identityIn(stat);
}

export function identityIn({ dev, ino }: BigIntStats): string {
  return `${dev}/${ino}`;
}
