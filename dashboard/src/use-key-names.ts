/** Names of keys by id, for lists that know only the id. KeyList that are not known any more stay ids. */

import type { KeyList } from './api-types.ts';
import { useData } from './use-data.ts';

export function useKeyNames(): (keyId: string | null) => string {
  const { data } = useData<KeyList>('/keys');
  return (keyId) => {
    const key = data?.keys.find(({ id }) => id === keyId);
    return key === undefined ? (keyId ?? 'not known') : `${key.name} (…${key.last_four})`;
  };
}
