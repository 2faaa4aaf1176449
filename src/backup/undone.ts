/**
 * What a restore undoes, and so has to be done again: unmerges, erasures, keys that ended and members who were removed
 * since the backup. People are named by ids that the restored copy has, and unmerges come first: an erase then removes
 * who was erased, and no one else.
 */

export interface UndoneByRestore {
  /** In the order in which they were done. */
  readonly unmerged: readonly UndoneUnmerge[];
  readonly erased: readonly UndoneErase[];
  readonly endedKeys: readonly EndedKey[];
  readonly removedMembers: readonly string[];
}

export interface UndoneUnmerge {
  readonly tenantId: string;
  readonly profileId: string;
  /** Trace id of the request that merged. */
  readonly mergedBy: string;
}

export interface UndoneErase {
  readonly tenantId: string;
  readonly profileId: string;
  readonly at: number;
}

export interface EndedKey {
  readonly id: string;
  readonly name: string;
  /** When it ended, or ends: a rolled key works until the end of its overlap. */
  readonly at: number;
  readonly isRolled: boolean;
}
