/** What was unpacked, as the objects that it stands for: the match keys of a user are unpacked when they are asked for. */

import type { PreparedRecord } from '../../src/processor/prepare.ts';

export function plain(records: readonly PreparedRecord[]): PreparedRecord[] {
  return records.map(({ header, users, rejections }) => ({
    header,
    users: users.map(({ origin, keyKind, keys, junk, events, statement }) => {
      return { origin, keyKind, keys, junk, events, statement };
    }),
    rejections,
  }));
}
