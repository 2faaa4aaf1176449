/**
 * What a restore undoes, and so has to be done again: erasures and revocations since the backup began. Profiles are named by
 * their ids, which a restore keeps.
 */

export interface UndoneByRestore {
  /** That the files of the old data folder say they are of; none before the first start of a server. */
  readonly installations: readonly string[];
  readonly erased: readonly { readonly tenantId: string; readonly profileId: string; readonly at: number }[];
  readonly revokedKeys: readonly { readonly id: string; readonly name: string; readonly at: number }[];
}
