/**
 * Reads one path of the API and keeps it fresh. What is shown stays while it is read again, and when only the query of
 * the path changes; another path or environment starts empty, so that one person is never shown as another. When it
 * cannot be read, what was read before stays beside the error if it is of the same query. Polls only while someone
 * can see it, and at once when they come back. A response that arrives too late is dropped.
 */

import { useCallback, useEffect, useRef, useState } from 'react';
import { type ApiError, asApiError, get } from './api.ts';
import { useEnvironment } from './router.tsx';

export interface Data<T> {
  readonly data: T | undefined;
  readonly error: ApiError | undefined;
  /** What was asked for is not here yet; `data` may be of the query before. */
  readonly isLoading: boolean;
  /** When `data` was read, by the clock of this page; with an error beside it, it is of then and not of now. */
  readonly readAt: number | undefined;
  readonly reload: () => void;
}

export interface DataOptions {
  readonly everyMs?: number;
  /** The query only moves on with the clock: the query of a minute ago counts as the same. */
  readonly isMoving?: boolean;
}

interface Kept<T> {
  /** Environment and whole path that this belongs to. */
  readonly key: string;
  readonly data: T | undefined;
  readonly readAt: number | undefined;
  readonly error: ApiError | undefined;
}

function withoutQuery(key: string): string {
  return key.split('?', 1)[0] ?? key;
}

export function useData<T>(path: string | null, options: DataOptions = {}): Data<T> {
  const environment = useEnvironment();
  const { everyMs, isMoving = false } = options;
  const key = path === null ? '' : `${environment} ${path}`;
  const [kept, setKept] = useState<Kept<T>>({ key: '', data: undefined, readAt: undefined, error: undefined });
  const readAgain = useRef<() => void>(() => {});

  useEffect(() => {
    if (path === null) return undefined;
    let asking: AbortController | undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;

    const read = async (): Promise<void> => {
      clearTimeout(timer);
      asking?.abort();
      const mine = new AbortController();
      asking = mine;
      try {
        const data = await get<T>(environment, path, mine.signal);
        if (mine.signal.aborted) return;
        setKept({ key, data, readAt: Date.now(), error: undefined });
      } catch (cause) {
        if (mine.signal.aborted) return;
        const error = asApiError(cause);
        setKept((before) => {
          const isSame = isMoving ? withoutQuery(before.key) === withoutQuery(key) : before.key === key;
          return isSame ? { ...before, key, error } : { key, data: undefined, readAt: undefined, error };
        });
      }
      asking = undefined;
      if (everyMs !== undefined && !document.hidden) timer = setTimeout(startReading, everyMs);
    };
    function startReading(): void {
      void read();
    }
    const onVisibility = (): void => {
      if (document.hidden) clearTimeout(timer);
      else if (everyMs !== undefined && asking === undefined) startReading();
    };

    readAgain.current = startReading;
    document.addEventListener('visibilitychange', onVisibility);
    startReading();
    return () => {
      document.removeEventListener('visibilitychange', onVisibility);
      clearTimeout(timer);
      asking?.abort();
      readAgain.current = () => {};
    };
  }, [environment, path, everyMs, isMoving, key]);

  const reload = useCallback(() => readAgain.current(), []);
  const isSame = kept.key === key;
  const isShown = path !== null && withoutQuery(kept.key) === withoutQuery(key);
  return {
    data: isShown ? kept.data : undefined,
    error: isSame || (isMoving && isShown) ? kept.error : undefined,
    isLoading: path !== null && !isSame,
    readAt: isShown ? kept.readAt : undefined,
    reload,
  };
}
