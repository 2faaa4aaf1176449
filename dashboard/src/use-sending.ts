/**
 * Something that a person started and waits for: whether it is under way, and what went wrong the last time.
 */

import { useState } from 'react';
import { ApiError } from './api.ts';

export interface Sending {
  readonly run: (act: () => Promise<void>) => Promise<void>;
  readonly isBusy: boolean;
  readonly error: ApiError | undefined;
}

export function useSending(): Sending {
  const [isBusy, setIsBusy] = useState(false);
  const [error, setError] = useState<ApiError>();
  const run = async (act: () => Promise<void>): Promise<void> => {
    setIsBusy(true);
    setError(undefined);
    try {
      await act();
    } catch (cause) {
      if (!(cause instanceof ApiError)) throw cause;
      setError(cause);
    } finally {
      setIsBusy(false);
    }
  };
  return { run, isBusy, error };
}
