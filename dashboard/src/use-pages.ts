/**
 * A list that is read page by page: the first page as `useData` reads it, the others when asked for. Another path starts
 * over. An error of a later page leaves what is there, and the same page is asked for again.
 */

import { useRef, useState } from 'react';
import { ApiError, get } from './api.ts';
import { useEnvironment } from './router.tsx';
import { type DataOptions, useData } from './use-data.ts';

interface AnyPage {
  readonly next_cursor: string | null;
}

export interface Pages<P> {
  /** Empty while the first is not here. */
  readonly pages: readonly P[];
  /** Whether the first page is still to come. */
  readonly isLoading: boolean;
  readonly hasMore: boolean;
  readonly isBusy: boolean;
  readonly error: ApiError | undefined;
  readonly loadMore: () => void;
  /** Reads the first page again, and forgets the others. */
  readonly reload: () => void;
}

interface Later<P> {
  readonly key: string;
  readonly pages: readonly P[];
  readonly isBusy: boolean;
  readonly error: ApiError | undefined;
}

export function usePages<P extends AnyPage>(path: string, options: DataOptions = {}): Pages<P> {
  const environment = useEnvironment();
  const key = `${environment} ${path}`;
  const [kept, setKept] = useState<Later<P>>({ key, pages: [], isBusy: false, error: undefined });
  const later = kept.key === key ? kept : { key, pages: [], isBusy: false, error: undefined };
  // While later pages are read, the first must not move.
  const first = useData<P>(path, later.pages.length === 0 ? options : {});
  const data = first.isLoading ? undefined : first.data;
  const pages = data === undefined ? [] : [data, ...later.pages];
  const cursor = pages.at(-1)?.next_cursor ?? null;
  const asking = useRef('');

  const read = async (): Promise<void> => {
    const address = `${path}${path.includes('?') ? '&' : '?'}cursor=${encodeURIComponent(cursor ?? '')}`;
    // A second click, or a page of a list that is not shown any more, changes nothing.
    if (asking.current === `${environment} ${address}`) return;
    asking.current = `${environment} ${address}`;
    setKept({ ...later, isBusy: true, error: undefined });
    let next: Pick<Later<P>, 'pages' | 'error'>;
    try {
      next = { pages: [...later.pages, await get<P>(environment, address)], error: undefined };
    } catch (cause) {
      const error = cause instanceof ApiError ? cause : new ApiError('The next page could not be read.', 0, null);
      next = { pages: later.pages, error };
    }
    asking.current = '';
    setKept((before) => (before.key === key ? { key, isBusy: false, ...next } : before));
  };
  return {
    pages,
    isLoading: data === undefined && first.error === undefined,
    hasMore: cursor !== null,
    isBusy: later.isBusy,
    error: first.error ?? later.error,
    loadMore: () => void read(),
    reload: () => {
      setKept({ key, pages: [], isBusy: false, error: undefined });
      first.reload();
    },
  };
}
