/**
 * Catches what a view throws while it is drawn, so that the rest of the page goes on. A view that could not be loaded
 * is distinguished from a bug: when the server is away it is loaded as soon as the server responds again, and when
 * the server responds it was updated meanwhile, which reloading the page fixes. That is left to the reader, so that
 * a page can never load itself over and over.
 */

import { Component, type ReactNode, useEffect, useState } from 'react';
import { ApiError, get } from './api.ts';
import { Button } from './ui/button.tsx';
import { Notice } from './ui/notice.tsx';

const ASK_EVERY_MS = 2_000;
const BAD_GATEWAY_STATUS = 502;

/** The code of a view did not come. */
export class ViewNotLoadedError extends Error {
  override readonly name = 'ViewNotLoadedError';
}

interface Props {
  readonly children: ReactNode;
  /** It stands alone, with no shell around it. */
  readonly isWhole?: boolean;
}

interface State {
  readonly error: Error | null;
}

export class ErrorBoundary extends Component<Props, State> {
  override state: State = { error: null };

  static getDerivedStateFromError(thrown: unknown): State {
    return { error: thrown instanceof Error ? thrown : new Error(String(thrown)) };
  }

  override render(): ReactNode {
    const { error } = this.state;
    if (error === null) return this.props.children;
    const words = error instanceof ViewNotLoadedError ? <NotLoaded error={error} /> : <Mistake error={error} />;
    return this.props.isWhole === true ? <main className="gate">{words}</main> : words;
  }
}

function NotLoaded({ error }: { error: Error }): ReactNode {
  const [isAway, setIsAway] = useState<boolean>();
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isCurrent = true;
    let wasAway = false;
    const ask = async (): Promise<void> => {
      const isAwayNow = !(await answers());
      if (!isCurrent) return;
      if (wasAway && !isAwayNow) location.reload();
      wasAway = isAwayNow;
      setIsAway(isAwayNow);
      if (isAwayNow) timer = setTimeout(() => void ask(), ASK_EVERY_MS);
    };
    void ask();
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, []);

  if (isAway === undefined) return null;
  return isAway ? (
    <Notice tone="bad" title="The server does not respond">
      <p>
        This view could not be loaded from it. It is tried again every few seconds, and shown as soon as it is there.
      </p>
      <ReloadButton />
    </Notice>
  ) : (
    <Notice tone="bad" title="This view could not be loaded">
      <p>
        The server was away for a moment, or was updated since the page was loaded. Loading the page again fixes both.
      </p>
      <p className="mono">{error.message}</p>
      <ReloadButton />
    </Notice>
  );
}

/** Whether anything but silence comes back; what stands before a server that is away says 502 or more. */
async function answers(): Promise<boolean> {
  try {
    await get(null, '/session');
    return true;
  } catch (cause) {
    return cause instanceof ApiError && cause.status !== 0 && cause.status < BAD_GATEWAY_STATUS;
  }
}

function Mistake({ error }: { error: Error }): ReactNode {
  return (
    <Notice tone="bad" title="This view cannot be shown">
      <p>This is a mistake of ours. Loading the page again may help; please report it with these words:</p>
      <p className="mono">{error.message}</p>
      <ReloadButton />
    </Notice>
  );
}

function ReloadButton(): ReactNode {
  return (
    <p>
      <Button onClick={() => location.reload()}>Load the page again</Button>
    </p>
  );
}
