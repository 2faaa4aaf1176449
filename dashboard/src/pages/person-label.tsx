/**
 * A person, by the best name there is, once it is known, and by the end of the profile id until then. Names are kept
 * while the page is open (`person-names.ts`). Who has no name, or is not there any more, stays an id.
 */

import { type ReactNode, useCallback, useSyncExternalStore } from 'react';
import { ApiError, get } from '../api.ts';
import { nameOf } from '../person-name.ts';
import { useEnvironment } from '../router.tsx';
import type { Environment, Profile } from '../types.ts';
import { PersonNames } from './person-names.ts';

const ID_END_CHARACTERS = 6;

const names = new PersonNames(async (key) => {
  const [environment, profileId] = key.split(' ') as [Environment, string];
  try {
    return nameOf(await get<Profile>(environment, `/profiles/${profileId}`));
  } catch (cause) {
    if (cause instanceof ApiError && cause.status === 404) return null;
    throw cause;
  }
});

export function PersonLabel({ profileId }: { profileId: string }): ReactNode {
  const key = `${useEnvironment()} ${profileId}`;
  const listen = useCallback((listener: () => void) => names.listen(key, listener), [key]);
  const name = useSyncExternalStore(listen, () => names.get(key));
  if (typeof name === 'string') return name;
  return <span className="mono">…{profileId.slice(-ID_END_CHARACTERS)}</span>;
}
