/**
 * Catches what a view throws while it is drawn, so that the rest of the page keeps working. A view that could not be
 * loaded is distinguished from a bug: if the server does not respond, the page is reloaded as soon as it does; if it
 * responds, it was probably updated since the page was loaded, which a reload fixes. That reload is left to the reader,
 * so that a page can never reload itself over and over.
 */

import { Component, type ReactNode, useEffect, useState } from 'react';
import { ApiError, get } from './api.ts';
import { Button } from './ui/button.tsx';
import { Notice } from './ui/notice.tsx';

const CHECK_INTERVAL_MS = 2_000;
const BAD_GATEWAY_STATUS = 502;

/** The code of a view could not be loaded. */
export class ViewNotLoadedError extends Error {
  override readonly name = 'ViewNotLoadedError';
}

interface Props {
  readonly children: ReactNode;
  /** The whole page, with no shell around it. */
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
  const [isUnreachable, setIsUnreachable] = useState<boolean>();
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isCurrent = true;
    let wasUnreachable = false;
    const check = async (): Promise<void> => {
      const isUnreachableNow = !(await isServerResponding());
      if (!isCurrent) return;
      if (wasUnreachable && !isUnreachableNow) location.reload();
      wasUnreachable = isUnreachableNow;
      setIsUnreachable(isUnreachableNow);
      if (isUnreachableNow) timer = setTimeout(() => void check(), CHECK_INTERVAL_MS);
    };
    void check();
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, []);

  if (isUnreachable === undefined) return null;
  return isUnreachable ? (
    <Notice tone="bad" title="The server does not respond">
      <p>This view could not be loaded. The page tries again every few seconds and reloads when the server responds.</p>
      <ReloadButton />
    </Notice>
  ) : (
    <Notice tone="bad" title="This view could not be loaded">
      <p>The server was briefly unreachable, or was updated since the page was loaded. Reload the page to fix this.</p>
      <p className="mono">{error.message}</p>
      <ReloadButton />
    </Notice>
  );
}

/** Any response counts, except those of a proxy that cannot reach the server (502 and above). */
async function isServerResponding(): Promise<boolean> {
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
      <p>This is a bug in Sluice. Reloading the page may help. Please report it with this message:</p>
      <p className="mono">{error.message}</p>
      <ReloadButton />
    </Notice>
  );
}

function ReloadButton(): ReactNode {
  return (
    <p>
      <Button onClick={() => location.reload()}>Reload the page</Button>
    </p>
  );
}
